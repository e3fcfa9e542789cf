package engine

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// preemption is ENG-15.1 to 15.3: the means in their order, those of a gang all or none. What is short after it is
// unresolved (ENG-15.14).
func (n *naive) preemption() {
	order := 0
	for _, d := range n.needs {
		if d.lost {
			n.lookAgain(d)
			if d.hold == demand.NotHeld {
				n.acquire(d, inventory.Idle)
				n.acquire(d, inventory.Speculative)
			}
		}
		if d.hold != demand.NotHeld || !n.short(d) || d.same != nil && !d.chosen {
			continue
		}
		gang := d.same != nil && !d.n.MinUnit.Covers(&d.n.Aggregate)
		rest := n.residual(d)
		counts := map[string]int{}
		if d.spread != nil {
			counts = n.known(d)
		}
		// want takes m for d on paper: it must contribute, be in the domain and keep the skew.
		want := func(m *nMachine) bool {
			s := n.yields(d, m)
			if rest.IsZero() || !s.Touches(&rest) || !inside(d, m) {
				return false
			}
			if d.spread != nil {
				v, has := attr(&m.m, d.spread.Key)
				if !has || !mayGo(counts, v, d.spread.MaxSkew) {
					return false
				}
				counts[v]++
			}
			rest = rest.Sub(s)
			return true
		}
		over := nPick(n.takeover(d), want)
		excess := nPick(n.excess(d), want)
		before := rest
		victims := nPick(n.candidates(d), want)
		if rest.IsZero() && d.spread == nil {
			victims = n.spare(d, before, victims)
		}
		drained := slices.Concat(excess, victims)
		d.victims = len(drained)
		for _, m := range drained {
			for i := range d.n.Aggregate.Len() {
				dim, s := d.n.Aggregate.Dim(i), n.supply(m, d.c)
				d.freed = d.freed.With(dim, resource.AddSat(d.freed.Get(dim), s.Get(dim)))
			}
		}
		if gang && !rest.IsZero() {
			continue
		}
		for _, m := range over {
			n.takeOver(d, m)
		}
		for _, m := range excess {
			kind, stamped := Reclaim, int32(0)
			if m.stamp != nil {
				stamped = m.stamp.Priority
			}
			cause := CauseExcessPromised
			if d.n.Form.Priority > stamped {
				kind, cause = Preempt, CauseExcessTaken
			}
			order++
			m.preempt = &nDrain{kind: kind, cause: cause, preemptor: d, gap: int64(d.n.Form.Priority) - int64(stamped), order: order}
			m.goesTo = d
			d.promised = append(d.promised, m)
		}
		for _, m := range victims {
			order++
			gap, terms := n.victimScore(d, m)
			m.preempt = &nDrain{kind: Preempt, cause: CauseInversion, preemptor: d, gap: gap, terms: terms, order: order}
			m.goesTo = d
			d.promised = append(d.promised, m)
		}
	}
}

func nPick(list []*nMachine, want func(m *nMachine) bool) []*nMachine {
	var out []*nMachine
	for _, m := range list {
		if want(m) {
			out = append(out, m)
		}
	}
	return out
}

// takeover lists what ENG-15.4 may hand on to d.
func (n *naive) takeover(d *nNeed) []*nMachine {
	rank := map[inventory.State]int{inventory.Idle: 0, inventory.Draining: 1, inventory.Creating: 2}
	return n.select_(func(m *nMachine) bool {
		_, flying := rank[m.state]
		return flying && m.promise != nil && !m.foreign && m.goesTo == nil && m.claim != d && m.promise.For.Priority < d.n.Form.Priority &&
			n.effective(m) < int64(d.n.Form.Priority) && !withheldFor(m, d.c.d.Name) && n.usable(d, m)
	}, func(a, b *nMachine) int {
		return cmp.Or(cmp.Compare(a.promise.For.Priority, b.promise.For.Priority), cmp.Compare(rank[a.state], rank[b.state]),
			cmp.Compare(a.m.Price, b.m.Price), byID(a, b))
	})
}

