package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// exchange is the exchange of one plan.
type exchange struct {
	*plan
	free     *cover.FreePool
	clusters *clusters
	pending  *pendingList
	tops     *topologies
	actions  *actionList
	acquirer *acquirer
	cover    *cover.Search

	tries      int
	spent      bool
	saved      int64
	old, again []cover.Machine // of a try: what is given back, and what is bought instead
	buf        []int64
}

// run retries purchases from exhausted pools in a different order. It keeps a new order only if the total cost falls and no other
// Need loses coverage (ENG-13.10).
func (e *exchange) run() {
	e.tries, e.spent, e.saved = 0, false, 0
	if e.policy.ExchangeTries < 2 {
		return
	}
	list := e.exchangers()
	if _, two := list.at(e, 1); !two {
		return
	}
	e.tops.notify() // topologies learn only of tries that are kept
	for improved := true; improved && !e.spent; {
		improved = false
		for b := 1; !e.spent; b++ {
			y, ok := list.at(e, b)
			if !ok {
				break
			}
			for a := 0; a < b && !e.spent; a++ {
				improved = e.try(y, list.found[a]) || improved
			}
		}
		for c := 2; c < len(list.found) && !e.spent; c++ {
			for b := 1; b < c && !e.spent; b++ {
				for a := 0; a < b && !e.spent; a++ {
					improved = e.try(list.found[c], list.found[b], list.found[a]) || improved
				}
			}
		}
	}
}

// exchangers finds, in allocation order, the plain covered Needs that bought Speculative machines and could have used an exhausted shape.
// There may be thousands and tries are few, so they are found one at a time.
type exchangers struct {
	gone  []uint32     // classes of exhausted shapes that had something free
	list  []allocation // candidates that are not checked yet
	read  int
	found []allocation
}

// at returns exchanger n, if there is one.
func (x *exchangers) at(e *exchange, n int) (allocation, bool) {
	for ; len(x.found) <= n && x.read < len(x.list); x.read++ {
		cl, w := e.clusters.state(x.list[x.read])
		if !cl.short(w) && e.hasBought(cl, w) &&
			slices.ContainsFunc(x.gone, func(c uint32) bool { return cl.fits(w, c) && e.couldTake(cl, c) }) {
			x.found = append(x.found, x.list[x.read])
		}
	}
	if n < len(x.found) {
		return x.found[n], true
	}
	return allocation{}, false
}

