package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// besideWorld has clusters red, blue and large, whose plans are all made beside the loop.
func besideWorld(t *testing.T, edit func(*Config)) *world {
	w := newWorld(t, func(c *Config) {
		c.Beside = BesideAlways
		if edit != nil {
			edit(c)
		}
	}, slotsOf(60)...)
	for _, name := range []string{"red", "blue", "large"} {
		w.connect(name)
		w.rollup(name, needs(0, 8))
	}
	rows := manyNeeds(2*demand.PartRows, "a") // that no machine can hold
	for i := range rows {
		rows[i].Aggregate = []resource.Quantity{{Name: "cpu", Milli: 64_000}}
		rows[i].MinUnit = rows[i].Aggregate
		rows[i].Seal()
	}
	w.offer("large", "many", rows)
	w.run(Minute)
	return w
}

// demands is how much cpu a cluster demands of the next plan.
func (w *world) demands(cluster string) (milli int64) {
	for _, n := range w.c.world.Demand.Cluster(cluster).Needs {
		milli += n.Aggregate.Val(0)
	}
	return milli
}

// SHARD-6.11: while a plan is made, a cluster's usual roll-up is answered. The newest becomes demand when the plan is made, and the next plan has it. Time stands still for the core,
// and what could change what the plan is made of waits.
func TestRollupsAreAnsweredWhileAPlanIsMade(t *testing.T) {
	w := besideWorld(t, nil)
	called := false
	w.during = func() {
		called = true
		before := w.demands("red")
		for i, x := range []struct {
			cpus int64
			want Disposition
		}{{8, DispositionUnchanged}, {12, DispositionAccepted}, {12, DispositionUnchanged}, {8, DispositionAccepted}, {40, DispositionAccepted}} {
			if got := w.rollup("red", needs(0, x.cpus)); got != x.want {
				t.Errorf("roll-up %d is answered with %s, want %s", i, got, x.want)
			}
		}
		if got := w.demands("red"); got != before {
			t.Errorf("red demands %d while a plan is made from %d", got, before)
		}
		w.offer("red", "last", needs(0, 40))
		if _, ok := w.c.NextWake(); ok {
			t.Error("wants a Tick while a plan is made")
		}
		for _, e := range []Event{Tick{}, Stopping{}, SessionClosed{Cluster: "red"}, ListPage{}, CommandDone{}, CheckpointAsked{}, AdminAsked{}} {
			if w.c.Takes(e) {
				t.Errorf("takes %T while a plan is made", e)
			}
		}
	}
	w.rollup("blue", needs(0, 12))
	if !w.c.TakesIn("last") {
		t.Error("a plan is said to have what became demand after it")
	}
	w.run(Second)
	if w.c.TakesIn("last") {
		t.Error("no plan is said to have what was demand for a second")
	}
	if !called || w.demands("red") != 40_000 {
		t.Errorf("red demands %d after the plan, which was made beside the loop: %v", w.demands("red"), called)
	}
	w.run(Minute)
	if red := w.c.clusters.get("red"); red.configured() != 10 || red.Disposition != DispositionAccepted {
		t.Errorf("red has %d machines, its roll-up is %s", red.configured(), red.Disposition)
	}
}

