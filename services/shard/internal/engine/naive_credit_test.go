package engine

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// readiness is ENG-17.1 to 17.6: which Configured machines are not credited.
func (n *naive) readiness() {
	for _, c := range n.clusters {
		f := c.d.Facts
		if !f.ReportsReadiness {
			continue
		}
		configured := 0
		var overdue []*nMachine
		for _, m := range n.machines {
			if m.state != inventory.Configured || m.m.Cluster != c.d.Name {
				continue
			}
			configured++
			if !m.foreign && !m.ready.WasReady() && n.now-max(m.since, f.ReportingSince) >= n.p.JoinTimeout {
				overdue = append(overdue, m)
			}
		}
		slices.SortStableFunc(overdue, func(a, b *nMachine) int { return cmp.Or(cmp.Compare(a.since, b.since), byID(a, b)) })
		allowed := max(1, int(n.p.JoinGuardPerMille)*configured/1000) - int(f.JoinDrained)
		allowed = min(allowed, int(n.p.JoinFailures-f.JoinFailures))
		if len(overdue) >= 5 && 2*len(overdue) > configured {
			allowed = 0
		}
		for i, m := range overdue {
			m.shunned, m.guarded = i < allowed, i >= allowed
		}
		n.out.Counters.JoinOverdue += len(overdue)
		n.out.Counters.JoinGuarded += len(overdue) - max(0, min(allowed, len(overdue)))
	}
}

// credit is ENG-9.3, ENG-9.4 and ENG-9.6, in the order whose reasons ENG-9.5 gives, with the Same parts of section 10.
// Held Needs take part (ENG-18.1).
func (n *naive) credit(c *nCluster) {
	unclaimed := func(m *nMachine) bool { return m.claim == nil }
	for _, d := range c.needs { // round 1
		if d.same != nil {
			n.ownDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *nMachine) bool { return unclaimed(m) && n.own(d, m) && n.usable(d, m) }))
	}
	for _, d := range c.needs { // round 2
		if !n.short(d) || d.chosen {
			continue
		}
		if d.same != nil {
			n.provisionalDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *nMachine) bool {
			return unclaimed(m) && (m.stamp == nil || !m.stamp.Ours()) && n.usable(d, m)
		}))
		n.share(d, func(m *nMachine) bool { return m.state.Bound() })
		n.claimWhileShort(d, n.bound(c, func(m *nMachine) bool { return unclaimed(m) && n.usable(d, m) }))
		n.claimWhileShort(d, n.coming(c, func(m *nMachine) bool { return unclaimed(m) && n.own(d, m) && n.usable(d, m) }))
	}
	for _, d := range c.needs { // round 3
		if !n.short(d) {
			continue
		}
		n.share(d, func(m *nMachine) bool { return inFlight(m, c) })
		spill := n.select_(func(m *nMachine) bool { return inFlight(m, c) && unclaimed(m) && n.usable(d, m) }, byID)
		if d.same != nil {
			if !d.chosen {
				d.domain, d.chosen = n.bestBucket(d, spill)
			}
			spill = inDomain(d, spill)
		}
		n.claimWhileShort(d, spill)
	}
}

// inDomain keeps what lies in the one domain of a gang (ENG-10.1).
func inDomain(d *nNeed, list []*nMachine) []*nMachine {
	return slices.DeleteFunc(slices.Clone(list), func(m *nMachine) bool { return !d.chosen || value(m, d.same.Key) != d.domain })
}

// ownDomain is ENG-10.3.
func (n *naive) ownDomain(d *nNeed) {
	if d.n.Aggregate.IsZero() {
		return
	}
	mine := n.bound(d.c, func(m *nMachine) bool {
		return m.claim == nil && n.own(d, m) && n.usable(d, m) && n.contributes(d, m, d.n.Aggregate)
	})
	for _, v := range values(mine, d.same.Key) {
		sum := n.sum(d, mine, func(m *nMachine) bool { return value(m, d.same.Key) == v })
		if sum.Covers(&d.n.Aggregate) {
			d.domain, d.chosen = v, true
			n.claimWhileShort(d, inDomain(d, mine))
			return
		}
	}
	for _, m := range mine {
		n.claim(d, m)
		m.kept = true
	}
}

