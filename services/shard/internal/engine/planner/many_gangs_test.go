package planner_test

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// manyGangs states gangs, each of which excludes a value of its own that no machine has, and asks for amounts.
func manyGangs(w *engine.World, n int, amounts ...resource.Quantity) {
	rows := make([]demand.Row, n)
	for i := range rows {
		rows[i] = demand.Row{Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "arch", Op: demand.NotIn, Values: []string{fmt.Sprint("a-", i)}},
			{Key: "rack", Op: demand.Same}}}, Group: fmt.Sprint(i), RowID: fmt.Sprint(i), Aggregate: amounts, MinUnit: amounts[:1]}
		rows[i].Seal()
	}
	w.Demand.Replace("red", rows, nil, 1)
}

// ENG-21.9: gangs that match the same classes share what is counted of the domains, whatever each of them excludes: one cluster can state as many
// requirements as rows.
func TestGangsThatMatchTheSameShareCounts(t *testing.T) {
	s := newScript()
	s.lines(`
		machine m1 cpu=4 label.rack=r1 speculative
		machine m2 cpu=4 label.rack=r2 speculative`)
	manyGangs(s.w, 200, resource.Quantity{Name: "cpu", Milli: 64_000})
	for _, cpu := range []int64{64_000, 3_000} { // too small for any machine, and then some
		manyGangs(s.w, 200, resource.Quantity{Name: "cpu", Milli: cpu})
		pl := planner.NewPlanner()
		r := pl.Plan(engine.Input{World: s.w})
		if sets, kinds := pl.Counted(); sets > 1 || kinds > 1 {
			t.Errorf("%d gangs of %d of cpu count domains for %d sets of classes and %d kinds", len(r.Blocks[0].Needs), cpu, sets, kinds)
		}
		if want := map[int64]int{64_000: 200, 3_000: 198}[cpu]; len(r.Short) != want {
			t.Errorf("%d gangs of %d of cpu are short, want %d", len(r.Short), cpu, want)
		}
	}
}

// ENG-21.9: where nothing is free, gangs look at no domain.
func TestGangsLookAtNoDomainWhereNothingIsFree(t *testing.T) {
	s := newScript()
	s.lines(`
		need blue/web cpu=8 unit=cpu:4
		machine m1 cpu=4 label.rack=r1 configured=blue for=web
		machine m2 cpu=4 label.rack=r2 configured=blue for=web`)
	manyGangs(s.w, 200, resource.Quantity{Name: "cpu", Milli: 3_000})
	pl := planner.NewPlanner()
	r := pl.Plan(engine.Input{World: s.w})
	if sets, kinds := pl.Counted(); sets+kinds > 0 || len(r.Short) != 200 {
		t.Errorf("%d are short, and domains are counted for %d sets of classes and %d kinds", len(r.Short), sets, kinds)
	}
}

// ENG-12.1: a Need that no machine of any class can hold has no allocation, also if the reason says that a dimension is missing: one cluster may name
// resources that nothing has in each of its rows.
func TestNeedsWithoutTheirResourceHaveNoAllocation(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/a cpu=4 gpu=1 unit=cpu:4,gpu:1
		need red/b cpu=4 gpu=1 unit=cpu:4,gpu:1 same=rack
		need red/c cpu=4 gpu=1 unit=cpu:4,gpu:1 spread=zone:1
		machine m1 cpu=4 label.rack=r1 speculative`)
	r := planner.Plan(engine.Input{World: s.w})
	if len(r.Short) != 3 || r.Counters.Allocations != 0 {
		t.Errorf("%d short, %d allocations", len(r.Short), r.Counters.Allocations)
	}
	for i := range r.Blocks[0].Verdicts {
		if d := r.Blocks[0].Verdicts[i].Detail; d != engine.DetailDimensionMissing {
			t.Errorf("%v", d)
		}
	}
}
