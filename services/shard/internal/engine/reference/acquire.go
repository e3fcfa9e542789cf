package reference

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// acquisition gives short needs machines, one need after the other (ENG-12).
type acquisition struct{ covering }

// allocate gives each short need one allocation, in order (ENG-12.2, 12.8). Its steps are those of ENG-12.3: what its own cluster
// has, shares, what is in flight, Idle machines, Speculative ones, and machines of lower priority in the cluster. A held need
// has none (ENG-18.1); partial success is kept (ENG-12.4).
func (n acquisition) allocate() {
	for _, d := range n.needs {
		if d.hold != demand.NotHeld || !n.isShort(d) {
			continue
		}
		if d.Same != nil {
			if !n.chooseDomain(d) {
				continue
			}
		} else {
			for missing := int64(-1); ; {
				n.claimWhileShort(d, n.bound(d.Cluster, func(m *Machine) bool { return m.claim == nil && n.Usable(d, m) }))
				n.share(d, func(m *Machine) bool { return true })
				now := d.unitsFor(n.residual(d))
				if d.Spread == nil || now == 0 || now == missing {
					break
				}
				missing = now // a share may let a machine count (ENG-13.9)
			}
			n.claimWhileShort(d, n.unclaimedInFlight(d))
		}
		n.takeBack(d)
		if !n.canStart(d) {
			continue
		}
		n.acquireFree(d)
		n.reattribute(d)
	}
}

// canStart reports whether what d has, what is free and what serves lower priorities in its cluster are enough for the Pods of a gang that start
// together (ENG-12.10). What is no such gang can always start.
func (n acquisition) canStart(d *Need) bool {
	lacks := d.LacksToStart(n.residual(d)).Sub(n.freeFor(d))
	for _, m := range n.selectMachines(func(m *Machine) bool { return n.servesOther(d, m, d.above) }, byID) {
		gain := n.displaceable(d, m, d.above)
		for _, sh := range m.shares {
			if sh.to == d {
				gain = gain.Sub(sh.credit) // its shares end when it claims the machine
			}
		}
		lacks = lacks.Sub(gain)
	}
	return lacks.IsZero()
}

// LacksToStart is the part of a residual that a gang needs before any of its Pods run (ENG-4.13).
func (d *Need) LacksToStart(rest resource.Vector) resource.Vector {
	switch least := int64(d.Form.MinMembers); {
	case least == 0 || len(d.members) > 0:
		return resource.Vector{}
	case d.inUnits():
		beyond := d.Aggregate.Sub(d.MinUnit.Times(least))
		return rest.Sub(beyond)
	}
	return rest
}

// freeFor is what the free machines that d may take count for it.
func (n acquisition) freeFor(d *Need) (sum resource.Vector) {
	for _, m := range n.Machines {
		if n.free(d, m) && inside(d, m) {
			sum = sum.Add(n.Yields(d, m))
		}
	}
	return sum
}

// acquireFree takes free machines: Idle ones, then Speculative ones (ENG-12.3).
func (n acquisition) acquireFree(d *Need) {
	if d.Spread != nil {
		n.acquireSpread(d)
		return
	}
	n.acquire(d, inventory.Idle)
	n.acquire(d, inventory.Speculative)
}

// acquire takes free machines of one pool: the cheapest cover of the candidates of ENG-13.1.
func (n acquisition) acquire(d *Need, pool inventory.State) {
	rest := n.residual(d)
	if rest.IsZero() {
		return
	}
	var list []*Machine
	for _, m := range n.Machines {
		if m.Seen == pool && n.free(d, m) && inside(d, m) {
			list = append(list, m)
		}
	}
	for _, m := range n.cover(d, rest, list) {
		n.claim(d, m)
		m.acquired = true
	}
}

// reattribute takes machines of the own cluster from needs of lower priority (ENG-12.5).
func (n acquisition) reattribute(d *Need) {
	lower := func(m *Machine) bool { return n.servesOther(d, m, d.above) }
	rank := func(a, b *Machine) int {
		return demand.CompareRank(&b.claim.Form.Profile, &a.claim.Form.Profile)
	}
	list := n.bound(d.Cluster, lower)
	slices.SortStableFunc(list, func(a, b *Machine) int { return cmp.Or(rank(a, b), packOrder(a, b)) })
	moving := n.inFlight(d.Cluster, lower)
	slices.SortStableFunc(moving, func(a, b *Machine) int { return cmp.Or(rank(a, b), byID(a, b)) })
	list = append(list, moving...)
	n.displace(d, list, d.above)
}

