package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// What small fleets do not reach: turns sorted by their bytes, runs of thousands of turns, logs that are full.

// drawTurns draws turns that differ in few bits, and in which bits is drawn, too. Places are in order or not.
func drawTurns(rt *rapid.T) []turn {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
	list := make([]turn, rapid.IntRange(1, 5*radixMin).Draw(rt, "turns"))
	ranks, arrivals := []uint64{r.Uint64() >> 8}, []uint64{math.MaxUint64}
	for range r.IntN(6) {
		ranks = append(ranks, ranks[0]^1<<r.IntN(48))
		arrivals = append(arrivals, r.Uint64()>>r.IntN(64))
	}
	wide := int32(1) << r.IntN(24)
	for i := range list {
		list[i] = turn{rank: oneOf(r, ranks...), arrival: oneOf(r, arrivals...), cl: int32(i) / 7 * wide, want: int32(i) % 7 * wide}
	}
	switch r.IntN(3) {
	case 0: // out of order
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 1: // clusters in order, not what is in them
		for from := 0; from+7 <= len(list); from += 7 {
			part := list[from : from+7]
			r.Shuffle(7, func(i, j int) { part[i], part[j] = part[j], part[i] })
		}
	}
	return list
}

// ENG-7.2: however many turns there are, and whatever a list before them left behind, they come in the order of comparison.
func TestTurnsOfAnyNumberAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s turnSorter
		for range 3 {
			list := drawTurns(rt)
			want := slices.Clone(list)
			slices.SortFunc(want, compareTurn)
			stand := make([]standing, len(list))
			for i := range list {
				stand[i].turn = list[i]
			}
			byOrder := slices.Clone(stand)
			keys := s.order(byOrder)
			s.sortStanding(stand)
			s.sort(list)
			for i := range want {
				at := i
				if keys != nil {
					at = int(keys[i].at)
				}
				if list[i] != want[i] || stand[i].turn != want[i] || byOrder[at].turn != want[i] {
					rt.Fatalf("turn %d is %+v, %+v and %+v, not %+v", i, list[i], stand[i].turn, byOrder[at].turn, want[i])
				}
			}
		}
	})
}

// ENG-7.2, ENG-12.1, ENG-2.10: thousands of Needs of one machine each, and machines that are all alike: the first in turn order gets
// the smallest id, the second the next one, with one worker and with two.
func TestALongRunServesInTurnOrder(t *testing.T) {
	const clusters, rows, machines = 12, 800, 10_000
	w := NewWorld()
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
		r := Plan(Input{World: w, Policy: &Policy{Workers: workers, Sharing: true}})
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
			one, two := DefaultPolicy(), DefaultPolicy()
			one.Workers, two.Workers, two.ParallelMin = 1, 2, 1
			pl := NewPlanner()
			check := func(what string) *Result {
				r := pl.Plan(Input{World: bw.w, Policy: two})
				if err := sameResult(Plan(Input{World: bw.w, Policy: one}), r); err != nil {
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
					bw.w.Inventory.SetStamp(at, nil)
				}
			}
			check("nothing bound any more")
		})
	}
}
