package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

const smallWorlds = 1000

// B12, ENG-23.8: on W-small the engine gives the bytes of the literal engine, on any GOMAXPROCS and number of workers. What
// plans cost beside the optimum is the subject of the cost tests.
func BenchmarkB12(b *testing.B) {
	b.Run(fmt.Sprintf("instances=%d", smallWorlds), func(b *testing.B) {
		for range b.N {
		}
		b.ReportMetric(0, "ns/op")
		if b.N == 1 {
			return // testing tries every benchmark with one round first
		}
		var differ, threads, workers, empty float64
		for i := range smallWorlds {
			w := newBenchWorld(workload.Small(i, benchSeed)).w
			got := Plan(Input{World: w})
			want := render(w, got)
			if len(got.Actions) == 0 {
				empty++
			}
			if render(w, planNaively(Input{World: w})) != want {
				differ++
			}
			before := runtime.GOMAXPROCS(1)
			if render(w, Plan(Input{World: w})) != want {
				threads++
			}
			runtime.GOMAXPROCS(before)
			for _, n := range []int{1, 2, 16} {
				p := DefaultPolicy()
				p.Workers, p.ParallelMin = n, 1
				if render(w, Plan(Input{World: w, Policy: p})) != want {
					workers++
				}
			}
		}
		result := measure.Result{Schema: 1, Bench: "B12", Size: map[string]any{"instances": smallWorlds}, Seed: benchSeed,
			Time: time.Now().UTC().Truncate(time.Second), GOMAXPROCS: runtime.GOMAXPROCS(0),
			Oracle: measure.Oracle{Name: "the literal engine", Checks: 5 * smallWorlds},
			Bounds: []measure.Bound{
				exact("instances that differ from the literal engine", differ),
				exact("instances that differ with GOMAXPROCS 1", threads),
				exact("plans that differ with 1, 2 or 16 workers", workers),
				measure.Shown("instances without any action", "count", empty),
			}}
		for _, x := range result.Bounds {
			b.Logf("%s: %g", x.Name, x.Value)
			if !x.Met {
				b.Errorf("%s: %g", x.Name, x.Value)
			}
		}
		record(b, result)
	})
}

// exact is a count that must be 0.
func exact(name string, n float64) measure.Bound {
	return measure.Bound{Name: name, Unit: "count", Value: n, Met: n == 0}
}
