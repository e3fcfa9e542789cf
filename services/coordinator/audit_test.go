package coordinator_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
)

// heard is what a replica logs.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

// next is what it logged since next was called.
func (h *heard) next() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.text.Reset()
	return h.text.String()
}

// COORD-16.10: a coordinator that starts with a flipped, cut or empty file of --audit-log serves, says what of the file is damaged, and goes on behind it; no record
// that the ring holds is lost. A directory or another program's file is refused with what to do, and stays as it is.
func TestDamagedAuditFile(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	path, log := filepath.Join(t.TempDir(), "audit.jsonl"), &heard{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	r, c := single(t, func(c *coordinator.Config) { c.AuditLog, c.Telemetry.Log = path, logger })
	register(t, c, "shard-0")
	clusters := []string{"amber", "beige", "coral"}
	for _, cluster := range clusters {
		must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: cluster, ShardId: "shard-0"})
	}
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	eventually(t, "all records are in the file", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Count(string(text), "BindCluster") == len(clusters)
	})
	r.stop(0)
	intact := read()
	last := strings.LastIndex(strings.TrimSpace(intact), "\n") + 1

	damage := map[string]string{"empty": "", "cut": intact[:last+random.IntN(len(intact)-last-2)+1]}
	for _, name := range []string{"a flipped bit", "another flipped bit"} {
		text, bit := []byte(intact), random.IntN(8*len(intact))
		text[bit/8] ^= 1 << (bit % 8)
		damage[name] = string(text)
	}
	for name, text := range damage {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		log.next()
		r.start(0)
		r.group(c, 1)
		must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: strings.ReplaceAll(name, " ", "-"), ShardId: "shard-0"})
		eventually(t, name+": the next record is written", func() bool { return strings.Contains(read(), `\"`+strings.ReplaceAll(name, " ", "-")+`\"`) })
		r.stop(0)
		said := log.next()
		if flipped := strings.Contains(name, "bit"); flipped && (!strings.Contains(said, path) || !strings.Contains(said, "lines of the audit file are damaged")) {
			t.Errorf("%s is silent: %s", name, said)
		} else if !flipped {
			for _, cluster := range clusters {
				if !strings.Contains(read(), cluster) {
					t.Errorf("%s: the record of %s did not come again:\n%s", name, cluster, read())
				}
			}
		}
		if strings.Contains(said, "goroutine ") {
			t.Errorf("%s: a stack: %s", name, said)
		}
	}

	foreign := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(foreign, []byte("127.0.0.1 localhost\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Dir(foreign): "is a directory: name a file in it", foreign: "name another file, or move it away"} {
		config := r.config(0)
		config.AuditLog = path
		err := coordinator.Run(t.Context(), config)
		_ = config.Listener.Close()
		_ = config.RaftListener.Close()
		if err == nil || !strings.Contains(err.Error(), "--audit-log "+path+" ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "127.0.0.1 localhost\n" {
		t.Errorf("another program's file was changed: %q, %v", text, err)
	}
}
