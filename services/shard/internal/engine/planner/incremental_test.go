package planner_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// replan plans with a memory and says whose credit was found again and whose verdicts were published again.
func replan(t *testing.T, s *script, pl *planner.Planner, before *engine.Result) (r *engine.Result, credited int, published []string) {
	t.Helper()
	r = pl.Plan(engine.Input{World: s.w})
	if d := difference(render(s.w, planner.Plan(engine.Input{World: s.w})), render(s.w, r)); d != "" {
		t.Fatalf("- full, + incremental\n%s", d)
	}
	for _, b := range r.Blocks {
		if !slices.Contains(before.Blocks, b) {
			published = append(published, b.Cluster)
		}
	}
	return r, r.Counters.DirtyClusters, published
}

// ENG-21.2, ENG-21.6, ENG-21.4: what nothing happened to is not credited again and keeps its block, short Needs included.
func TestUnchangedClustersKeepTheirBlocks(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		need green/web cpu=8 unit=cpu:4
		machine m1 configured=red for=web cpu=4
		machine m2 configured=blue for=web cpu=4
		machine m3 configured=green for=web cpu=4`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, step := range []struct {
		change    string
		credited  int
		published []string
	}{
		{"", 0, nil},
		{"need red/web cpu=3", 1, []string{"red"}},
		{"machine m2 price=3", 1, []string{"blue"}}, // a machine bound to it
		{"machine m9 failed cpu=4", 0, nil},         // one without a cluster
		{"need blue/web hold=offline", 1, []string{"blue"}},
		{"cluster red sharing=500", 1, []string{"red"}},
		{"cluster green overhead=cpu:1", 1, []string{"green"}},
	} {
		s.lines(step.change)
		r, credited, published := replan(t, s, pl, last)
		if credited != step.credited || !slices.Equal(published, step.published) {
			t.Errorf("%q: %d credited again, published %v; want %d and %v", step.change, credited, published, step.credited, step.published)
		}
		last = r
	}
}

// ENG-6.5a, ENG-21.2: a cluster whose rows name ever new label keys is credited again, and no other cluster is: neither for keys that no machine
// has, nor for one that machines have and that was named before.
func TestLabelKeysOfOneClusterLeaveTheOthersAlone(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4 same=rack
		need green/web cpu=4 unit=cpu:4 spread=zone:1
		machine m1 configured=red for=web cpu=4 label.team=red
		machine m2 configured=blue for=web cpu=4 label.rack=ra label.team=blue
		machine m3 configured=green for=web cpu=4 zone=a
		need red/again cpu=1 unit=cpu:1 exists=team`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for i := range 40 {
		s.lines("withdraw red/again")
		switch i % 4 {
		case 0:
			s.lines(fmt.Sprintf("need red/again cpu=1 unit=cpu:1 in=key%d:x", i))
		case 1:
			s.lines(fmt.Sprintf("need red/again cpu=8 unit=cpu:4 same=key%d", i))
		case 2:
			s.lines(fmt.Sprintf("need red/again cpu=8 unit=cpu:4 spread=key%d:1", i))
		case 3:
			s.lines("need red/again cpu=1 unit=cpu:1 exists=team")
		}
		r, credited, published := replan(t, s, pl, last)
		if credited > 1 || !slices.Equal(published, []string{"red"}) {
			t.Errorf("change %d: %d credited again, published %v", i, credited, published)
		}
		last = r
	}
}

