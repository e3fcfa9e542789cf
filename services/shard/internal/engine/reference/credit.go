package reference

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// crediting counts what each cluster has for its needs (ENG-9).
type crediting struct{ *State }

// credit counts the machines of a cluster for its needs, in three rounds: own machines, other bound machines and shares on
// them, machines in flight (ENG-9.3, 9.4, 9.6; ENG-9.5 gives the reasons). Held needs take part (ENG-18.1).
func (n crediting) credit(c *Cluster) {
	unclaimed := func(m *Machine) bool { return m.claim == nil }
	for _, d := range c.normalised { // round 1
		if d.Same != nil {
			n.ownDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool { return unclaimed(m) && n.own(d, m) && n.Usable(d, m) }))
	}
	for _, d := range c.normalised { // round 2
		if !n.isShort(d) || d.chosen {
			continue
		}
		if d.Same != nil {
			n.creditDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool {
			return unclaimed(m) && (m.attribution == nil || !m.attribution.Ours()) && n.Usable(d, m)
		}))
		n.share(d, func(m *Machine) bool { return m.Seen.Bound() })
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool { return unclaimed(m) && n.Usable(d, m) }))
		n.claimWhileShort(d, n.inFlight(c, func(m *Machine) bool { return unclaimed(m) && n.own(d, m) && n.Usable(d, m) }))
	}
	for _, d := range c.normalised { // round 3
		if !n.isShort(d) {
			continue
		}
		n.share(d, func(m *Machine) bool { return InFlight(m, c) })
		spill := n.selectMachines(func(m *Machine) bool { return InFlight(m, c) && unclaimed(m) && n.Usable(d, m) }, byID)
		if d.Same != nil {
			if !d.chosen {
				d.domain, d.chosen = n.bestBucket(d, spill)
			}
			spill = inDomain(d, spill)
		}
		n.claimWhileShort(d, spill)
	}
	n.keepBusy(c)
	for _, d := range c.normalised {
		n.dropEmpty(d)
		if n.keepInUse(d) {
			n.dropEmpty(d)
		}
	}
}

// dropEmpty ends claims of machines whose nodes are empty and without which the need is covered, too: its walk came to machines in use
// later, as they are not its own (ENG-9.13).
func (n crediting) dropEmpty(d *Need) {
	if d.Same != nil || n.isShort(d) {
		return
	}
	empty := slices.DeleteFunc(slices.Clone(d.claims), func(m *Machine) bool {
		return m.Seen != inventory.Configured || m.Foreign || m.rank != inventory.OccupancyEmpty.Rank() || len(m.shares) > 0
	})
	slices.SortFunc(empty, lastFirst)
	for _, m := range empty {
		if m.kept = true; !n.isShort(d) { // a kept machine does not count
			n.drop(d, m)
		}
		m.kept = false
	}
}

// keepInUse lets a need of which Pods run elsewhere claim unclaimed machines in use, as they may run there, and one with a hard spread its own
// machines in use until these hold what they held with its room (ENG-11.18). It reports whether it claims any.
func (n crediting) keepInUse(d *Need) (claimed bool) {
	own := int64(0)
	if d.Spread != nil {
		own = d.Cluster.OwnOf(int(d.row))
	}
	if d.Elsewhere.IsZero() && own == 0 {
		return false
	}
	for _, s := range d.received {
		if own > 0 { // beside what its machines hold
			own = resource.AddSat(own, s.units)
		}
	}
	for _, m := range n.bound(d.Cluster, func(m *Machine) bool {
		return m.Seen == inventory.Configured && m.inUse && m.claim == nil && n.Usable(d, m)
	}) {
		all := d.Aggregate.Add(d.Elsewhere)
		elsewhere := !d.Elsewhere.IsZero() && n.mayRunOn(d, m, all.Sub(n.held(d)))
		if elsewhere || n.own(d, m) && n.mayRunOn(d, m, d.MinUnit.Times(own).Sub(n.held(d))) {
			n.claim(d, m)
			claimed = true
		}
	}
	return claimed
}

// held is what the claims and shares of a need hold. Of a hard spread it is all of it, whatever the skew allows: which of its Pods run
// elsewhere, and so how many under each value, is not known.
func (n crediting) held(d *Need) resource.Vector {
	if d.Spread == nil {
		return n.credited(d)
	}
	all := int64(0)
	for _, u := range n.roomsNow(d) {
		all = resource.AddSat(all, u)
	}
	return d.MinUnit.Times(all)
}

// mayRunOn reports whether Pods of d may run on m that do not run on what it has.
func (n crediting) mayRunOn(d *Need, m *Machine, rest resource.Vector) bool {
	if d.Spread != nil {
		if _, has := attr(&m.Machine, d.Spread.Key); !has {
			return false
		}
	}
	s := n.worth(d, m)
	return s.Touches(&rest)
}

