package engine

import (
	"runtime"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// B8, ENG-23.6: live bytes per machine, id, indexes and interning included, against flat records; beside it what the demand
// and the memory of a Planner take, and how long a collection takes with all of it.
func BenchmarkB8(b *testing.B) {
	size := workload.Size{Machines: scaled(500_000), Needs: scaled(50_000), Clusters: scaled(5_000)}
	b.Run(measure.Name("B8", sizeOf(size))[3:], func(b *testing.B) {
		for range b.N {
		}
		b.ReportMetric(0, "ns/op")
		if b.N == 1 {
			return // testing tries every benchmark with one round first
		}
		gen := workload.Steady(size, benchSeed)
		flat := probe.FlatBytes(gen.Fleet.ID)
		bw := &benchWorld{}
		demand := measure.Live(func() any { *bw = *newBenchDemand(gen); return bw })
		keys := newCatalog()
		keys.begin(bw.w) // as in production, where the keys of the demand are known when most machines come
		machines := measure.Live(func() any { bw.fillMachines(); return bw })
		if bw.w.Inventory.Len() != size.Machines {
			b.Fatalf("%d machines", bw.w.Inventory.Len())
		}
		pl := NewPlanner()
		var r *Result
		planner := measure.Live(func() any { r = pl.Plan(Input{World: bw.w}); return pl })
		if err := fullSize(bw.w, r); err != nil {
			b.Fatal(err)
		}
		var marks []int64
		for range 10 {
			start := time.Now()
			runtime.GC()
			marks = append(marks, time.Since(start).Nanoseconds())
		}
		runtime.KeepAlive(pl)
		perMachine := float64(machines) / float64(size.Machines)
		result := measure.Result{Schema: 1, Bench: "B8", Size: sizeOf(size), Seed: benchSeed, WorkloadSum: bw.sum, Time: time.Now().UTC().Truncate(time.Second),
			GOMAXPROCS: runtime.GOMAXPROCS(0), Oracle: measure.Oracle{Name: "the rules at full size", Checks: 1},
			Subject: measure.NewSeries("", marks),
			Bounds: []measure.Bound{
				measure.AtMost("live bytes per machine", "B", perMachine, 128),
				measure.Shown("flat record and id, per machine (P-flat)", "B", flat),
				measure.AtMost("machine over flat record", "ratio", perMachine/flat, 1.6),
				measure.Shown("demand, live bytes per Need", "B", float64(demand)/float64(size.Needs)),
				measure.Shown("memory of a Planner and one result, live bytes per machine", "B", float64(planner)/float64(size.Machines)),
				measure.AtMost("machines, demand, Planner and result together", "B", float64(machines+demand+planner), 150<<20),
				measure.AtMost("one forced collection with all of it, median", "ns", measure.NewSeries("", marks).Quantile(0.5), 5e6),
			}}
		for _, x := range result.Bounds {
			b.Logf("%s: %.4g %s", x.Name, x.Value, x.Unit)
		}
		b.ReportMetric(perMachine, "B/machine")
		record(b, result)
	})
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
