package engine

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// ENG-14.2, ENG-2.2: what turns leave to a second goroutine shows nowhere, whoever comes to do it, from nothing and with a memory.
// The fleet has plain Needs, gangs and spreads, and clusters with so many Needs that their turns follow one another closely.
func TestChoresDoNotShow(t *testing.T) {
	for seed := range uint64(3) {
		gen := workload.Steady(workload.Size{Machines: 6_000, Needs: 1_500, Clusters: 30}, measure.Seed()+seed)
		gen.Unbind()
		b := newBenchWorld(gen)
		alone := *DefaultPolicy()
		alone.Workers = 1
		one := NewPlanner()
		want := one.Plan(Input{World: b.w, Policy: &alone})
		if one.p.chores.last != 0 {
			t.Fatal("one worker has given chores away")
		}
		for _, n := range []int{2, 3, 16} {
			crowd := alone
			crowd.Workers, crowd.ParallelMin = n, 1
			pl := NewPlanner()
			for range 2 { // the second plan remembers the first
				if err := sameResult(want, pl.Plan(Input{World: b.w, Policy: &crowd})); err != nil {
					t.Fatalf("seed %d, %d workers: %v", seed, n, err)
				}
			}
			if pl.p.chores.last == 0 {
				t.Fatal("no turn has given a chore away")
			}
		}
	}
}
