package engine

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// gangTurn is the first part of a gang's turn: the choice of 10.6 and the claims of 10.7. It reports whether there is a
// domain at all.
func (p *planning) gangTurn(cl *clusterState, w *want) bool {
	values := cl.values(p.w.Inventory, w.key)
	p.creditable(cl, w, values)
	best := p.bestDomain(cl, w)
	if best == nil {
		w.bits &^= wChosen
		return false
	}
	p.spoil(cl)
	w.bits &^= wPossible
	if best.satisfiable {
		w.bits |= wPossible
	}
	p.moveTo(cl, w, best.value, values)
	return true
}

// creditableNow: what a gang holds or kept, unclaimed bound machines, and its Own in flight that nobody else counts.
func creditableNow(w *want, l *local) bool {
	switch {
	case l.bits&(lShunned|lGone) != 0:
		return false
	case l.claim == w.at:
		return l.bits&lAcquired == 0
	case l.claim >= 0:
		return false
	case l.state.Bound():
		return true
	}
	return l.owner == w.at
}

// creditable fills the buckets of scratch, and counts, with what is creditable to w.
func (p *planning) creditable(cl *clusterState, w *want, values []int64) {
	x := &p.x
	x.buckets, x.sums, p.counts = x.buckets[:0], x.sums[:0], p.counts[:0]
	var buf [8]int64
	for at := range cl.loc[:cl.members] {
		l := &cl.loc[at]
		if !creditableNow(w, l) || values[at] < 0 || !cl.usable(w, l) || !touches(cl.worth(w, l, buf[:0]), cl.aggregate(w)) {
			continue
		}
		cl.collect(w, int32(at), values, x)
		for len(p.counts) < len(x.buckets) {
			p.counts = append(p.counts, 0)
		}
		v := symbol.ID(values[at])
		p.counts[slices.IndexFunc(x.buckets, func(b bucket) bool { return b.value == v })]++
	}
}

// bestDomain is ENG-10.6 over all values of the key, or nil if there is none.
func (p *planning) bestDomain(cl *clusterState, w *want) *domainView {
	t := p.topology(w.key)
	k := cl.k()
	x := &p.x
	p.views = p.views[:0]
	free := make([]int64, 2*k)
	view := func(v symbol.ID, d int) {
		clear(free)
		idle, spec := free[:k], free[k:]
		n := int32(0)
		if d >= 0 {
			n += p.freeIn(cl, w, t, d, inventory.IdlePool, idle)
			n += p.freeIn(cl, w, t, d, inventory.SpeculativePool, spec)
		}
		at := slices.IndexFunc(x.buckets, func(b bucket) bool { return b.value == v })
		var sum, own []int64
		if at >= 0 {
			sum, own = x.at(x.buckets[at].sum, k), x.at(x.buckets[at].own, k)
			n += p.counts[at]
		}
		if n == 0 {
			return
		}
		p.views = append(p.views, viewOf(cl.aggregate(w), v, sum, own, idle, spec, n))
	}
	if t != nil {
		for d := range t.top.Domains {
			view(t.top.Domains[d].Value, d)
		}
	}
	for _, b := range x.buckets {
		if t != nil {
			if _, ok := t.top.Domain(b.value); ok {
				continue
			}
		}
		view(b.value, -1)
	}
	var best *domainView
	for i := range p.views {
		if v := &p.views[i]; best == nil || p.compareDomains(v, best) < 0 {
			best = v
		}
	}
	return best
}

// viewOf computes the keys of 10.6. sum and own may be nil.
func viewOf(want []int64, v symbol.ID, sum, own, idle, spec []int64, n int32) domainView {
	o := domainView{value: v, count: n}
	if sum != nil {
		o.covers = coversAll(sum, want)
		o.creditable, o.own = cappedScore(sum, want), cappedScore(own, want)
		more(idle, sum)
	}
	o.withIdle = cappedScore(idle, want)
	more(spec, idle)
	o.satisfiable = coversAll(spec, want)
	o.total, o.over = cappedScore(spec, want), uncappedScore(spec, want)
	return o
}

// freeIn adds up what a domain has free for w in a pool, and counts the machines.
func (p *planning) freeIn(cl *clusterState, w *want, t *topState, d int, k inventory.Pool, into []int64) int32 {
	n := int32(0)
	p.cover.stock = &p.stock
	p.cover.avoidFor(cl, k, nil)
	for i, cell := range t.top.Domains[d].Cells[k] {
		if !cl.fits(w, cell.Class) || !touches(cl.f.of(cell.Class), cl.aggregate(w)) {
			continue
		}
		left := p.left(t, d, k, i)
		for _, s := range p.cover.spare {
			if p.w.Inventory.Row(s).Class == cell.Class {
				if v, has := p.w.Inventory.Value(s, t.top.Key); has && v == t.top.Domains[d].Value {
					left--
				}
			}
		}
		n += left
		for j, s := range cl.f.of(cell.Class) {
			into[j] = resource.AddSat(into[j], resource.MulSat(s, int64(left)))
		}
	}
	return n
}

// moveTo claims what 10.7 says in the chosen domain and lets go of everything else the gang held.
func (p *planning) moveTo(cl *clusterState, w *want, v symbol.ID, values []int64) {
	held := p.x.list[:0]
	spilled := p.spilled[:0]
	for at := w.claims; at >= 0; {
		next := cl.loc[at].next
		held = append(held, at)
		if l := &cl.loc[at]; !l.state.Bound() && l.owner != w.at {
			spilled = append(spilled, at)
		}
		cl.release(at)
		at = next
	}
	p.x.list, p.spilled = held, spilled
	cl.recount(w)
	cl.choose(w, v)
	cl.claimInDomain(w, values)
	slices.SortFunc(spilled, func(a, b int32) int { return cmp.Compare(cl.loc[a].order, cl.loc[b].order) })
	for _, at := range spilled {
		if values[at] == int64(v) && cl.short(w) {
			cl.claimFlying(w, at)
		}
	}
	slices.SortFunc(held, func(a, b int32) int { return cmp.Compare(cl.loc[a].order, cl.loc[b].order) })
	for _, at := range held {
		if cl.loc[at].claim < 0 {
			cl.letGo(at)
		}
	}
}

// letGo is ENG-11.8 for a machine that its gang gave up: the first of those who use a share of it claims it whole.
func (cl *clusterState) letGo(at int32) {
	first := int32(-1)
	for i := cl.loc[at].shares; i >= 0; i = cl.shares[i].nextOn {
		if to := cl.shares[i].to; first < 0 || to < first { // wants lie in turn order
			first = to
		}
	}
	if first >= 0 {
		cl.claim(&cl.wants[first], at)
	}
}
