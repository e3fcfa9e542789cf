package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-6.10: a plan is compared after a hundred cycles, but at most every minute, and at the least every ten.
func TestPlansAreComparedInTheirTime(t *testing.T) {
	for _, c := range []struct {
		name           string
		spacing        int64 // of cycles
		shortest, most int64
	}{
		{"busy", 100 * Millisecond, Minute, Minute},
		{"a hundred cycles take longer than a minute", 2 * Second, 200 * Second, 200 * Second},
		{"quiet", 10 * Second, 10 * Minute, 10 * Minute},
	} {
		var k CompareCadence
		last := int64(0)
		for cycle := int64(1); cycle < 50_000; cycle++ {
			at := cycle * c.spacing
			if !k.Due(at, cycle) {
				continue
			}
			if gap := at - last; gap < c.shortest || gap > c.most {
				t.Errorf("%s: %d s between two comparisons, want %d", c.name, gap/Second, c.shortest/Second)
			}
			last = at
		}
		if last == 0 {
			t.Errorf("%s: nothing was compared", c.name)
		}
		if k.Due(last+Hour, k.cycle) {
			t.Errorf("%s: the same plan is compared twice", c.name)
		}
	}
}

// SHARD-6.10: what is compared is the plan and the world of its own cycle, whatever the core does meanwhile.
func TestPlanIsComparedWithTheWorldOfItsCycle(t *testing.T) {
	w := newWorld(t, nil, slotsOf(8)...)
	var asked []*ComparePlan
	w.watch = func(effects []Effect) {
		for _, x := range effects {
			if x, ok := x.(*ComparePlan); ok {
				asked = append(asked, x)
			}
		}
	}
	w.connect("red")
	w.run(Second)
	for i := range 6 {
		w.c.CompareNext(inventory.NewFreezeBuffer(0))
		w.rollup("red", needs(1, int64(4+8*(i%3))))
		w.run(Minute)
	}
	if len(asked) != 6 {
		t.Fatalf("%d plans were handed out, want one for each request", len(asked))
	}
	actions := 0
	for _, x := range asked {
		actions += len(x.result.Actions)
		if where := x.Difference(); where != "" {
			t.Errorf("the plan of cycle %d differs: %s", x.Cycle, where)
		}
	}
	if actions == 0 {
		t.Error("no plan that was compared did anything")
	}
}

// SHARD-6.10: a difference is counted and recorded, and the next plan, which follows at once, is made from nothing.
func TestPlanThatDiffersIsMadeFromNothing(t *testing.T) {
	w := newWorld(t, nil, slotsOf(8)...)
	var asked *ComparePlan
	w.watch = func(effects []Effect) {
		for _, x := range effects {
			if x, ok := x.(*ComparePlan); ok {
				asked = x
			}
		}
	}
	w.connect("red")
	w.run(Second)
	w.c.CompareNext(inventory.NewFreezeBuffer(0))
	w.rollup("red", needs(1, 8))
	wrong := *asked.result
	wrong.Actions = slices.Clone(wrong.Actions)[:len(wrong.Actions)-1]
	asked.result = &wrong
	where := asked.Difference()
	if where != "actions" {
		t.Fatalf("a plan without one of its actions differs in %q", where)
	}
	w.run(10 * Minute)
	before := w.c.cycle.N
	if n := w.c.cycle.result.Counters.CreditMiss; n != 0 {
		t.Fatalf("%d clusters were credited in a plan that remembers", n)
	}
	w.step(PlanDiffered{Cycle: asked.Cycle, Where: where})
	w.run(Second)
	if w.c.cycle.N == before || w.count(MetricPlanMismatch) != 1 {
		t.Errorf("%d cycles, %d mismatches counted", w.c.cycle.N-before, w.count(MetricPlanMismatch))
	}
	if n := w.c.cycle.result.Counters.CreditMiss; n != 1 {
		t.Errorf("%d clusters were credited in the plan after the difference, want all: 1", n)
	}
	if !slices.ContainsFunc(w.records, func(r Record) bool { return r.Outcome == "plan_mismatch" && strings.Contains(r.Detail, "actions") }) {
		t.Error("no record says where the plan differed")
	}
}

// SHARD-6.10: a step in which a plan is handed out for comparison contains no second plan: what it adds is a copy of columns, which takes
// less than a fifth of a plan from nothing.
func TestComparisonDoesNotLengthenAStep(t *testing.T) {
	const machines, clusters = 20_000, 200
	list := make([]inventory.Machine, 0, machines)
	for i := range machines {
		list = append(list, host(fmt.Sprintf("machine-%06d", i), inventory.Configured, fmt.Sprintf("cluster-%03d", i%clusters)))
	}
	w := newWorld(t, nil, list...)
	for i := range clusters {
		name := fmt.Sprintf("cluster-%03d", i)
		w.connect(name)
		w.rollup(name, needs(1, 100, 100, 100, 100))
	}
	w.run(Second)
	cycle := func() time.Duration {
		w.mono += Second
		w.c.now = w.mono
		began := time.Now()
		w.c.plans.runCycle()
		return time.Since(began)
	}
	w.tampered = true
	plain, compared, full := time.Hour, time.Hour, time.Hour
	for range 7 {
		plain = min(plain, cycle())
		w.c.CompareNext(inventory.NewFreezeBuffer(machines))
		compared = min(compared, cycle())
		began := time.Now()
		planner.Plan(engine.Input{World: w.c.world, Cycle: w.c.cycle.N, Policy: w.c.policy})
		full = min(full, time.Since(began))
	}
	if added := compared - plain; added > full/5 {
		t.Errorf("a comparison adds %s to a step of %s; a plan from nothing takes %s", added, plain, full)
	}
}
