package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// exchange retries purchases from exhausted pools in a different order. It keeps a new order only if the total cost falls and no other
// Need loses coverage (ENG-13.10).
func (p *planning) exchange() {
	p.tries, p.spent, p.saved = 0, false, 0
	if p.policy.ExchangeTries < 2 {
		return
	}
	list := p.exchangers()
	if _, two := list.at(p, 1); !two {
		return
	}
	p.notify() // topologies learn only of tries that are kept
	for improved := true; improved && !p.spent; {
		improved = false
		for b := 1; !p.spent; b++ {
			y, ok := list.at(p, b)
			if !ok {
				break
			}
			for a := 0; a < b && !p.spent; a++ {
				improved = p.try(y, list.found[a]) || improved
			}
		}
		for c := 2; c < len(list.found) && !p.spent; c++ {
			for b := 1; b < c && !p.spent; b++ {
				for a := 0; a < b && !p.spent; a++ {
					improved = p.try(list.found[c], list.found[b], list.found[a]) || improved
				}
			}
		}
	}
}

// exchangers finds, in allocation order, the plain covered Needs that bought Speculative machines and could have used an exhausted shape.
// There may be thousands and tries are few, so they are found one at a time.
type exchangers struct {
	gone  []uint32     // classes of exhausted shapes that had something free
	list  []allocation // who may be one
	read  int
	found []allocation
}

// at returns exchanger n, if there is one.
func (x *exchangers) at(p *planning, n int) (allocation, bool) {
	for ; len(x.found) <= n && x.read < len(x.list); x.read++ {
		cl, w := p.state(x.list[x.read])
		if !cl.short(w) && cl.hasBought(w) &&
			slices.ContainsFunc(x.gone, func(c uint32) bool { return cl.fits(w, c) && p.couldTake(cl, c) }) {
			x.found = append(x.found, x.list[x.read])
		}
	}
	if n < len(x.found) {
		return x.found[n], true
	}
	return allocation{}, false
}

// exchangers lists the candidates. It compares shapes, not classes: labels must not change the answer.
func (p *planning) exchangers() (x exchangers) {
	if !p.bought {
		return x
	}
	inv := p.w.Inventory
	bought := make([]int32, inv.Shapes()) // Speculative machines by shape
	for c := range inv.Classes() {
		if cl := inv.Class(uint32(c)); cl.Serial != 0 {
			bought[cl.Shape] += int32(cl.Pools[inventory.SpeculativePool].Len()) - p.free.free[inventory.SpeculativePool][c]
		}
	}
	for c := range inv.Classes() {
		cl := inv.Class(uint32(c))
		if cl.Serial != 0 && cl.Pools[inventory.SpeculativePool].Len() > 0 && bought[cl.Shape] == inv.Shape(cl.Shape).SpeculativeStock() {
			x.gone = append(x.gone, uint32(c))
		}
	}
	if len(x.gone) == 0 {
		return x
	}
	for _, cl := range p.stale {
		for i := range cl.needs {
			if w := &cl.needs[i]; w.bits&(wSame|wSpread|wBought) == wBought {
				x.list = append(x.list, allocationOf(cl, w))
			}
		}
	}
	p.sorter.sort(x.list)
	return x
}

// couldTake reports whether a class had a Speculative machine free that is not withheld from the cluster.
func (p *planning) couldTake(cl *clusterState, class uint32) bool {
	avoided := p.w.Inventory.Avoided(cl.d.ID)
	if len(avoided) == 0 {
		return true
	}
	n := p.w.Inventory.Class(class).Pools[inventory.SpeculativePool].Len()
	for _, i := range avoided {
		if r := p.w.Inventory.Row(i); r.Class == class && r.Seen() == inventory.Speculative {
			n--
		}
	}
	return n > 0
}

// hasBought reports whether w took Speculative machines and none of them carries a share.
func (cl *clusterState) hasBought(w *needState) bool {
	found := false
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; l.isBought() {
			if l.shares >= 0 {
				return false
			}
			found = true
		}
	}
	return found
}

