package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// exchange is ENG-13.10: after the turns, Needs that bought of what ran out give back and buy again in another order, if
// that is cheaper and nobody else is the worse for it.
func (p *planning) exchange() {
	p.tries, p.spent, p.saved = 0, false, 0
	if p.policy.ExchangeTries < 2 {
		return
	}
	list := p.exchangers()
	if len(list) < 2 {
		return
	}
	p.tell() // tries change nothing but what the pools have: the topologies hear of those that last
	for improved := true; improved && !p.spent; {
		improved = false
		for b := range list {
			for a := range b {
				if p.spent {
					return
				}
				improved = p.try(list[b], list[a]) || improved
			}
		}
		for c := range list {
			for b := range c {
				for a := range b {
					if p.spent {
						return
					}
					improved = p.try(list[c], list[b], list[a]) || improved
				}
			}
		}
	}
}

// exchangers lists the plain, covered Needs that bought Speculative machines and could have used a shape of hardware
// that ran out, in turn order. Shapes, not classes: labels must not change the answer.
func (p *planning) exchangers() []turn {
	if !p.bought {
		return nil
	}
	inv := p.w.Inventory
	spent := make([]int32, inv.Shapes()) // taken Speculative machines by shape
	any := false
	for _, i := range p.stock.list {
		if r := inv.Row(i); p.stock.isTaken(i) && r.Seen() == inventory.Speculative {
			s := inv.Class(r.Class).Shape
			spent[s]++
			any = any || spent[s] == inv.Shape(s).SpeculativeStock()
		}
	}
	if !any {
		return nil
	}
	var gone []uint32 // classes of exhausted shapes that had something free
	for c := range inv.Classes() {
		cl := inv.Class(uint32(c))
		if cl.Serial != 0 && cl.Pools[inventory.SpeculativePool].Len() > 0 && spent[cl.Shape] == inv.Shape(cl.Shape).SpeculativeStock() {
			gone = append(gone, uint32(c))
		}
	}
	var out []turn
	for _, cl := range p.spoiled {
		for i := range cl.wants {
			w := &cl.wants[i]
			if w.bits&(wSame|wSpread|wBought) != wBought ||
				!slices.ContainsFunc(gone, func(c uint32) bool { return cl.fits(w, c) && p.couldTake(cl, c) }) {
				continue
			}
			if !cl.short(w) && cl.hasBought(w) {
				out = append(out, turnOf(cl, w))
			}
		}
	}
	p.sorter.sort(out)
	return out
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
func (cl *clusterState) hasBought(w *want) bool {
	found := false
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		if l := &cl.loc[at]; l.bits&lAcquired != 0 && l.state == inventory.Speculative {
			if l.shares >= 0 {
				return false
			}
			found = true
		}
	}
	return found
}

// try lets the listed Needs give back what they bought and buy again in the listed order.
func (p *planning) try(order ...turn) bool {
	for _, t := range order {
		if cl, w := p.state(t); !cl.hasBought(w) {
			return false
		}
	}
	if p.spent = p.spent || p.tries+len(order) > p.policy.ExchangeTries; p.spent {
		return false
	}
	p.tries += len(order)
	p.muted = true // given back and taken again, it is the same action
	defer func() { p.muted = false }()
	var was, is sum128
	old := make([][]inventory.Index, len(order))
	told := len(p.stock.list)
	for i, t := range order {
		cl, w := p.state(t)
		old[i] = p.giveBackAll(cl, w, &was)
	}
	ok := true
	for _, t := range order {
		cl, w := p.state(t)
		p.acquire(cl, w, inventory.SpeculativePool)
		ok = ok && !cl.short(w)
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			if l := &cl.loc[at]; l.bits&lAcquired != 0 && l.state == inventory.Speculative {
				is.add(uint64(effectiveCost(p.w.Inventory.Class(l.class), w.bucket)), 1)
			}
		}
	}
	if ok && is.compare(was) < 0 && !p.wanted(old) {
		d := was
		d.sub(is.lo, 1)
		d.hi -= is.hi
		p.saved += int64(d.lo)
		p.resumed = true
		p.settle(old, told)
		return true
	}
	var ignored sum128
	for _, t := range order {
		cl, w := p.state(t)
		p.giveBackAll(cl, w, &ignored)
	}
	for i, t := range order {
		cl, w := p.state(t)
		for _, m := range old[i] {
			p.take(cl, w, m, inventory.SpeculativePool)
		}
	}
	p.stock.forget(told)
	return false
}