// provisionalDomain is ENG-10.4.
func (n *naive) provisionalDomain(d *nNeed) {
	may := n.bound(d.c, func(m *nMachine) bool { return (m.claim == nil || m.claim == d) && n.usable(d, m) })
	may = append(may, n.coming(d.c, func(m *nMachine) bool { return m.claim == nil && n.own(d, m) && n.usable(d, m) })...)
	d.domain, d.chosen = n.bestBucket(d, may)
	if !d.chosen {
		return
	}
	kept := slices.Clone(d.claims)
	for _, m := range kept {
		n.drop(d, m)
	}
	n.claimWhileShort(d, n.walk(d, may))
	for _, m := range kept {
		if n.short(d) && m.claim == nil && value(m, d.same.Key) != d.domain {
			n.claim(d, m)
			m.kept = true
		}
	}
}

// bestBucket returns the value under which the listed machines serve d best (10.4).
func (n *naive) bestBucket(d *nNeed, list []*nMachine) (string, bool) {
	best, found := "", false
	var bestAll, bestOwn *big.Int
	bestCovers := false
	for _, v := range values(list, d.same.Key) {
		all := n.sum(d, list, func(m *nMachine) bool { return value(m, d.same.Key) == v })
		own := n.sum(d, list, func(m *nMachine) bool { return value(m, d.same.Key) == v && n.own(d, m) })
		if !all.Touches(&d.n.Aggregate) {
			continue
		}
		a, o, covers := score(all, d.n.Aggregate, true), score(own, d.n.Aggregate, true), all.Covers(&d.n.Aggregate)
		better := !found
		if found {
			switch {
			case covers != bestCovers:
				better = covers
			case a.Cmp(bestAll) != 0:
				better = a.Cmp(bestAll) > 0
			case o.Cmp(bestOwn) != 0:
				better = o.Cmp(bestOwn) > 0
			}
		}
		if better {
			best, found, bestAll, bestOwn, bestCovers = v, true, a, o, covers
		}
	}
	return best, found
}

// walk orders what a gang may claim in its domain as ENG-10.7 says: Own bound, other bound, Own in flight, and last what
// it holds in flight of others (9.6).
func (n *naive) walk(d *nNeed, list []*nMachine) []*nMachine {
	class := func(m *nMachine) int {
		switch {
		case m.state.Bound() && n.own(d, m):
			return 0
		case m.state.Bound():
			return 1
		case n.own(d, m):
			return 2
		}
		return 3
	}
	out := inDomain(d, list)
	slices.SortStableFunc(out, func(a, b *nMachine) int {
		if x, y := class(a), class(b); x != y || x < 2 {
			return cmp.Or(cmp.Compare(x, y), cmp.Compare(b.state, a.state), keepOrder(a, b))
		} else if x == 3 {
			return byID(a, b)
		}
		rank := map[inventory.State]int{inventory.Idle: 0, inventory.Creating: 1, inventory.Draining: 2}
		return cmp.Or(cmp.Compare(rank[a.state], rank[b.state]), byID(a, b))
	})
	return out
}

