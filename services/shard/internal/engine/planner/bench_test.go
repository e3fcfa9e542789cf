package planner_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/probe"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// The benchmarks B1 to B5 of the programme: `go test -bench B1 -benchtime 12x` is two rounds of warm-up and ten that
// count. BIGFLEET_BENCH_SCALE=10 runs a tenth of every size, as CI does. Each GOMAXPROCS gives a result of its own (ENG-23.7).

// fullSteady is the size that has the targets.
var fullSteady = workload.Size{Machines: 500_000, Needs: 50_000, Clusters: 5_000}

// sizes of W-fleet and W-demand: the full one and two smaller ones, or the scaled one alone.
func sizes() []workload.Size {
	if !measure.FullSize() {
		return []workload.Size{{Machines: measure.Scaled(fullSteady.Machines), Needs: measure.Scaled(fullSteady.Needs), Clusters: measure.Scaled(fullSteady.Clusters)}}
	}
	return []workload.Size{{Machines: 50_000, Needs: 5_000, Clusters: 500}, {Machines: 225_000, Needs: 22_500, Clusters: 2_250}, fullSteady}
}

// scanOf is P-scan over the columns of a fleet: the cheapest Idle machine of every second class.
func scanOf(f *workload.Fleet) measure.Floor {
	class, price := make([]uint16, f.Len()), make([]uint32, f.Len())
	classes := make([]bool, len(f.Kinds)*len(f.Zones))
	for i := range class {
		class[i] = uint16(int(f.Kind[i])*len(f.Zones) + f.Zone(i))
		price[i] = uint32(f.Price[i])
	}
	for c := range classes {
		classes[c] = c%2 == 0
	}
	return probe.Scan(f.State, class, price, workload.Idle, classes)
}

func sizeOf(s workload.Size) map[string]any {
	return map[string]any{"machines": s.Machines, "needs": s.Needs, "clusters": s.Clusters}
}

func benchmark(b *testing.B, name string, size map[string]any, pair func() measure.Pair) {
	var p measure.Pair
	b.Run(measure.Name(name, size)[len(name)+1:], func(b *testing.B) {
		if p.Bench == "" { // testing tries every benchmark with one round first
			p = pair()
			p.Bench, p.Size, p.Seed = name, size, measure.Seed()
		}
		measure.Compare(b, p)
	})
}

// timeWithin bounds the median time.
func timeWithin(limit time.Duration) func(ns float64) []measure.Bound {
	return func(ns float64) []measure.Bound {
		return []measure.Bound{measure.AtMost("time", "ns", ns, float64(limit.Nanoseconds()))}
	}
}

// B1, ENG-23.1: 1 % of the clusters send a roll-up, a thousandth of the machines take a step; the plan after that.
func BenchmarkB1(b *testing.B) {
	for _, s := range sizes() {
		var bw *benchWorld
		churns := []float64{0.01, 0.001, 0, 0.1, 1}
		if s != fullSteady { // the curve over churn is drawn for the full size
			churns = churns[:2]
		}
		for _, churn := range churns {
			size := sizeOf(s)
			size["churn"] = strconv.FormatFloat(churn*100, 'g', -1, 64) + "%"
			benchmark(b, "B1", size, func() measure.Pair {
				if bw == nil {
					bw = newBenchWorld(workload.Steady(s, measure.Seed()))
				}
				pl := planner.NewPlanner()
				got := bw.rest(pl)
				p := measure.Pair{WorkloadSum: bw.sum, Floor: scanOf(bw.gen.Fleet), Oracle: "same as the full plan",
					Prepare: func() { bw.settle(got); bw.churn(churn) },
					Subject: func() { got = pl.Plan(engine.Input{World: bw.w}) },
					Check:   func() error { return bw.checkSteady(got) },
				}
				switch {
				case s == fullSteady && churn == 0.01:
					p.Target, p.Bounds = 2, timeWithin(2*time.Millisecond)
				case s == fullSteady && churn == 0.001:
					p.Target = 0.5
				case s == fullSteady && churn == 1: // every cluster is evaluated (ENG-23.12)
					p.Bounds = timeWithin(50 * time.Millisecond)
				}
				return p
			})
		}
	}
}

