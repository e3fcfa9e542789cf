package planner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

const smallWorlds = 1000

// B12, ENG-23.8 to 23.10: on W-small the engine gives the bytes of the literal engine, on any GOMAXPROCS and number of
// workers; what plans cost beside the optimum that brute force finds; and a fleet of 5,000 machines that loses half of its
// demand moves as many machines as it must, with the same plans on every GOMAXPROCS, in every input order, in every run.
func BenchmarkB12(b *testing.B) {
	for range b.N {
	}
	b.ReportMetric(0, "ns/op")
	if b.N == 1 {
		return // testing tries every benchmark with one round first
	}
	publish(b, map[string]any{"instances": smallWorlds}, smallSum(), measure.Oracle{Name: "the literal engine", Checks: 5 * smallWorlds}, sameSmall())
	covers := coverCosts((measure.Seed()-1)*smallWorlds, smallWorlds)
	plans, short, err := planCosts((measure.Seed()-1)*smallWorlds, smallWorlds)
	if err != nil {
		b.Fatal(err)
	}
	bounds := append(costs("cover over the cheapest cover", covers, 1.05), costs("plan over the cheapest plan", plans, 1.05)...)
	publish(b, map[string]any{"instances": smallWorlds, "what": "cost"}, "drawMarket, 1,000 from (seed - 1) x 1,000 on", measure.Oracle{Name: "brute force", Checks: len(covers) + len(plans) + len(short)},
		append(bounds, costs("plan over the cheapest plan, somebody short", short, 0)...))
	x := scaleDown{clusters: measure.Scaled(185), slots: measure.Scaled(16_000), seed: measure.Seed() - 1}
	bounds, checks := x.bounds(b)
	publish(b, map[string]any{"machines": measure.Scaled(5_000), "what": "half of the demand goes"}, "scaleDown, seed 50 and on", measure.Oracle{Name: "the bytes of all plans of the first run", Checks: checks}, bounds)
}

// publish shows and records numbers, and fails where a count must be 0 and is not.
func publish(b *testing.B, size map[string]any, sum string, oracle measure.Oracle, bounds []measure.Bound) {
	b.Helper()
	for _, x := range bounds {
		b.Logf("%s: %g", x.Name, x.Value)
		if !x.Met && x.Limit == 0 { // exact; a target that is missed is shown as missed
			b.Errorf("%s: %g", x.Name, x.Value)
		}
	}
	record(b, measure.Result{Schema: 1, Bench: "B12", Size: size, Seed: measure.Seed(), WorkloadSum: sum, Time: time.Now().UTC().Truncate(time.Second),
		GOMAXPROCS: runtime.GOMAXPROCS(0), Oracle: oracle, Bounds: bounds})
}

// smallSum is the SHA-256 of all instances of W-small.
func smallSum() string {
	sum := sha256.New()
	for i := range smallWorlds {
		sum.Write([]byte(workload.Small(i, measure.Seed()).Sum()))
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// sameSmall compares plans of W-small.
func sameSmall() []measure.Bound {
	var differ, threads, workers, empty float64
	for i := range smallWorlds {
		w := newBenchWorld(workload.Small(i, measure.Seed())).w
		got := planner.Plan(engine.Input{World: w})
		want := render(w, got)
		if len(got.Actions) == 0 {
			empty++
		}
		if render(w, reference.Plan(engine.Input{World: w})) != want {
			differ++
		}
		if render(w, withOneProcessor(func() *engine.Result { return planner.Plan(engine.Input{World: w}) })) != want {
			threads++
		}
		for _, n := range []int{1, 2, 16} {
			p := engine.DefaultPolicy()
			p.Workers, p.ParallelMin = n, 1
			if render(w, planner.Plan(engine.Input{World: w, Policy: p})) != want {
				workers++
			}
		}
	}
	return []measure.Bound{exact("instances that differ from the literal engine", differ), exact("instances that differ with GOMAXPROCS 1", threads),
		exact("plans that differ with 1, 2 or 16 workers", workers), measure.Shown("instances without any action", "count", empty)}
}

func withOneProcessor[T any](do func() T) T {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return do()
}

// exact is a count that must be 0.
func exact(name string, n float64) measure.Bound {
	return measure.Bound{Name: name, Unit: "count", Value: n, Met: n == 0}
}

// costs are the quantiles of ratios in ten-thousandths; the 99th has a limit if there is one.
func costs(name string, ratios []int64, limit float64) []measure.Bound {
	at := func(perMille int) float64 { return float64(quantile(ratios, perMille)) / 1e4 }
	out := []measure.Bound{measure.Shown(name+", median", "ratio", at(500)), measure.Shown(name+", p99", "ratio", at(990)), measure.Shown(name+", worst", "ratio", at(1000))}
	below, equal := 0.0, 0.0
	for _, r := range ratios {
		if r < 10_000 {
			below++
		}
		if r == 10_000 {
			equal++
		}
	}
	out = append(out, measure.Shown(name+", share that is equal", "ratio", equal/float64(len(ratios))), exact(name+", cheaper than the cheapest", below))
	if limit > 0 {
		out[1] = measure.AtMost(out[1].Name, "ratio", out[1].Value, limit)
	}
	return out
}

// bounds plays a scale-down four times and says how much it moved and whether the plans were the same.
func (x scaleDown) bounds(b *testing.B) (out []measure.Bound, checks int) {
	first := x
	first.run(b)
	again, reordered, alone := x, x, x
	reordered.order = 7
	again.run(b)
	reordered.run(b)
	withOneProcessor(func() *scaleDown { return alone.run(b) })
	differ := func(name string, other scaleDown) measure.Bound {
		n := 0.0
		if other.sequence != first.sequence {
			n = 1
		}
		return exact(name, n)
	}
	return []measure.Bound{
		measure.Shown("machines before", "count", float64(first.before)), measure.Shown("machines fewer after", "count", float64(first.net)),
		measure.AtMost("actions over net change", "ratio", float64(first.moves)/float64(first.net), 1.05),
		differ("plans differ in a second run", again), differ("plans differ in another input order", reordered), differ("plans differ with GOMAXPROCS 1", alone),
	}, 4
}