// keepBusy lets unclaimed machines take the place of claimed ones whose nodes hold less (ENG-9.12).
func (n crediting) keepBusy(c *Cluster) {
	ours := func(m *Machine) bool { return m.Seen == inventory.Configured && !m.Foreign }
	claimed := n.bound(c, func(m *Machine) bool {
		return ours(m) && m.claim != nil && !m.kept && m.claim.Same == nil
	})
	rest := n.bound(c, func(m *Machine) bool { return ours(m) && m.claim == nil })
	for len(rest) > 0 {
		e := rest[0]
		rest = rest[1:]
		for i := len(claimed) - 1; i >= 0 && claimed[i].rank < e.rank; i-- {
			m := claimed[i]
			if e.Price > m.Price || !n.holdsMore(c, e, m) || !n.Usable(m.claim, e) || m.claim.Spread != nil && !n.spreadAllows(m.claim, e, m) ||
				slices.ContainsFunc(m.shares, func(s *Share) bool {
					return compareNeeds(s.to, m.claim) < 0 || !n.Usable(s.to, e) || s.to.Spread != nil && Value(e, s.to.Spread.Key) != Value(m, s.to.Spread.Key)
				}) {
				continue
			}
			e.claim, m.claim = m.claim, nil
			list := e.claim.claims
			at := slices.Index(list, m)
			e.claim.claims = append(slices.Delete(list, at, at+1), e)
			e.shares, m.shares = m.shares, nil
			for _, s := range e.shares {
				s.on = e
			}
			claimed = slices.Delete(claimed, i, i+1)
			for _, x := range n.spare(e.claim) {
				claimed = slices.DeleteFunc(claimed, func(y *Machine) bool { return x == y })
				if ours(x) {
					rest = append(rest, x)
				}
			}
			slices.SortFunc(rest, keepOrder)
			break
		}
	}
}

// spreadAllows reports whether e may take the place of m for a need with a hard spread: under the same value, or with as many units that run if
// the node of m is empty, so that no Pod moves to another value.
func (n crediting) spreadAllows(d *Need, e, m *Machine) bool {
	v, has := attr(&e.Machine, d.Spread.Key)
	from := Value(m, d.Spread.Key)
	if !has || v != from && m.rank != inventory.OccupancyEmpty.Rank() {
		return false
	}
	before, after := n.roomsNow(d), n.roomsNow(d)
	after[from] -= n.unitsOn(d, m)
	s := n.Supply(e, d.Cluster)
	for _, sh := range m.shares { // they go with the claim
		s = s.Sub(sh.taken)
	}
	after.add(v, units(d.Gives(s), d.MinUnit))
	return after.served(d.Spread) >= min(before.served(d.Spread), units(d.Aggregate, d.MinUnit))
}

// spare ends the claims that a need no longer needs, as the machine that it got supplies more than the one before. The last that
// a walk would take goes first; what others have a share of stays.
func (n crediting) spare(d *Need) (gone []*Machine) {
	list := slices.DeleteFunc(slices.Clone(d.claims), func(m *Machine) bool { return m.kept || len(m.shares) > 0 })
	slices.SortFunc(list, lastFirst)
	for _, m := range list {
		m.kept = true // a kept machine does not count
		short := n.isShort(d)
		m.kept = false
		if short {
			break
		}
		n.drop(d, m)
		gone = append(gone, m)
	}
	return gone
}

// lastFirst puts those in flight, by id, before the bound ones, and these in the opposite of the order in which walks take them.
func lastFirst(a, b *Machine) int {
	switch x, y := a.Seen.Bound(), b.Seen.Bound(); {
	case x && y:
		return cmp.Or(cmp.Compare(a.Seen, b.Seen), keepOrder(b, a))
	case x:
		return 1
	case y:
		return -1
	}
	return byID(b, a)
}

// holdsMore reports whether e supplies no less than m of all that the cluster asks for.
func (n crediting) holdsMore(c *Cluster, e, m *Machine) bool {
	x, y := n.Supply(e, c), n.Supply(m, c)
	return !slices.ContainsFunc(c.normalised, func(d *Need) bool {
		for _, v := range []*resource.Vector{&d.Aggregate, &d.MinUnit} {
			for i := range v.Len() {
				if v.Val(i) > 0 && x.Get(v.Dim(i)) < y.Get(v.Dim(i)) {
					return true
				}
			}
		}
		return false
	})
}

// own reports whether m was bound or promised for d (ENG-5.7).
func (n *State) own(d *Need, m *Machine) bool {
	if m.Seen.Bound() {
		return m.Cluster == d.Cluster.Name && m.attribution != nil && names(d, m.attribution)
	}
	return InFlight(m, d.Cluster) && names(d, &m.Promise.For)
}

// names reports whether an attribution is that of d, or of a member of d.
func names(d *Need, s *inventory.Attribution) bool {
	if s.Fingerprint == d.Form.Fingerprint && s.Group == d.Group {
		return true
	}
	for _, r := range d.members {
		if x := &d.Cluster.Needs[r]; s.Fingerprint == x.Form.Fingerprint && s.Group == x.Group {
			return true
		}
	}
	return false
}
