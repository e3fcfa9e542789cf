package provider_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
)

// counted is the length of an answer and what was wrong with it.
type counted struct {
	bytes int64
	err   error
}

func (c *counted) list(f *fleet, filter *pb.ListFilter) {
	c.bytes, c.err = f.raw(filter, io.Discard)
}

func (c *counted) is(want *pb.MachineList) func() error {
	return func() error {
		if size := int64(proto.Size(want)); c.err == nil && c.bytes != size {
			return fmt.Errorf("an answer of %d bytes, want %d", c.bytes, size)
		}
		return c.err
	}
}

// PROV-25.3, 25.4, 25.5: the full list of 500,000 machines, 500 changes of it, and pages of 500, from the request to the
// last byte at the caller, against bare encoding of the same message.
func BenchmarkLists(b *testing.B) {
	const rows = 500
	machines := scaled(500_000)
	big, little := start(b, machines, 0), start(b, 5_000, 0)
	b.Run("full", func(b *testing.B) {
		all := big.list(b, &pb.ListFilter{})
		var got counted
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.3", Size: map[string]any{"machines": machines}, WorkloadSum: "list", Floor: probe.Marshal(all), Target: 1,
			Subject: func() { got.list(big, &pb.ListFilter{}) },
			Check:   got.is(all), Oracle: "the bytes of the whole list",
			Bounds: func(median float64) []measure.Bound {
				return []measure.Bound{measure.AtMost("full list", "ns", median, float64(time.Second)), measure.Shown("size", "B", float64(got.bytes))}
			},
		})
	})
	since := map[*fleet]*pb.ListFilter{}
	for _, f := range []*fleet{big, little} {
		since[f] = &pb.ListFilter{SinceRevision: f.list(b, &pb.ListFilter{}).GetRevision()}
		var t times
		together(callers, f.take(b, rows), &t, f.create)
		if err := t.failed(); err != nil {
			b.Fatal(err)
		}
		for len(f.list(b, &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_IDLE}}).GetMachines()) < rows {
			time.Sleep(50 * time.Millisecond)
		}
	}
	b.Run("delta", func(b *testing.B) {
		changed := big.list(b, since[big])
		var got, other counted
		var small times
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.4", Size: map[string]any{"machines": machines, "rows": rows}, WorkloadSum: "delta", Floor: probe.Marshal(changed),
			Prepare: func() { small.of(func() error { other.list(little, since[little]); return other.err }) },
			Subject: func() { got.list(big, since[big]) },
			Check:   got.is(changed), Oracle: "the bytes of the changes",
			Bounds: func(median float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("delta: 3 us a row + 0.2 ms, with the call", "ns", median, 3000*rows+200_000),
					measure.AtMost("over the same delta of 5,000 machines", "ratio", median/small.quantile(0.5), 1.5),
				}
			},
		})
	})
	b.Run("page", func(b *testing.B) {
		first := big.list(b, &pb.ListFilter{MaxResults: rows})
		cursor := first.GetRevision()
		var pages times
		var got counted
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.5", Size: map[string]any{"machines": machines, "rows": rows}, WorkloadSum: "page", Floor: measure.Repeat(20, probe.Marshal(first)),
			Subject: func() {
				for range 20 {
					pages.of(func() error {
						got.list(big, &pb.ListFilter{MaxResults: rows, SinceRevision: cursor})
						return got.err
					})
				}
			},
			Check: func() error { // the cursor moves between the timed parts, so that each part reads other pages
				page := big.list(b, &pb.ListFilter{MaxResults: rows, SinceRevision: cursor})
				if cursor = page.GetRevision(); len(page.GetMachines()) != rows {
					return fmt.Errorf("a page of %d rows", len(page.GetMachines()))
				}
				return pages.failed()
			},
			Oracle: "500 rows",
			Bounds: func(float64) []measure.Bound {
				return []measure.Bound{measure.AtMost("p99 of a page", "ns", pages.quantile(0.99), float64(5*time.Millisecond)), measure.Shown("p50 of a page", "ns", pages.quantile(0.5))}
			},
		})
	})
}

// PROV-25.6: Get with 500,000 machines while 500 mutations a second run, against a bare Connect handler in a process of
// its own that answers with the same machine, in the same minute and under the same load.
func BenchmarkGet(b *testing.B) {
	const calls = 500
	machines := scaled(500_000)
	f := start(b, machines, 0)
	b.Run("rounds", func(b *testing.B) {
		id := f.take(b, 1)[0]
		m, err := f.Get(b.Context(), connect.NewRequest(&pb.MachineRef{Id: id}))
		if err != nil {
			b.Fatal(err)
		}
		bare := startBare(b, m.Msg)
		stop, stopped := make(chan struct{}), make(chan struct{})
		var acks, ours, floor times
		go func() {
			defer close(stopped)
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for _, id := range f.take(b, min(len(f.slots)/2, 30_000)) {
				select {
				case <-stop:
					return
				case <-tick.C:
					acks.of(func() error { return f.create(id) })
				}
			}
		}()
		get := func(c bigfleetv1alpha1connect.CapacityProviderClient, t *times) func() {
			return func() {
				for range calls {
					t.of(func() error {
						got, err := c.Get(context.Background(), connect.NewRequest(&pb.MachineRef{Id: id}))
						if err == nil && got.Msg.GetId() != id {
							err = fmt.Errorf("asked for %s, got %s", id, got.Msg.GetId())
						}
						return err
					})
				}
			}
		}
		measure.Compare(b, measure.Pair{
			Bench: "PROV-25.6", Size: map[string]any{"machines": machines, "mutations_per_s": 500}, WorkloadSum: "get",
			Floor:   measure.Floor{Probe: "bare Connect handler", Parts: []measure.Part{{Run: get(bare, &floor)}}},
			Subject: get(f, &ours), Check: ours.failed, Oracle: "the machine that was asked for",
			Bounds: func(float64) []measure.Bound {
				return []measure.Bound{
					measure.AtMost("p99 of Get: 2 ms, or 1.5 times that of a bare handler", "ns", ours.quantile(0.99), max(float64(2*time.Millisecond), 1.5*floor.quantile(0.99))),
					measure.Shown("p99 of Get over that of the bare handler", "ratio", over(&ours, &floor, 2*time.Millisecond)),
					measure.Shown("p99 of the bare handler", "ns", floor.quantile(0.99)),
					measure.AtMost("p50 over the p50 of the bare handler", "ratio", ours.quantile(0.5)/floor.quantile(0.5), 1.5),
					measure.Shown("p50 of Get", "ns", ours.quantile(0.5)),
				}
			},
		})
		close(stop)
		<-stopped
		if err := acks.failed(); err != nil {
			b.Error(err)
		}
	})
}
