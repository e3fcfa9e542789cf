package planner_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// What small fleets do not reach: allocations sorted by their bytes, runs of thousands of allocations, logs that are full.

// ENG-7.2, ENG-12.1, ENG-2.10: thousands of Needs of one machine each, and machines that are all alike: the first in allocation order gets
// the smallest id, the second the next one, with one worker and with two.
func TestALongRunServesInAllocationOrder(t *testing.T) {
	const clusters, rows, machines = 12, 800, 10_000
	w := engine.NewWorld()
	one := []resource.Quantity{{Name: "cpu", Milli: 1000}}
	for c := range clusters {
		name, list := fmt.Sprintf("c%02d", c), make([]demand.Row, rows)
		for r := range list {
			list[r] = demand.Row{RowID: fmt.Sprint(r), Group: fmt.Sprintf("g%04d", (r*37)%rows), Aggregate: one, MinUnit: one}
		}
		w.Demand.SetFacts(name, demand.Facts{Heard: true, SharingPerMille: 1000})
		w.Demand.Replace(name, list, nil, 1)
	}
	for _, i := range rand.New(rand.NewPCG(1, 4)).Perm(machines) {
		w.Inventory.Put(inventory.Machine{ID: fmt.Sprintf("m%05d", i), State: inventory.Idle, Resources: one, CapacityType: inventory.Reserved})
	}
	w.Inventory.Advance(1)
	for _, workers := range []int{1, 2} {
		r := planner.Plan(engine.Input{World: w, Policy: &engine.Policy{Workers: workers, Sharing: true}})
		if len(r.Actions) != clusters*rows || len(r.Short) != 0 {
			t.Fatalf("%d workers: %d actions, %d short", workers, len(r.Actions), len(r.Short))
		}
		for k, a := range r.Actions {
			n, cluster := r.Need(a.Need)
			got := fmt.Sprint(w.Inventory.ID(a.Machine), " for ", cluster, "/", n.Group)
			if want := fmt.Sprintf("m%05d for c%02d/g%04d", k, k/rows, k%rows); got != want {
				t.Fatalf("%d workers: action %d is %s, not %s", workers, k, got, want)
			}
		}
	}
}

// ENG-21.1, ENG-14.7, ENG-23.11: fleets of thousands of machines. What is remembered gives what a plan from nothing gives, on two workers
// what it gives on one, and every rule that can be checked by counting holds; also after more changes than any log holds.
func TestLargeFleetsPlanAlike(t *testing.T) {
	for name, gen := range map[string]*workload.World{
		"steady": workload.Steady(workload.Size{Machines: 18_000, Needs: 1800, Clusters: 180}, 1),
		"gangs":  workload.Gangs(1, 1),
	} {
		t.Run(name, func(t *testing.T) {
			bw := newBenchWorld(gen)
			one, two := engine.DefaultPolicy(), engine.DefaultPolicy()
			one.Workers, two.Workers, two.ParallelMin = 1, 2, 1
			pl := planner.NewPlanner()
			check := func(what string) *engine.Result {
				r := pl.Plan(engine.Input{World: bw.w, Policy: two})
				if err := sameResult(planner.Plan(engine.Input{World: bw.w, Policy: one}), r); err != nil {
					t.Fatalf("%s: - full, + incremental: %v", what, err)
				}
				if err := fullSize(bw.w, r); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				return r
			}
			r := check("at first")
			for range 3 {
				bw.settle(r)
				bw.churn(0.05)
				r = check("a twentieth changed")
			}
			for i := range bw.gen.Fleet.ID {
				at, _ := bw.w.Inventory.Find(bw.gen.Fleet.ID[i])
				m := bw.w.Inventory.Machine(at)
				m.Price += int64(i%3) * 1000
				bw.w.Inventory.Put(m)
			}
			check("every price changed")
			for i := range bw.gen.Fleet.ID { // what was bound is free, as after the loss of all clusters
				at, _ := bw.w.Inventory.Find(bw.gen.Fleet.ID[i])
				if bw.w.Inventory.Row(at).State().Bound() {
					bw.w.Inventory.Move(at, inventory.Idle, "")
					bw.w.Inventory.SetAttribution(at, nil)
				}
			}
			check("nothing bound any more")
		})
	}
}
