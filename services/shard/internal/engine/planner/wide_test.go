package planner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// widen makes a cluster ask for more than four resources, each row for another amount of them.
func (f *fleet) widen() {
	for c := range f.clusters {
		for i := range f.clusters[c].rows {
			row := &f.clusters[c].rows[i].row
			k := int64(3)
			if len(row.MinUnit) > 0 && row.MinUnit[0].Milli > 0 {
				k = max(1, row.Aggregate[0].Milli/row.MinUnit[0].Milli)
				row.MinUnit = append(row.MinUnit[:len(row.MinUnit):len(row.MinUnit)], milli("x0", 1))
			}
			row.Aggregate = append(row.Aggregate[:len(row.Aggregate):len(row.Aggregate)], milli("x0", k))
			for x := 1; x <= 3; x++ {
				row.Aggregate = append(row.Aggregate, milli(fmt.Sprintf("x%d", x), int64(1+(i+x)%4)))
			}
		}
	}
	for i := range f.machines {
		f.machines[i].m.Resources = f.machines[i].more(f.machines[i].m.Resources, i)
		if len(f.machines[i].m.Allocatable) > 0 {
			f.machines[i].m.Allocatable = f.machines[i].more(f.machines[i].m.Allocatable, i)
		}
	}
}

func (x *fleetMachine) more(list []resource.Quantity, i int) []resource.Quantity {
	list = list[:len(list):len(list)]
	for d := range 4 {
		list = append(list, milli(fmt.Sprintf("x%d", d), int64(1+(i*7+d*5)%6)))
	}
	return list
}

// enlarge multiplies every amount, until sums are just within 63 bits.
func (f *fleet) enlarge() {
	grow := func(list []resource.Quantity) []resource.Quantity {
		out := make([]resource.Quantity, 0, len(list))
		for _, q := range list {
			out = append(out, resource.Quantity{Name: q.Name, Milli: q.Milli << 45})
		}
		return out
	}
	for c := range f.clusters {
		f.clusters[c].overhead = grow(f.clusters[c].overhead)
		for i := range f.clusters[c].rooms {
			f.clusters[c].rooms[i].Amounts = grow(f.clusters[c].rooms[i].Amounts)
		}
		for i := range f.clusters[c].rows {
			row := &f.clusters[c].rows[i].row
			row.Aggregate, row.MinUnit = grow(row.Aggregate), grow(row.MinUnit)
			f.clusters[c].rows[i].room = min(0, f.clusters[c].rows[i].room) // amounts near the limit of int64 get no room
		}
	}
	for i := range f.machines {
		m := &f.machines[i].m
		m.Resources, m.Allocatable = grow(m.Resources), grow(m.Allocatable)
	}
}

// ENG-23.8, ENG-P11, scenario 67: also where a cover has more dimensions, or larger amounts, than its short cuts are made for.
func TestWideDemandEqualsNaive(t *testing.T) {
	for name, change := range map[string]func(f *fleet){"dimensions": (*fleet).widen, "amounts": (*fleet).enlarge} {
		t.Run(name, func(t *testing.T) {
			checkFleets(t, func(f *fleet) error {
				g := f.copied()
				change(g)
				w := g.build(straight)
				in := engine.Input{World: w, Policy: g.policy}
				if d := difference(render(w, reference.Plan(in)), render(w, planner.Plan(in))); d != "" {
					return errors.New("- naive, + engine\n" + d)
				}
				return nil
			})
		})
	}
}

// copied shares nothing with f that widen and enlarge change.
func (f *fleet) copied() *fleet {
	g := *f
	g.machines = append([]fleetMachine(nil), f.machines...)
	g.clusters = nil
	for _, c := range f.clusters {
		c.rows = append([]fleetRow(nil), c.rows...)
		g.clusters = append(g.clusters, c)
	}
	return &g
}
