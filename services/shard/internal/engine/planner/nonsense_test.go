package planner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// both plans a world with the engine and the literal one, explains every row, and fails on any difference.
func both(t rapid.TB, w *engine.World) *engine.Result {
	t.Helper()
	in := engine.Input{World: w}
	r := planner.Plan(in)
	sameBytes(t, w, reference.Plan(in), r)
	for _, ref := range r.Short {
		if ref.Row < engine.FoldedRow {
			explain.ExplainNeed(w, nil, r, ref)
		}
	}
	for i := range w.Inventory.All() {
		explain.ExplainMachine(w, nil, r, i, "")
	}
	return r
}

// ENG-S67, ENG-3.4: what is no number, or no sensible one, becomes one before it gets here.
func TestMoneyThatIsNone(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(-1), -1, 0, -math.MaxFloat64} {
		if inventory.PriceOfDollars(x) != 0 || inventory.ProbabilityOf(x) != 0 || demand.PenaltyOfDollars(x) != 0 {
			t.Errorf("%v is money", x)
		}
	}
	for _, x := range []float64{math.Inf(1), math.MaxFloat64} {
		if inventory.PriceOfDollars(x) != math.MaxInt64 || inventory.ProbabilityOf(x) != 1_000_000 || demand.PenaltyOfDollars(x) != demand.PinnedPenalty {
			t.Errorf("%v is not the most there is", x)
		}
	}
}

// ENG-S67: the largest prices, penalties and priorities, together: nothing overflows, and the order of costs stands.
func TestExtremesOfMoneyAndPriority(t *testing.T) {
	s := newScript()
	s.lines(fmt.Sprintf(`
		need red/low cpu=4 unit=cpu:1 priority=%d interruption=27 reclamation=27
		need blue/high cpu=8 unit=cpu:1 priority=%d interruption=27 reclamation=27
		need white/zero cpu=4 priority=0
		machine m1 cpu=4 configured=red for=low spot risk=1
		machine m2 cpu=4 configured=red attribution=f1-gone:%d:8589934592:8589934592
	`, math.MinInt32, math.MaxInt32, math.MinInt32))
	for i, price := range []int64{0, 1, math.MaxInt64, math.MaxInt64 - 1, math.MaxInt64 / 2} {
		s.w.Inventory.Put(inventory.Machine{ID: fmt.Sprintf("p%d", i), State: inventory.Speculative, Price: price, Probability: 1_000_000,
			CapacityType: inventory.Spot, Resources: []resource.Quantity{{Name: "cpu", Milli: 1000}}})
	}
	s.w.Inventory.Advance(1)
	r := both(t, s.w)
	for _, d := range r.Drains {
		if d.Score < 0 || d.Gap < 0 {
			t.Errorf("a victim with gap %d and score %d", d.Gap, d.Score)
		}
	}
	if r.CostAfter < r.CostBefore {
		t.Errorf("buying makes it cheaper: %d, then %d", r.CostBefore, r.CostAfter)
	}
	if a := explain.WhatIf(engine.Input{World: s.w}, []explain.Edit{explain.ScalePrice{Pool: explain.Pool{}, PerMillion: math.MaxInt64}, explain.ScaleRows{Cluster: "red", PerMillion: math.MaxInt64}}, nil, true); a.Final == nil {
		t.Error("no answer")
	}
}

// ENG-S67, ENG-3.2, ENG-4.9: amounts at the edge of int64, zero aggregates, empty units, 64 dimensions.
func TestExtremesOfAmounts(t *testing.T) {
	var wide, widest []resource.Quantity
	for d := range 64 {
		wide = append(wide, resource.Quantity{Name: fmt.Sprint("dim", d), Milli: 1000})
		widest = append(widest, resource.Quantity{Name: fmt.Sprint("dim", d), Milli: math.MaxInt64})
	}
	huge := []resource.Quantity{{Name: "cpu", Milli: math.MaxInt64}, {Name: "mem", Milli: math.MaxInt64}}
	tiny := []resource.Quantity{{Name: "cpu", Milli: 1}}
	lists := [][]resource.Quantity{nil, {{Name: "cpu"}}, tiny, huge, wide, widest}
	profiles := []demand.Profile{{}, {Requirements: []demand.Requirement{{Key: "rack", Op: demand.Same}}},
		{Spread: []demand.Spread{{Key: "rack", MaxSkew: math.MaxInt32}}}, {Spread: []demand.Spread{{Key: "rack", MaxSkew: math.MinInt32}}}}
	w := engine.NewWorld()
	var rows []demand.Row
	for a, agg := range lists {
		for u, unit := range lists {
			for p, profile := range profiles {
				rows = append(rows, demand.Row{Profile: profile, Group: fmt.Sprint(a, u, p), Aggregate: agg, MinUnit: unit})
			}
		}
	}
	w.Demand.SetFacts("red", demand.Facts{Heard: true, SharingPerMille: 1000})
	w.Demand.Replace("red", rows, tiny, 1)
	for i, list := range lists {
		for k, st := range []inventory.State{inventory.Speculative, inventory.Idle, inventory.Configured} {
			m := inventory.Machine{ID: fmt.Sprint("m", i, k), State: st, CapacityType: inventory.OnDemand, Resources: list,
				Labels: []inventory.Label{{Key: "rack", Value: fmt.Sprint("r", k)}}}
			if st == inventory.Configured {
				m.Cluster = "red"
			}
			w.Inventory.Put(m)
		}
	}
	w.Inventory.Advance(1)
	if err := invariants(w, engine.DefaultPolicy(), both(t, w)); err != nil {
		t.Error(err)
	}
}