// SHARD-6.11: a roll-up that needs more than a look waits for the plan, and is judged then as ever.
func TestUnusualRollupsWaitForThePlan(t *testing.T) {
	for name, edit := range map[string]func(w *world, e *RollupArrived){
		"of a cluster that is not known":        func(w *world, e *RollupArrived) { e.Cluster = "green" },
		"of another session":                    func(w *world, e *RollupArrived) { e.Session-- },
		"that is refused":                       func(w *world, e *RollupArrived) { e.Reject = &Rejection{Reason: "x"} },
		"that made a shard fail":                func(w *world, e *RollupArrived) { w.c.rollups.poison[e.Hash] = w.mono + Hour },
		"of many rows":                          func(w *world, e *RollupArrived) { e.Rows = manyNeeds(demand.PartRows+1, "b") },
		"of many bytes":                         func(w *world, e *RollupArrived) { e.Bytes = rowBytes * (demand.PartRows + 1) },
		"that is wide":                          func(w *world, e *RollupArrived) { e.Width.Values = narrow + 1 },
		"with another machine out of service":   func(w *world, e *RollupArrived) { e.OutOfService = outOf(w, "red") },
		"that asks for next to nothing":         func(w *world, e *RollupArrived) { e.Rows = needs(0, 1) },
		"after one that the guard holds":        func(w *world, e *RollupArrived) { w.c.clusters.get("red").Held.add(w.mono) },
		"of a cluster whose gate is shut":       func(w *world, e *RollupArrived) { w.c.clusters.get("red").GateOpen = false },
		"behind as many as one step may hold":   func(w *world, e *RollupArrived) { w.c.rollups.answeredRows = answeredMax },
		"behind another that is being taken in": func(w *world, e *RollupArrived) { w.c.clusters.get("red").Queued = e },
	} {
		t.Run(name, func(t *testing.T) {
			w := besideWorld(t, nil)
			w.tampered = true
			w.rollup("red", needs(0, 80))
			w.run(Minute)
			e := RollupArrived{Cluster: "red", Session: w.sessions["red"], Arrival: w.arrival + 1, Rows: needs(0, 84), Hash: "new"}
			w.during = func() {
				if !w.c.Takes(e) {
					t.Error("a usual roll-up waits")
				}
				if edit(w, &e); w.c.Takes(e) {
					t.Error("is answered at once")
				}
			}
			w.rollup("blue", needs(0, 12))
		})
	}
}

// outOf takes most machines of a cluster out of service.
func outOf(w *world, cluster string) (out []OutOfService) {
	for id, m := range w.provider {
		if m.Cluster == cluster && len(out) < 15 {
			out = append(out, OutOfService{Machine: id})
		}
	}
	return out
}

// SHARD-6.11: what is decided does not depend on where plans are made.
func TestPlansBesideTheLoopDecideTheSame(t *testing.T) {
	var calls [3][]string
	for mode := range calls {
		w := besideWorld(t, func(c *Config) { c.Beside = Beside(mode) })
		w.rollup("red", needs(5, 60))
		w.run(Minute)
		w.rollup("blue", needs(9, 200))
		w.run(Minute)
		w.rollup("blue", needs(9, 100))
		w.run(10 * Minute)
		for _, x := range w.calls {
			calls[mode] = append(calls[mode], fmt.Sprint(x.RPC, x.Machine, x.Cluster))
		}
		made := slices.ContainsFunc(w.log, func(l logged) bool { return l.e == Event(PartMade{}) })
		if made != (Beside(mode) != BesideNever) { // a large demand is made beside the loop
			t.Errorf("with %d a plan was made beside the loop: %v", mode, made)
		}
		if w.state(inventory.Configured) == 0 {
			t.Error("nothing was configured")
		}
	}
	if !slices.Equal(calls[0], calls[1]) || !slices.Equal(calls[1], calls[2]) {
		t.Errorf("calls differ:\n%v\n%v\n%v", calls[0], calls[1], calls[2])
	}
}

// SHARD-6.11: a plan that took long tells where the next one is made.
func TestPlanAfterALongOneIsMadeBeside(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.connect("red")
	w.run(Second)
	made := func() (n int) {
		for _, l := range w.log {
			if l.e == Event(PartMade{}) {
				n++
			}
		}
		return n
	}
	w.rollup("red", needs(0, 4))
	if n := made(); n != 0 || len(w.calls) == 0 {
		t.Fatalf("%d plans were made beside the loop before one took long", n)
	}
	w.ended = w.mono + longPlan // of the step that planned
	w.run(Second)
	if made() == 0 {
		t.Error("the plan after a long one was made in a step")
	}
}
