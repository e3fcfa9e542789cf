package planner_test

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// B8, ENG-23.6: live bytes per machine, id, indexes and interning included, against flat records; beside it what the demand
// and the memory of a Planner take, and what a collection costs with all of it.
func BenchmarkB8(b *testing.B) {
	size := workload.Size{Machines: measure.Scaled(500_000), Needs: measure.Scaled(50_000), Clusters: measure.Scaled(5_000)}
	b.Run(measure.Name("B8", sizeOf(size))[3:], func(b *testing.B) {
		for range b.N {
		}
		b.ReportMetric(0, "ns/op")
		if b.N == 1 {
			return // testing tries every benchmark with one round first
		}
		m := weigh(b, size)
		perMachine := float64(m.machines) / float64(size.Machines)
		whole, marks := measure.NewSeries("", m.whole), measure.NewSeries("", m.marks)
		result := measure.Result{Schema: 1, Bench: "B8", Size: sizeOf(size), Seed: measure.Seed(), WorkloadSum: m.sum, Time: time.Now().UTC().Truncate(time.Second),
			GOMAXPROCS: runtime.GOMAXPROCS(0), Oracle: measure.Oracle{Name: "the rules at full size", Checks: 1}, Subject: whole, Parts: m.parts,
			Bounds: []measure.Bound{
				measure.AtMost("live bytes per machine", "B", perMachine, 128),
				measure.Shown("flat record and id, per machine (P-flat)", "B", m.flat),
				measure.AtMost("machine over flat record", "ratio", perMachine/m.flat, 1.6),
				measure.AtMost("read by plans, bytes per machine", "B", hotBytes, 64),
				measure.Shown("demand, live bytes per Need", "B", float64(m.demand)/float64(size.Needs)),
				measure.Shown("memory of a Planner and one result, live bytes per machine", "B", float64(m.planner)/float64(size.Machines)),
				measure.Shown("machines, demand, Planner and result together", "B", float64(m.machines+m.demand+m.planner)),
				measure.AtMost("resident memory with all of it, after a collection", "B", m.resident, 150<<20),
				measure.Shown("heap that a collection looks through", "B", m.scanned),
				measure.Shown("a collection, marking and sweeping, CPU time", "ns", m.cpu),
				measure.Shown("marking, CPU time of all processors, median", "ns", marks.Quantile(0.5)),
				measure.AtMost("one forced collection from start to end, median", "ns", whole.Quantile(0.5), 5e6),
			}}
		if !measure.FullSize() { // what does not grow with machines weighs more there: the targets are those of the full size
			for i := range result.Bounds {
				result.Bounds[i] = measure.Shown(result.Bounds[i].Name, result.Bounds[i].Unit, result.Bounds[i].Value)
			}
		}
		for _, x := range result.Bounds {
			b.Logf("%s: %.4g %s", x.Name, x.Value, x.Unit)
		}
		b.ReportMetric(perMachine, "B/machine")
		record(b, result)
	})
}

// hotBytes is what plans read of a machine in columns: its row. All else is read once per class or not at all.
const hotBytes = 32

// weights is what B8 measures.
type weights struct {
	flat                      float64 // bytes of a flat record
	demand, machines, planner int64   // live bytes
	resident, cpu, scanned    float64
	whole                     []int64 // ns of collections, from start to end
	marks                     []int64 // ns of processors that marking took of each
	parts                     []measure.Piece
	sum                       string
}

func weigh(b *testing.B, size workload.Size) (m weights) {
	bw := &benchWorld{}
	gen := workload.Steady(size, measure.Seed())
	m.flat = probe.FlatBytes(gen.Fleet.ID)
	m.demand = measure.Live(func() any {
		*bw = *newBenchDemand(gen)
		m.sum, bw.rows = bw.sum, nil // rows in plain form are the workload's and not the shard's
		return bw
	})
	bw.makeRows()
	keys := match.New()
	keys.Begin(bw.w) // as in production, where the keys of the demand are known when most machines come
	m.machines = measure.Live(func() any { bw.fillMachines(); return bw })
	if bw.w.Inventory.Len() != size.Machines {
		b.Fatalf("%d machines", bw.w.Inventory.Len())
	}
	pl := planner.NewPlanner()
	var r *engine.Result
	m.planner = measure.Live(func() any { r = pl.Plan(engine.Input{World: bw.w}); return pl })
	if err := fullSize(bw.w, r); err != nil {
		b.Fatal(err)
	}
	m.parts = measure.Footprint(bw.w.Inventory, "space")
	for i := range m.parts {
		m.parts[i].Bytes /= float64(size.Machines)
	}
	// From here only what a shard holds is alive: a collection must not mark the workload.
	bw.gen, bw.rows, gen, keys = nil, nil, nil, nil
	debug.FreeOSMemory()
	const collections = 20
	used := cpuTime(b)
	for range collections {
		before := marking()
		start := time.Now()
		runtime.GC()
		m.whole = append(m.whole, time.Since(start).Nanoseconds())
		m.marks = append(m.marks, int64((marking()-before)*1e9))
	}
	m.cpu, m.scanned = (cpuTime(b)-used)/collections, scannable()
	debug.FreeOSMemory()
	m.resident = residentBytes(b)
	runtime.KeepAlive(pl)
	runtime.KeepAlive(r)
	runtime.KeepAlive(bw)
	return m
}

// marking is how many seconds of processors marking has taken: those set aside for it, those that had nothing else to do, and
// those that helped.
func marking() (sum float64) {
	s := []metrics.Sample{{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/assist:cpu-seconds"}}
	metrics.Read(s)
	for i := range s {
		sum += s[i].Value.Float64()
	}
	return sum
}

// scannable is how many bytes of the heap may hold pointers.
func scannable() float64 {
	s := []metrics.Sample{{Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64())
}

// cpuTime is what this process has used of its processors, in ns.
func cpuTime(b *testing.B) float64 {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return float64(used.Utime.Nano() + used.Stime.Nano())
}

// residentBytes is what Linux says this process holds in memory.
func residentBytes(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib * 1024
		}
	}
	b.Fatal("no VmRSS in /proc/self/status")
	return 0
}

// record hands a result that is no comparison to the Recorder that the environment names.
func record(b *testing.B, result measure.Result) {
	recorder, err := measure.RecorderFromEnv()
	if err == nil && recorder != nil {
		err = recorder.Record(result)
	}
	if err != nil {
		b.Fatal(err)
	}
}
