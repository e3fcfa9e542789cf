package planner

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// keepBusy is ENG-9.12: unclaimed machines take the place of claimed ones whose nodes hold less.
func (c *crediting) keepBusy() {
	cl := c.cl
	if cl.excess == 0 {
		return
	}
	ours := func(at int32) bool {
		l := &cl.machines[at]
		return l.state == inventory.Configured && l.bits&lForeign == 0
	}
	busiest, emptiest := -1, 256 // of those without a claim, and of those with one
	for _, at := range cl.bound {
		if rank := int(cl.machines[at].rank); !ours(at) {
			continue
		} else if cl.machines[at].claim < 0 {
			busiest = max(busiest, rank)
		} else {
			emptiest = min(emptiest, rank)
		}
	}
	if busiest <= emptiest {
		return
	}
	var claimed, unclaimed []int32
	for _, at := range cl.bound {
		switch l := &cl.machines[at]; {
		case !ours(at):
		case l.claim < 0:
			unclaimed = append(unclaimed, at)
		case l.bits&lKept == 0 && cl.needs[l.claim].bits&wSame == 0:
			claimed = append(claimed, at)
		}
	}
	slices.SortFunc(unclaimed, cl.keep)
	slices.SortFunc(claimed, cl.keep)
	var inVain []int32 // machines that took no place, as claims are now
	for len(unclaimed) > 0 {
		e := unclaimed[0]
		unclaimed = unclaimed[1:]
		if slices.ContainsFunc(inVain, func(x int32) bool { return alike(cl, e, x) }) {
			continue
		}
		inVain = append(inVain, e)
		for i := len(claimed) - 1; i >= 0 && cl.machines[claimed[i]].rank < cl.machines[e].rank; i-- {
			if !cl.mayStandFor(e, claimed[i]) {
				continue
			}
			cl.standFor(e, claimed[i])
			inVain = inVain[:0]
			claimed = slices.Delete(claimed, i, i+1)
			for _, at := range cl.spare(&cl.needs[cl.machines[e].claim]) {
				claimed = slices.DeleteFunc(claimed, func(x int32) bool { return x == at })
				if ours(at) {
					i, _ := slices.BinarySearchFunc(unclaimed, at, cl.keep)
					unclaimed = slices.Insert(unclaimed, i, at)
				}
			}
			break
		}
	}
}

// alike reports whether e, which holds no more, may take no place that x may not.
func alike(cl *clusterState, e, x int32) bool {
	if cl.machines[e].class != cl.machines[x].class || cl.machines[e].price != cl.machines[x].price {
		return false
	}
	for i := range cl.columns {
		if v := cl.columns[i].values; len(v) == len(cl.machines) && v[e] != v[x] {
			return false
		}
	}
	return true
}

// spare releases what a Need no longer needs of its machines, as the one that it got supplies more than the one before. The last that
// a walk would take goes first; what others have a share of stays.
func (cl *clusterState) spare(w *needState) (gone []int32) {
	for {
		last := int32(-1) // mostly it stays, so all are not put into order
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			if l := &cl.machines[at]; l.bits&lKept == 0 && l.shares < 0 && (last < 0 || cl.lastFirst(at, last) < 0) {
				last = at
			}
		}
		if last < 0 || !coveredWithout(cl, w, last) {
			return gone
		}
		cl.release(last)
		cl.recount(w)
		gone = append(gone, last)
	}
}

// coveredWithout reports whether w is covered without one of its machines.
func coveredWithout(cl *clusterState, w *needState, at int32) bool {
	return match.IsZero(cl.restOf(w, slices.Clone(cl.aggregate(w)), func(l *machineState) bool { return l == &cl.machines[at] }))
}

