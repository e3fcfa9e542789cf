package shard_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// lines reads a file of JSON lines.
func jsonLines(t *testing.T, path string) (out []map[string]any) {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var m map[string]any
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v: %s", path, err, in.Text())
		}
		out = append(out, m)
	}
	return out
}

// SHARD-28.8: --audit-log is JSON lines; after a rename and the signal it continues in a new file, and no record is lost.
func TestAuditLogRotates(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	hangup := make(chan os.Signal, 1)
	p := NewProvider(slots(4)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.AuditLog, c.Reopen = path, hangup })
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 1))
	Eventually(t, "a machine is configured", func() bool {
		return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 && len(jsonLines(t, path)) > 4
	})
	old := path + ".1"
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	hangup <- syscall.SIGHUP
	Eventually(t, "the signal was taken", func() bool { return strings.Contains(s.Log.String(), "reopened") })
	o.Rollup(Need("8", 1))
	Eventually(t, "the new file has records", func() bool {
		return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 2 && len(jsonLines(t, path)) > 0
	})
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	next := 1.0
	for _, m := range append(jsonLines(t, old), jsonLines(t, path)...) {
		var n json.Number
		if err := json.Unmarshal([]byte(m["sequence"].(string)), &n); err != nil {
			t.Fatal(err)
		}
		if f, _ := n.Float64(); f != next {
			t.Fatalf("record %v comes after %v", f, next-1)
		}
		next++
	}
	if next < 10 {
		t.Errorf("only %v records in both files", next-1)
	}
}

// SHARD-30.5: --phase-attribution-log writes one line per twenty cycles, with what the flag promises.
func TestPhaseAttributionLog(t *testing.T) {
	p := NewProvider(slots(2)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.PhaseAttributionLog, c.CycleInterval = true, 20*time.Millisecond })
	gang := Need("2", 1)
	gang.Group, gang.Requirements = "g", []*pb.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME}}
	Connect(t, s.Addr, "red", AllFeatures...).Rollup(Need("50", 0), gang)
	Eventually(t, "a line says what there is", func() bool {
		return strings.Contains(s.Log.String(), "needs=2 plain=1 same=1 spread=0 unmet=1") && strings.Contains(s.Log.String(), "reclaims_matching_unmet=0")
	})
}