// rest plans and carries out until nothing is left to do, so that churn alone is measured afterwards.
func (b *benchWorld) rest(pl *planner.Planner) *engine.Result {
	for range 20 {
		r := pl.Plan(engine.Input{World: b.w})
		if len(r.Actions) == 0 {
			return r
		}
		b.settle(r)
		b.w.Inventory.Advance(b.now)
	}
	return pl.Plan(engine.Input{World: b.w})
}

func (b *benchWorld) checkSteady(got *engine.Result) error {
	return sameResult(planner.Plan(engine.Input{World: b.w}), got)
}

// B2, ENG-23.2: every Need is new and nothing is remembered.
func BenchmarkB2(b *testing.B) {
	for _, s := range sizes() {
		benchmark(b, "B2", sizeOf(s), func() measure.Pair {
			gen := workload.Steady(s, measure.Seed())
			gen.Unbind()
			p := coldPair(newBenchWorld(gen), measure.Sum(probe.Sort(s.Needs, measure.Seed()), claimsOf(gen, 8), measure.Repeat(2, scanOf(gen.Fleet))))
			if s == fullSteady {
				p.Bounds = timeWithin(500 * time.Millisecond)
			}
			return p
		})
	}
}

// claimsOf is P-claim with as many pools as the fleet has types and zones.
func claimsOf(gen *workload.World, claims int) measure.Floor {
	return probe.Claim(gen.Demand.Rows(), claims, gen.Fleet.Len(), len(gen.Fleet.Kinds)*len(gen.Fleet.Zones), measure.Seed())
}

// coldPair measures a plan from nothing against a floor.
func coldPair(bw *benchWorld, floor measure.Floor) measure.Pair {
	planner.Plan(engine.Input{World: bw.w}) // the inventory learns the keys of the demand
	var got *engine.Result
	return measure.Pair{WorkloadSum: bw.sum, Floor: floor, Oracle: "the rules at full size",
		Subject: func() { got = planner.Plan(engine.Input{World: bw.w}) },
		Check:   func() error { return fullSize(bw.w, got) },
	}
}

// B3 and B4, ENG-23.3, 23.4: gangs.
func BenchmarkB3(b *testing.B) {
	benchmark(b, "B3", map[string]any{"machines": 18_000, "needs": 2_600}, func() measure.Pair {
		p := gangPair(workload.Gangs(1, measure.Seed()))
		p.Bounds = timeWithin(6 * time.Millisecond)
		return p
	})
}

func BenchmarkB4(b *testing.B) {
	sizes := []int{1, 3, 16}
	if !measure.FullSize() {
		sizes = sizes[:2] // a tenth of the largest lies between these
	}
	for _, k := range sizes {
		benchmark(b, "B4", map[string]any{"machines": 18_000 * k, "needs": 2_600 * k}, func() measure.Pair {
			p := gangPair(workload.Gangs(k, measure.Seed()))
			if k == 16 {
				p.Bounds = timeWithin(70 * time.Millisecond)
			}
			return p
		})
	}
	k, fleet := measure.Scaled(300), measure.Scaled(28)
	benchmark(b, "B4", map[string]any{"machines": 18_000 * fleet, "needs": 2_600 * k}, func() measure.Pair {
		p := gangPair(workload.GangFlood(k, fleet, measure.Seed()))
		if measure.FullSize() {
			p.Bounds = timeWithin(500 * time.Millisecond)
		}
		return p
	})
}

func gangPair(gen *workload.World) measure.Pair {
	f := gen.Fleet
	units := make([][]int32, 2)
	for p := range units {
		units[p] = make([]int32, len(f.Kinds))
		units[p][p] = 1
	}
	floor := measure.Sum(probe.Sort(gen.Demand.Rows(), measure.Seed()), claimsOf(gen, 8), probe.Domain(f.Rack, f.Kind, units, f.Racks))
	return coldPair(newBenchWorld(gen), floor)
}