// needsEach returns a quick answer to whether w, which is covered, needs one of its machines: where it is true, the answer is right. It holds until a claim changes.
func needsEach(cl *clusterState, w *needState) func(at int32) bool {
	var buf [8]int64
	if w.bits&wSpread != 0 {
		r, values, asked := roomsOf(cl, w), cl.values(cl.cat.Inventory, w.key), cl.unitsIn(w, cl.aggregate(w))
		return func(at int32) bool {
			in := cl.rooms.position(r, symbol.ID(values[at]))
			return in >= 0 && !r.Spares(in, cl.unitsIn(w, cl.worth(w, &cl.machines[at], buf[:0])), asked)
		}
	}
	over := make([]int64, cl.dimensions())
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; l.bits&lKept == 0 {
			match.Add(over, cl.worth(w, l, buf[:0]))
		}
	}
	for i := w.received; i >= 0; i = cl.shares[i].nextTo {
		match.Add(over, cl.moreAt(cl.shares[i].vec, 1))
	}
	for j, a := range cl.aggregate(w) {
		if a == 0 || over[j] == math.MaxInt64 {
			over[j] = math.MaxInt64
		} else {
			over[j] -= a
		}
	}
	return func(at int32) bool { return !match.Covers(over, cl.worth(w, &cl.machines[at], buf[:0])) }
}

// lastFirst puts those in flight, by id, before the bound ones, and these in the opposite of the order in which walks take them.
func (cl *clusterState) lastFirst(a, b int32) int {
	x, y := &cl.machines[a], &cl.machines[b]
	switch {
	case x.state.Bound() && y.state.Bound():
		return cmp.Or(cmp.Compare(x.state, y.state), cl.keep(b, a))
	case x.state.Bound() || y.state.Bound():
		return sign(y.state.Bound())
	}
	return cmp.Compare(y.order, x.order)
}

// mayStandFor reports whether an unclaimed machine serves all that a claimed one serves, and costs no more.
func (cl *clusterState) mayStandFor(e, m int32) bool {
	x, y := &cl.machines[e], &cl.machines[m]
	if x.price > y.price || !match.Covers(cl.supply(x), cl.supply(y)) || !cl.usable(&cl.needs[y.claim], x) {
		return false
	}
	if w := &cl.needs[y.claim]; w.bits&wSpread != 0 && !spreadAllows(cl, w, e, m) {
		return false
	}
	for i := y.shares; i >= 0; i = cl.shares[i].nextOn {
		to := &cl.needs[cl.shares[i].to]
		if to.at < y.claim || !cl.usable(to, x) { // one before the claimant would claim x in the next plan
			return false
		}
		if to.bits&wSpread != 0 {
			if values := cl.values(cl.cat.Inventory, to.key); values[e] != values[m] {
				return false
			}
		}
	}
	return true
}

// spreadAllows reports whether e may take the place of m for a Need with a hard spread: under the same value, or with as many units that run if
// the node of m is empty, so that no Pod moves to another value.
func spreadAllows(cl *clusterState, w *needState, e, m int32) bool {
	x, y := &cl.machines[e], &cl.machines[m]
	values := cl.values(cl.cat.Inventory, w.key)
	if values[e] < 0 || values[e] != values[m] && y.rank != emptyRank {
		return false
	}
	r := roomsOf(cl, w)
	if !cl.rooms.ranked {
		cl.rooms.ranks.Of(r)
		cl.rooms.ranked = true
	}
	var buf [8]int64
	less := match.Change{At: -1, Units: -cl.unitsIn(w, cl.worth(w, y, buf[:0]))}
	if values[m] >= 0 {
		less.At = cl.rooms.position(r, symbol.ID(values[m]))
	}
	room := append(buf[:0], cl.supply(x)...)
	for i := y.shares; i >= 0; i = cl.shares[i].nextOn { // they go with the claim
		match.Subtract(room, cl.moreAt(cl.shares[i].vec, 0))
	}
	more := match.Change{At: cl.rooms.position(r, symbol.ID(values[e])), Units: cl.unitsIn(w, cl.inUnits(w, room)), New: true}
	return cl.rooms.ranks.Served(r, less, more) >= min(cl.rooms.ranks.Served(r), cl.unitsIn(w, cl.aggregate(w)))
}

