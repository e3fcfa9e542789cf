package reference

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// preempting takes promises, excess and victims for what is still short (ENG-15).
type preempting struct{ acquisition }

// preemption looks, for each need that is still short, at promises of lower priority, at excess, and at victims, in this order
// (ENG-15.1 to 15.3). A gang takes all or nothing. What is short afterwards is unresolved (ENG-15.14).
func (n preempting) preemption() {
	order := 0
	for _, d := range n.needs {
		if d.lost {
			n.claimUnclaimed(d)
			if d.hold == demand.NotHeld && n.canStart(d) {
				n.acquireFree(d)
			}
		}
		if d.hold != demand.NotHeld || !n.isShort(d) || d.Same != nil && !d.chosen {
			continue
		}
		gang := d.Same != nil && !d.MinUnit.Covers(&d.Aggregate) && d.Form.MinMembers == 0
		rest := n.residual(d)
		var room rooms
		if d.Spread != nil {
			room = n.roomsWithFree(d)
			rest = d.Aggregate.Sub(d.MinUnit.Times(room.served(d.Spread)))
		}
		lacks := d.LacksToStart(rest)
		starts := d.Spread == nil && !lacks.IsZero() // it takes what is free as well, if it can start (ENG-15.3)
		if starts {
			rest = rest.Sub(n.freeFor(d))
		}
		// want takes m for d on paper: it must contribute and be in the domain.
		want := func(m *Machine) bool {
			s := n.Yields(d, m)
			if rest.IsZero() || !s.Touches(&rest) || !inside(d, m) {
				return false
			}
			if d.Spread != nil {
				more, gains := room.with(d, m, units(s, d.MinUnit))
				if !gains {
					return false
				}
				room = more
				rest = d.Aggregate.Sub(d.MinUnit.Times(room.served(d.Spread)))
				return true
			}
			rest = rest.Sub(s)
			return true
		}
		over := pick(n.takeover(d), want)
		excess := pick(n.excess(d), want)
		before := rest
		victims := pick(n.candidates(d), want)
		if rest.IsZero() && d.Spread == nil {
			victims = n.withoutUnneededVictims(d, before, victims)
		}
		drained := slices.Concat(excess, victims)
		d.victims = len(drained)
		for _, m := range drained {
			for i := range d.Aggregate.Len() {
				dim, s := d.Aggregate.Dim(i), n.Supply(m, d.Cluster)
				d.freed = d.freed.With(dim, resource.AddSat(d.freed.Get(dim), s.Get(dim)))
			}
		}
		lacks = d.LacksToStart(rest)
		if gang && !rest.IsZero() || !lacks.IsZero() {
			continue
		}
		if starts {
			n.acquireFree(d)
		}
		for _, m := range over {
			n.takeOver(d, m)
		}
		for _, m := range excess {
			kind, attributed := engine.Reclaim, int32(0)
			if m.attribution != nil {
				attributed = m.attribution.Priority
			}
			cause := engine.CauseExcessPromised
			if d.Form.Priority > attributed {
				kind, cause = engine.Preempt, engine.CauseExcessTaken
			}
			order++
			m.preempt = &plannedDrain{kind: kind, cause: cause, preemptor: d, gap: int64(d.Form.Priority) - int64(attributed), order: order}
			m.goesTo = d
			d.promised = append(d.promised, m)
		}
		for _, m := range victims {
			order++
			gap, terms := n.victimScore(d, m)
			m.preempt = &plannedDrain{kind: engine.Preempt, cause: engine.CauseInversion, preemptor: d, gap: gap, terms: terms, order: order}
			m.goesTo = d
			d.promised = append(d.promised, m)
		}
	}
}

// pick keeps what want accepts, in order.
func pick(list []*Machine, want func(m *Machine) bool) []*Machine {
	var out []*Machine
	for _, m := range list {
		if want(m) {
			out = append(out, m)
		}
	}
	return out
}

// takeover lists what ENG-15.4 may hand on to d.
func (n preempting) takeover(d *Need) []*Machine {
	rank := map[inventory.State]int{inventory.Idle: 0, inventory.Draining: 1, inventory.Creating: 2}
	return n.selectMachines(func(m *Machine) bool {
		_, moving := rank[m.Seen]
		return moving && m.Promise != nil && !m.Foreign && m.goesTo == nil && m.claim != d && m.Promise.For.Priority < d.Form.Priority &&
			n.effective(m) < int64(d.Form.Priority) && !WithheldFor(m, d.Cluster.Name) && n.Usable(d, m)
	}, func(a, b *Machine) int {
		return cmp.Or(cmp.Compare(a.Promise.For.Priority, b.Promise.For.Priority), cmp.Compare(rank[a.Seen], rank[b.Seen]),
			cmp.Compare(a.Price, b.Price), byID(a, b))
	})
}

