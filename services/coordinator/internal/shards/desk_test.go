package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// group is a log in memory, in the place of three replicas.
type group struct {
	t       testing.TB
	mu      sync.Mutex
	state   *fleet.State
	index   uint64
	entries int
	broken  error
}

func (g *group) State() *fleet.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

func (g *group) Actor() string                 { return "coordinator/node-0" }
func (g *group) Confirm(context.Context) error { return nil }

func (g *group) Propose(_ context.Context, e *pb.Envelope, _ bool) (*replica.Committed, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.broken != nil {
		return nil, g.broken
	}
	g.index++
	g.entries++
	next, out, err := fleet.Apply(g.state, g.index, e)
	if err != nil {
		g.t.Fatal(err)
	}
	if err := next.Check(); err != nil {
		g.t.Errorf("COORD-3.2: %v", err)
	}
	g.state = next
	return &replica.Committed{State: next, Results: out.Results}, nil
}

// fixture is a leader and the shards that talk to it, in fake time.
type fixture struct {
	t         *testing.T
	group     *group
	desk      *Desk
	end       func()
	metrics   *metrics.Set
	inventory *coordinatortest.Inventory
	shards    []*coordinatortest.Shard
}

func newFixture(t *testing.T, shards ...string) *fixture {
	f := &fixture{t: t, group: &group{t: t, state: &fleet.State{}}, inventory: &coordinatortest.Inventory{}}
	var err error
	if f.metrics, err = metrics.New(telemetry.NewMetrics(prometheus.NewRegistry(), metrics.Prefix)); err != nil {
		t.Fatal(err)
	}
	f.admin(&pb.Operation{Kind: &pb.Operation_InitGroup{InitGroup: &pb.InitGroup{ClusterUuid: "group-1", FeatureLevel: 1}}})
	f.lead()
	for _, id := range shards {
		f.shards = append(f.shards, coordinatortest.NewShard(id, f.inventory))
	}
	return f
}

// lead begins a new reign: soft state is gone, the term is higher.
func (f *fixture) lead() {
	if f.end != nil {
		f.end()
	}
	f.admin(&pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{}}})
	ctx, cancel := context.WithCancel(context.Background())
	f.desk = New(ctx, Config{Group: f.group, Log: slog.New(slog.DiscardHandler), Metrics: f.metrics, SweepEvery: 15 * time.Second, LevelMax: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.desk.Run()
	}()
	f.end = func() {
		cancel()
		<-done
	}
}

// stop ends the reign of the moment.
func (f *fixture) stop() { f.end() }

func (f *fixture) admin(ops ...*pb.Operation) {
	f.t.Helper()
	got, err := f.group.Propose(context.Background(), replica.Envelope("bigfleet://admin", ops...), true)
	if err != nil {
		f.t.Fatal(err)
	}
	if r := got.Err(); r != nil {
		f.t.Fatal(r)
	}
}

func (f *fixture) send(ctx context.Context, r *v1.ShardReport) (*v1.ReportAck, error) {
	return f.desk.Report(ctx, proto.CloneOf(r))
}

// interval lets every shard report once and 10 s pass. At each step it checks that no machine has two owners.
func (f *fixture) interval() {
	f.t.Helper()
	for _, s := range f.shards {
		if err := s.Report(f.t.Context(), f.send); err != nil && !errors.Is(err, coordinatortest.ErrCrashed) {
			f.t.Fatalf("%s: %v", s.ID, err)
		}
		f.single()
	}
	time.Sleep(ReportInterval)
}

func (f *fixture) intervals(n int) {
	f.t.Helper()
	for range n {
		f.interval()
	}
}

func (f *fixture) single() {
	f.t.Helper()
	if shared := f.inventory.Shared(); len(shared) > 0 {
		f.t.Fatalf("COORD-21.37: machines with two owners: %v", shared)
	}
}

// within runs a test in fake time.
func within(t *testing.T, run func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) { run(t) })
}