// ENG-3.8, ENG-21.2: a cluster that learns of ever new instance types which no machine has is credited again, and no other cluster is.
func TestTypesThatNoMachineHasLeaveTheOthersAlone(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		machine m1 configured=red for=web cpu=4 type=big
		machine m2 configured=blue for=web cpu=4 type=big`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for i := range 10 {
		s.lines(fmt.Sprintf("cluster red room=type%d:cpu:3900m", i))
		r, credited, published := replan(t, s, pl, last)
		if credited > 1 || slices.Contains(published, "blue") {
			t.Errorf("type %d: %d credited again, published %v", i, credited, published)
		}
		last = r
	}
}

// ENG-3.8, ENG-21.2: nor is one when a cluster states and withdraws what it learnt of a type that machines have.
func TestTypesThatOneClusterLearnsLeaveTheOthersAlone(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		need green/web cpu=8 unit=cpu:4
		machine m1 configured=red for=web cpu=4 type=big
		machine m2 configured=blue for=web cpu=4 type=big
		machine m3 configured=green for=web cpu=4 type=large
		machine m4 idle cpu=4 type=large`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for i := range 10 {
		if i%2 == 0 {
			s.lines("cluster red room=big:cpu:3900m")
		} else {
			s.w.Demand.SetRooms("red", nil)
		}
		r, credited, published := replan(t, s, pl, last)
		if credited > 2 || slices.Contains(published, "blue") { // green buys or is short, and is looked at in each plan
			t.Errorf("change %d: %d credited again, published %v", i, credited, published)
		}
		last = r
	}
}

// ENG-21.2: a memo says from when on it is out of date: a Node that never joins makes its cluster dirty at join_timeout, not
// before, and the clock alone makes no other dirty.
func TestAMemoKnowsWhenItEnds(t *testing.T) {
	s := newScript()
	s.lines(`
		cluster red reports=0
		cluster blue reports=0
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		machine m1 configured=red for=web cpu=4 node=none since=100
		machine m2 configured=blue for=web cpu=4 node=ready since=100`)
	pl := planner.NewPlanner()
	s.w.Inventory.Advance(100 * engine.Second)
	last := pl.Plan(engine.Input{World: s.w})
	for _, step := range []struct{ now, credited int64 }{{500, 0}, {999, 0}, {1000, 1}, {1001, 0}} {
		s.w.Inventory.Advance(step.now * engine.Second)
		r, credited, _ := replan(t, s, pl, last)
		if int64(credited) != step.credited {
			t.Errorf("at %d s %d clusters were credited again, not %d", step.now, credited, step.credited)
		}
		last = r
	}
	if len(last.Actions) != 1 || last.Actions[0].Cause != engine.CauseNotJoined {
		t.Errorf("actions %v", last.Actions)
	}
}

// ENG-8.7, ENG-21.3: whether a gang folds is asked again where a class can be had or no longer, and only for clusters whose gangs match it.
func TestFoldsAreAskedWhenAClassComesOrGoes(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/one cpu=8 unit=cpu:4 same=rack in=type:big,huge hold=backoff
		need blue/two cpu=8 unit=cpu:4 same=rack in=type:other hold=backoff
		need green/plain cpu=4 unit=cpu:4 hold=backoff
		machine m1 speculative type=small cpu=4 label.rack=ra withheld=quota`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, step := range []struct {
		change   string
		credited int
	}{
		{"machine b1 speculative type=big cpu=8 label.rack=ra", 1},
		{"machine b2 speculative type=big cpu=8 label.rack=rb", 0},
		{"machine b1 failed", 0},
		{"machine b2 withheld=quota", 1},
		{"machine b3 speculative type=big cpu=8 label.rack=rb withheld=quota", 0},
		{"machine b4 speculative type=big cpu=8 label.rack=rb", 1},
		{"machine b4 failed", 1},
	} {
		s.lines(step.change)
		r, credited, _ := replan(t, s, pl, last)
		if credited != step.credited {
			t.Errorf("%q: %d clusters credited again, not %d", step.change, credited, step.credited)
		}
		last = r
	}
}

// ENG-8.2a, ENG-21.3: a gang that its own cluster has no room for leaves its fold when large machines can no longer be had and there are small ones.
func TestAGangLeavesItsFoldWhenAClassGoes(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:8
		need red/gang cpu=8 unit=cpu:4 same=rack hold=backoff
		need blue/gang cpu=8 unit=cpu:4 same=rack
		machine home configured=red for=web cpu=8 label.rack=ra
		machine other configured=blue for=gang cpu=8 label.rack=ra
		machine b1 speculative cpu=8 label.rack=ra`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, step := range []struct {
		change string
		folds  bool
	}{
		{"machine b1 withheld=quota", true},
		{"machine s1 speculative cpu=4 label.rack=ra", false},
		{"machine s1 withheld=quota", false},
		{"machine b1 offered", true},
		{"machine b1 withheld=quota", false},
		{"need red/web cpu=0", true},
		{"need red/web cpu=8", false},
		{"machine b1 offered", true},
	} {
		s.lines(step.change)
		last, _, _ = replan(t, s, pl, last)
		at := block(last, "red")
		if got := len(last.Blocks[at].Folded) > 0; got != step.folds {
			t.Errorf("%q: the gang folds %v, want %v", step.change, got, step.folds)
		}
		if len(last.Blocks[block(last, "blue")].Folded) == 0 {
			t.Errorf("%q: the gang on its own machine is not folded", step.change)
		}
	}
}

