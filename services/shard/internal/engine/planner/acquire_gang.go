package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// gangAllocator chooses domains for gangs.
type gangAllocator struct {
	*plan
	free     *cover.FreePool
	clusters *clusters
	unmet    *unmetNeeds
	tops     *topologies
	cover    *cover.Search
	x        *scratch

	view    []int64 // Idle and Speculative of one domain
	skip    []int32 // domains
	spilled []int32
}

// allocate is the first part of a gang's allocation: the choice of 10.6 and the claims of 10.7. It reports whether there is a
// domain at all.
func (ga *gangAllocator) allocate(cl *clusterState, w *needState) bool {
	values := cl.values(ga.w.Inventory, w.key)
	ga.creditable(cl, w)
	best, ok := ga.bestDomain(cl, w)
	if !ok {
		w.bits &^= wChosen
		return false
	}
	ga.clusters.markStale(cl)
	w.bits &^= wPossible
	if best.Satisfiable {
		w.bits |= wPossible
	}
	ga.moveTo(cl, w, best.value, values)
	return true
}

// creditableNow: what a gang holds or kept, unclaimed bound machines, and its Own in flight that no other Need counts.
func creditableNow(w *needState, l *machineState) bool {
	switch {
	case l.bits&(lExcluded|lGone) != 0:
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
func (ga *gangAllocator) creditable(cl *clusterState, w *needState) {
	c := numbered(cl, ga.w.Inventory, w.key)
	ga.x.beginBuckets(cl, w)
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		ga.creditOne(cl, w, at, c)
	}
	for at := w.own; at >= 0; at = cl.machines[at].ownNext {
		if l := &cl.machines[at]; l.claim < 0 && !l.state.Bound() {
			ga.creditOne(cl, w, at, c)
		}
	}
	if !someUnclaimed(cl, w) {
		return
	}
	for _, at := range cl.unclaimed() {
		if cl.machines[at].claim < 0 {
			ga.creditOne(cl, w, at, c)
		}
	}
}

func (ga *gangAllocator) creditOne(cl *clusterState, w *needState, at int32, c *column) {
	l := &cl.machines[at]
	var buf [8]int64
	if !creditableNow(w, l) || !ga.x.amounts.of(cl, w, l.class).fits || !match.Touches(cl.worth(w, l, buf[:0]), cl.aggregate(w)) {
		return
	}
	if b := ga.x.collect(cl, w, at, c); b != nil {
		b.count++
	}
}

// bestDomain is ENG-10.6 over all values of the key. ok is false if there is none.
func (ga *gangAllocator) bestDomain(cl *clusterState, w *needState) (best RankedDomain, ok bool) {
	t := ga.tops.of(w.key)
	if m := cl.matcher(w); !ga.free.Any(m, inventory.IdlePool) && !ga.free.Any(m, inventory.SpeculativePool) {
		t = nil // no domain has anything for it
	}
	k := cl.dimensions()
	x := ga.x
	ga.view = slices.Grow(ga.view[:0], 2*k)[:2*k]
	idle, spec := ga.view[:k], ga.view[k:]
	better := func(v RankedDomain) {
		if !ok || CompareDomains(ga.w.Space.Strings, &v, &best) < 0 {
			best, ok = v, true
		}
	}
	// Where something is creditable.
	ga.skip = ga.skip[:0]
	for _, b := range x.buckets {
		clear(ga.view)
		n := b.count
		if t != nil {
			if d, known := t.Top.Domain(b.value); known {
				ga.skip = append(ga.skip, d)
				n += ga.freeIn(cl, w, t, int(d), inventory.IdlePool, idle)
				n += ga.freeIn(cl, w, t, int(d), inventory.SpeculativePool, spec)
			}
		}
		better(RankDomain(cl.aggregate(w), b.value, x.at(b.sum, k), x.at(b.own, k), idle, spec, n))
	}
	if t == nil {
		return best, ok
	}
	// Everywhere else.
	if !ga.off.noSums && len(ga.w.Inventory.Avoided(cl.d.ID)) == 0 {
		d, satisfiable := ga.tops.best(cl, w, t, ga.skip)
		switch {
		case d < 0:
		case !ok: // nothing to compare it with
			return RankedDomain{value: t.Top.Domains[d].Value, Satisfiable: satisfiable}, true
		default:
			clear(ga.view)
			n := ga.freeIn(cl, w, t, int(d), inventory.IdlePool, idle) + ga.freeIn(cl, w, t, int(d), inventory.SpeculativePool, spec)
			better(RankDomain(cl.aggregate(w), t.Top.Domains[d].Value, nil, nil, idle, spec, n))
		}
		return best, ok
	}
	for d := range t.Top.Domains {
		if slices.Contains(ga.skip, int32(d)) {
			continue
		}
		clear(ga.view)
		n := ga.freeIn(cl, w, t, d, inventory.IdlePool, idle) + ga.freeIn(cl, w, t, d, inventory.SpeculativePool, spec)
		if n > 0 {
			better(RankDomain(cl.aggregate(w), t.Top.Domains[d].Value, nil, nil, idle, spec, n))
		}
	}
	return best, ok
}

// RankDomain computes the keys of 10.6. sum and own may be nil.
func RankDomain(want []int64, v symbol.ID, sum, own, idle, spec []int64, n int32) RankedDomain {
	o := RankedDomain{value: v, count: n}
	if sum != nil {
		o.covers = match.Covers(sum, want)
		o.creditable, o.own = CappedScore(sum, want), CappedScore(own, want)
		match.Add(idle, sum)
	}
	o.withIdle = CappedScore(idle, want)
	match.Add(spec, idle)
	o.Satisfiable = match.Covers(spec, want)
	o.total, o.over = CappedScore(spec, want), uncappedScore(spec, want)
	return o
}

// freeIn adds up what a domain has free for w in a pool, and counts the machines.
func (ga *gangAllocator) freeIn(cl *clusterState, w *needState, t *topState, d int, k inventory.Pool, into []int64) int32 {
	n := int32(0)
	ga.cover.AvoidFor(ga.free, cl.d.ID, k, nil)
	for i, cell := range t.Top.Domains[d].Cells[k] {
		if !cl.fits(w, cell.Class) || !match.Touches(cl.f.Supply(cell.Class), cl.aggregate(w)) {
			continue
		}
		left := t.Left(ga.free, d, k, i)
		for _, s := range ga.cover.Spare {
			if ga.w.Inventory.Row(s).Class == cell.Class {
				if v, has := ga.w.Inventory.Value(s, t.Top.Key); has && v == t.Top.Domains[d].Value {
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
func (ga *gangAllocator) moveTo(cl *clusterState, w *needState, v symbol.ID, values []int64) {
	held := ga.x.list[:0]
	spilled := ga.spilled[:0]
	for at := w.claims; at >= 0; {
		next := cl.machines[at].next
		held = append(held, at)
		if l := &cl.machines[at]; !l.state.Bound() && l.owner != w.at {
			spilled = append(spilled, at)
		}
		cl.release(at)
		at = next
	}
	ga.x.list, ga.spilled = held, spilled
	cl.recount(w)
	cl.choose(w, v)
	cl.claimInDomain(w, values)
	slices.SortFunc(spilled, func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) })
	for _, at := range spilled {
		if values[at] == int64(v) && cl.short(w) {
			cl.claimInFlight(w, at)
		}
	}
	slices.SortFunc(held, func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) })
	for _, at := range held {
		if cl.machines[at].claim < 0 {
			ga.letGo(cl, at)
			ga.unmet.gained = true
		}
	}
}

// letGo is ENG-11.8 for a machine that its gang gave up: the first Need with a share of it claims it whole.
func (ga *gangAllocator) letGo(cl *clusterState, at int32) {
	first := int32(-1)
	for i := cl.machines[at].shares; i >= 0; i = cl.shares[i].nextOn {
		if to := cl.shares[i].to; first < 0 || to < first { // wants lie in allocation order
			first = to
		}
	}
	if first >= 0 {
		cl.claim(&cl.needs[first], at)
	}
}