// standFor gives the claim and the shares of machine m to machine e.
func (cl *clusterState) standFor(e, m int32) {
	x, y := &cl.machines[e], &cl.machines[m]
	w := &cl.needs[y.claim]
	cl.release(m)
	x.shares, x.out, y.shares, y.out = y.shares, y.out, -1, -1
	for i := x.shares; i >= 0; i = cl.shares[i].nextOn {
		cl.shares[i].on = e
	}
	cl.hold(w, e)
	cl.recount(w)
	cl.freed = true // a Need that found nothing may use the one that is let go (ENG-12.9)
}

// dropEmpty is ENG-9.13: claims end of machines whose nodes are empty and without which the Need is covered, too.
func (c *crediting) dropEmpty() {
	cl := c.cl
	if !cl.anyEmpty {
		return
	}
	var list []int32
	for i := range cl.needs {
		list = c.dropEmptyOf(&cl.needs[i], list[:0])
	}
}

// dropEmptyOf ends the claims of one Need. list is scratch.
func (c *crediting) dropEmptyOf(w *needState, list []int32) []int32 {
	cl := c.cl
	if w.bits&wSame != 0 || cl.short(w) {
		return list
	}
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; l.state == inventory.Configured && l.rank == emptyRank && l.bits&(lForeign|lKept) == 0 && l.shares < 0 {
			list = append(list, at)
		}
	}
	if len(list) == 0 {
		return list
	}
	slices.SortFunc(list, cl.lastFirst)
	needs := needsEach(cl, w)
	for _, at := range list {
		if !needs(at) && coveredWithout(cl, w, at) {
			cl.release(at)
			cl.recount(w)
			cl.freed = true // a Need that found nothing may use it (ENG-12.9)
			needs = needsEach(cl, w)
		}
	}
	return list
}

var emptyRank = uint8(inventory.OccupancyEmpty.Rank())

// keepInUse is the part of ENG-11.18 about machines: a Need of which Pods run elsewhere claims unclaimed machines in use, and one with a hard
// spread its own ones until these hold what they held with its room.
func (c *crediting) keepInUse() {
	cl := c.cl
	if cl.d.Headroom == nil && cl.d.Own == nil || cl.unclaimedCount == 0 {
		return
	}
	var buf [8]int64
	for i := range cl.needs {
		w := &cl.needs[i]
		elsewhere, own := cl.headroomOf(w) < 0, int64(0)
		if w.bits&wSpread != 0 {
			own = cl.d.OwnOf(int(w.row))
		}
		for i := w.received; i >= 0 && own > 0; i = cl.shares[i].nextTo {
			own = resource.AddSat(own, cl.shares[i].units)
		}
		if !elsewhere && own == 0 {
			continue
		}
		last := w.lastOne
		for _, at := range cl.unclaimed() {
			l := &cl.machines[at]
			if l.state != inventory.Configured || l.claim >= 0 || l.bits&(lInUse|lExcluded) != lInUse || !cl.usable(w, l) ||
				w.bits&wSpread != 0 && cl.values(cl.cat.Inventory, w.key)[at] < 0 {
				continue
			}
			worth := cl.worth(w, l, buf[:0])
			if elsewhere && match.Touches(worth, lacksOfAll(cl, w)) || own > 0 && l.owner == w.at && cl.unitsIn(w, worth) > 0 && roomsOf(cl, w).Total() < own {
				cl.claim(w, at)
			}
		}
		if w.lastOne != last && cl.anyEmpty {
			c.dropEmptyOf(w, nil)
		}
	}
}

// lacksOfAll is what w asks for, with what is served elsewhere, less what its claims and shares hold. Of a hard spread that is all of it, whatever
// the skew allows: which of its Pods run elsewhere, and so how many under each value, is not known.
func lacksOfAll(cl *clusterState, w *needState) []int64 {
	all := make([]int64, cl.dimensions())
	cl.f.Project(&cl.need(w).Aggregate, all)
	if w.bits&wSpread == 0 {
		return cl.restOf(w, all, nil)
	}
	match.RoundUp(all, cl.unit(w))
	return cl.lacks(w, all, roomsOf(cl, w).Total())
}