func shortfall(fingerprint, cpu string, age int64) *v1.Shortfall {
	return &v1.Shortfall{Fingerprint: fingerprint, Deficit: &v1.Resources{Resources: map[string]string{"cpu": cpu}}, Priority: 100, AgeSeconds: age,
		MinUnit: &v1.Resources{Resources: map[string]string{"cpu": "1"}}, UnmetReason: v1.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY}
}

func assignOp(value, shard string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: fleet.ZoneKey, Value: value, ShardId: shard}}}
}

func moveOp(value, shard string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_MoveDomain{MoveDomain: &pb.MoveDomain{Key: fleet.ZoneKey, Value: value, To: shard}}}
}

func policyOp(change func(*v1.RebalancePolicy)) *pb.Operation {
	p := fleet.DefaultPolicy()
	change(p)
	return &pb.Operation{Kind: &pb.Operation_SetPolicy{SetPolicy: &pb.SetPolicy{Policy: p}}}
}

// COORD-7.2, 4.8, 1.6, COORD-21.32: 4,000 unknown shards in 10 s become at most 64 entries, and a report that brings
// nothing new writes nothing.
func TestRegistrationStorm(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		before := f.group.entries
		var group sync.WaitGroup
		for i := range 4000 {
			group.Go(func() {
				time.Sleep(rand.N(10 * time.Second))
				ack, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: fmt.Sprint("shard-", i), Cycle: 1, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
				if err != nil || !ack.GetAcknowledged() || ack.GetClusterUuid() != "group-1" {
					t.Errorf("%v %v", ack, err)
				}
			})
		}
		group.Wait()
		if n := f.group.State().ShardCount(); n != 4000 {
			t.Fatalf("%d shards are registered", n)
		}
		if n := f.group.entries - before; n > 64 {
			t.Fatalf("%d log entries", n)
		}
		before = f.group.entries
		for i := range 100 {
			if _, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: fmt.Sprint("shard-", i), Cycle: 2, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}}); err != nil {
				t.Fatal(err)
			}
		}
		if f.group.entries != before {
			t.Fatalf("COORD-1.6: reports without news wrote %d entries", f.group.entries-before)
		}
	})
}

// COORD-7.4, 7.6, 8.3, COORD-21.28, 21.33: reordered and repeated reports change no soft state; an empty list empties.
func TestReportsAreOrdered(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(epoch, cycle int64, shorts ...*v1.Shortfall) {
			t.Helper()
			if _, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", ShardEpoch: epoch, Cycle: cycle, Shortfalls: shorts, Summary: &v1.ShardSummary{TotalMachines: int32(cycle)}}); err != nil {
				t.Fatal(err)
			}
		}
		look := func(machines int32, shorts int) {
			t.Helper()
			got := f.desk.Look("a", true)
			if got.Summary.GetTotalMachines() != machines || len(got.Shortfalls) != shorts {
				t.Fatalf("%d machines, %d shortfalls; want %d, %d", got.Summary.GetTotalMachines(), len(got.Shortfalls), machines, shorts)
			}
		}
		report(5, 10, shortfall("x", "4", 1))
		report(5, 9)
		report(5, 10)
		look(10, 1)
		report(5, 11)
		look(11, 0)
		report(6, 1, shortfall("y", "4", 1))
		look(1, 1)
	})
}

// COORD-7.5, COORD-21.29: an epoch that went back is refused and counted; the healthy process goes on; an admin can accept
// the lower epoch.
func TestEpochRegression(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(epoch, cycle int64) error {
			_, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", ShardEpoch: epoch, Cycle: cycle})
			return err
		}
		if err := report(7, 1); err != nil {
			t.Fatal(err)
		}
		var refusal *fleet.Refusal
		if err := report(6, 50); !errors.As(err, &refusal) || refusal.Reason != "epoch-regressed" || !strings.Contains(refusal.Say, "6") || !strings.Contains(refusal.Say, "7") {
			t.Fatalf("got %v", err)
		}
		if err := report(7, 2); err != nil || testutil.ToFloat64(f.metrics.EpochRegressed) != 1 {
			t.Fatal(err)
		}
		f.admin(&pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{ShardId: "a", Epoch: proto.Int64(3), ResetEpoch: true}}})
		if err := report(3, 1); err != nil || f.desk.Look("a", false).Epoch != 3 {
			t.Fatalf("%v, epoch %d", err, f.desk.Look("a", false).Epoch)
		}
	})
}

