package actuator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
)

const benchSeed = 1

// scaled is n, or the part of it that BIGFLEET_BENCH_SCALE asks for.
func scaled(n int) int {
	if by, err := strconv.Atoi(os.Getenv("BIGFLEET_BENCH_SCALE")); err == nil && by > 1 {
		return max(1, n/by)
	}
	return n
}

// paged is a provider that is encoded pages: each List decodes one, as a client does.
type paged struct {
	mu      sync.Mutex
	encoded [][]byte
	deltas  [][]byte // answer to a cursor, one List each; empty: nothing changed
}

func (p *paged) list(_ context.Context, r *connect.Request[pb.ListFilter]) (*connect.Response[ingest.Answer], error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := uint64(0)
	if len(r.Msg.SinceRevision) == 8 {
		at = binary.BigEndian.Uint64(r.Msg.SinceRevision)
	}
	l, raw, n := ingest.Answer{}, []byte(nil), uint64(len(p.encoded))
	page := at < n
	switch {
	case page && r.Msg.MaxResults == 0: // who asks for no pages gets all of it
		raw, at = bytes.Join(p.encoded, nil), n
	case page:
		raw = p.encoded[at]
		at++
	case len(p.deltas) > 0:
		raw, p.deltas = p.deltas[0], p.deltas[1:]
		at++
	}
	if err := l.Unmarshal(raw); err != nil {
		return nil, err
	}
	l.More, l.Complete = page && at < n, page
	l.Revision = binary.BigEndian.AppendUint64(nil, at)
	return connect.NewResponse(&l), nil
}

// rig is a core behind its loop, with one paged provider: the path of every record, without a network.
type rig struct {
	core     *core.Core
	loop     *loop.Loop
	actuator *Actuator
	stop     func()

	mu     sync.Mutex
	steps  map[string][]time.Duration // by kind of event
	listed chan core.ListDone
}

