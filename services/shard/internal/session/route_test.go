package session

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

type quiet struct{}

func (quiet) IdentityRejected()       {}
func (quiet) FrameOversize()          {}
func (quiet) SlowClosed()             {}
func (quiet) StrayFrame(string)       {}
func (quiet) OutboxEnded(OutboxStats) {}

// shell is a handler in front of a real core, with one session of red and no stream under it.
type shell struct {
	h    *Handler
	l    *live
	core *core.Core

	mu      sync.Mutex
	rollups []core.RollupArrived
}

func newShell(t testing.TB, gate *ingest.Gate) *shell {
	t.Helper()
	x := &shell{core: core.New(nil)}
	at := core.At{Mono: 1, Wall: 1_800_000_000 * core.Second}
	x.core.Step(at, core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}}, Epoch: 1})
	run := loop.New(loop.Config{Core: x.core, Arm: func() (int64, bool) { return 0, false }, Apply: func(_ core.At, e core.Event, _ []core.Effect) {
		if r, is := e.(core.RollupArrived); is {
			x.mu.Lock()
			x.rollups = append(x.rollups, r)
			x.mu.Unlock()
		}
	}})
	x.h = NewHandler(Config{ShardID: "s", Gate: gate, Loop: run, Blobs: NewBlobs(), Log: slog.New(slog.DiscardHandler), Observe: quiet{}, SessionsMax: 10,
		FastFrames: 64, BlobBytesMax: 1 << 20, Refusing: func() string { return "" }})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = run.Run(ctx); close(ended) }()
	l, _, err := x.h.install(ctx, "red")
	if err != nil {
		t.Fatal(err)
	}
	x.l = l
	x.h.open(ctx, l, &pb.Hello{ClusterId: "red", ProtocolVersion: "v1alpha1"})
	t.Cleanup(func() {
		l.cancel(errEnded)
		cancel()
		<-ended
	})
	return x
}

// settle waits until the core has taken everything in.
func (x *shell) settle(ctx context.Context) {
	for busy := true; busy; time.Sleep(100 * time.Microsecond) {
		x.l.mu.Lock()
		busy = x.l.working
		x.l.mu.Unlock()
	}
	x.l.rollups.Visit(ctx, func() {})
	x.l.fast.Visit(ctx, func() {})
}

func rollupOf(rows int) *pb.OperatorMessage {
	m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
	for i := range rows {
		m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "1"}, RowId: fmt.Sprint("r", i),
			Priority: int32(i)})
	}
	return &pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: m}}
}

func newGate(t testing.TB) *ingest.Gate {
	t.Helper()
	g, err := ingest.New(ingest.Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// SHARD-8.2, 8.3, 8.6: of roll-ups that come while none can be worked on, the newest alone gets to the core, and each session has
// one task at a time.
func TestNewestRollupOfTheSlot(t *testing.T) {
	x := newShell(t, newGate(t))
	for range cap(x.h.workers) {
		x.h.workers <- struct{}{} // others are at work
	}
	for rows := 1; rows <= 5; rows++ {
		raw, err := proto.Marshal(rollupOf(rows))
		if err != nil {
			t.Fatal(err)
		}
		f := &Received{raw}
		rollup, is := f.rollup()
		if !is {
			t.Fatal("not taken for a roll-up")
		}
		x.h.rollup(t.Context(), x.l, rollup)
	}
	<-x.h.workers
	x.settle(t.Context())
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.rollups) != 1 || len(x.rollups[0].Rows) != 5 {
		t.Fatalf("%d roll-ups got to the core", len(x.rollups))
	}
}

// Scenario 72, SHARD-10.8: any bytes as any frame of a session, through the shell's own way into the core: no panic, and no
// invariant breaks.
func FuzzFrames(f *testing.F) {
	for _, m := range []*pb.OperatorMessage{rollupOf(2), {}, {Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "red"}}},
		{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: "r", UserData: []byte("x"), TtlSeconds: 1 << 62}}},
		{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "i", Failures: []*pb.NodeFailure{{Node: "n"}}}}},
		{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "m", NodeName: "n", Present: true, Ready: true, LastOfFullSet: true}}},
		{Payload: &pb.OperatorMessage_DrainReport{DrainReport: &pb.DrainReport{InstructionId: "i", PodsTotal: -1 << 31, PodsEvicted: 1 << 30, BlockingBudgets: []string{"a/b"}}}},
		{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{Rows: []*pb.UnplacedRow{{RowId: "r", Pods: 1 << 30}}}}}} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	gate := newGate(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		x, f := newShell(t, gate), &Received{raw}
		for range 2 { // what comes twice meets what the first one changed
			if rollup, is := f.rollup(); is {
				x.h.rollup(t.Context(), x.l, rollup)
			} else {
				_ = x.h.route(t.Context(), x.l, f)
			}
		}
		x.settle(t.Context())
		x.l.fast.Visit(t.Context(), func() {
			if why := x.core.Broken(); why != "" {
				t.Errorf("broken invariant: %s", why)
			}
		})
	})
}
