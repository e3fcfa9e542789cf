package real

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// soil puts onto a host what a cluster leaves there: a runtime, files, a volume, a process of a Pod and firewall chains.
const soil = `set -e
containerd >/var/log/containerd.log 2>&1 &
mkdir -p /etc/kubernetes/pki /var/lib/kubelet/pods/x/volume /etc/cni/net.d /var/log/pods/p
echo key > /etc/kubernetes/pki/ca.crt
echo log > /var/log/pods/p/0.log
mount -t tmpfs tmpfs /var/lib/kubelet/pods/x/volume
echo data > /var/lib/kubelet/pods/x/volume/secret
if command -v iptables-save >/dev/null; then iptables -N KUBE-SERVICES; iptables -t nat -N CNI-abc; fi
mkdir -p $1/kubepods/pod1
sleep 1000 >/dev/null 2>&1 & echo $! > $1/kubepods/pod1/cgroup.procs
`

// PROV-32.6: the agent's look finds what a cluster leaves on a host, of each kind, and a reset leaves none of it; asked at the console, without
// any memory of the clean host.
func TestRealReset(t *testing.T) {
	if err := Missing(); err != nil {
		t.Skipf("no container can be run here: %v", err)
	}
	ctx := t.Context()
	dir, err := os.MkdirTemp("", "bigfleet-reset-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	agent := proc.BuildT(t, "services/providers/hosts/cmd/bigfleet-hostagent")
	if err := makeBridge(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(removeBridge)
	h, err := startHost(ctx, proc.BuildT(t, "e2e/cmd/nodehost"), dir, 9)
	if h != nil {
		t.Cleanup(func() {
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(h.dir, "agent.yaml")
	text := "provider: http://127.0.0.1:9\nservices: direct\ncni_plugin_dir: /usr/lib/cni\ncgroup_root: " + h.cgroupRoot() + "\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := h.Run(ctx, agent, "--config", config, "look"); err != nil {
		t.Fatalf("before anything: %v\n%s", err, out)
	}
	if out, err := h.Run(ctx, "sh", "-c", soil, "soil", h.cgroups()[0]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := h.Run(ctx, agent, "--config", config, "look")
	for _, want := range []string{"directory /etc/kubernetes/pki", "process containerd", "of a container", "mount /var/lib/kubelet/pods/x/volume", "directory /var/log/pods/p"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("the look does not find %q: %v\n%s", want, err, out)
		}
	}
	if out, err := h.Run(ctx, agent, "--config", config, "reset", "--grace", "1s"); err != nil {
		t.Fatalf("reset: %v\n%s", err, out)
	}
	if out, err := h.Run(ctx, agent, "--config", config, "look"); err != nil || !strings.Contains(out, "no cluster left anything") {
		t.Errorf("after the reset: %v\n%s", err, out)
	}
	if out, err := h.Run(ctx, "sh", "-c", "find /etc/kubernetes /var/lib/kubelet /var/lib/containerd /var/log/pods -mindepth 1; pgrep -x containerd; iptables-save 2>/dev/null | grep -E 'KUBE|CNI'; true"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("after the reset the host holds: %v\n%s", err, out)
	}
}