// ENG-8.7, SHARD-8.9: a credit before the plan that is left after its first part does not answer for the plan whether a gang folds.
func TestFoldsAreAskedAfterACreditThatWasLeft(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/one cpu=8 unit=cpu:4 same=rack in=type:big hold=backoff
		machine m1 speculative type=small cpu=4 label.rack=ra`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, change := range []string{"machine b1 speculative type=big cpu=8 label.rack=ra", "machine b1 withheld=quota"} {
		s.lines(change)
		pl.CreditAhead(engine.Input{World: s.w}, "red", 0)
		r, credited, _ := replan(t, s, pl, last)
		if credited != 1 {
			t.Errorf("%q: %d clusters credited, not 1", change, credited)
		}
		last = r
	}
}

// ENG-21.10: a plan in which nothing changed allocates as much for a large fleet as for a small one.
func TestAQuietPlanAllocatesForNoMachine(t *testing.T) {
	allocations := func(clusters int) float64 {
		s := newScript()
		for i := range clusters {
			id := string(rune('a'+i%26)) + string(rune('a'+i/26))
			s.lines(`
				need ` + id + `/web cpu=8 unit=cpu:4
				machines ` + id + `01..` + id + `02 configured=` + id + ` for=web cpu=4
				machines ` + id + `03..` + id + `05 idle reserved cpu=4`)
		}
		pl := planner.NewPlanner()
		pl.Plan(engine.Input{World: s.w})
		least := math.Inf(1)
		for range 5 { // the runtime allocates now and then, which is counted as well
			least = min(least, testing.AllocsPerRun(5, func() { pl.Plan(engine.Input{World: s.w}) }))
		}
		return least
	}
	const slack = 2 // the race detector's build has one more; one for each cluster would be 98
	if small, large := allocations(2), allocations(100); large > small+slack {
		t.Errorf("%v allocations with 2 clusters, %v with 100", small, large)
	}
}

// ENG-21.4: a plan after more changes of demand than are remembered sees the first of them, too, whatever happened to machines.
func TestAPlanAfterVeryManyChangesSeesThemAll(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		machine m1 configured=red for=web cpu=4
		machine m2 configured=blue for=web cpu=4
		machine m3 idle cpu=4`)
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	s.do("need red/web cpu=8")
	for k := range int32(1 << 15) {
		s.w.Demand.SetFacts("blue", demand.Facts{Heard: true, SharingPerMille: 1 + k%2})
	}
	if r := pl.Plan(engine.Input{World: s.w}); len(r.Actions) != 1 || r.Actions[0].Kind != engine.Bootstrap {
		t.Errorf("red asks for one machine more, and %v", r.Actions)
	}
}

// ENG-14.8, ENG-12.6: a Need that loses a machine in the allocation of another has an allocation of its own, and both are counted.
func TestAllocationsAndDisplacementsAreCounted(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/low cpu=4 unit=cpu:4 priority=1
		need red/high cpu=4 unit=cpu:4 priority=9 in=type:gpu
		machine m1 configured=red for=low type=gpu cpu=4
		machine m2 idle type=plain cpu=4 price=1`)
	r := planner.Plan(engine.Input{World: s.w})
	if c := r.Counters; c.OpenNeeds != 1 || c.Allocations != 2 || c.Displaced != 1 {
		t.Errorf("%d open, %d allocations, %d displaced", c.OpenNeeds, c.Allocations, c.Displaced)
	}
}

// ENG-14.8: a Need with a hard spread gets one share of a machine after the other, as each lets the next one count. It loses them together.
func TestANeedThatLosesSeveralSharesOfAMachineCountsOnce(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/high cpu=10 unit=cpu:10 priority=9 in=type:gpu
		need red/own cpu=2 unit=cpu:2 priority=2 in=zone:a
		need red/other cpu=2 unit=cpu:2 priority=2 in=zone:b
		need red/even cpu=4 unit=cpu:1 priority=1 spread=zone:1
		machine m1 configured=red for=own zone=a type=gpu cpu=10
		machine m2 configured=red for=other zone=b type=plain cpu=10`)
	for name, plan := range map[string]func(engine.Input) *engine.Result{"planner": planner.Plan, "reference": reference.Plan} {
		if c := plan(engine.Input{World: s.w}).Counters; c.Displaced != 2 { // own, which claims m1, and even
			t.Errorf("%s: %d displaced", name, c.Displaced)
		}
	}
}

