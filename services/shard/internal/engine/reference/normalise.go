package reference

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// normalising makes needs of rows, and says which machines count (ENG-8, ENG-17).
type normalising struct{ *State }

// normalise makes needs of rows. Gangs that fit one machine each, with equal profile and aggregate, become one folded need of
// single machines (ENG-8.3, ENG-8.4).
func (n normalising) normalise(c *Cluster) {
	c.normalised, c.folded = nil, nil
	type group struct{ fingerprint, aggregate string }
	groups := map[group]*Need{}
	for i := range c.Needs {
		d := &Need{Cluster: c, row: int32(i), Need: c.Needs[i], hold: c.Holds[i]}
		if len(d.Form.Spread) > 0 && d.Form.Same == nil {
			d.roundUp()
		}
		if room := c.HeadroomOf(i); room >= 0 {
			d.Aggregate = d.Aggregate.Add(d.MinUnit.Times(room)) // ENG-11.16
		} else {
			d.Elsewhere = d.MinUnit.Times(-room).Min(d.Aggregate) // ENG-11.18
			d.Aggregate = d.Aggregate.Sub(d.Elsewhere)
		}
		if d.Form.Same == nil || c.HeadroomOf(i) > 0 || c.left[int32(i)] || !n.Foldable(c, &d.Need) {
			c.normalised = append(c.normalised, d)
			continue
		}
		hash := demand.FoldGroup(n.World.Space, &d.Aggregate)
		g := group{d.Form.Stripped.Fingerprint, hash}
		f := groups[g]
		if f == nil {
			f = &Need{Cluster: c, row: engine.FoldedRow + int32(len(c.folded)), Need: d.Need, hold: d.hold}
			f.Form, f.Group, f.RowID, f.Key = d.Form.Stripped, hash, "", 0
			f.MinUnit, f.Size = d.Aggregate, demand.SizeOf(n.World.Space, &d.Aggregate)
			f.Aggregate = resource.Vector{}
			groups[g] = f
			c.folded = append(c.folded, f)
			c.normalised = append(c.normalised, f)
		}
		f.members = append(f.members, int32(i))
		f.Aggregate = f.Aggregate.Add(d.Aggregate)
		if demand.CompareArrival(d.Arrival, f.Arrival) < 0 {
			f.Arrival = d.Arrival
		}
		if d.hold == demand.NotHeld {
			f.hold = demand.NotHeld
		}
	}
	for _, d := range c.normalised {
		d.Same = d.Form.Same
		if len(d.Form.Spread) > 0 && d.Same == nil && (d.inUnits() || d.Aggregate.IsZero()) {
			d.Spread = &d.Form.Spread[0]
		}
		slices.SortFunc(d.members, func(a, b int32) int {
			x, y := &c.Needs[a], &c.Needs[b]
			return cmp.Or(demand.CompareArrival(x.Arrival, y.Arrival), strings.Compare(x.Group, y.Group),
				strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint))
		})
	}
	slices.SortFunc(c.normalised, compareNeeds)
}

// compareNeeds is the allocation order, in which every pass over needs goes (ENG-7.1, ENG-7.2).
func compareNeeds(a, b *Need) int {
	return cmp.Or(engine.CompareAllocation(&a.Need, a.Cluster.Name, &b.Need, b.Cluster.Name), cmp.Compare(len(a.members), len(b.members)))
}

// Foldable reports whether a gang fits one machine that it can have, and has not begun on smaller ones (ENG-8.2).
func (n *State) Foldable(c *Cluster, d *demand.Need) bool {
	if d.Aggregate.IsZero() || !d.Aggregate.Covers(&d.MinUnit) || d.Form.MaxPerHost > 0 && !d.Aggregate.Equal(&d.MinUnit) {
		return false
	}
	probe := &Need{Cluster: c, Need: *d}
	for _, m := range n.Machines { // a gang that has begun on smaller machines stays on them
		if s := n.Supply(m, c); n.own(probe, m) && n.Usable(probe, m) && !s.Covers(&d.Aggregate) {
			return false
		}
	}
	return normalising{n}.couldHold(probe, func(m *Machine) bool { return m.Seen.Bound() && m.Cluster == c.Name || InFlight(m, c) || obtainable(m) })
}

// obtainable reports whether m can be had by any cluster, claimed or not.
func obtainable(m *Machine) bool {
	return !m.Foreign && (m.Seen == inventory.Idle || m.Seen == inventory.Speculative) && !WithheldFor(m, "")
}

// couldHold reports whether one of the machines that among selects could hold all of d alone.
func (n normalising) couldHold(d *Need, among func(m *Machine) bool) bool {
	return slices.ContainsFunc(n.Machines, func(m *Machine) bool {
		s := n.Supply(m, d.Cluster)
		return among(m) && n.Match(d, m) && s.Covers(&d.Aggregate)
	})
}

// leave takes gangs out of folds that the cluster has no room for, if nothing may give way to them, there are smaller machines, and they own none: the
// last ones, as many as lack room (ENG-8.2a). It reports whether any left.
func (n normalising) leave(c *Cluster) (some bool) {
	for _, f := range c.folded {
		lacks := f.unitsFor(n.residual(f))
		if f.Form.Priority > min(0, c.normalised[len(c.normalised)-1].Form.Priority) {
			continue
		}
		for _, row := range slices.Backward(f.members) {
			d := &Need{Cluster: c, Need: c.Needs[row]}
			owns := slices.ContainsFunc(n.Machines, func(m *Machine) bool { return n.own(d, m) && n.Usable(d, m) })
			smaller := slices.ContainsFunc(n.Machines, func(m *Machine) bool {
				s := n.Supply(m, c)
				return n.Usable(d, m) && !s.Covers(&d.Aggregate)
			})
			if lacks > 0 && !owns && smaller && !n.couldHold(d, obtainable) {
				c.left[row], some = true, true
				lacks--
			}
		}
	}
	return some
}