func newRig(b testing.TB, list List, reconcile time.Duration, wireRows int) *rig {
	gate, err := ingest.New(ingest.Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{core: core.New(nil), steps: map[string][]time.Duration{}, listed: make(chan core.ListDone, 64)}
	clocked := &clocked{Core: r.core}
	r.loop = loop.New(loop.Config{Core: clocked, Arm: r.core.NextWake, Beside: r.core.Beside, Takes: r.core.Takes,
		Apply: func(_ core.At, _ core.Event, effects []core.Effect) {
			for _, e := range effects {
				r.actuator.Apply(e)
			}
		},
		Observe: func(e core.Event, _, _ time.Duration) {
			r.mu.Lock()
			k := core.KindOf(e).String()
			if clocked.cycled {
				k = "cycle"
			}
			r.steps[k] = append(r.steps[k], clocked.took)
			r.mu.Unlock()
			if d, ok := e.(core.ListDone); ok {
				select {
				case r.listed <- d:
				default:
				}
			}
		}})
	r.actuator = New(Config{ShardID: "shard-0", Epoch: 1, Providers: []Provider{{Name: "p", List: list}}, Gate: gate, Loop: r.loop,
		Blobs: noBlobs{}, Log: slog.New(slog.DiscardHandler), WireRows: wireRows})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	r.loop.First(core.Started{Config: core.Config{ShardID: "shard-0", Providers: []string{"p"}, ReconcileInterval: int64(reconcile),
		InflightPollInterval: int64(time.Hour)}, Epoch: 1})
	go func() { done <- r.loop.Run(ctx) }()
	r.stop = func() {
		over, end := context.WithTimeout(context.Background(), 10*time.Second)
		defer end()
		r.actuator.Stop(over)
		cancel()
		<-done
	}
	return r
}

// clocked measures steps in CPU time of their thread: other programs on the machine are none of a step's business.
type clocked struct {
	*core.Core
	took   time.Duration
	cycled bool // the step ran a cycle
}

func (c *clocked) Step(at core.At, e core.Event) []core.Effect {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, n := threadTime(), c.Cycle()
	out := c.Core.Step(at, e)
	c.took, c.cycled = threadTime()-before, c.Cycle() != n
	return out
}

func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

type noBlobs struct{}

func (noBlobs) Bytes(string) ([]byte, bool) { return nil, false }

// await waits for the end of one List; next also says how long the List took: the call, its decoding, the gate and the
// way to the core.
func (r *rig) await() error { _, err := r.next(); return err }

func (r *rig) next() (time.Duration, error) {
	select {
	case d := <-r.listed:
		if d.Failed {
			return 0, errors.New(d.Error)
		}
		return time.Duration(d.Duration), nil
	case <-time.After(2 * time.Minute):
		return 0, errors.New("no List ended in two minutes")
	}
}

// spent is the time in the steps of the given kinds.
func (r *rig) spent(kinds ...string) (sum time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range kinds {
		for _, d := range r.steps[k] {
			sum += d
		}
	}
	return sum
}

// longest is the longest step of the given kinds of events.
func (r *rig) longest(kinds ...string) (worst time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range kinds {
		for _, d := range r.steps[k] {
			worst = max(worst, d)
		}
	}
	return worst
}

// B10, ENG-23.10, SHARD-4.7, 13.4: a full List of W-pages(n) is decoded, gated and merged, and no step of it lasts longer
// than 10 ms; then deltas of 1,000 changed rows, whose cost does not depend on n. The floor is the bare decoding of the
// same machines. What the merges left is compared with the workload.
func BenchmarkB10(b *testing.B) {
	for _, n := range []int{scaled(125_000), scaled(500_000)} {
		var pair measure.Pair
		var m b10
		size := map[string]any{"machines": n, "list": "full"}
		b.Run(measure.Name("B10", size)[len("B10")+1:], func(b *testing.B) {
			if pair.Bench == "" {
				pair = m.pair(b, n)
				pair.Size = size
			}
			m.longest, m.cycle, m.perRow, m.bare = 0, 0, nil, nil
			measure.Compare(b, pair)
			b.ReportMetric(float64(m.longest)/1e6, "ms/longest-step")
			b.ReportMetric(float64(m.cycle)/1e6, "ms/longest-cycle")
			b.ReportMetric(measure.Median(m.perRow), "ns/row-of-a-delta")
			b.ReportMetric(measure.Median(m.bare), "ns/row-bare")
		})
	}
}

// b10 is what one size measured beside the time of a full List.
type b10 struct {
	rig      *rig
	provider *paged
	longest  time.Duration // of any step of a List that ran no cycle
	cycle    time.Duration // of any step that did
	perRow   []float64     // ns for a row of a delta: decode, gate, merge
	bare     []float64     // ns for the bare decoding of such a row
}

const deltaRows = 1_000

func (x *b10) pair(b *testing.B, n int) measure.Pair {
	gen := workload.Steady(workload.Size{Machines: n, Needs: n / 10, Clusters: n / 100}, benchSeed)
	pages, small := gen.PageBytes(20_000), gen.PageBytes(1_000)
	return measure.Pair{Bench: "B10", Seed: benchSeed, WorkloadSum: gen.Sum(), Oracle: "machines, a sample field by field, and every row of the deltas",
		Floor: probe.Unmarshal(small, func() proto.Message { return &pb.MachineList{} }),
		Subject: func() {
			x.provider = &paged{encoded: pages}
			x.rig = newRig(b, x.provider.list, 100*time.Millisecond, 0)
			if err := x.rig.await(); err != nil {
				b.Fatal(err)
			}
		},
		Check: func() error {
			defer x.rig.stop()
			if err := x.deltas(gen); err != nil {
				return err
			}
			x.longest = max(x.longest, x.rig.longest("list_page", "list_done"))
			x.cycle = max(x.cycle, x.rig.longest("cycle"))
			var same error
			x.rig.loop.Source("bench", 1, false).Visit(context.Background(), func() { same = sameFleet(x.rig.core, gen) })
			return same
		},
		Target: 1.5,
		Bounds: func(ns float64) []measure.Bound {
			out := []measure.Bound{measure.AtMost("longest step of a List, CPU", "ns", float64(x.longest), 10e6),
				measure.AtMost("longest step with a cycle, CPU", "ns", float64(x.cycle), 50e6),
				measure.AtMost("a row of a delta", "ns", measure.Median(x.perRow), 2_000),
				measure.Shown("bare decoding of a row of a delta", "ns", measure.Median(x.bare))}
			if n >= 500_000 {
				out = append(out, measure.AtMost("full list", "ns", ns, 2e9))
			}
			return out
		},
	}
}

// deltas lets some rows change and measures what the List that shows them costs.
func (x *b10) deltas(gen *workload.World) error {
	list := &pb.MachineList{}
	for i := range min(deltaRows, gen.Fleet.Len()) {
		list.Machines = append(list.Machines, gen.Machine(i*(gen.Fleet.Len()/deltaRows)))
	}
	for round := range 3 {
		for _, m := range list.Machines {
			m.PricePerHour = float64(1000 + round)
		}
		raw, err := proto.Marshal(list)
		if err != nil {
			return err
		}
		start := time.Now()
		if err := proto.Unmarshal(raw, &pb.MachineList{}); err != nil {
			return err
		}
		x.bare = append(x.bare, float64(time.Since(start))/float64(len(list.Machines)))
		x.provider.mu.Lock()
		x.provider.deltas = append(x.provider.deltas, raw)
		x.provider.mu.Unlock()
		for shown := false; !shown; {
			before := x.rig.spent("list_page", "list_done")
			took, err := x.rig.next()
			if err != nil {
				return err
			}
			var v core.MachineView
			x.rig.loop.Source("bench", 1, false).Visit(context.Background(), func() { v, _ = x.rig.core.Machine(list.Machines[0].Id) })
			if shown = v.Machine.Price == int64(1000+round)*1_000_000; shown {
				x.perRow = append(x.perRow, float64(took+x.rig.spent("list_page", "list_done")-before)/float64(len(list.Machines)))
			}
		}
		for _, m := range list.Machines {
			if v, _ := x.view(m.Id); v.Machine.Price != int64(1000+round)*1_000_000 {
				return fmt.Errorf("%s costs %d after the delta: %+v", m.Id, v.Machine.Price, v)
			}
		}
	}
	return nil
}

func (x *b10) view(id string) (v core.MachineView, known bool) {
	x.rig.loop.Source("bench", 1, false).Visit(context.Background(), func() { v, known = x.rig.core.Machine(id) })
	return v, known
}

// sameFleet compares what the core knows with the workload.
func sameFleet(c *core.Core, gen *workload.World) error {
	ids := c.Ids("", gen.Fleet.Len()+1)
	if len(ids) != gen.Fleet.Len() {
		return fmt.Errorf("%d machines of %d", len(ids), gen.Fleet.Len())
	}
	for i := 0; i < gen.Fleet.Len(); i += 997 {
		m := gen.Machine(i)
		v, known := c.Machine(m.Id)
		if !known || int32(v.Machine.State) != int32(m.State) || v.Machine.InstanceType != m.InstanceType || v.Machine.Zone != m.Zone ||
			len(v.Machine.Labels) != len(m.Labels) || v.Machine.Cluster != m.Cluster {
			return fmt.Errorf("%s is %+v, the workload has %v", m.Id, v.Machine, m)
		}
	}
	return nil
}