// try lets Needs return what they bought and buy again in the given order, and reports whether the new order is kept.
func (p *planning) try(order ...allocation) bool {
	for _, t := range order {
		if cl, w := p.state(t); !cl.hasBought(w) {
			return false
		}
	}
	if p.spent = p.spent || p.tries+len(order) > p.policy.ExchangeTries; p.spent {
		return false
	}
	p.tries += len(order)
	saved, ok := p.weigh(order)
	if !ok {
		for _, t := range order {
			cl, w := p.state(t)
			cl.boughtLast(w)
			cl.unpack(w)
		}
		return false
	}
	p.saved += saved
	p.resumed = true
	p.muted = true // given back and taken again, it is the same action
	old := make([][]inventory.Index, len(order))
	told := len(p.free.list)
	for i, t := range order {
		cl, w := p.state(t)
		old[i] = p.giveBackAll(cl, w)
	}
	for _, t := range order {
		cl, w := p.state(t)
		p.acquire(cl, w, inventory.SpeculativePool)
	}
	p.muted = false
	p.applyExchange(old, told)
	return true
}

// bought is a Speculative machine that a Need took, or would take.
type bought struct {
	idx   inventory.Index
	class uint32
}

// weigh computes what the Needs would save by buying again in the given order. It changes only the free pools and restores them; clusters
// are not touched. ok means that all would be covered for less and no short Need could use what is left over.
func (p *planning) weigh(order []allocation) (saved int64, ok bool) {
	var was, is sum128
	inv, told := p.w.Inventory, len(p.free.list)
	p.old, p.again = p.old[:0], p.again[:0]
	for _, t := range order {
		cl, w := p.state(t)
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			if l := &cl.machines[at]; l.isBought() {
				was.add(uint64(match.EffectiveCost(inv.Class(l.class), w.bucket)), 1)
				p.old = append(p.old, bought{l.idx, l.class})
				p.free.giveBack(l.idx, l.class, inventory.SpeculativePool)
			}
		}
	}
	ok = true
	for i := 0; ok && i < len(order); i++ {
		cl, w := p.state(order[i])
		ok = p.buyAgain(cl, w, &is)
	}
	ok = ok && is.compare(was) < 0 && !p.wanted(p.old)
	for _, m := range p.again {
		p.free.giveBack(m.idx, m.class, inventory.SpeculativePool)
	}
	for _, m := range p.old {
		p.free.take(m.idx, m.class, inventory.SpeculativePool)
	}
	p.free.forget(told)
	was.sub(is.lo, 1)
	return int64(was.lo), ok
}

// buyAgain takes from the pools what w would buy without its earlier purchases, and adds up the cost. It reports whether w would be
// covered.
func (p *planning) buyAgain(cl *clusterState, w *needState, total *sum128) bool {
	rest := cl.restOf(w, append(p.buf[:0], cl.aggregate(w)...), (*machineState).isBought)
	p.buf = rest
	if match.IsZero(rest) {
		return true
	}
	const k = inventory.SpeculativePool
	if !p.anyFree(cl.matcher(w), k) {
		return false
	}
	c := &p.cover
	c.ask(p, cl, w, k, rest)
	if c.everywhere(cl, w); len(c.mk.groups) == 0 {
		return false
	}
	c.cover()
	for _, pk := range c.list {
		gr := c.mk.tier(pk.group)
		total.add(uint64(gr.cost), uint64(pk.n))
		p.taking = c.listed(p.taking[:0], pk.group, pk.n)
		for _, x := range p.taking {
			p.again = append(p.again, bought(x))
			p.free.take(x.idx, x.class, k)
			match.Subtract(rest, cl.amount(w, x.class))
		}
	}
	return match.IsZero(rest)
}

// isBought reports whether a machine was Speculative when the plan took it.
func (l *machineState) isBought() bool {
	return l.bits&lAcquired != 0 && l.state == inventory.Speculative
}

// boughtLast moves what w bought behind its other claims, as if it had just bought it.
func (cl *clusterState) boughtLast(w *needState) {
	first, mixed := true, false
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		mixed = mixed || !first && !cl.machines[at].isBought()
		first = first && !cl.machines[at].isBought()
	}
	if !mixed {
		return
	}
	var others, last []int32
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if cl.machines[at].isBought() {
			last = append(last, at)
		} else {
			others = append(others, at)
		}
	}
	w.claims, w.lastOne = -1, -1
	for _, at := range append(others, last...) {
		cl.chain(w, at)
	}
}

