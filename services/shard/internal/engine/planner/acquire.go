package planner

import (
	"cmp"
	"slices"
	"sort"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// allocations lets open Needs acquire machines, one after the other (ENG-12).
func (p *planning) allocate() {
	p.allocationOrder, p.requeued = p.pendingNeeds, p.requeued[:0]
	p.runs.begin(len(p.states))
	p.unmet.begin()
	p.visitInOrder(func(cl *clusterState, w *needState, s *pendingNeed) {
		if len(p.runs.pending[cl.at]) > 0 {
			p.settlePending(cl)
		}
		p.runs.joined[cl.at], p.cover.last.fresh = 0, false
		if cl.short(w) {
			p.res.Counters.Allocations++
			p.allocateNeed(cl, w)
			cl.finishOffers(w, &p.x)
		}
		if s == nil {
			return
		}
		if cl.short(w) {
			p.noteIdle(s, w)
			p.noteUnmet(p.at-1, s, w.mayPreempt())
		}
		if s.ask != 0 && len(p.w.Inventory.Avoided(cl.d.ID)) == 0 { // else others may have a better answer
			p.answer(s.ask)
		}
	}, p.runOn)
	p.settleRuns()
	p.unmet.asked, p.unmet.known = p.allocationOrder, p.displace == 0
	p.dropStale()
	p.allocationOrder = nil
}

// visitInOrder visits the Needs of the order in allocation order, and those that requeue adds meanwhile, each in its place. runOn may take
// several allocations of the order at once. visit gets the entry, or nil for an added Need.
func (p *planning) visitInOrder(visit func(cl *clusterState, w *needState, s *pendingNeed), runOn func() bool) {
	for p.at = 0; p.at < len(p.allocationOrder) || len(p.requeued) > 0; {
		if len(p.requeued) == 0 && runOn() {
			continue
		}
		if len(p.requeued) > 0 && (p.at == len(p.allocationOrder) || compareAllocations(p.requeued[0], p.next(p.at).allocation) < 0) {
			cl, w := p.state(p.popRequeued())
			w.bits &^= wLate
			visit(cl, w, nil)
			continue
		}
		s := p.next(p.at)
		p.at++
		if !s.worthAllocating() {
			p.noteUnmet(p.at-1, s, false)
			continue
		}
		cl, w := p.state(s.allocation)
		visit(cl, w, s)
	}
}

// queued reports whether a Need still has an allocation ahead.
func (p *planning) queued(cl *clusterState, w *needState) bool {
	if w.bits&wLate != 0 {
		return true
	}
	t := allocationOf(cl, w)
	i := p.at + sort.Search(len(p.allocationOrder)-p.at, func(i int) bool { return compareAllocations(p.next(p.at+i).allocation, t) >= 0 })
	return i < len(p.allocationOrder) && p.next(i).allocation == t && p.next(i).worthAllocating()
}

// beyondHelp reports whether no class matches and fits. Then neither an allocation nor preemption can help.
func (cl *clusterState) beyondHelp(w *needState) bool {
	d := cl.hopeless(w)
	return d == engine.DetailNoMatch || d == engine.DetailTooSmall
}

// requeue gives a Need that lost something another allocation, unless one is still ahead (ENG-12.6).
func (p *planning) requeue(cl *clusterState, w *needState) {
	p.displace++
	p.markStale(cl)
	if held(w) || p.queued(cl, w) {
		return
	}
	w.bits |= wLate
	h := append(p.requeued, allocationOf(cl, w))
	for c := len(h) - 1; c > 0; {
		up := (c - 1) / 2
		if compareAllocations(h[up], h[c]) <= 0 {
			break
		}
		h[up], h[c] = h[c], h[up]
		c = up
	}
	p.requeued = h
}

func (p *planning) popRequeued() allocation {
	h := p.requeued
	t := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	for up := 0; ; {
		c := 2*up + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && compareAllocations(h[c+1], h[c]) < 0 {
			c++
		}
		if compareAllocations(h[up], h[c]) <= 0 {
			break
		}
		h[up], h[c] = h[c], h[up]
		up = c
	}
	p.requeued = h
	return t
}

// allocateNeed lets one Need acquire: shares and machines in flight of its own cluster, then Idle, then Speculative machines, then machines
// that serve a lower priority in its cluster (ENG-12.3).
func (p *planning) allocateNeed(cl *clusterState, w *needState) {
	if w.bits&wSame != 0 {
		if !p.allocateGang(cl, w) {
			return
		}
	} else {
		if cl.unclaimedCount > 0 {
			p.markStale(cl)
			cl.claimUnclaimed(w, nil)
		}
		shares := len(cl.shares)
		cl.share(p, w, &p.x, func(*machineState) bool { return true })
		last := w.lastOne
		cl.claimUnclaimedInFlight(w, nil)
		if len(cl.shares) > shares || w.lastOne != last {
			p.markStale(cl)
		}
	}
	p.acquire(cl, w, inventory.IdlePool)
	p.acquire(cl, w, inventory.SpeculativePool)
	p.reattribute(cl, w)
}

// acquire takes free machines of one pool by the cover rule (ENG-13).
func (p *planning) acquire(cl *clusterState, w *needState, k inventory.Pool) {
	if !cl.short(w) || !p.anyFree(cl.matcher(w), k) {
		return
	}
	c := &p.cover
	c.ask(p, cl, w, k, cl.rest(w))
	switch {
	case w.bits&wSpread != 0:
		p.acquireSpread(cl, w, k)
		return
	case w.bits&wSame != 0:
		t := p.topology(w.key)
		d, ok := t.top.Domain(w.domain)
		if !ok {
			return
		}
		if len(c.spare) > 0 {
			c.avoidFor(cl, k, func(i inventory.Index) bool {
				v, has := p.w.Inventory.Value(i, w.key)
				return has && v == w.domain
			})
		}
		p.candidatesIn(&p.local, cl, w, t, int(d), k)
		c.mk, c.domain, c.byClass, c.left, c.domainAt = p.local.mk, &t.top.Domains[d], t.byClass, t, d
		p.here = place{t, d}
		defer func() { p.here = place{} }()
	default:
		c.everywhere(cl, w)
	}
	if len(c.mk.groups) == 0 {
		return
	}
	c.cover()
	p.taking = p.taking[:0]
	for _, pk := range c.list {
		p.taking = c.listed(p.taking, pk.group, pk.n)
	}
	p.takeAll(cl, w, k)
}

// ask sets everything of a Need's question but where: it lacks rest.
func (c *coverer) ask(p *planning, cl *clusterState, w *needState, k inventory.Pool, rest []int64) {
	c.free, c.pool, c.domain, c.mask = &p.free, k, nil, nil
	c.avoidFor(cl, k, nil)
	c.unit = append(c.unit[:0], cl.unit(w)...)
	c.input = append(c.input[:0], rest...)
	c.whole = w.bits&wMany != 0 && !slices.Equal(c.unit, c.input)
}

// everywhere lets the cover choose from all domains.
func (c *coverer) everywhere(cl *clusterState, w *needState) {
	c.mk, c.mask = cl.cat.indexFor(cl.matcher(w), cl.f, w.bucket)
}

// avoidFor collects the free machines that the cluster must not take. only restricts them, for instance to a domain; nil means all.
func (c *coverer) avoidFor(cl *clusterState, k inventory.Pool, only func(i inventory.Index) bool) {
	c.avoid, c.spare = c.avoid[:0], c.spare[:0]
	for _, i := range c.free.inv.Avoided(cl.d.ID) {
		r := c.free.inv.Row(i)
		if (k == inventory.IdlePool) != (r.Seen() == inventory.Idle) || c.free.isTaken(i) || only != nil && !only(i) {
			continue
		}
		c.spare = append(c.spare, i)
		at := slices.IndexFunc(c.avoid, func(s slot) bool { return s.class == r.Class })
		if at < 0 {
			at = len(c.avoid)
			c.avoid = append(c.avoid, slot{class: r.Class})
		}
		c.avoid[at].n++
	}
}

// domainCandidates is a candidate index of what one domain has left for one Need. It serves one question; its memory is reused.
type domainCandidates struct {
	mk     *candidateIndex
	groups []*supplyGroup
}

// candidatesIn fills a candidate index with what one domain has left for w.
func (p *planning) candidatesIn(into *domainCandidates, cl *clusterState, w *needState, t *topState, d int, k inventory.Pool) {
	all := p.cat.groupsOf(w.bucket)
	p.keys = p.keys[:0]
	for i, cell := range t.top.Domains[d].Cells[k] {
		if n := p.left(t, d, k, i); n > 0 && cl.fits(w, cell.Class) {
			p.keys = append(p.keys, uint64(all.rank[cell.Class])<<32|uint64(i))
		}
	}
	slices.Sort(p.keys)
	if into.mk == nil {
		into.mk = &candidateIndex{}
	}
	m := into.mk
	m.m, m.f, m.bucket = cl.matcher(w), cl.f, w.bucket
	m.groups = m.groups[:0]
	supply := uint32(0)
	for _, key := range p.keys {
		i := int(uint32(key))
		class := t.top.Domains[d].Cells[k][i].Class
		if len(m.groups) == 0 || p.cat.SupplyNumber[class] != supply {
			supply = p.cat.SupplyNumber[class]
			if len(m.groups) == len(into.groups) {
				into.groups = append(into.groups, &supplyGroup{})
			}
			s := into.groups[len(m.groups)]
			s.slots = s.slots[:0]
			m.groups = append(m.groups, s)
		}
		s := m.groups[len(m.groups)-1]
		s.slots = append(s.slots, slot{class, p.left(t, d, k, i)})
	}
	for _, s := range m.groups {
		s.fill(func(class uint32) int64 { return match.EffectiveCost(p.w.Inventory.Class(class), w.bucket) })
		s.gen, s.head = p.free.gen, [2]int32{}
	}
	m.index()
}

// takeAll takes the machines that were chosen for w.
func (p *planning) takeAll(cl *clusterState, w *needState, k inventory.Pool) {
	for _, x := range p.taking {
		p.take(cl, w, x.idx, k)
	}
}

// reattribute credits machines of w's own cluster that serve a lower priority to w instead: bound ones, then those in flight (ENG-12.5).
func (p *planning) reattribute(cl *clusterState, w *needState) {
	if !cl.short(w) || cl.needs[len(cl.needs)-1].priority >= w.priority {
		return
	}
	p.reattributeFrom(cl, w, cl.bound, cl.pack)
	if cl.short(w) && len(cl.flight) > 0 {
		p.reattributeFrom(cl, w, cl.flight, func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) })
	}
}

