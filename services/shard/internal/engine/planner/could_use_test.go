package planner_test

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// ENG-22: the alarm for a machine that goes while a Need of its cluster could use it would ring. No plan gives such a machine up, so the count is
// asked about one that another Need has.
func TestReclaimThatAShortNeedCouldUseIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		need string
		want int
	}{
		"short and usable":                {"need red/a cpu=8", 1},
		"short of what the machine lacks": {"need red/a cpu=1 gpu=1", 0},
		"covered":                         {"need red/a cpu=1 in=zone:z2", 0},
		"of another zone":                 {"need red/a cpu=8 in=zone:z2", 0},
		"with a unit that does not fit":   {"need red/a cpu=8 unit=cpu:8", 0},
		"a gang in its rack":              {"need red/a cpu=12 unit=cpu:4 same=rack in=rack:r1", 1},
		"a gang in another rack":          {"need red/a cpu=12 unit=cpu:4 same=rack", 0},
		"a hard spread":                   {"need red/a cpu=12 unit=cpu:4 spread=zone:1", 0},
	} {
		s := newScript()
		s.lines(c.need)
		s.lines(`
			need red/owner cpu=4 priority=10 in=type:big
			machine m1 configured=red for=owner cpu=4 type=big zone=z1 label.rack=r1 price=1
			machine m2 configured=red cpu=2 zone=z2 type=small label.rack=r1 price=1
			machine m5 configured=red cpu=4 zone=z1 type=small label.rack=r1 price=1
			machines m3..m4 configured=red cpu=4 zone=z3 type=small label.rack=r2 price=1`)
		if name != "a gang in another rack" {
			s.lines(`remove m3 m4`)
		}
		pl := planner.NewPlanner()
		if r := pl.Plan(engine.Input{World: s.w}); r.Counters.ReclaimMatchesUnmet != 0 {
			t.Errorf("%s: the plan gives up a machine that is needed", name)
		}
		if got := pl.CouldUse(s.w, "red", "m1"); got != c.want {
			t.Errorf("%s: %d could use it, want %d", name, got, c.want)
		}
	}
}