// COORD-7.9, COORD-21.33: a removed shard is told so, until it is readmitted.
func TestDecommissioned(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a")
		defer f.stop()
		f.interval()
		f.admin(&pb.Operation{Kind: &pb.Operation_RemoveShard{RemoveShard: &pb.RemoveShard{ShardId: "a", Force: true}}})
		var gone *Decommissioned
		if err := f.shards[0].Report(t.Context(), f.send); !errors.As(err, &gone) || gone.Row.GetRemovedBy() != "bigfleet://admin" {
			t.Fatalf("got %v", err)
		}
		f.admin(&pb.Operation{Kind: &pb.Operation_ReadmitShard{ReadmitShard: &pb.ReadmitShard{ShardId: "a"}}})
		f.interval()
	})
}

// COORD-6.1.3, COORD-21.23: a shard that saw a higher term lifts the group above it; an implausible one is refused.
func TestObservedTerm(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		ack, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", ObservedTerm: 900})
		if err != nil || ack.GetCoordinatorTerm() <= 900 {
			t.Fatalf("%v %v", ack, err)
		}
		var refusal *fleet.Refusal
		_, err = f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", ObservedTerm: 900 + 2*termJumpMax})
		if !errors.As(err, &refusal) || refusal.Kind != fleet.Invalid || testutil.ToFloat64(f.metrics.TermJumps) != 1 {
			t.Fatalf("got %v", err)
		}
		_, err = f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", ClusterUuid: "somebody else"})
		if !errors.As(err, &refusal) || refusal.Reason != "other-group" {
			t.Fatalf("got %v", err)
		}
	})
}

// COORD-7.3: an address that changes too often is counted and not written.
func TestAddressFlaps(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		for i := range 10 {
			if _, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: int64(i), ShardAddress: fmt.Sprintf("host-%d:7780", i%2)}); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.ToFloat64(f.metrics.AddressFlaps); n < 3 {
			t.Fatalf("%v flaps counted", n)
		}
		time.Sleep(addressEvery)
		if _, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: 11, ShardAddress: "host-9:7780"}); err != nil || f.group.State().Shard("a").GetAddress() != "host-9:7780" {
			t.Fatalf("%v %v", err, f.group.State().Shard("a"))
		}
	})
}

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
		for _, p := range f.desk.Pending("") {
			t.Errorf("still pending: %v", p)
		}
		f.shards[1].Wipe()
		f.intervals(3)
		if f.shards[1].Executed["assign"] <= executed || !f.shards[1].Holds(fleet.ZoneKey+"=eu-1b") {
			t.Fatal("the owned set was not asserted again")
		}
	})
}

// COORD-8.1, 8.2, 3.6, COORD-21.13, 21.30: lost answers and lost acks lead to one effective execution; a new leader issues
// the same instruction under the same id.
func TestInstructionsAcrossFailures(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(1, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.admin(assignOp("eu-1a", "b"))
		ids := func() []string {
			var out []string
			for _, p := range f.desk.Pending("a") {
				out = append(out, p.GetInstruction().GetInstructionId())
			}
			return out
		}
		before := ids()
		f.lead()
		lost := func(ctx context.Context, r *v1.ShardReport) (*v1.ReportAck, error) {
			_, _ = f.send(ctx, r)
			return nil, errors.New("the answer was lost")
		}
		for range 3 {
			_ = f.shards[0].Report(t.Context(), lost)
		}
		if after := ids(); len(before) != 1 || !slices.Equal(before, after) {
			t.Fatalf("COORD-8.1: %v became %v", before, after)
		}
		executed := f.shards[0].Executed["view"]
		if err := f.shards[0].Report(t.Context(), f.send); err != nil { // executes
			t.Fatal(err)
		}
		for range 3 { // its acks reach the leader, but the shard never learns
			_ = f.shards[0].Report(t.Context(), lost)
		}
		f.shards[0].Restart()
		f.intervals(4)
		if n := f.shards[0].Executed["view"] - executed; n > 2 {
			t.Fatalf("%d effective executions", n)
		}
		if len(ids()) != 0 || f.inventory.OwnedBy("b") != 1 {
			t.Fatalf("pending %v, b owns %d", ids(), f.inventory.OwnedBy("b"))
		}
	})
}