// ENG-S67: nothing at all, in every combination.
func TestEmptyEverything(t *testing.T) {
	for mask := range 8 {
		s := newScript()
		if mask&1 != 0 {
			s.do("cluster red")
		}
		if mask&2 != 0 {
			s.do("need red/a")
		}
		if mask&4 != 0 {
			s.w.Inventory.Put(inventory.Machine{ID: "m"})
			s.w.Inventory.Put(inventory.Machine{ID: "", State: inventory.Idle})
		}
		s.w.Inventory.Advance(0)
		r := both(t, s.w)
		if len(r.Short) > 0 {
			t.Errorf("mask %d: %d short", mask, len(r.Short))
		}
		explain.WhatIf(engine.Input{World: s.w}, []explain.Edit{explain.LiftHolds{}, explain.DropCluster{Cluster: "red"}, explain.RemoveMachine{ID: ""}, explain.PutMachine{}, explain.AddRow{}}, nil, true)
	}
	planner.Plan(engine.Input{World: engine.NewWorld(), Policy: &engine.Policy{}})
}

// ENG-S67: a million identical Needs are one Need, and a hundred thousand that differ in nothing but their group are
// served one after the other.
func TestAMillionIdenticalNeeds(t *testing.T) {
	one := demand.Row{RowID: "same", Aggregate: []resource.Quantity{{Name: "cpu", Milli: 1000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
	one.Seal()
	rows := make([]demand.Row, 1_000_000)
	for i := range rows {
		rows[i] = one
	}
	w := engine.NewWorld()
	w.Demand.SetFacts("red", demand.Facts{Heard: true, SharingPerMille: 1000})
	did := w.Demand.Replace("red", rows, nil, 1)
	w.Inventory.Put(inventory.Machine{ID: "m", State: inventory.Speculative, Resources: []resource.Quantity{{Name: "cpu", Milli: 2_000_000_000}}})
	w.Inventory.Advance(1)
	r := planner.Plan(engine.Input{World: w})
	if did.Merged != len(rows)-1 || len(r.Blocks[0].Needs) != 1 || len(r.Actions) != 1 || len(r.Short) != 0 {
		t.Fatalf("%d merged into %d rows; %d actions, %d short", did.Merged, len(r.Blocks[0].Needs), len(r.Actions), len(r.Short))
	}
	rows = rows[:100_000]
	for i := range rows {
		rows[i].Group = fmt.Sprint(i)
	}
	w.Demand.Replace("red", rows, nil, 2)
	if r = planner.Plan(engine.Input{World: w}); len(r.Actions) != 1 || len(r.Short) != 0 {
		t.Fatalf("%d actions, %d short", len(r.Actions), len(r.Short))
	}
}

// FuzzPlan plans fleets drawn from arbitrary seeds with both engines; the corpus is the themes.
func FuzzPlan(f *testing.F) {
	for theme := range themes {
		f.Add(uint64(theme), uint8(theme))
	}
	f.Fuzz(func(t *testing.T, seed uint64, theme uint8) {
		fl := drawFleet(rand.New(rand.NewPCG(seed, 99)), shapes[themes[int(theme)%len(themes)]])
		w := fl.build(straight)
		if err := invariants(w, fl.policy, both(t, w)); err != nil {
			t.Fatalf("%v\n%s", err, fl)
		}
	})
}

// FuzzAmounts plans one machine and one Need of arbitrary amounts, prices and priorities.
func FuzzAmounts(f *testing.F) {
	f.Add(int64(1000), int64(1000), int64(1000), int64(1), int32(0), int32(0), uint8(27), uint8(1))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(1), int64(math.MaxInt64), int32(math.MaxInt32), int32(1_000_000), uint8(255), uint8(2))
	f.Add(int64(0), int64(1), int64(math.MaxInt64), int64(0), int32(math.MinInt32), int32(1), uint8(0), uint8(5))
	f.Fuzz(func(t *testing.T, agg, unit, supply, price int64, priority, chance int32, bucket, state uint8) {
		w := engine.NewWorld()
		cpu := func(v int64) []resource.Quantity { return []resource.Quantity{{Name: "cpu", Milli: max(v, 0)}} }
		w.Demand.SetFacts("red", demand.Facts{Heard: true, SharingPerMille: 1000})
		w.Demand.Replace("red", []demand.Row{{Profile: demand.Profile{Priority: priority, Interruption: demand.Bucket(bucket)}, Aggregate: cpu(agg), MinUnit: cpu(unit)},
			{Profile: demand.Profile{Priority: -priority}, Aggregate: cpu(unit), MinUnit: cpu(1)}}, cpu(agg/3), 1)
		for i := range 3 {
			w.Inventory.Put(inventory.Machine{ID: fmt.Sprint("m", i), State: inventory.State(state%8 + 1), Price: max(price, 0), Probability: min(max(chance, 0), 1_000_000),
				Cluster: []string{"", "red"}[state/8%2], Resources: cpu(supply), CapacityType: inventory.Spot})
		}
		w.Inventory.Advance(1)
		if err := invariants(w, engine.DefaultPolicy(), both(t, w)); err != nil {
			t.Fatal(err)
		}
	})
}
