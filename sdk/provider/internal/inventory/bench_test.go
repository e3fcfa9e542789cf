package inventory

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"google.golang.org/protobuf/proto"
)

// fleet seeds n machines of 40 shapes.
func fleet(b *testing.B, n int) *Inventory {
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

func touch(b *testing.B, r *Inventory, ids []string) {
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

// sample is the time and the allocated bytes of some calls.
type sample struct {
	took  time.Duration
	bytes uint64
}

func (s *sample) add(b *testing.B, do func() int) {
	b.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := time.Now()
	n := do()
	s.took += time.Since(begin)
	runtime.ReadMemStats(&after)
	s.bytes += after.TotalAlloc - before.TotalAlloc
	if n == 0 {
		b.Fatal("an empty answer")
	}
}

// bare encodes the answer to a filter as protobuf does without us: the floor of the ratios.
func bare(b *testing.B, r *Inventory, f Filter) func() int {
	b.Helper()
	list := &bigfleetv1alpha1.MachineList{}
	if err := proto.Unmarshal(ptr(r.List(f)).AppendWire(nil), list); err != nil {
		b.Fatal(err)
	}
	return func() int {
		out, err := proto.Marshal(list)
		if err != nil {
			b.Fatal(err)
		}
		return len(out)
	}
}

func ours(b *testing.B, r *Inventory, f Filter, rows int) func() int {
	return func() int {
		p := r.List(f)
		if len(p.Rows) != rows {
			b.Fatalf("%d rows, want %d", len(p.Rows), rows)
		}
		return len(p.AppendWire(nil))
	}
}

// BenchmarkFullList is PROV-25.3: the list of 500,000, in time and in memory, as ratios to bare protobuf encoding of the same
// message in the same run (x-bare, x-bare-bytes), the rounds interleaved A B B A.
func BenchmarkFullList(b *testing.B) {
	const n = 500_000
	r := fleet(b, n)
	floor, subject := bare(b, r, Filter{}), ours(b, r, Filter{}, n)
	runtime.GC()
	var f, s sample
	for b.Loop() {
		f.add(b, floor)
		s.add(b, subject)
		s.add(b, subject)
		f.add(b, floor)
	}
	b.ReportMetric(float64(s.took)/float64(f.took), "x-bare")
	b.ReportMetric(float64(s.bytes)/float64(f.bytes), "x-bare-bytes")
	b.ReportMetric(float64(s.took.Milliseconds())/float64(2*b.N), "ms/list")
	b.ReportMetric(float64(s.bytes>>20)/float64(2*b.N), "MiB/list")
}

// BenchmarkDelta is PROV-25.4: 500 rows, 0.1 % of 500,000, as a ratio to bare encoding of the same rows (x-bare) and to the
// same delta out of 5,000 machines (x-small, at most 1.5).
func BenchmarkDelta(b *testing.B) {
	const rows = 500
	prepare := func(n int) (*Inventory, Filter) {
		r := fleet(b, n)
		since := r.List(Filter{}).Cursor
		var ids []string
		for _, row := range r.List(Filter{Max: rows}).Rows {
			ids = append(ids, row.ID())
		}
		touch(b, r, ids)
		return r, Filter{Since: since}
	}
	small, smallSince := prepare(5_000)
	large, largeSince := prepare(500_000)
	floor, subject, less := bare(b, large, largeSince), ours(b, large, largeSince, rows), ours(b, small, smallSince, rows)
	runtime.GC()
	var f, s, l sample
	for b.Loop() {
		for range 20 { // a delta is short: many between two looks at the clock of the loop
			f.add(b, floor)
			s.add(b, subject)
			l.add(b, less)
			l.add(b, less)
			s.add(b, subject)
			f.add(b, floor)
		}
	}
	b.ReportMetric(float64(s.took)/float64(f.took), "x-bare")
	b.ReportMetric(float64(s.took)/float64(l.took), "x-small")
	b.ReportMetric(float64(s.bytes)/float64(f.bytes), "x-bare-bytes")
	b.ReportMetric(float64(s.took.Nanoseconds())/float64(40*b.N*rows), "ns/row")
}

// BenchmarkCommitsWhileListing is scenario 30 and PROV-25.7: the p99 of commits while full lists of 500,000 run back to
// back, as a ratio to the p99 without (x-alone, at most 2). Each list must show every machine once.
func BenchmarkCommitsWhileListing(b *testing.B) {
	const n, commits = 500_000, 500
	r := fleet(b, n)
	var ids []string
	for _, row := range r.List(Filter{Max: commits}).Rows {
		ids = append(ids, row.ID())
	}
	p99 := func() time.Duration {
		var all []time.Duration
		for _, id := range ids {
			begin := time.Now()
			touch(b, r, []string{id})
			all = append(all, time.Since(begin))
			time.Sleep(2 * time.Millisecond) // 500 a second
		}
		slices.Sort(all)
		return all[len(all)*99/100]
	}
	runtime.GC()
	var alone, beside time.Duration
	lists := 0
	for b.Loop() {
		alone += p99()
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				seen := make(map[string]bool, n)
				for _, row := range r.List(Filter{}).Rows {
					seen[row.ID()] = true
				}
				if lists++; len(seen) != n {
					b.Errorf("a list shows %d machines of %d", len(seen), n)
				}
			}
		}()
		beside += p99()
		close(stop)
		<-stopped
	}
	b.ReportMetric(float64(beside)/float64(alone), "x-alone")
	b.ReportMetric(float64(beside.Microseconds())/float64(b.N), "us-p99")
	b.ReportMetric(float64(lists)/float64(b.N), "lists")
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