// COORD-10.3, 10.4, COORD-21.43: the first live session binds; a second one is a conflict and moves nothing; when only the
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
		if bound() != "a" || f.desk.Conflicts()["red"] != "b" {
			t.Fatalf("bound to %q, conflicts %v", bound(), f.desk.Conflicts())
		}
		a.Clusters = []*v1.ClusterLink{{ClusterId: "red", BoundMachines: 5}}
		f.intervals(4)
		if bound() != "a" && len(f.desk.Conflicts()) > 0 {
			t.Fatal("too early")
		}
		f.intervals(6)
		if bound() != "b" || len(f.desk.Conflicts()) != 0 {
			t.Fatalf("bound to %q, conflicts %v", bound(), f.desk.Conflicts())
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

// COORD-12.11 to 12.15, 12.1: machines move to the shard that is short within three report intervals of the sweep.
func TestMachinesMove(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		f.intervals(6)
		if n := f.inventory.OwnedBy("needy"); n != 3 {
			t.Fatalf("needy owns %d machines, want 3", n)
		}
		if n := f.inventory.OwnedBy("donor"); n != 297 || f.inventory.Reserved() != 0 {
			t.Fatalf("donor owns %d machines, %d are reserved", n, f.inventory.Reserved())
		}
	})
}

// COORD-12.10, 12.20: slots move with their quota units when nothing is idle.
func TestSlotsMoveWithQuota(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "s", "c5", "eu-1a", coordinatortest.Speculative)
		f.intervals(3)
		f.admin(&pb.Operation{Kind: &pb.Operation_SetQuota{SetQuota: &pb.SetQuota{Quota: &v1.Quota{Provider: "sim:9000", Declared: 10, Slices: map[string]int32{"donor": 10}}}}})
		f.intervals(2)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "8", 61)}
		f.intervals(8)
		if n := f.inventory.OwnedBy("needy"); n != 2 {
			t.Fatalf("needy owns %d slots, want 2", n)
		}
		for _, s := range f.group.State().Quota("sim:9000", "").GetSlices() {
			if want := map[string]int32{"donor": 8, "needy": 2}[s.GetShardId()]; s.GetTarget() != want || s.GetGranted() != want {
				t.Errorf("slice %v, want %d", s, want)
			}
		}
	})
}

// COORD-12.13, COORD-21.52: tier 3 drains what is cheaper than the requester, and nothing else.
func TestDrainTier(t *testing.T) {
	for priority, want := range map[int32]int{50: 1, 100: 0} {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy")
			defer f.stop()
			f.admin(policyOp(func(p *v1.RebalancePolicy) { p.MaxTier = v1.MoveTier_MOVE_TIER_DRAIN }))
			f.inventory.Add(5, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(2)
			f.inventory.Occupy("m-", "red", "donor", priority)
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "4", 181)}
			f.intervals(8)
			if n := f.inventory.OwnedBy("needy"); n != want {
				t.Fatalf("priority %d: needy owns %d machines, want %d", priority, n, want)
			}
		})
	}
}