// effective is the effective priority of ENG-15.7; of a machine in flight, that of those it was credited to.
func (n *naive) effective(m *nMachine) int64 {
	p := int64(-1 << 40)
	if m.state.Bound() && m.stamp != nil {
		p = int64(m.stamp.Priority)
	}
	if m.claim != nil {
		p = max(p, int64(m.claim.n.Form.Priority))
	}
	for _, s := range m.shares {
		p = max(p, int64(s.to.n.Form.Priority))
	}
	return p
}

// takeOver hands the promise of m on to d. Whoever was credited with it is short again.
func (n *naive) takeOver(d *nNeed, m *nMachine) {
	if m.claim != nil {
		m.claim.lost = true
		n.drop(m.claim, m)
	}
	for _, s := range m.shares {
		s.to.lost = true
		s.to.received = slices.DeleteFunc(s.to.received, func(x *nShare) bool { return x == s })
	}
	m.shares = nil
	m.goesTo = d
	d.promised = append(d.promised, m)
}

// excess lists what ENG-15.5 may give to d.
func (n *naive) excess(d *nNeed) []*nMachine {
	return n.select_(func(m *nMachine) bool {
		return n.isExcess(m) && m.goesTo == nil && m.m.Cluster != d.c.d.Name && !withheldFor(m, d.c.d.Name) && n.usable(d, m)
	}, func(a, b *nMachine) int { return cmp.Or(cmp.Compare(a.m.Price, b.m.Price), byID(a, b)) })
}

func (n *naive) isExcess(m *nMachine) bool {
	return m.state == inventory.Configured && !m.foreign && m.claim == nil && n.heard(m.m.Cluster)
}

func (n *naive) heard(cluster string) bool {
	c := n.w.Demand.Cluster(cluster)
	return c != nil && c.Facts.Heard
}

// candidates lists the victims of ENG-15.6 for d, best first.
func (n *naive) candidates(d *nNeed) []*nMachine {
	list := n.select_(func(m *nMachine) bool {
		return m.state == inventory.Configured && !m.foreign && m.claim != nil && m.goesTo == nil && m.m.Cluster != d.c.d.Name &&
			n.heard(m.m.Cluster) && n.effective(m) < int64(d.n.Form.Priority) && !withheldFor(m, d.c.d.Name) && n.usable(d, m)
	}, byID)
	slices.SortStableFunc(list, func(a, b *nMachine) int {
		_, x := n.victimScore(d, a)
		_, y := n.victimScore(d, b)
		return cmp.Compare(y.Sum(), x.Sum())
	})
	return list
}

// victimScore is ENG-15.9.
func (n *naive) victimScore(d *nNeed, m *nMachine) (gap int64, t ScoreTerms) {
	gap = int64(d.n.Form.Priority) - n.effective(m)
	cents := func(p demand.Penalty) int64 { return max(1, int64(p)*50) }
	var stamp inventory.Stamp
	if m.stamp != nil {
		stamp = *m.stamp
	}
	w := n.p.VictimWeights
	return gap, ScoreTerms{
		Priority:     w.Priority * 100_000 * gap,
		Drain:        w.Drain * 100_000 / max(1, n.p.DrainEstimate),
		Interruption: w.Interruption * 10_000_000 / cents(stamp.Interruption),
		Reclamation:  w.Reclamation * 10_000_000 / cents(stamp.Reclamation),
	}
}

// spare drops victims that are not needed, worst first (ENG-15.10).
func (n *naive) spare(d *nNeed, residual resource.Vector, victims []*nMachine) []*nMachine {
	for _, m := range slices.Backward(slices.Clone(victims)) {
		if fewer := slices.DeleteFunc(slices.Clone(victims), func(x *nMachine) bool { return x == m }); n.covers(d, residual, fewer) {
			victims = fewer
		}
	}
	return victims
}
