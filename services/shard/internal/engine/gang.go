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
	best, ok := p.bestDomain(cl, w)
	if !ok {
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
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		p.creditOne(cl, w, at, values)
	}
	for at := w.own; at >= 0; at = cl.loc[at].ownNext {
		if l := &cl.loc[at]; l.claim < 0 && !l.state.Bound() {
			p.creditOne(cl, w, at, values)
		}
	}
	for _, at := range cl.unclaimed() {
		if cl.loc[at].claim < 0 {
			p.creditOne(cl, w, at, values)
		}
	}
}

func (p *planning) creditOne(cl *clusterState, w *want, at int32, values []int64) {
	x := &p.x
	l := &cl.loc[at]
	var buf [8]int64
	if !creditableNow(w, l) || values[at] < 0 || !cl.usable(w, l) || !touches(cl.worth(w, l, buf[:0]), cl.aggregate(w)) {
		return
	}
	cl.collect(w, at, values, x)
	for len(p.counts) < len(x.buckets) {
		p.counts = append(p.counts, 0)
	}
	v := symbol.ID(values[at])
	p.counts[slices.IndexFunc(x.buckets, func(b bucket) bool { return b.value == v })]++
}

// bestDomain is ENG-10.6 over all values of the key. ok is false if there is none.
func (p *planning) bestDomain(cl *clusterState, w *want) (best domainView, ok bool) {
	t := p.topology(w.key)
	k := cl.k()
	x := &p.x
	p.view = slices.Grow(p.view[:0], 2*k)[:2*k]
	idle, spec := p.view[:k], p.view[k:]
	better := func(v domainView) {
		if !ok || p.compareDomains(&v, &best) < 0 {
			best, ok = v, true
		}
	}
	// Where something is creditable.
	p.skip = p.skip[:0]
	for at, b := range x.buckets {
		clear(p.view)
		n := p.counts[at]
		if t != nil {
			if d, known := t.top.Domain(b.value); known {
				p.skip = append(p.skip, d)
				n += p.freeIn(cl, w, t, int(d), inventory.IdlePool, idle)
				n += p.freeIn(cl, w, t, int(d), inventory.SpeculativePool, spec)
			}
		}
		better(viewOf(cl.aggregate(w), b.value, x.at(b.sum, k), x.at(b.own, k), idle, spec, n))
	}
	if t == nil {
		return best, ok
	}
	// Everywhere else.
	if len(p.w.Inventory.Avoided(cl.d.ID)) == 0 {
		g, known := p.kindOf(cl, w, t)
		d, satisfiable := g.best(t, known, p.skip)
		switch {
		case d < 0:
		case !ok: // nothing to compare it with
			return domainView{value: t.top.Domains[d].Value, satisfiable: satisfiable}, true
		default:
			free, all := g.s.of(d)
			copy(idle, free)
			for j := range spec {
				spec[j] = all[j] - free[j]
			}
			better(viewOf(g.agg, t.top.Domains[d].Value, nil, nil, idle, spec, g.s.count[d]))
		}
		return best, ok
	}
	for d := range t.top.Domains {
		if slices.Contains(p.skip, int32(d)) {
			continue
		}
		clear(p.view)
		n := p.freeIn(cl, w, t, d, inventory.IdlePool, idle) + p.freeIn(cl, w, t, d, inventory.SpeculativePool, spec)
		if n > 0 {
			better(viewOf(cl.aggregate(w), t.top.Domains[d].Value, nil, nil, idle, spec, n))
		}
	}
	return best, ok
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
		for j, s := range cl.amount(w, cell.Class) {
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
			p.unmet.gained = true
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