func (p *planning) reattributeFrom(cl *clusterState, w *needState, from []int32, order func(a, b int32) int) {
	priority := w.priority
	var values []int64
	if w.bits&wSame != 0 {
		values = cl.values(p.w.Inventory, w.key)
	}
	list := p.x.list[:0]
	for _, at := range from {
		l := &cl.machines[at]
		if l.claim < 0 || cl.needs[l.claim].priority >= priority || l.bits&lExcluded != 0 || !cl.usable(w, l) ||
			values != nil && values[at] != int64(w.domain) {
			continue
		}
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b int32) int {
		x, y := cl.need(&cl.needs[cl.machines[a].claim]), cl.need(&cl.needs[cl.machines[b].claim])
		return cmp.Or(demand.CompareRank(&y.Form.Profile, &x.Form.Profile), order(a, b))
	})
	for _, at := range list {
		if !cl.short(w) {
			break
		}
		l := &cl.machines[at]
		worth := append(p.buf[:0], cl.supply(l)...)
		p.buf = worth
		for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
			if s := &cl.shares[i]; s.to != w.at && cl.needs[s.to].priority >= priority {
				match.Subtract(worth, cl.at_(s.vec, 0))
			}
		}
		if !match.Touches(cl.inUnits(w, worth), cl.rest(w)) {
			continue
		}
		for i := l.shares; i >= 0; {
			next := cl.shares[i].nextOn
			if loser := &cl.needs[cl.shares[i].to]; loser.priority < priority {
				cl.dropShare(i)
				cl.recount(loser)
				p.requeue(cl, loser)
			}
			i = next
		}
		loser := &cl.needs[l.claim]
		cl.release(at)
		cl.recount(loser)
		p.requeue(cl, loser)
		cl.claim(w, at)
		p.markStale(cl)
	}
	p.x.list = list
}
