package real

import (
	"context"
	"os"
	"testing"
	"time"
)

func TestSpike(t *testing.T) {
	if err := Missing(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	f, err := Start(ctx, Config{Clusters: []string{"red"}, Hosts: 1, Dir: t.TempDir(), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		t.Log(f.Logs(40))
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err := f.Cluster("red").Hello(ctx, "web", 1); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		time.Sleep(2 * time.Second)
		answers, err := f.Answers(ctx, f.Cluster("red"), "web")
		t.Log(answers, err)
		if len(answers) == 1 {
			break
		}
	}
	out, err := f.Hosts[0].Run(ctx, "sh", "-c", "ps aux | tail -20; tail -30 /var/log/bigfleet-node/kubelet.log; ls -l /etc/kubernetes /var/lib/kubelet; mount | tail -30")
	t.Log(out, err)
}
