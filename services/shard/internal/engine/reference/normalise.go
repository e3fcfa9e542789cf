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
func (n normalising) normalise() {
	for _, c := range n.Clusters {
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
			if d.Form.Same == nil || c.HeadroomOf(i) > 0 || !n.Foldable(c, &d.Need) {
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
		n.needs = append(n.needs, c.normalised...)
	}
	slices.SortFunc(n.needs, compareNeeds)
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
	for _, m := range n.Machines {
		mine := m.Seen.Bound() && m.Cluster == c.Name || InFlight(m, c)
		pool := !m.Foreign && (m.Seen == inventory.Idle || m.Seen == inventory.Speculative) && !WithheldFor(m, "")
		if !mine && !pool || !n.Match(probe, m) {
			continue
		}
		if s := n.Supply(m, c); s.Covers(&d.Aggregate) {
			return true
		}
	}
	return false
}
