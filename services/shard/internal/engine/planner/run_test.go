package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// singles makes most rows ask for one unit, in a few forms that many rows share, and most machines free: long runs of allocations
// with one question, between allocations of every other kind.
func (f *fleet) singles(t source) {
	for c := range f.clusters {
		if chance(t, 80) {
			f.clusters[c].overhead, f.clusters[c].rooms = nil, nil
		}
		for i := range f.clusters[c].rows {
			r := &f.clusters[c].rows[i]
			if chance(t, 15) {
				continue
			}
			unit := []resource.Quantity{milli("cpu", oneOf[int64](t, 2, 2, 4))}
			r.row = demand.Row{Group: fmt.Sprintf("s%d", i), RowID: r.row.RowID, Aggregate: unit, MinUnit: unit,
				Profile: demand.Profile{Priority: oneOf[int32](t, 10, 10, 100), Interruption: oneOf[demand.Bucket](t, 0, 0, 5)}}
			if chance(t, 90) {
				r.hold = demand.NotHeld
			}
		}
	}
	for i := range f.machines {
		m := &f.machines[i]
		if chance(t, 80) { // a supply has one price mostly: where two cost the same, ids decide, and there is no run
			cpu := oneOf[int64](t, 2, 2, 2, 4, 8)
			m.m.Resources, m.m.Allocatable, m.m.Taints = []resource.Quantity{milli("cpu", cpu)}, nil, nil
			m.m.Price, m.m.Probability = cpu*100_000, 0
			if chance(t, 20) {
				m.m.Price += 50_000
			}
		}
		if m.m.State != inventory.Speculative && chance(t, 80) {
			m.m.State, m.m.Cluster, m.promise, m.foreign, m.stuck = inventory.Idle, "", nil, false, false
		}
	}
}

// ENG-12.1, ENG-23.8, ENG-P11: allocations that are taken in a run give what each of them alone would, on any number of workers, and
// with a memory.
func TestRunsEqualAllocations(t *testing.T) {
	runs := 0
	for theme, sh := range map[string]shape{
		"alone":   {clusters: 4, rows: 10, machines: 50, twins: 30, bound: 5, speculative: 50, picky: 1, prices: 4},
		"sharing": {clusters: 3, rows: 12, machines: 40, same: 10, spread: 10, twins: 10, bound: 20, speculative: 40, picky: 1, prices: 6},
		"slots":   {clusters: 4, rows: 10, machines: 50, twins: 20, bound: 3, speculative: 94, picky: 1, prices: 6},
		"picky":   {clusters: 3, rows: 12, machines: 40, twins: 20, bound: 20, speculative: 30, picky: 20, prices: 12},
	} {
		t.Run(theme, func(t *testing.T) {
			law := func(f *fleet) error {
				w := f.build(straight)
				want := render(w, reference.Plan(engine.Input{World: w, Policy: f.policy}))
				for _, workers := range []int{1, 2, 16} {
					policy := *f.policy
					policy.Workers, policy.ParallelMin = workers, 1
					pl, in := planner.NewPlanner(), engine.Input{World: w, Policy: &policy}
					first := render(w, pl.Plan(in))
					if pl.Took() {
						runs++
					}
					if d := difference(want, first); d != "" {
						return fmt.Errorf("%d workers: - naive, + engine\n%s", workers, d)
					}
					if d := difference(first, render(w, pl.Plan(in))); d != "" {
						return errors.New("- first plan, + second\n" + d)
					}
				}
				return nil
			}
			rapid.Check(t, func(rt *rapid.T) {
				rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))
				f := drawFleet(rnd, sh)
				f.singles(rnd)
				if err := law(f); err != nil {
					small, err := shrink(f, err, law)
					rt.Fatalf("%v\n%s", err, small)
				}
			})
		})
	}
	if runs < 10 {
		t.Errorf("%d plans with a run", runs)
	}
	t.Logf("%d plans with a run", runs)
}
