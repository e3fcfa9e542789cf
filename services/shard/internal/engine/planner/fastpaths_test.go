package planner_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// ENG-21.1, ENG-23.8: a plan says the same with each fast path off, and with all of them off: the reference's bytes.
func TestFastPathsDoNotShow(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		in := engine.Input{World: w, Policy: f.policy}
		want := render(w, reference.Plan(in))
		for _, name := range planner.FastPaths() {
			pl := planner.NewPlanner()
			pl.Without(name)
			for range 2 { // the second plan remembers the first
				if d := difference(want, render(w, pl.Plan(in))); d != "" {
					return errors.New("- reference, + engine without " + name + "\n" + d)
				}
			}
		}
		return nil
	})
}

// ENG-21.1, ENG-21.4: the same after each step of a random history, with the memory of the steps before.
func TestFastPathsDoNotShowInAHistory(t *testing.T) {
	for _, name := range planner.FastPaths() {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 4))
				sh := shapes[rapid.SampledFrom(themes).Draw(rt, "theme")]
				f := drawFleet(r, sh)
				w := f.build(straight)
				inc := planner.NewPlanner()
				inc.Without(name)
				for step := range 6 {
					if err := f.goOn(r, sh, w, inc, step, 1+r.IntN(3)); err != nil {
						rt.Fatalf("step %d: %v", step, err)
					}
				}
			})
		})
	}
}

// ENG-7.2, ENG-21.9: the same in fleets with more allocations than are sorted by comparison, with runs, spreads over zones and racks.
func TestFastPathsDoNotShowInALargeFleet(t *testing.T) {
	steady := workload.Steady(workload.Size{Machines: 6_000, Needs: 1_500, Clusters: 30}, 1)
	steady.Unbind()
	for name, gen := range map[string]*workload.World{"steady": steady, "gangs": workload.Gangs(1, 1), "one to one": workload.One(3_000, 1)} {
		w := newBenchWorld(gen).w
		first := planner.NewPlanner()
		want := first.Plan(engine.Input{World: w})
		if name == "one to one" && !first.Took() {
			t.Error("no allocation was taken in a run")
		}
		for _, path := range planner.FastPaths() {
			pl := planner.NewPlanner()
			pl.Without(path)
			if err := sameResult(want, pl.Plan(engine.Input{World: w})); err != nil {
				t.Errorf("%s without %s: %v", name, path, err)
			}
			if (path == "runs" || path == "all") && pl.Took() {
				t.Errorf("%s without %s: an allocation was taken in a run", name, path)
			}
		}
	}
}