// takeBack takes the Own machines of a need that lost something from later needs of its cluster, and from gangs that cannot start: had credit
// known the loss, the need had claimed them itself (ENG-12.5a).
func (n acquisition) takeBack(d *Need) {
	if !d.displaced {
		return
	}
	loses := func(x *Need) bool {
		lacks := x.LacksToStart(n.residual(x))
		return d.before(x) || x != d && !lacks.IsZero()
	}
	mine := func(m *Machine) bool { return n.own(d, m) && n.servesOther(d, m, loses) }
	n.displace(d, append(n.bound(d.Cluster, mine), n.inFlight(d.Cluster, mine)...), d.before)
}

// above reports whether the priority of x is lower than that of d.
func (d *Need) above(x *Need) bool { return x.Form.Priority < d.Form.Priority }

// before reports whether x comes after d in allocation order.
func (d *Need) before(x *Need) bool { return compareNeeds(d, x) < 0 }

// displace credits the listed machines to d, as far as they contribute and it is short. Needs that lose their claims and shares get an allocation,
// which is still to come (ENG-12.6).
func (n acquisition) displace(d *Need, list []*Machine, loses func(*Need) bool) {
	for _, m := range list {
		rest := n.residual(d)
		if rest.IsZero() {
			return
		}
		if s := n.displaceable(d, m, loses); !s.Touches(&rest) {
			continue
		}
		if d.Spread != nil {
			if _, more := n.roomsNow(d).with(d, m, units(n.displaceable(d, m, loses), d.MinUnit)); !more {
				continue
			}
		}
		losers := []*Need{m.claim}
		for _, sh := range slices.Clone(m.shares) {
			if loses(sh.to) {
				if !slices.Contains(losers, sh.to) {
					losers = append(losers, sh.to)
				}
				m.shares = slices.DeleteFunc(m.shares, func(x *Share) bool { return x == sh })
				sh.to.received = slices.DeleteFunc(sh.to.received, func(x *Share) bool { return x == sh })
			}
		}
		n.displaced += len(losers)
		for _, x := range losers {
			x.displaced = true
		}
		n.drop(m.claim, m)
		n.claim(d, m)
	}
}

// servesOther reports whether m is a machine of d's cluster that d can use, claimed by a need that loses it.
func (n acquisition) servesOther(d *Need, m *Machine, loses func(*Need) bool) bool {
	mine := m.Seen.Bound() && m.Cluster == d.Cluster.Name && !m.excluded || InFlight(m, d.Cluster)
	return mine && m.claim != nil && loses(m.claim) && n.Usable(d, m) && inside(d, m)
}

// displaceable is what m counts for d when shares of needs that lose them are lost.
func (n acquisition) displaceable(d *Need, m *Machine, loses func(*Need) bool) resource.Vector {
	s := n.Supply(m, d.Cluster)
	for _, sh := range m.shares {
		if !loses(sh.to) && sh.to != d {
			s = s.Sub(sh.taken)
		}
	}
	return d.Gives(s)
}

// claimFreed lets each short need claim what others gave up after its allocation (ENG-12.9).
func (n acquisition) claimFreed() {
	for _, d := range n.needs {
		n.claimUnclaimed(d)
	}
}

// claimUnclaimed claims bound and in-flight machines of the cluster that no need claims.
func (n acquisition) claimUnclaimed(d *Need) {
	if !n.isShort(d) || d.Same != nil && !d.chosen {
		return
	}
	n.claimWhileShort(d, n.bound(d.Cluster, func(m *Machine) bool {
		return m.claim == nil && m.goesTo == nil && n.Usable(d, m) && inside(d, m)
	}))
	n.claimWhileShort(d, slices.DeleteFunc(n.unclaimedInFlight(d), func(m *Machine) bool { return !inside(d, m) }))
}

// unclaimedInFlight lists what is in flight for d's cluster and no need claims: d's Own first, then the others by id.
func (n acquisition) unclaimedInFlight(d *Need) []*Machine {
	free := func(m *Machine) bool { return m.claim == nil && m.goesTo == nil && n.Usable(d, m) }
	own := n.inFlight(d.Cluster, func(m *Machine) bool { return free(m) && n.own(d, m) })
	others := n.inFlight(d.Cluster, func(m *Machine) bool { return free(m) && !n.own(d, m) })
	slices.SortFunc(others, byID)
	return append(own, others...)
}