// COORD-12.2, COORD-21.50: off cancels what is only planned, dry run moves nothing and explains.
func TestKillSwitch(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.admin(policyOp(func(p *v1.RebalancePolicy) { p.Mode = v1.RebalanceMode_REBALANCE_MODE_DRY_RUN }))
		f.intervals(2)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		f.intervals(6)
		if f.group.State().OpenMoveCount() != 0 || len(f.desk.Proposed()) == 0 || !strings.Contains(f.desk.Proposed()[0].GetReason(), "needy is short") {
			t.Fatalf("dry run: %d moves, %d proposals", f.group.State().OpenMoveCount(), len(f.desk.Proposed()))
		}
		f.admin(policyOp(func(p *v1.RebalancePolicy) {}))
		for f.group.State().OpenMoveCount() == 0 {
			time.Sleep(time.Second) // planned, and nobody reports
		}
		f.admin(policyOp(func(p *v1.RebalancePolicy) { p.Mode = v1.RebalanceMode_REBALANCE_MODE_OFF }))
		time.Sleep(16 * time.Second)
		f.intervals(3)
		for m := range f.group.State().Moves() {
			if m.GetState() != v1.Move_STATE_ABORTED {
				t.Errorf("move %v", m)
			}
		}
		if f.inventory.OwnedBy("needy") != 0 || f.inventory.Reserved() != 0 {
			t.Fatal("something moved")
		}
	})
}

// COORD-12.18, COORD-21.49: demand that disappears at any state ends the move without a stranded machine.
func TestDemandDisappears(t *testing.T) {
	for after := range 8 {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy")
			defer f.stop()
			f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(3)
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
			f.intervals(after)
			f.shards[1].Shortfalls = nil
			f.intervals(20)
			f.settled(300)
		})
	}
}

// settled checks that no move is open and every machine has one owner and none is reserved.
func (f *fixture) settled(machines int) {
	f.t.Helper()
	owned := 0
	for id, owners := range f.inventory.Owners() {
		if len(owners) != 1 {
			f.t.Errorf("machine %s has owners %v", id, owners)
		}
		owned += len(owners)
	}
	if owned != machines || f.inventory.Reserved() != 0 || f.group.State().OpenMoveCount() != 0 {
		f.t.Errorf("%d of %d machines owned, %d reserved, moves %v", owned, machines, f.inventory.Reserved(), slices.Collect(f.group.State().OpenMoves()))
	}
}

// COORD-12.17, COORD-21.45: donor, recipient or leader die before and after every step, with and without their disks; no
// machine has two owners, and none stays reserved.
func TestMoveSurvivesEveryCrash(t *testing.T) {
	steps := []string{"before report", "after report", "before instruction", "after instruction"}
	for _, who := range []int{0, 1} {
		for _, step := range steps {
			for nth := range 9 {
				for _, wipe := range []bool{false, true} {
					within(t, func(t *testing.T) {
						f := newFixture(t, "donor", "needy")
						defer f.stop()
						f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
						f.intervals(3)
						f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
						victim, seen := f.shards[who], 0
						victim.Crash = func(at string) bool {
							if at != step {
								return false
							}
							seen++
							return seen == nth+1
						}
						for range 25 {
							for _, s := range f.shards {
								if err := s.Report(t.Context(), f.send); errors.Is(err, coordinatortest.ErrCrashed) {
									if wipe {
										s.Wipe()
									} else {
										s.Restart()
									}
									if nth%2 == 1 {
										f.lead()
									}
								} else if err != nil {
									t.Fatal(err)
								}
								f.single()
							}
							time.Sleep(ReportInterval)
						}
						f.shards[1].Shortfalls = nil
						f.intervals(15)
						f.settled(300)
						if t.Failed() {
							t.Fatalf("%s dies %s, time %d, wiped %v", victim.ID, step, nth, wipe)
						}
					})
				}
			}
		}
	}
}

// COORD-21.51: a manual domain move during a transfer of its machines: the exception wins and both finish.
func TestDomainMovesDuringATransfer(t *testing.T) {
	for after := range 6 {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy", "third")
			defer f.stop()
			f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(3)
			f.admin(assignOp("eu-1a", "donor"))
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
			f.intervals(after)
			f.admin(moveOp("eu-1a", "third"))
			f.intervals(12)
			f.shards[1].Shortfalls = nil
			f.intervals(10)
			f.settled(300)
			// The shortfall lasts on, so the new owner may give machines too.
			if n, needy := f.inventory.OwnedBy("third"), f.inventory.OwnedBy("needy"); n+needy != 300 || after > 3 && needy < 3 {
				t.Errorf("after %d intervals third owns %d, needy %d, donor %d", after, n, needy, f.inventory.OwnedBy("donor"))
			}
		})
	}
}

