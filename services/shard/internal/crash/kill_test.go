package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// repeats is how many times the same point of the log is tried: the first segment's head, its first blocks, later ones.
const repeats = 3

// Scenario 36, SHARD-20.1, 20.2, 28.3: kill -9 at every write of the epoch, of shard.db and of the decision log. Whatever
// the process had done by then, the next one has a higher epoch than any command ever carried, loses no machine, drains
// none, buys at most one twice, reads the log up to what is whole, and serves the demand.
func TestKilledAtEveryWrite(t *testing.T) {
	bin := program(t, true)
	points := life(t, bin, 0)
	seen := map[string]int{}
	tried := 0
	for i, name := range points {
		if seen[name]++; seen[name] > repeats {
			continue
		}
		tried++
		t.Run(fmt.Sprintf("%02d %s", i+1, name), func(t *testing.T) {
			t.Parallel()
			life(t, bin, i+1)
		})
	}
	for _, must := range []string{"epoch: create", "epoch: write: half", "epoch: renamed", "log: create", "log: write: half", "log: sync", "store: append: half", "store: synced", "store: renamed"} {
		if seen[must] == 0 {
			t.Errorf("no process ever came to the point %q; it came to %v", must, points)
		}
	}
	t.Logf("%d of %d points tried", tried, len(points))
}

// life runs a process that dies at a point, or lives (0), and then its successor. It returns the points that it passed.
func life(t *testing.T, bin string, at int) []string {
	dir, trace := dataDir(t), filepath.Join(t.TempDir(), "points")
	serves := Host("serves", pb.MachineState_MACHINE_STATE_CONFIGURED, "red")
	p := NewProvider(serves, Slot("m1", 1, "4", "16Gi"), Slot("m2", 1, "4", "16Gi"), Slot("m3", 1, "4", "16Gi")).Serve(t)
	first := run(t, bin, dir, p.Addr, func(c *exec.Cmd) {
		c.Env = append(os.Environ(), fmt.Sprintf("FAILPOINT_AT=%d", at), "FAILPOINT_LOG="+trace)
	})
	if addr, up := <-first.addr; up {
		o := Connect(t, addr, "red", AllFeatures...)
		o.Rollup(Need("8", 5))
		grown := time.NewTimer(20 * time.Second)
		for alive := true; alive && p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) < 2; {
			select {
			case <-first.done:
				alive = false
			case <-grown.C:
				t.Error("the need was not met")
				alive = false
			case <-time.After(5 * time.Millisecond):
			}
		}
		select { // the log is written once a second
		case <-first.done:
		case <-time.After(1500 * time.Millisecond):
			first.stop()
		}
	}
	code := first.ended(t)
	if at == 0 && code != 0 || at > 0 && code != -1 {
		t.Fatalf("the first process ended with code %d", code)
	}
	used := highestEpoch(p)
	second := run(t, bin, dir, p.Addr, nil)
	addr := second.serving(t)
	if got := second.epoch(); got <= used || got <= aheadEpoch || first.epoch() != 0 && got <= first.epoch() {
		t.Errorf("epoch %d follows %d, which was in use", got, max(used, first.epoch()))
	}
	o := Connect(t, addr, "red", AllFeatures...)
	o.Rollup(Need("8", 5))
	Eventually(t, "the need is met after the restart", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 2 })
	second.stop()
	if code := second.ended(t); code != 0 {
		t.Errorf("the second process ended with code %d", code)
	}
	if m := p.Machine("serves"); m.GetState() != pb.MachineState_MACHINE_STATE_CONFIGURED || m.GetCluster() != "red" {
		t.Errorf("the machine that served before is %v", m)
	}
	if got := p.Calls("Drain"); len(got) > 0 {
		t.Errorf("drained %v", got)
	}
	if got := p.Calls("Create"); len(got) > 2 {
		t.Errorf("created %v for one machine", got)
	}
	checkLog(t, dir, first.epoch(), at > 0)
	checkLog(t, dir, second.epoch(), false)
	return lines(trace)
}

// highestEpoch is the highest that any command carried.
func highestEpoch(p *Provider) (n int64) {
	for _, c := range p.Calls() {
		n = max(n, c.Epoch)
	}
	return n
}

// checkLog replays what is left of one process. Only one that was killed may leave a part, or nothing.
func checkLog(t *testing.T, dir string, epoch int64, killed bool) {
	t.Helper()
	if epoch == 0 {
		return
	}
	got, err := audit.Replay{Dir: filepath.Join(dir, "decisions"), Epoch: epoch}.Run(t.Context())
	switch {
	case errors.Is(err, audit.ErrDiverged):
		t.Errorf("the log of epoch %d replays differently: %v", epoch, err)
	case killed:
	case err != nil || got.Damage != nil || got.Steps == 0:
		t.Errorf("the log of epoch %d has %d steps, damage %v, %v", epoch, got.Steps, got.Damage, err)
	}
}

func lines(path string) []string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
