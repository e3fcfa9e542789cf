package shards

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func (g *group) Actor() string { return "coordinator/node-0" }

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
	registry  *ShardRegistry
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

// lead begins a new leadership: soft state is gone, the term is higher.
func (f *fixture) lead() {
	if f.end != nil {
		f.end()
	}
	f.admin(&pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{}}})
	ctx, cancel := context.WithCancel(context.Background())
	f.registry = New(ctx, Config{Group: f.group, Log: slog.New(slog.DiscardHandler), Metrics: f.metrics, SweepEvery: 15 * time.Second, LevelMax: 1})
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.registry.Run()
	}()
	f.end = func() {
		cancel()
		<-done
	}
}

// stop ends the leadership of the moment.
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
	return f.registry.Report(ctx, proto.CloneOf(r))
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