// COORD-12.9, COORD-21.47: two shards that are short in turn: no machine moves twice within an hour.
func TestNoPingPong(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(200, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.inventory.Add(200, "n", "c5", "eu-1b", coordinatortest.Idle)
		f.intervals(2)
		f.admin(assignOp("eu-1a", "a"), assignOp("eu-1b", "b"))
		f.intervals(2)
		moved := map[string][]time.Time{}
		counted := map[string]bool{}
		for round := range 60 {
			needy, other := f.shards[round%2], f.shards[(round+1)%2]
			other.Shortfalls = nil
			needy.Shortfalls = []*v1.Shortfall{shortfall("x", "8", 100)}
			f.intervals(12)
			for m := range f.group.State().Moves() {
				if m.GetState() == v1.Move_STATE_DONE && !counted[m.GetMoveId()] {
					counted[m.GetMoveId()] = true
					for _, id := range m.GetMachineIds() {
						moved[id] = append(moved[id], time.Unix(0, m.GetUpdatedAtUnixNanos()))
					}
				}
			}
		}
		if len(moved) == 0 {
			t.Fatal("nothing moved: the test tests nothing")
		}
		for id, times := range moved {
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]).Abs(); gap < time.Hour {
					t.Errorf("machine %s moved again after %s", id, gap)
				}
			}
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

// COORD-8.2, COORD-21.31: FAILED comes back with a backoff; what can be given up is listed as stuck and can be retried.
func TestFailedInstructions(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		cycle := int64(0)
		report := func(acks ...*v1.InstructAck) *v1.ReportAck {
			cycle++
			ack, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle, InstructionAcks: acks, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
			if err != nil {
				t.Fatal(err)
			}
			return ack
		}
		report()
		f.admin(assignOp("eu-1a", "a"))
		attempts, last := 0, time.Now()
		var gaps []time.Duration
		for range 2000 {
			for _, i := range report().GetInstructions() {
				attempts++
				if i.GetAttempt() != int32(attempts) || !strings.HasSuffix(i.GetInstructionId(), fmt.Sprint("/", attempts)) {
					t.Fatalf("attempt %d is %v", attempts, i)
				}
				gaps, last = append(gaps, time.Since(last)), time.Now()
				report(&v1.InstructAck{InstructionId: i.GetInstructionId(), Outcome: 77, Reason: "later"}) // unknown reads as FAILED
			}
			time.Sleep(time.Second)
		}
		if attempts != attemptsMax || gaps[len(gaps)-1] < 4*time.Minute || gaps[1] < retryMin {
			t.Fatalf("%d attempts, gaps %v", attempts, gaps)
		}
		pending := f.desk.Pending("a")
		if len(pending) != 1 || !pending[0].GetStuck() || pending[0].GetLastAck().GetReason() != "later" {
			t.Fatalf("got %v", pending)
		}
		if !f.desk.Retry("a", pending[0].GetInstruction().GetInstructionId(), false) || len(report().GetInstructions()) != 1 {
			t.Fatal("the retry is not sent")
		}
		report(&v1.InstructAck{InstructionId: "assign/nobody/1/1", Outcome: v1.InstructAck_OUTCOME_ACCEPTED})
		if testutil.ToFloat64(f.metrics.AcksWithoutWork) != 1 {
			t.Fatal("COORD-8.3: an ack of nothing is not counted")
		}
	})
}

// COORD-7.13: acks whose commit failed are not lost: the call fails, and the shard sends them again.
func TestAcksSurviveAFailedCommit(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		for f.inventory.Reserved() == 0 {
			f.interval()
		}
		f.group.mu.Lock()
		f.group.broken = replica.ErrOutcomeUnknown
		f.group.mu.Unlock()
		if err := f.shards[0].Report(t.Context(), f.send); err == nil {
			t.Fatal("an ack that was not committed was taken")
		}
		f.group.mu.Lock()
		f.group.broken = nil
		f.group.mu.Unlock()
		f.intervals(5)
		if n := f.inventory.OwnedBy("needy"); n != 3 {
			t.Fatalf("needy owns %d machines", n)
		}
	})
}