// exchangers lists the candidates. It compares shapes, not classes: labels must not change the answer.
func (e *exchange) exchangers() (x exchangers) {
	if !e.actions.bought {
		return x
	}
	inv := e.w.Inventory
	bought := make([]int32, inv.Shapes()) // Speculative machines by shape
	for c := range inv.Classes() {
		if cl := inv.Class(uint32(c)); cl.Serial != 0 {
			bought[cl.Shape] += int32(cl.Pools[inventory.SpeculativePool].Len()) - e.free.Left(inventory.SpeculativePool, uint32(c))
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
	for _, cl := range e.clusters.stale {
		for i := range cl.needs {
			if w := &cl.needs[i]; w.bits&(wSame|wSpread|wBought) == wBought {
				x.list = append(x.list, allocationOf(cl, w))
			}
		}
	}
	e.pending.sorter.sort(x.list)
	return x
}

// couldTake reports whether a class had a Speculative machine free that is not withheld from the cluster.
func (e *exchange) couldTake(cl *clusterState, class uint32) bool {
	avoided := e.w.Inventory.Avoided(cl.d.ID)
	if len(avoided) == 0 {
		return true
	}
	n := e.w.Inventory.Class(class).Pools[inventory.SpeculativePool].Len()
	for _, i := range avoided {
		if r := e.w.Inventory.Row(i); r.Class == class && r.Seen() == inventory.Speculative {
			n--
		}
	}
	return n > 0
}

// hasBought reports whether w took Speculative machines and none of them carries a share.
func (e *exchange) hasBought(cl *clusterState, w *needState) bool {
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
func (e *exchange) try(order ...allocation) bool {
	for _, t := range order {
		if cl, w := e.clusters.state(t); !e.hasBought(cl, w) {
			return false
		}
	}
	if e.spent = e.spent || e.tries+len(order) > e.policy.ExchangeTries; e.spent {
		return false
	}
	e.tries += len(order)
	saved, ok := e.weigh(order)
	if !ok {
		for _, t := range order {
			cl, w := e.clusters.state(t)
			e.boughtLast(cl, w)
			cl.unpack(w)
		}
		return false
	}
	e.saved += saved
	e.actions.resumed = true
	e.actions.muted = true // given back and taken again, it is the same action
	old := make([][]inventory.Index, len(order))
	before := len(e.free.Taken)
	for i, t := range order {
		cl, w := e.clusters.state(t)
		old[i] = e.giveBackAll(cl, w)
	}
	for _, t := range order {
		cl, w := e.clusters.state(t)
		e.acquirer.acquire(cl, w, inventory.SpeculativePool)
	}
	e.actions.muted = false
	e.apply(old, before)
	return true
}

// weigh computes what the Needs would save by buying again in the given order. It changes only the free pools and restores them; clusters
// are not touched. ok means that all would be covered for less and no short Need could use what is left over.
func (e *exchange) weigh(order []allocation) (saved int64, ok bool) {
	var was, is cover.Sum
	inv, before := e.w.Inventory, len(e.free.Taken)
	e.old, e.again = e.old[:0], e.again[:0]
	for _, t := range order {
		cl, w := e.clusters.state(t)
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			if l := &cl.machines[at]; l.isBought() {
				was.Add(uint64(cl.matcher(w).Cost(l.class, inv.Class(l.class), w.bucket)), 1)
				e.old = append(e.old, cover.Machine{Index: l.idx, Class: l.class})
				e.free.GiveBack(l.idx, l.class, inventory.SpeculativePool)
			}
		}
	}
	ok = true
	for i := 0; ok && i < len(order); i++ {
		cl, w := e.clusters.state(order[i])
		ok = e.buyAgain(cl, w, &is)
	}
	ok = ok && is.Compare(was) < 0 && !e.wanted(e.old)
	for _, m := range e.again {
		e.free.GiveBack(m.Index, m.Class, inventory.SpeculativePool)
	}
	for _, m := range e.old {
		e.free.Take(m.Index, m.Class, inventory.SpeculativePool)
	}
	e.free.Forget(before)
	was.Sub(is.Lo, 1)
	return int64(was.Lo), ok
}

// buyAgain takes from the pools what w would buy without its earlier purchases, and adds up the cost. It reports whether w would be
// covered.
func (e *exchange) buyAgain(cl *clusterState, w *needState, total *cover.Sum) bool {
	rest := cl.restOf(w, append(e.buf[:0], cl.aggregate(w)...), (*machineState).isBought)
	e.buf = rest
	if match.IsZero(rest) {
		return true
	}
	const k = inventory.SpeculativePool
	if !e.free.Any(cl.matcher(w), k) {
		return false
	}
	c := e.cover
	c.Ask(e.free, cl.d.ID, k, cl.unit(w), rest, w.bits&wMany != 0, cl.perHost(w))
	if !c.Everywhere(e.cat.Of(cl.matcher(w), cl.f, w.bucket)) {
		return false
	}
	c.Run()
	for _, pk := range c.Picks {
		total.Add(c.CostOf(pk), uint64(pk.N))
		e.acquirer.taking = c.Listed(e.acquirer.taking[:0], pk.Group, pk.N)
		for _, x := range e.acquirer.taking {
			e.again = append(e.again, x)
			e.free.Take(x.Index, x.Class, k)
			match.Subtract(rest, cl.amount(w, x.Class))
		}
	}
	return match.IsZero(rest)
}

// isBought reports whether a machine was Speculative when the plan took it.
func (l *machineState) isBought() bool {
	return l.bits&lAcquired != 0 && l.state == inventory.Speculative
}

// boughtLast moves what w bought behind its other claims, as if it had just bought it.
func (e *exchange) boughtLast(cl *clusterState, w *needState) {
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

// apply updates the topologies after a kept try: some returned machines are free now, and some of
// free.Taken[before:] are new.
func (e *exchange) apply(old [][]inventory.Index, before int) {
	taken := slices.Clone(e.free.Taken[before:])
	e.free.Forget(before)
	e.tops.notify()
	was := slices.Concat(old...)
	for _, i := range was {
		if !e.free.IsTaken(i) {
			e.tops.count(i, e.w.Inventory.Row(i).Class, inventory.SpeculativePool, -1)
		}
	}
	for _, i := range taken {
		if !slices.Contains(was, i) {
			e.free.Note(i, e.w.Inventory.Row(i).Class, inventory.SpeculativePool)
		}
	}
}

// giveBackAll returns what w bought to the free pool.
func (e *exchange) giveBackAll(cl *clusterState, w *needState) []inventory.Index {
	var out []inventory.Index
	for at := w.claims; at >= 0; {
		l := &cl.machines[at]
		next := l.next
		if l.isBought() {
			out = append(out, l.idx)
			cl.release(at)
			l.bits |= lGone
			cl.empty = append(cl.empty, at)
			e.free.GiveBack(l.idx, l.class, inventory.SpeculativePool)
		}
		at = next
	}
	cl.recount(w)
	return out
}

// wanted reports whether a short Need could use a machine that was returned and not taken again.
func (e *exchange) wanted(list []cover.Machine) bool {
	inv := e.w.Inventory
	for _, m := range list {
		if e.free.IsTaken(m.Index) {
			continue
		}
		for _, cl := range e.clusters.states {
			if cl.open == 0 && !cl.stale {
				continue
			}
			for at := range cl.needs {
				w := &cl.needs[at]
				if held(w) || !cl.short(w) || !cl.fits(w, m.Class) || !match.Touches(cl.f.Supply(m.Class), cl.rest(w)) || inv.WithheldFrom(m.Index, cl.d.Name) {
					continue
				}
				switch v, has := inv.Value(m.Index, w.key); {
				case w.bits&wSame != 0 && (w.bits&wChosen == 0 || !has || v != w.domain),
					w.bits&wSpread != 0 && (!has || !roomsOf(cl, w).Helps(v, cl.unitsIn(w, cl.amount(w, m.Class)))):
					continue
				}
				return true
			}
		}
	}
	return false
}

// claimFreed lets each short Need check once more what its cluster has left (ENG-12.9).
func (al *allocator) claimFreed() {
	// Where nothing happened since credit, every short Need has seen what is left.
	for _, cl := range al.clusters.withUnclaimed.of(func(cl *clusterState) bool {
		return cl.unclaimedCount > 0 && (cl.freed && cl.shorts > 0 || cl.stale) || cl.stale && len(cl.flight) > 0
	}) {
		for i := range cl.needs {
			al.claimUnclaimed(cl, &cl.needs[i])
		}
		cl.freed = false // if it claimed something it is stale; else it would claim nothing again
	}
}

// claimUnclaimed lets w claim unclaimed machines of its cluster, bound ones and then those in flight. A gang stays in its
// domain.
func (al *allocator) claimUnclaimed(cl *clusterState, w *needState) {
	if cl.unclaimedCount == 0 && len(cl.flight) == 0 || !cl.short(w) || w.bits&wSame != 0 && w.bits&wChosen == 0 {
		return
	}
	last := w.lastOne
	pass := func(at int32, _ *machineState) bool { return inside(cl, w, at) }
	cl.claimUnclaimed(w, pass)
	cl.claimUnclaimedInFlight(w, pass)
	if w.lastOne != last {
		al.unmet.gained = true
		al.clusters.markStale(cl)
	}
}