// settle tells the topologies what came of a try: of the machines that were given back some are free now, and of those that
// were taken since stock.list was told long some are new.
func (p *planning) settle(old [][]inventory.Index, told int) {
	taken := slices.Clone(p.stock.list[told:])
	p.stock.forget(told)
	p.tell()
	was := slices.Concat(old...)
	for _, i := range was {
		if !p.stock.isTaken(i) {
			p.countGiven(i, p.w.Inventory.Row(i).Class, inventory.SpeculativePool)
		}
	}
	for _, i := range taken {
		if !slices.Contains(was, i) {
			p.stock.note(i, p.w.Inventory.Row(i).Class, inventory.SpeculativePool)
		}
	}
}

// giveBackAll makes free again what w bought, and adds up what it cost.
func (p *planning) giveBackAll(cl *clusterState, w *want, total *sum128) []inventory.Index {
	var out []inventory.Index
	for at := w.claims; at >= 0; {
		l := &cl.loc[at]
		next := l.next
		if l.bits&lAcquired != 0 && l.state == inventory.Speculative {
			total.add(uint64(effectiveCost(p.w.Inventory.Class(l.class), w.bucket)), 1)
			out = append(out, l.idx)
			cl.release(at)
			l.bits |= lGone
			cl.empty = append(cl.empty, at)
			p.stock.giveBack(l.idx, l.class, inventory.SpeculativePool)
		}
		at = next
	}
	cl.recount(w)
	return out
}

// wanted reports whether a short Need could use one of the machines that were given back and not taken again.
func (p *planning) wanted(lists [][]inventory.Index) bool {
	inv := p.w.Inventory
	for _, list := range lists {
		for _, i := range list {
			if p.stock.isTaken(i) {
				continue
			}
			class := inv.Row(i).Class
			for _, cl := range p.states {
				if cl.open == 0 && !cl.spoiled {
					continue
				}
				for at := range cl.wants {
					w := &cl.wants[at]
					if held(w) || !cl.short(w) || !cl.fits(w, class) || !touches(cl.f.of(class), cl.rest(w)) || inv.WithheldFrom(i, cl.d.Name) {
						continue
					}
					if w.bits&wSame != 0 {
						if v, has := inv.Value(i, w.key); w.bits&wChosen == 0 || !has || v != w.domain {
							continue
						}
					}
					return true
				}
			}
		}
	}
	return false
}

// lastLook is ENG-12.9: whoever is still short looks once more at what its cluster has left.
func (p *planning) lastLook() {
	// Where nothing happened since credit, every short Need has seen what is left.
	for _, cl := range p.loose.of(func(cl *clusterState) bool {
		return cl.loose > 0 && (cl.freed && cl.shorts > 0 || cl.spoiled) || cl.spoiled && len(cl.flight) > 0
	}) {
		for i := range cl.wants {
			p.lookAgain(cl, &cl.wants[i])
		}
	}
}

// lookAgain lets w claim unclaimed machines of its cluster, bound ones and then those in flight: a gang in its domain, a
// spread within its skew.
func (p *planning) lookAgain(cl *clusterState, w *want) {
	if cl.loose == 0 && len(cl.flight) == 0 || !cl.short(w) || w.bits&wSame != 0 && w.bits&wChosen == 0 {
		return
	}
	var values []int64
	if w.bits&(wSame|wSpread) != 0 {
		values = cl.values(p.w.Inventory, w.key)
	}
	last := w.lastOne
	pass := func(at int32, _ *local) bool {
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
	cl.claimWalk(w, cl.bound, pass)
	cl.claimComing(w, pass)
	if w.lastOne != last {
		p.spoil(cl)
	}
}
