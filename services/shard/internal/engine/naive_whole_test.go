package engine

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// inUnits reports whether the aggregate of d is a number of whole units (ENG-4.12).
func (d *nNeed) inUnits() bool {
	whole := d.n.MinUnit.Times(units(d.n.Aggregate, d.n.MinUnit))
	return !whole.IsZero() && whole.Equal(&d.n.Aggregate)
}

// gives is what room contributes to d: whole units, or all of it.
func (d *nNeed) gives(room resource.Vector) resource.Vector {
	if !d.inUnits() {
		return room
	}
	return d.n.MinUnit.Times(units(room, d.n.MinUnit))
}

// yields is what m contributes to d when nothing is on it.
func (n *naive) yields(d *nNeed, m *nMachine) resource.Vector { return d.gives(n.supply(m, d.c)) }

// usedInUnits lays the units of a Need over its credited machines, one after the other (ENG-11.3).
func (n *naive) usedInUnits(g *nNeed, list []*nMachine) map[*nMachine]resource.Vector {
	out := map[*nMachine]resource.Vector{}
	left := units(g.n.Aggregate, g.n.MinUnit)
	for _, m := range list {
		k := min(left, units(n.worth(g, m), g.n.MinUnit))
		out[m] = g.n.MinUnit.Times(k)
		left -= k
	}
	return out
}
