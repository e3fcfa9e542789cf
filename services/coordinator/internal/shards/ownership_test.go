package shards

import (
	"slices"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-9.5, 9.6, COORD-21.38, 21.39, 21.40, 21.41: one shard owns what is not assigned; a domain waits for the old owner to let go, also
// for an action in flight and for one that is cut off; a failover in between changes nothing.
func TestDomainHandover(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b", "c", "d", "e")
		defer f.stop()
		f.inventory.Add(4, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(2)
		if n := f.inventory.OwnedBy("a"); n != 4 {
			t.Fatalf("the first shard owns %d of 4 unassigned machines", n)
		}
		f.admin(assignOp("eu-1a", "b"))
		f.intervals(3)
		if n := f.inventory.OwnedBy("b"); n != 4 {
			t.Fatalf("b owns %d machines", n)
		}
		f.shards[1].Busy["m-0"] = true // a Create is in flight there
		f.admin(moveOp("eu-1a", "c"))
		f.intervals(5)
		if n := f.inventory.OwnedBy("c"); n != 0 {
			t.Fatalf("COORD-21.39: c owns %d machines while b still acts on one", n)
		}
		f.lead() // and the next leader knows no ack
		delete(f.shards[1].Busy, "m-0")
		f.intervals(40) // the retry of a view backs off up to five minutes
		if n := f.inventory.OwnedBy("c"); n != 4 {
			t.Fatalf("c owns %d machines", n)
		}
		cut := f.shards[2]
		f.shards = slices.DeleteFunc(f.shards, func(s *coordinatortest.Shard) bool { return s == cut })
		f.admin(moveOp("eu-1a", "d"))
		f.intervals(20)
		if n := f.inventory.OwnedBy("d"); n != 0 || f.inventory.OwnedBy("c") != 4 {
			t.Fatalf("COORD-21.40: d owns %d machines while the old owner is cut off", n)
		}
		cut.Remove() // the shard is down
		f.admin(&pb.Operation{Kind: &pb.Operation_FinishDomainMove{FinishDomainMove: &pb.FinishDomainMove{Key: fleet.ZoneKey, Value: "eu-1a", Force: true}}})
		f.intervals(3)
		if n := f.inventory.OwnedBy("d"); n != 4 {
			t.Fatalf("d owns %d machines", n)
		}
	})
}

// COORD-9.10, COORD-21.41: a shard that lost its disk acquires nothing by itself; the next answer gives it its view back.
func TestWipedShard(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(4, "m", "c5", "eu-1b", coordinatortest.Idle)
		f.admin()
		f.intervals(2)
		f.admin(assignOp("eu-1b", "b"))
		f.intervals(3)
		f.shards[1].Wipe()
		if n := f.inventory.OwnedBy("b"); n != 0 {
			t.Fatalf("without its disk b owns %d machines", n)
		}
		f.intervals(2)
		if n := f.inventory.OwnedBy("b"); n != 4 {
			t.Fatalf("b owns %d machines", n)
		}
	})
}

// COORD-8.9, 7.10, COORD-21.36, WIRE-1.2: a shard without extensions registers, gets its domains one by one, after each
// registration and failover again, and takes part in no move.
func TestLegacyShard(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		for _, s := range f.shards {
			s.Legacy = true
		}
		f.intervals(2)
		f.admin(assignOp("eu-1a", "b"), assignOp("eu-1b", "b"))
		f.intervals(3)
		if got := f.shards[1].Domains(); len(got) != 2 {
			t.Fatalf("b was given %v", got)
		}
		f.admin(moveOp("eu-1a", "a"))
		f.intervals(4)
		if f.shards[1].Holds(fleet.ZoneKey+"=eu-1a") || !f.shards[0].Holds(fleet.ZoneKey+"=eu-1a") {
			t.Fatalf("a has %v, b has %v", f.shards[0].Domains(), f.shards[1].Domains())
		}
		executed := f.shards[1].Executed["assign"]
		f.lead()
		f.intervals(2)
		for _, p := range f.registry.Pending("") {
			t.Errorf("still pending: %v", p)
		}
		f.shards[1].Wipe()
		f.intervals(3)
		if f.shards[1].Executed["assign"] <= executed || !f.shards[1].Holds(fleet.ZoneKey+"=eu-1b") {
			t.Fatal("the owned set was not asserted again")
		}
	})
}

