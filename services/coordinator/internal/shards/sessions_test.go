package shards

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func link(cluster string, live bool, machines int32) []*v1.ClusterLink {
	return []*v1.ClusterLink{{ClusterId: cluster, LiveSession: live, BoundMachines: machines}}
}

// silence takes a shard out of the fleet without its knowledge, and returns a function that brings it back.
func (f *fixture) silence(s *coordinatortest.Shard) (back func()) {
	f.shards = slices.DeleteFunc(slices.Clone(f.shards), func(o *coordinatortest.Shard) bool { return o == s })
	return func() { f.shards = append(f.shards, s) }
}

// COORD-10.3, 10.4: what a shard said last says nothing of sessions once it is silent. A cluster whose shard died and that
// has a session elsewhere is no conflict, and it is not rebound: only a list without it would say that it left. And a
// session of a shard that is silent itself takes no cluster away.
func TestSessionsOfSilentShards(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		a, b := f.shards[0], f.shards[1]
		bound := func() string { return f.group.State().Cluster("red").GetShardId() }
		a.Clusters = link("red", true, 5)
		f.intervals(2)
		back := f.silence(a)
		f.intervals(5)
		b.Clusters = link("red", true, 0)
		f.intervals(10)
		if len(f.registry.Conflicts()) != 0 || bound() != "a" {
			t.Fatalf("a is silent: conflicts %v, bound to %q", f.registry.Conflicts(), bound())
		}
		b.Clusters = link("red", true, 0)
		f.interval()
		f.silence(b)
		f.intervals(5)
		a.Clusters = link("red", false, 5)
		back()
		f.intervals(12)
		if bound() != "a" {
			t.Fatalf("bound to %q, which is silent", bound())
		}
	})
}

// COORD-10.6, 10.5: a cluster without a bound shard enters the view of the shard with its session only after the shard
// that still has machines of it let go.
func TestFirstBindingWaitsForHolders(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		a, b := f.shards[0], f.shards[1]
		f.inventory.Add(3, "m", "c5", "eu-1a", coordinatortest.Idle)
		a.Clusters = link("red", true, 3)
		f.intervals(3)
		f.inventory.Occupy("m-", "red", "", 1) // as machines of an older shard are, without its name
		a.Clusters = link("red", false, 3)
		f.intervals(2)
		f.admin(&pb.Operation{Kind: &pb.Operation_UnbindCluster{UnbindCluster: &pb.UnbindCluster{ClusterId: "red"}}})
		f.intervals(2)
		back := f.silence(a)
		b.Clusters = link("red", true, 0)
		f.intervals(2)
		if row := f.group.State().Cluster("red"); row.GetShardId() != "b" || slices.Contains(b.View().GetOwnedClusters(), "red") {
			t.Fatalf("%v, b's view %v", row, b.View().GetOwnedClusters())
		}
		back()
		f.intervals(8)
		if !slices.Contains(a.View().GetReleasedClusters(), "red") || !slices.Contains(b.View().GetOwnedClusters(), "red") {
			t.Fatalf("a let go of %v, b owns %v", a.View().GetReleasedClusters(), b.View().GetOwnedClusters())
		}
		if n := f.inventory.OwnedBy("b"); n != 3 {
			t.Fatalf("b owns %d machines of red", n)
		}
	})
}

// COORD-10.7: a cluster that no shard reports for 30 days is stale, also when the shard that it is bound to is gone. Its
// binding stays, and the first report of it ends that.
func TestStaleClusters(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		a, b := f.shards[0], f.shards[1]
		a.Clusters, b.Clusters = link("red", true, 1), link("blue", true, 1)
		f.intervals(4)
		f.silence(a) // red: its shard is silent
		b.Clusters = nil
		f.intervals(80) // blue: its shard reports without it
		for _, cluster := range []string{"red", "blue"} {
			row := f.group.State().Cluster(cluster)
			if Stale(row, time.Now()) || !Stale(row, time.Now().Add(staleCluster)) || row.GetShardId() == "" {
				t.Fatalf("%v", row)
			}
		}
		b.Clusters = link("blue", false, 0)
		f.intervals(2)
		if row := f.group.State().Cluster("blue"); row.GetUnseenSinceUnixNanos() != 0 {
			t.Fatalf("%v", row)
		}
	})
}