// B5, ENG-23.5: as many Needs of one machine as there are machines.
func BenchmarkB5(b *testing.B) {
	n := measure.Scaled(500_000)
	benchmark(b, "B5", map[string]any{"machines": n, "needs": n}, func() measure.Pair {
		gen := workload.One(n, measure.Seed())
		p := coldPair(newBenchWorld(gen), measure.Sum(probe.Sort(n, measure.Seed()), claimsOf(gen, 1)))
		if measure.FullSize() {
			p.Target = 3
			p.Bounds = func(ns float64) []measure.Bound {
				return []measure.Bound{measure.NotBelow("decisions per second", "1/s", float64(n)/ns*1e9, 4_500_000)}
			}
		}
		return p
	})
}

// sameResult compares two results of one world field by field.
func sameResult(want, got *engine.Result) error {
	if want.Now != got.Now || want.CostBefore != got.CostBefore || want.CostAfter != got.CostAfter {
		return errors.New("time or cost differ")
	}
	if err := sameList("action", want.Actions, got.Actions); err != nil {
		return err
	}
	if err := sameList("drain", want.Drains, got.Drains); err != nil {
		return err
	}
	if err := sameList("promise", want.Promised, got.Promised); err != nil {
		return err
	}
	if err := sameList("short", want.Short, got.Short); err != nil {
		return err
	}
	if len(want.Blocks) != len(got.Blocks) {
		return fmt.Errorf("%d blocks, not %d", len(got.Blocks), len(want.Blocks))
	}
	for i, w := range want.Blocks {
		if err := sameBlock(w, got.Blocks[i]); err != nil {
			return fmt.Errorf("block %d, cluster %s: %w", i, w.Cluster, err)
		}
	}
	return nil
}

// freed is the capacity that victims would free, nothing where none were found.
func freedOf(m *engine.Missing) (v resource.Vector) {
	if m.Freed != nil {
		v = *m.Freed
	}
	return v
}

func sameBlock(w, g *engine.Block) error {
	if w.Cluster != g.Cluster || len(w.Missing) != len(g.Missing) || len(w.Needs) != len(g.Needs) || len(w.Folded) != len(g.Folded) {
		return errors.New("names or lengths differ")
	}
	for i := range w.Missing {
		x, y := &w.Missing[i], &g.Missing[i]
		xFreed, yFreed := freedOf(x), freedOf(y)
		if x.Row != y.Row || !x.Residual.Equal(&y.Residual) || !xFreed.Equal(&yFreed) {
			return fmt.Errorf("what row %d lacks differs", x.Row)
		}
	}
	return errors.Join(sameList("verdict", w.Verdicts, g.Verdicts), sameList("domain", w.Domains, g.Domains), sameList("claim", w.Claims, g.Claims), sameList("share", w.Shares, g.Shares),
		sameList("excluded", w.Excluded, g.Excluded), sameList("guarded", w.Protected, g.Protected))
}

func sameList[T comparable](what string, want, got []T) error {
	if len(want) != len(got) {
		return fmt.Errorf("%d of %s, not %d", len(got), what, len(want))
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s %d is %+v, not %+v", what, i, got[i], want[i])
		}
	}
	return nil
}

// fullSize is ENG-23.11, the oracle of the programme for outputs that are too large for the literal engine: each machine claimed
// once; each claim matches and fits; no Need over-covered by more than a machine; no plain Need short beside a free
// machine; excess is Configured minus claimed; every Need has a verdict and its residual adds up.
func fullSize(w *engine.World, r *engine.Result) error {
	o := newFullOracle(w, r)
	for bi, bl := range r.Blocks {
		if err := o.block(int32(bi), bl); err != nil {
			return fmt.Errorf("cluster %s: %w", bl.Cluster, err)
		}
	}
	for i := range r.Actions {
		a := &r.Actions[i]
		if o.acts[a.Machine] {
			return fmt.Errorf("%s is in two actions", w.Inventory.ID(a.Machine))
		}
		o.acts[a.Machine] = true
	}
	return o.leftOver()
}