// COORD-10.1, 10.3, 10.4, COORD-21.43: the first live session binds; a second one is a conflict and moves nothing; when only the
// second is left, the binding follows after a minute.
func TestBindingsFollowSessions(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		a, b := f.shards[0], f.shards[1]
		red := []*v1.ClusterLink{{ClusterId: "red", LiveSession: true, BoundMachines: 5}}
		a.Clusters = red
		f.intervals(2)
		bound := func() string { return f.group.State().Cluster("red").GetShardId() }
		if bound() != "a" {
			t.Fatalf("red is bound to %q", bound())
		}
		b.Clusters = []*v1.ClusterLink{{ClusterId: "red", LiveSession: true}}
		f.intervals(10)
		if bound() != "a" || f.registry.Conflicts()["red"] != "b" {
			t.Fatalf("bound to %q, conflicts %v", bound(), f.registry.Conflicts())
		}
		a.Clusters = []*v1.ClusterLink{{ClusterId: "red", BoundMachines: 5}}
		f.intervals(4)
		if bound() != "a" && len(f.registry.Conflicts()) > 0 {
			t.Fatal("too early")
		}
		f.intervals(6)
		if bound() != "b" || len(f.registry.Conflicts()) != 0 {
			t.Fatalf("bound to %q, conflicts %v", bound(), f.registry.Conflicts())
		}
		audited := 0
		for r := range f.group.State().AuditNewestFirst(0) {
			if r.GetRecord().GetMethod() == "binding-conflict" {
				audited++
			}
		}
		if audited != 1 {
			t.Errorf("the conflict is audited %d times", audited)
		}
		f.intervals(5)
		if !slices.Contains(a.View().GetReleasedClusters(), "red") || !slices.Contains(b.View().GetOwnedClusters(), "red") {
			t.Fatalf("COORD-10.5: a's view %v, b's view %v", a.View(), b.View())
		}
	})
}

// COORD-15.15, 15.16, 12.5, COORD-21.26: after a restore nothing is taken away before the shards said what they hold, and
// what the archive does not know comes back.
func TestRestoredGroupAsksForHoldings(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(4, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.inventory.Add(4, "n", "c5", "eu-1b", coordinatortest.Idle)
		f.intervals(2)
		f.admin(assignOp("eu-1a", "a"))
		f.intervals(3)
		archive := f.group.State()
		f.admin(assignOp("eu-1b", "b"), moveOp("eu-1a", "b"))
		f.intervals(4)
		if n := f.inventory.OwnedBy("b"); n != 8 {
			t.Fatalf("b owns %d machines", n)
		}
		term := f.shards[0].Term()
		f.group.mu.Lock()
		f.group.state = fleet.RestoreFrom(archive, "group-2", "node-0", &pb.Peer{NodeId: "node-0"}, 1_000_000, 0, time.Now().UnixNano())
		f.group.index = archive.Index()
		f.group.mu.Unlock()
		f.lead()
		f.intervals(2)
		for _, s := range f.shards {
			if s.Term() <= term {
				t.Fatalf("COORD-15.12: %s does not listen to the restored group", s.ID)
			}
		}
		if !f.group.State().Merging() || f.inventory.OwnedBy("b") != 8 {
			t.Fatal("something was taken away too early")
		}
		f.intervals(6)
		if f.group.State().Merging() || f.inventory.OwnedBy("b") != 8 || f.group.State().Domain(fleet.ZoneKey, "eu-1a").GetOwner() != "b" {
			t.Fatalf("merging %v, b owns %d, eu-1a belongs to %v", f.group.State().Merging(), f.inventory.OwnedBy("b"), f.group.State().Domain(fleet.ZoneKey, "eu-1a"))
		}
	})
}

// COORD-15.14: what the archive does not know of registrations, addresses and bindings comes back with the next reports.
func TestRestoredGroupLearnsFromReports(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		if err := f.shards[0].Report(t.Context(), f.send); err != nil {
			t.Fatal(err)
		}
		archive := f.group.State()
		time.Sleep(2 * addressEvery)
		f.shards[0].Address = "elsewhere:7780"
		f.shards[1].Clusters = []*v1.ClusterLink{{ClusterId: "red", LiveSession: true}}
		f.intervals(3)
		f.group.mu.Lock()
		f.group.state = fleet.RestoreFrom(archive, "group-2", "node-0", &pb.Peer{NodeId: "node-0"}, 1_000_000, 0, time.Now().UnixNano())
		f.group.index = archive.Index()
		f.group.mu.Unlock()
		if f.group.State().Shard("b") != nil {
			t.Fatal("the archive knows b already")
		}
		f.lead()
		f.intervals(2)
		st := f.group.State()
		if !fleet.Live(st.Shard("b")) || st.Shard("a").GetAddress() != "elsewhere:7780" || st.Cluster("red").GetShardId() != "b" {
			t.Fatalf("b %v, a %v, red %v", st.Shard("b"), st.Shard("a"), st.Cluster("red"))
		}
	})
}

// COORD-12.22: a draining shard loses its domains one at a time, then what it owns by default, and can be removed.
func TestDrainingShard(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "old", "new")
		defer f.stop()
		f.inventory.Add(3, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.inventory.Add(3, "n", "c5", "eu-1b", coordinatortest.Idle)
		f.inventory.Add(3, "o", "c5", "eu-1c", coordinatortest.Idle)
		f.intervals(2)
		f.admin(assignOp("eu-1a", "old"), assignOp("eu-1b", "old"))
		f.admin(&pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{ShardId: "old", State: v1.ShardState_SHARD_STATE_DRAINING}}})
		f.intervals(15)
		if n := f.inventory.OwnedBy("new"); n != 9 || len(f.group.State().RemovalBlockers("old")) != 0 {
			t.Fatalf("new owns %d of 9 machines, blockers %v", n, f.group.State().RemovalBlockers("old"))
		}
	})
}