// COORD-9.7: a machine that its holder gives back is its domain's again. A report of before that arrives late ends nothing,
// though the machine has moved again.
func TestReturnedExceptions(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(cycle int64, returned ...string) {
			t.Helper()
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle, ReturnedExceptions: returned, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}}); err != nil {
				t.Fatal(err)
			}
		}
		give := &pb.Operation{Kind: &pb.Operation_PutException{PutException: &pb.PutException{Exception: &pb.Exception{Provider: "sim:9000", MachineId: "m", Owner: "a"}}}}
		report(1)
		f.admin(give)
		report(2, "m", "never heard of")
		if n := f.group.State().ExceptionCount(); n != 0 {
			t.Fatalf("%d exceptions", n)
		}
		f.admin(give)
		report(2, "m")
		report(1, "m")
		if n := f.group.State().ExceptionCount(); n != 1 {
			t.Fatal("a late report ended the exception of a later move")
		}
	})
}

// COORD-12.19: what the provider refused is in the audit, at most as much as one report may say.
func TestViolationsAreAudited(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		machines := slices.Repeat([]string{"m-17"}, 2*violationsMax)
		for range 2 { // the second one is a repetition
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: 1, OwnershipViolations: machines}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for row := range f.group.State().AuditNewestFirst(0) {
			if r := row.GetRecord(); r.GetMethod() == "ownership-violation" && strings.Contains(r.GetReason(), "m-17") && strings.Contains(r.GetReason(), "shard a") {
				n++
			}
		}
		if n != violationsMax {
			t.Fatalf("%d records", n)
		}
	})
}

// COORD-16.10: a shard that reports violations without end does not push the calls of people out of the audit ring.
func TestReportsLeaveTheAuditToPeople(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		machines := slices.Repeat([]string{"m-17"}, violationsMax)
		for cycle := range int64(20) {
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle + 1, OwnershipViolations: machines}); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for range f.group.State().AuditNewestFirst(0) {
			n++
		}
		if n > auditsOfShard {
			t.Errorf("20 reports of one shard left %d audit records, at most %d", n, auditsOfShard)
		}
	})
}

// COORD-9.8: values without an owner go to the shard with the fewest machines, ten a minute.
func TestAutoAssign(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "big", "small")
		defer f.stop()
		for i := range 25 {
			f.inventory.Add(2, "m-"+string(rune('a'+i)), "c5", "zone-"+string(rune('a'+i)), coordinatortest.Idle)
		}
		f.intervals(3)
		f.admin(&pb.Operation{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: &v1.ProviderRegistration{Name: "sim:9000",
			Addresses: []string{"sim:9000"}, UnownedPolicy: v1.UnownedPolicy_UNOWNED_POLICY_AUTO_ASSIGN}}}})
		before := 0
		for range 12 {
			f.intervals(6)
			n := f.group.State().DomainCount()
			if n-before > autoAssignRate+1 { // a tick may fall on either side of the minute
				t.Fatalf("%d domains were assigned in a minute", n-before)
			}
			before = n
		}
		if before != 25 {
			t.Fatalf("%d of 25 domains are assigned", before)
		}
		first := f.group.State().Domain("topology.kubernetes.io/zone", "zone-a")
		if big, small := f.inventory.OwnedBy("big"), f.inventory.OwnedBy("small"); first.GetOwner() != "small" || big+small != 50 || small == 0 {
			t.Fatalf("big owns %d, small %d, the first domain went to %s", big, small, first.GetOwner())
		}
	})
}

// COORD-11.5: units that a slice loses belong to no shard until its shard acked the view that says so.
func TestLoweredSliceIsHeldBack(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		set := func(a, b int32) {
			f.admin(&pb.Operation{Kind: &pb.Operation_SetQuota{SetQuota: &pb.SetQuota{Quota: &v1.Quota{Provider: "sim:9000", Declared: 10, Slices: map[string]int32{"a": a, "b": b}}}}})
		}
		slice := func(s *coordinatortest.Shard) int32 {
			for _, q := range s.View().GetQuotaSlices() {
				return q.GetMachines()
			}
			return -1
		}
		f.intervals(2)
		set(6, 4)
		f.intervals(3)
		back := f.silence(f.shards[0])
		set(2, 8)
		f.intervals(5)
		if got := slice(f.shards[0]); got != 4 {
			t.Fatalf("b may use %d units before a was informed", got)
		}
		back()
		f.intervals(4)
		if a, b := slice(f.shards[1]), slice(f.shards[0]); a != 2 || b != 8 {
			t.Fatalf("slices of %d and %d", a, b)
		}
	})
}
