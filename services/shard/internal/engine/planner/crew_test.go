package planner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// ENG-14.1, ENG-14.7, ENG-P11: 1, 2, 3, 16 and 64 workers give the bytes of one, from nothing and following a history.
func TestWorkersDoNotShow(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		policy := *f.policy
		policy.Workers = 1
		want := render(w, planner.Plan(engine.Input{World: w, Policy: &policy}))
		for _, n := range []int{2, 3, 16, 64} {
			crowd := *f.policy
			crowd.Workers, crowd.ParallelMin = n, 1
			pl := planner.NewPlanner()
			for range 2 { // the second plan remembers the first
				if d := difference(want, render(w, pl.Plan(engine.Input{World: w, Policy: &crowd}))); d != "" {
					return errors.New(fmt.Sprint("- one worker, + ", n, "\n", d))
				}
			}
		}
		return nil
	})
}

// ENG-14.1, ENG-2.2: the same with plain Needs, gangs and spreads in clusters of 50 rows, which a small random fleet does not have.
func TestWorkersDoNotShowInLargeClusters(t *testing.T) {
	for seed := range uint64(3) {
		gen := workload.Steady(workload.Size{Machines: 6_000, Needs: 1_500, Clusters: 30}, measure.Seed()+seed)
		gen.Unbind()
		b := newBenchWorld(gen)
		alone := *engine.DefaultPolicy()
		alone.Workers = 1
		want := planner.Plan(engine.Input{World: b.w, Policy: &alone})
		for _, n := range []int{2, 3, 16} {
			crowd := alone
			crowd.Workers, crowd.ParallelMin = n, 1
			pl := planner.NewPlanner()
			for range 2 { // the second plan remembers the first
				if err := sameResult(want, pl.Plan(engine.Input{World: b.w, Policy: &crowd})); err != nil {
					t.Fatalf("seed %d, %d workers: %v", seed, n, err)
				}
			}
		}
	}
}
