package planner_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// racksThatDiffer are racks with 3 to 5 of 12 types of machines, each with another number of each.
func racksThatDiffer(s *script, racks int, state string) {
	r := rand.New(rand.NewPCG(uint64(racks), 1))
	var lines strings.Builder
	for d := range racks {
		for i, pool := range r.Perm(12)[:3+r.IntN(3)] {
			for m := range 1 + r.IntN(6) {
				fmt.Fprintf(&lines, "machine m%d-%d-%d cpu=%d mem=%d label.rack=r%d label.pool=p%d %s\n", d, i, m, 4+2*pool, 8+pool*pool, d, pool, state)
			}
		}
	}
	s.lines(lines.String())
}

// gangsOfSizes are gangs of so many sizes, least members on, and so many units, in one rack each.
func gangsOfSizes(w *engine.World, n, sizes, units, least int, start bool) {
	rows := make([]demand.Row, n)
	for i := range rows {
		k, u := int64(least+i%sizes), int64(1_000+i%units)
		rows[i] = demand.Row{Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "rack", Op: demand.Same}}}, Group: fmt.Sprint(i), RowID: fmt.Sprint(i),
			Aggregate: []resource.Quantity{{Name: "cpu", Milli: k * u}, {Name: "mem", Milli: k * 1_500}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: u}, {Name: "mem", Milli: 1_500}}}
		if start {
			rows[i].Profile.MinMembers = int32(k)
		}
		rows[i].Seal()
	}
	w.Demand.Replace("red", rows, nil, 1)
}

// ENG-21.9: gangs of thousands of sizes, and of as many units, beside racks that all differ.
func BenchmarkRacksThatDiffer(b *testing.B) {
	for _, racks := range []int{2_000, 5_000} {
		for _, state := range []string{"speculative", "idle", "configured=blue"} {
			for _, units := range []int{1, 16_667} {
				for _, least := range []int{3_000, 60} { // no rack can hold any; racks can hold some
					for _, start := range []bool{false, true} {
						s := newScript()
						racksThatDiffer(s, racks, state)
						gangsOfSizes(s.w, 16_667, 3_000, units, least, start)
						b.Run(fmt.Sprintf("racks=%d/%s/units=%d/least=%d/start=%v", racks, state, units, least, start), func(b *testing.B) {
							for b.Loop() {
								r := planner.Plan(engine.Input{World: s.w})
								b.ReportMetric(float64(len(r.Short)), "short")
							}
						})
					}
				}
			}
		}
	}
}

// ENG-21.9: gangs of whatever sizes share what is known of racks that all differ, when they choose one and when it is said why none can hold them: one
// cluster can state as many sizes as rows.
func TestGangsOfManySizesLookAtFewRacks(t *testing.T) {
	const racks, gangs = 400, 1_000
	for name, c := range map[string]struct {
		state string
		least int
		short int
	}{
		"too large for all":         {"speculative", 3_000, gangs},
		"too large for most":        {"idle", 60, 0},
		"machines serve another":    {"configured=blue", 60, gangs},
		"all too large, and in use": {"configured=blue", 3_000, gangs},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			racksThatDiffer(s, racks, c.state)
			gangsOfSizes(s.w, gangs, gangs, 1, c.least, true)
			pl := planner.NewPlanner()
			r := pl.Plan(engine.Input{World: s.w})
			if c.short > 0 && len(r.Short) != c.short || len(r.Short) == 0 || c.short == 0 && len(r.Short) == gangs {
				t.Errorf("%d are short", len(r.Short))
			}
			sets, kinds := pl.Counted()
			choice, reason := pl.Looks()
			if sets > 1 || kinds > 1 || choice > gangs*racks/8 || reason > racks {
				t.Errorf("domains are counted for %d sets of classes and %d kinds; %d looks at nodes to choose, %d at domains for the reason", sets, kinds, choice, reason)
			}
			t.Logf("%d short, %d and %d looks", len(r.Short), choice, reason)
		})
	}
}

// ENG-21.9: what is known of domains is bounded, however many units gangs have: of many domains it is large.
func TestGangsOfManyUnitsKeepFewSums(t *testing.T) {
	s := newScript()
	racksThatDiffer(s, 1_000, "speculative")
	gangsOfSizes(s.w, 8_000, 1, 400, 3_000, true) // 20 of each
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	if n := pl.Sums(); n == 0 || n > 1<<19/2_000+1 {
		t.Errorf("%d sums of 1,000 domains in two dimensions are kept", n)
	}
}