// applyExchange updates the topologies after a kept try: some returned machines are free now, and some machines taken since stock.list had
// length told are new.
func (p *planning) applyExchange(old [][]inventory.Index, told int) {
	taken := slices.Clone(p.free.list[told:])
	p.free.forget(told)
	p.notify()
	was := slices.Concat(old...)
	for _, i := range was {
		if !p.free.isTaken(i) {
			p.countGiven(i, p.w.Inventory.Row(i).Class, inventory.SpeculativePool)
		}
	}
	for _, i := range taken {
		if !slices.Contains(was, i) {
			p.free.note(i, p.w.Inventory.Row(i).Class, inventory.SpeculativePool)
		}
	}
}

// giveBackAll returns what w bought to the free pool.
func (p *planning) giveBackAll(cl *clusterState, w *needState) []inventory.Index {
	var out []inventory.Index
	for at := w.claims; at >= 0; {
		l := &cl.machines[at]
		next := l.next
		if l.isBought() {
			out = append(out, l.idx)
			cl.release(at)
			l.bits |= lGone
			cl.empty = append(cl.empty, at)
			p.free.giveBack(l.idx, l.class, inventory.SpeculativePool)
		}
		at = next
	}
	cl.recount(w)
	return out
}

// wanted reports whether a short Need could use a machine that was returned and not taken again.
func (p *planning) wanted(list []bought) bool {
	inv := p.w.Inventory
	for _, m := range list {
		if p.free.isTaken(m.idx) {
			continue
		}
		for _, cl := range p.states {
			if cl.open == 0 && !cl.stale {
				continue
			}
			for at := range cl.needs {
				w := &cl.needs[at]
				if held(w) || !cl.short(w) || !cl.fits(w, m.class) || !match.Touches(cl.f.Supply(m.class), cl.rest(w)) || inv.WithheldFrom(m.idx, cl.d.Name) {
					continue
				}
				if w.bits&wSame != 0 {
					if v, has := inv.Value(m.idx, w.key); w.bits&wChosen == 0 || !has || v != w.domain {
						continue
					}
				}
				return true
			}
		}
	}
	return false
}

// claimFreed lets each short Need check once more what its cluster has left (ENG-12.9).
func (p *planning) claimFreed() {
	// Where nothing happened since credit, every short Need has seen what is left.
	for _, cl := range p.withUnclaimed.of(func(cl *clusterState) bool {
		return cl.unclaimedCount > 0 && (cl.freed && cl.shorts > 0 || cl.stale) || cl.stale && len(cl.flight) > 0
	}) {
		for i := range cl.needs {
			p.claimUnclaimed(cl, &cl.needs[i])
		}
	}
}

// claimUnclaimed lets w claim unclaimed machines of its cluster, bound ones and then those in flight. A gang stays in its domain, a spread
// within its skew.
func (p *planning) claimUnclaimed(cl *clusterState, w *needState) {
	if cl.unclaimedCount == 0 && len(cl.flight) == 0 || !cl.short(w) || w.bits&wSame != 0 && w.bits&wChosen == 0 {
		return
	}
	var values []int64
	if w.bits&(wSame|wSpread) != 0 {
		values = cl.values(p.w.Inventory, w.key)
	}
	last := w.lastOne
	pass := func(at int32, _ *machineState) bool {
		switch {
		case w.bits&wSame != 0:
			return values[at] == int64(w.domain)
		case w.bits&wSpread != 0:
			if values[at] < 0 {
				return false
			}
			p.known(cl, w)
			i := p.spread.find(symbol.ID(values[at]))
			return p.spread.mayGo(i, w.skew)
		}
		return true
	}
	cl.claimUnclaimed(w, pass)
	cl.claimUnclaimedInFlight(w, pass)
	if w.lastOne != last {
		p.unmet.gained = true
		p.markStale(cl)
	}
}