// values lists the values of a key on the listed machines, ascending.
func values(list []*nMachine, key string) []string {
	var out []string
	for _, m := range list {
		if v, ok := attr(&m.m, key); ok {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (n *naive) sum(d *nNeed, list []*nMachine, keep func(m *nMachine) bool) resource.Vector {
	var sum resource.Vector
	for _, m := range list {
		if keep(m) {
			sum = sum.Add(n.worth(d, m))
		}
	}
	return sum
}

// used lays the aggregate of a Need over its credited machines (ENG-11.3). Shares already given stay out of the way, so
// that a giver whose claims change never takes back what others count on (ENG-11.7).
func (n *naive) used(g *nNeed) map[*nMachine]resource.Vector {
	list := slices.DeleteFunc(slices.Clone(g.claims), func(m *nMachine) bool { return m.kept })
	slices.SortFunc(list, keepOrder)
	if g.inUnits() {
		return n.usedInUnits(g, list)
	}
	out := map[*nMachine]resource.Vector{}
	rest := g.n.Aggregate
	for _, m := range list {
		room := n.worth(g, m)
		num, den := big.NewInt(1), big.NewInt(1) // f
		for i := range rest.Len() {
			a, b := big.NewInt(room.Get(rest.Dim(i))), big.NewInt(rest.Val(i))
			if new(big.Int).Mul(a, den).Cmp(new(big.Int).Mul(num, b)) < 0 {
				num, den = a, b
			}
		}
		var use resource.Vector
		for i := range rest.Len() {
			t := new(big.Int).Mul(num, big.NewInt(rest.Val(i)))
			t.Add(t, new(big.Int).Sub(den, big.NewInt(1))).Quo(t, den)
			use = use.With(rest.Dim(i), min(t.Int64(), room.Get(rest.Dim(i))))
		}
		out[m] = use
		rest = rest.Sub(use)
	}
	for _, m := range list {
		more := n.worth(g, m).Sub(out[m]).Min(rest)
		out[m] = out[m].Add(more)
		rest = rest.Sub(more)
	}
	return out
}

// offered is ENG-11.4.
func (n *naive) offered(m *nMachine) resource.Vector {
	c := m.claim.c
	free := n.supply(m, c).Sub(n.used(m.claim)[m])
	var out resource.Vector
	for i := range free.Len() {
		t := new(big.Int).Mul(big.NewInt(free.Val(i)), big.NewInt(int64(c.d.Facts.SharingPerMille)))
		out = out.With(free.Dim(i), t.Quo(t, big.NewInt(1000)).Int64())
	}
	for _, s := range m.shares {
		out = out.Sub(s.taken)
	}
	return out
}

// units is how many whole units u fit into what is offered.
func units(offered, u resource.Vector) int64 {
	k := int64(-1)
	for i := range u.Len() {
		if x := offered.Get(u.Dim(i)) / u.Val(i); k < 0 || x < k {
			k = x
		}
	}
	return max(k, 0)
}

// share gives d shares on the machines that keep selects, as far as it is short (ENG-11.2, ENG-11.5, 11.6).
func (n *naive) share(d *nNeed, keep func(m *nMachine) bool) {
	if !n.p.Sharing || d.same != nil || d.spread != nil || d.n.MinUnit.IsZero() {
		return
	}
	type offer struct {
		m *nMachine
		k int64
	}
	var offers []offer
	for _, m := range n.machines {
		if m.claim == nil || m.claim == d || m.claim.c != d.c || m.kept || m.goesTo != nil || !keep(m) || !n.match(d, m) {
			continue
		}
		if k := units(n.offered(m), d.n.MinUnit); k > 0 {
			offers = append(offers, offer{m, k})
		}
	}
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Or(cmp.Compare(b.k, a.k), keepOrder(a.m, b.m)) })
	for _, o := range offers {
		rest := n.residual(d)
		need := int64(0)
		for i := range d.n.MinUnit.Len() {
			r, u := rest.Get(d.n.MinUnit.Dim(i)), d.n.MinUnit.Val(i)
			need = max(need, r/u+min(r%u, 1))
		}
		if d.row < FoldedRow {
			need -= d.c.d.RoomOf(int(d.row)) // ENG-11.16
		}
		if need <= 0 {
			return
		}
		k := min(o.k, need)
		taken := d.n.MinUnit.Times(k)
		s := &nShare{to: d, on: o.m, units: k, taken: taken, credit: taken.Min(rest)}
		// A second share on the same machine in the same plan adds to the first one's machine, not to its units.
		o.m.shares = append(o.m.shares, s)
		d.received = append(d.received, s)
	}
}