// effective is the effective priority of ENG-15.7; of a machine in flight, that of those it was credited to.
func (n preempting) effective(m *Machine) int64 {
	p := int64(-1 << 40)
	if m.Seen.Bound() && m.attribution != nil {
		p = int64(m.attribution.Priority)
	}
	if m.claim != nil {
		p = max(p, int64(m.claim.Form.Priority))
	}
	for _, s := range m.shares {
		p = max(p, int64(s.to.Form.Priority))
	}
	return p
}

// takeOver hands the promise of m on to d. Whoever was credited with it is short again.
func (n preempting) takeOver(d *Need, m *Machine) {
	if m.claim != nil {
		m.claim.lost = true
		n.drop(m.claim, m)
	}
	for _, s := range m.shares {
		s.to.lost = true
		s.to.received = slices.DeleteFunc(s.to.received, func(x *Share) bool { return x == s })
	}
	m.shares = nil
	m.goesTo = d
	d.promised = append(d.promised, m)
}

// excess lists what ENG-15.5 may give to d.
func (n preempting) excess(d *Need) []*Machine {
	return n.selectMachines(func(m *Machine) bool {
		return n.isExcess(m) && m.goesTo == nil && m.Cluster != d.Cluster.Name && !WithheldFor(m, d.Cluster.Name) && n.Usable(d, m)
	}, func(a, b *Machine) int { return cmp.Or(cmp.Compare(a.Price, b.Price), byID(a, b)) })
}

// isExcess reports whether m is a Configured machine that no need claims.
func (n *State) isExcess(m *Machine) bool {
	return m.Seen == inventory.Configured && !m.Foreign && m.claim == nil && n.heard(m.Cluster)
}

// heard reports whether a cluster has reported since the shard started.
func (n *State) heard(cluster string) bool {
	c := n.World.Demand.Cluster(cluster)
	return c != nil && c.Facts.Heard
}

// candidates lists the victims of ENG-15.6 for d, best first.
func (n preempting) candidates(d *Need) []*Machine {
	list := n.selectMachines(func(m *Machine) bool {
		return !d.Form.NeverPreempts && m.Seen == inventory.Configured && !m.Foreign && m.claim != nil && m.goesTo == nil && m.Cluster != d.Cluster.Name &&
			n.heard(m.Cluster) && n.effective(m) < int64(d.Form.Priority) && !WithheldFor(m, d.Cluster.Name) && n.Usable(d, m)
	}, byID)
	slices.SortStableFunc(list, func(a, b *Machine) int {
		_, x := n.victimScore(d, a)
		_, y := n.victimScore(d, b)
		return cmp.Or(cmp.Compare(y.Sum(), x.Sum()), cmp.Compare(a.rank, b.rank), cmp.Compare(a.Price, b.Price))
	})
	return list
}

// victimScore rates a victim: the priority gap, the time of a drain, and the penalties of its attribution (ENG-15.9).
func (n preempting) victimScore(d *Need, m *Machine) (gap int64, t engine.ScoreTerms) {
	gap = int64(d.Form.Priority) - n.effective(m)
	cents := func(p demand.Penalty) int64 { return max(1, int64(p)*50) }
	var attribution inventory.Attribution
	if m.attribution != nil {
		attribution = *m.attribution
	}
	w := n.Policy.VictimWeights
	return gap, engine.ScoreTerms{
		Priority:     w.Priority * 100_000 * gap,
		Drain:        w.Drain * 100_000 / n.Policy.DrainSeconds(m.DrainSeconds),
		Interruption: w.Interruption * 10_000_000 / cents(attribution.Interruption),
		Reclamation:  w.Reclamation * 10_000_000 / cents(attribution.Reclamation),
	}
}

// withoutUnneededVictims drops victims that are not needed, worst first (ENG-15.10).
func (n preempting) withoutUnneededVictims(d *Need, residual resource.Vector, victims []*Machine) []*Machine {
	for _, m := range slices.Backward(slices.Clone(victims)) {
		if fewer := slices.DeleteFunc(slices.Clone(victims), func(x *Machine) bool { return x == m }); n.covers(d, residual, fewer) {
			victims = fewer
		}
	}
	return victims
}
