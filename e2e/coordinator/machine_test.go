package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// faulty is the product behind a disk that can be slow and a clock that can be wrong.
const faulty = "services/coordinator/coordinatortest/cmd/faulty"

// set makes a fault of one replica's machine.
func (g *group) set(i int, fault string, d time.Duration) {
	g.t.Helper()
	path := filepath.Join(g.fault[i], fault)
	if err := os.WriteFile(path+".new", []byte(d.String()), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		g.t.Fatal(err)
	}
}

// COORD-21.17: the disk of the leader, then of a follower, then of all needs a long time for each fsync. Writes continue, at
// the pace of the second fastest disk, and nothing that was acknowledged is lost, also when the slow leader is killed.
func TestSlowDisks(t *testing.T) {
	g := newGroupOf(t, faulty)
	l := g.load(4, 2)
	l.progress(0)
	stretch := func(what string, slow ...int) {
		for i := range g.procs {
			d := time.Duration(0)
			if slices.Contains(slow, i) {
				d = 150 * time.Millisecond
			}
			g.set(i, "sync", d)
		}
		from := time.Duration(l.now())
		time.Sleep(1500 * time.Millisecond)
		l.progress(time.Duration(l.now()))
		t.Logf("%s: no write accepted for %s at most", what, l.longestSilence(from).Round(time.Millisecond))
	}
	stretch("a slow follower", (g.leader()+1)%3)
	leads := g.leader()
	stretch("a slow leader", leads)
	g.procs[leads].Kill()
	l.progress(time.Duration(l.now()))
	g.start(leads)
	stretch("all slow", 0, 1, 2)
	stretch("none")
	g.healthy()
	l.check(t)
	g.agree()
}

// COORD-21.34: the clock of one replica after the other jumps an hour ahead and an hour back while it leads, under load.
// The history stays linearizable, nothing is lost, leadership stays where it is, and every replica holds the same bytes.
func TestClocksJump(t *testing.T) {
	g := newGroupOf(t, faulty)
	l := g.load(4, 2)
	l.progress(0)
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 0} {
		leads := g.leader()
		before, err := g.status(leads)
		if err != nil {
			t.Fatal(err)
		}
		g.set(leads, "clock", jump)
		from := time.Now().Add(jump)
		l.progress(time.Duration(l.now()))
		time.Sleep(500 * time.Millisecond)
		stub, leave := g.admin(leads)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		audit, err := stub.ListAudit(ctx, connect.NewRequest(&v1.ListAuditRequest{PageSize: 1}))
		if after, failed := g.status(leads); failed == nil && after.GetFencingTerm() == before.GetFencingTerm() {
			if err != nil || len(audit.Msg.GetRecords()) != 1 {
				t.Fatalf("%v, %v", audit, err)
			}
			if at := time.Unix(0, audit.Msg.GetRecords()[0].GetAtUnixNanos()); at.Sub(from).Abs() > time.Minute {
				t.Fatalf("the newest record is of %s: the clock did not jump to %s", at, from)
			}
			_, _ = stub.TransferLeadership(ctx, connect.NewRequest(&v1.TransferLeadershipRequest{})) // the next one's clock
		}
		cancel()
		leave()
		l.progress(time.Duration(l.now()))
	}
	g.healthy()
	l.check(t)
	g.agree()
}
