package planner_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// ENG-15.14, 11.8: a gang that moves lets go of the machine that a held row has a share of. The row claims all of it, and is not among
// the short, although it has no allocation.
func TestWhoIsCoveredByWhatAGangLetsGoIsNotShort(t *testing.T) {
	s := newScript()
	s.lines(`
		cluster blue sharing=1000
		need blue/gang priority=600 cpu=3 mem=30 unit=cpu:1 same=rack
		need blue/web priority=10 cpu=3 unit=cpu:1 hold=backoff
		machine m1 configured=blue cpu=4 mem=2 label.rack=a
		machine m2 speculative cpu=8 mem=8 label.rack=b price=1`)
	r := planner.Plan(engine.Input{World: s.w})
	if d := difference(render(s.w, reference.Plan(engine.Input{World: s.w})), render(s.w, r)); d != "" {
		t.Fatalf("- naive, + engine\n%s", d)
	}
	if len(r.Short) != 1 { // the gang, for want of memory
		t.Errorf("%d rows are short, not 1: %+v", len(r.Short), r.Short)
	}
}

// ENG-12.3, 15.14: gangs that ask the same and find nothing are refused one after the other without a look, and each has its
// verdict and its place among the short.
func TestGangsThatAskTheSameAreRefusedAlike(t *testing.T) {
	s := newScript()
	for _, cluster := range []string{"blue", "green", "red"} {
		for _, row := range []string{"a", "b", "c"} {
			s.do("need " + cluster + "/" + row + " cpu=12 unit=cpu:4 same=rack")
		}
	}
	s.lines(`
		machine m1 idle cpu=4 label.rack=a
		machine m2 idle cpu=4 label.rack=a
		machine m3 idle cpu=4 label.rack=a
		machine m4 configured=red cpu=4 label.rack=b`) // what red has of its own counts for its gangs, refused or not
	r := planner.Plan(engine.Input{World: s.w})
	if d := difference(render(s.w, reference.Plan(engine.Input{World: s.w})), render(s.w, r)); d != "" {
		t.Fatalf("- naive, + engine\n%s", d)
	}
	if len(r.Short) != 8 {
		t.Errorf("%d gangs are short, not 8", len(r.Short))
	}
}

// ENG-5.7, ENG-16.1: a machine that folded gangs no longer need is released in their name.
func TestMachinesOfFoldedGangsAreReleasedForThem(t *testing.T) {
	s := newStage()
	s.answer(t, strings.Split(`need red/g1 cpu=2 unit=cpu:1 same=rack
need red/g2 cpu=2 unit=cpu:1 same=rack
need red/g3 cpu=2 unit=cpu:1 same=rack
machine m1 idle cpu=4 label.rack=ra
machine m2 idle cpu=4 label.rack=ra
run 5
need red/g2 cpu=0
need red/g3 cpu=0`, "\n"))
	r := s.plan(t)
	sameBytes(t, s.w, r, reference.Plan(s.input()))
	if len(r.Actions) != 1 || r.Actions[0].Kind != engine.Reclaim || s.name(r, r.Actions[0].Need) != "red/fold(g1)" {
		t.Errorf("%+v, want a reclaim in the name of red/fold(g1)", r.Actions)
	}
}
