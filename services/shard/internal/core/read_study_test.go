package core

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ENG-20.2, SHARD-23.1: what a what-if says will be done is exactly what the next cycle plans once the same change is made,
// to the action, its cost and its cause; over random histories of a core.
func TestWhatIfIsWhatThenHappens(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			w := newWorld(t, nil, slotsOf(12)...)
			w.dwell = Second
			for _, c := range []string{"blue", "red"} {
				w.connect(c)
			}
			w.run(2 * Second)
			acted := 0
			for range 25 {
				edit, do := randomChange(w, r)
				a := explain.WhatIf(w.c.Freeze(inventory.NewFreezeBuffer(0)).Thaw().Input(), []explain.Edit{edit}, nil, false)
				before := w.c.cycle.N
				do()
				for w.c.cycle.N == before { // the spacing of cycles may put it off; nothing else happens meanwhile
					w.mono += 10 * Millisecond
					w.wall += 10 * Millisecond
					w.step(Tick{})
				}
				var fact []engine.View
				for _, x := range w.c.cycle.result.Actions {
					fact = append(fact, w.c.cycle.result.View(w.c.world, x))
				}
				// A step that starts actions at once leaves their machines in another state; the plan itself is what counts.
				if d := cmp.Diff(a.Actions, fact); d != "" {
					t.Fatalf("after %T %+v: predicted, then planned:\n%s", edit, edit, d)
				}
				acted += len(fact)
				w.run(int64(r.IntN(20)+1) * Second)
			}
			if acted < 10 {
				t.Errorf("only %d actions in all", acted)
			}
		})
	}
}

// randomChange returns a change as an edit, and as what makes it happen.
func randomChange(w *world, r *rand.Rand) (explain.Edit, func()) {
	cluster := []string{"blue", "red"}[r.IntN(2)]
	var rows []demand.Row
	for n := r.IntN(3); n >= 0; n-- {
		rows = append(rows, rowOf(int64(r.IntN(12)+1), int32(n*10)))
	}
	return explain.ReplaceRows{Cluster: cluster, Rows: rows}, func() { w.rollup(cluster, rows) }
}

func rowOf(cpus int64, priority int32) demand.Row {
	row := demand.Row{Profile: demand.Profile{Priority: priority}, Aggregate: []resource.Quantity{{Name: "cpu", Milli: cpus * 1000}},
		MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
	row.Seal()
	return row
}