// ENG-2.2, ENG-7.6, ENG-15.9: of victims that are alike the smallest id goes, also when new ids crowd between two others, so that the
// inventory numbers them again, while nothing happened to a cluster whose machines have other numbers now.
func TestTheSmallestIdIsFoundAmongCrowdedOnes(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/low cpu=4000 unit=cpu:4 priority=1
		need blue/low cpu=4000 unit=cpu:4 priority=1
		need green/low cpu=4000 unit=cpu:4 priority=1
		need white/high cpu=4 unit=cpu:4 priority=9
		machine a failed cpu=4
		machine z failed cpu=4`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for k := range 80 {
		id := fmt.Sprintf("a-%03d", 999-k) // between a and all the others
		s.do(fmt.Sprintf("machine %s configured=%s for=low cpu=4", id, []string{"red", "blue", "green"}[k%3]))
		r, credited, _ := replan(t, s, pl, last)
		if len(r.Actions) != 1 || s.w.Inventory.ID(r.Actions[0].Machine) != id || k > 2 && credited > 3 {
			t.Fatalf("%d clusters credited, actions %v; want one victim, %s", credited, r.Actions, id)
		}
		last = r
	}
}

// ENG-21.2: the Needs of a cluster stay when nothing but its machines changes and the same gangs fold.
func TestNeedsStayWhenMachinesChange(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:4
		need red/gang cpu=8 unit=cpu:4 same=rack in=type:big hold=backoff
		machine m1 configured=red for=web cpu=4
		machine m2 speculative cpu=4
		machine b1 configured=red for=web type=big cpu=8 label.rack=ra`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, x := range []struct {
		change string
		stay   bool
	}{
		{"machine m1 draining=red", true},
		{"machine m1 configured=red for=gang cpu=4", true}, // which is of another type
		{"need red/web cpu=12 unit=cpu:4", false},
		{"machine b1 failed", false}, // the gang folds no longer
		{"machine m1 draining=red", true},
	} {
		s.lines(x.change)
		var credited int
		if last, credited, _ = replan(t, s, pl, last); credited != 1 {
			t.Fatalf("%q: %d clusters are credited, want 1", x.change, credited)
		}
		if got := len(pl.MadeAgain()) == 1; got != x.stay {
			t.Errorf("%q: the Needs stay: %v, want %v", x.change, got, x.stay)
		}
	}
}

// ENG-21.2, SHARD-8.9: a cluster whose rows are those of the last plan is credited before the next one if a machine of it changed, and left alone if nothing
// did.
func TestOnlyWhatChangedIsCreditedAhead(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:4
		need blue/web cpu=4 unit=cpu:4
		machine m1 configured=red for=web cpu=4
		machine m2 configured=blue for=web cpu=4`)
	pl := planner.NewPlanner()
	last := pl.Plan(engine.Input{World: s.w})
	for _, x := range []struct {
		change string
		ahead  int
	}{{"", 0}, {"machine m2 price=3", 0}, {"machine m1 price=3", 1}} {
		s.lines(x.change)
		for part := range planner.AheadParts(1) {
			pl.CreditAhead(engine.Input{World: s.w}, "red", part)
		}
		if n := pl.CreditedAhead(); n != x.ahead {
			t.Errorf("%q: %d clusters are credited before the plan, want %d", x.change, n, x.ahead)
		}
		last, _, _ = replan(t, s, pl, last)
	}
}
