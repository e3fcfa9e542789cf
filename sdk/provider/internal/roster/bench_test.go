package roster

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"google.golang.org/protobuf/proto"
)

// fleet seeds n machines of 40 shapes.
func fleet(b *testing.B, n int) *Roster {
	b.Helper()
	c := config(store.Memory(), &clock{at: time.Unix(1000, 0)})
	c.CommitBatchMax = 1024
	r, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	var shapes []*lifecycle.Shape
	for i := range 40 {
		s, err := lifecycle.NewShape(lifecycle.Attributes{
			InstanceType: fmt.Sprintf("type-%d.4xlarge", i), Zone: "region-1a", CapacityType: lifecycle.OnDemand, PricePerHour: 0.768,
			Resources:   map[string]string{"cpu": "16", "memory": "64Gi", "pods": "110"},
			Allocatable: map[string]string{"cpu": "15890m", "memory": "60Gi", "pods": "110"},
			Labels: map[string]string{
				"topology.kubernetes.io/region": "region-1", "topology.bigfleet/rack": fmt.Sprint("r", i), "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		shapes = append(shapes, s)
	}
	var batch []Change
	for i := range n {
		id := fmt.Sprintf("provider-type-%d-%09d", i%40, i)
		slot := r.Acquire(id)
		batch = append(batch, Change{Slot: slot, Record: lifecycle.NewSlot(id, lifecycle.Origin{Offering: "o", Index: i}, shapes[i%40], time.Unix(1, 0))})
		if len(batch) == 1024 || i == n-1 {
			if err := r.CommitBulk(batch); err != nil {
				b.Fatal(err)
			}
			for _, c := range batch {
				r.Release(c.Slot)
			}
			batch = batch[:0]
		}
	}
	return r
}

func touch(b *testing.B, r *Roster, ids []string) {
	b.Helper()
	for _, id := range ids {
		s := r.Acquire(id)
		next := *s.Record()
		next.State = map[lifecycle.State]lifecycle.State{lifecycle.Speculative: lifecycle.Creating, lifecycle.Creating: lifecycle.Speculative}[next.State]
		if err := r.Commit(Change{Slot: s, Record: &next}); err != nil {
			b.Fatal(err)
		}
		r.Release(s)
	}
}

// BenchmarkFullList is PROV-25.3: the list of 500,000, as a ratio to bare protobuf encoding of the same message in the same
// run (x-bare), the rounds interleaved A B B A.
func BenchmarkFullList(b *testing.B) {
	const n = 500_000
	r := fleet(b, n)
	list := &bigfleetv1alpha1.MachineList{}
	if err := proto.Unmarshal(ptr(r.List(Filter{})).AppendWire(nil), list); err != nil {
		b.Fatal(err)
	}
	bare := func() time.Duration {
		begin := time.Now()
		if out, err := proto.Marshal(list); err != nil || len(out) == 0 {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	ours := func() time.Duration {
		begin := time.Now()
		p := r.List(Filter{})
		if out := p.AppendWire(nil); len(p.Rows) != n || len(out) == 0 {
			b.Fatal(len(p.Rows))
		}
		return time.Since(begin)
	}
	var a, s time.Duration
	for b.Loop() {
		a += bare()
		s += ours() + ours()
		a += bare()
	}
	b.ReportMetric(float64(s)/float64(a), "x-bare")
	b.ReportMetric(float64(s.Milliseconds())/float64(2*b.N), "ms/list")
	b.ReportMetric(float64(a.Milliseconds())/float64(2*b.N), "ms/bare")
}

// BenchmarkDelta is PROV-25.4: 0.1 % changed, out of 500,000 and out of 5,000; the first must cost at most 1.5 times the
// second for the same number of rows.
func BenchmarkDelta(b *testing.B) {
	for _, n := range []int{5_000, 500_000} {
		b.Run(fmt.Sprintf("machines=%d/rows=500", n), func(b *testing.B) {
			r := fleet(b, n)
			since := r.List(Filter{}).Cursor
			var ids []string
			for i, row := range r.List(Filter{Max: 500}).Rows {
				_ = i
				ids = append(ids, row.ID())
			}
			touch(b, r, ids)
			b.ReportAllocs()
			for b.Loop() {
				p := r.List(Filter{Since: since})
				if out := p.AppendWire(nil); len(p.Rows) != 500 || len(out) == 0 {
					b.Fatal(len(p.Rows))
				}
			}
		})
	}
}

// BenchmarkPage is PROV-25.5.
func BenchmarkPage(b *testing.B) {
	r := fleet(b, 500_000)
	var cursor []byte
	b.ReportAllocs()
	for b.Loop() {
		p := r.List(Filter{Max: 500, Since: cursor})
		if out := p.AppendWire(nil); len(out) == 0 {
			b.Fatal("empty page")
		}
		if cursor = p.Cursor; !p.More {
			cursor = nil
		}
	}
}

// BenchmarkMemory is PROV-25.9: live bytes per machine, encoded form and indexes included.
func BenchmarkMemory(b *testing.B) {
	const n = 200_000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := fleet(b, n)
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/machine")
		runtime.KeepAlive(r)
	}
}

func ptr[T any](v T) *T { return &v }
