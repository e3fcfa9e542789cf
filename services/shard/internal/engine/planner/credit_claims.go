package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// claim makes a machine count for w, whole. A share of w on it becomes part of the claim.
func (cl *clusterState) claim(w *needState, at int32) {
	l := &cl.machines[at]
	if l.shares >= 0 {
		cl.dropSharesOf(w, at)
	}
	var buf [8]int64
	if w.bits&wSpread != 0 {
		r := roomsOf(cl, w)
		cl.hold(w, at)
		if v := cl.values(cl.cat.Inventory, w.key)[at]; v >= 0 {
			cl.rooms.add(r, symbol.ID(v), cl.unitsIn(w, cl.worth(w, l, buf[:0])))
		}
		cl.rooms.of = w.at
		cl.recount(w)
		return
	}
	cl.hold(w, at)
	match.Subtract(cl.rest(w), cl.worth(w, l, buf[:0]))
}

// hold puts a machine into w's chain without crediting it.
func (cl *clusterState) hold(w *needState, at int32) {
	cl.chain(w, at)
	cl.unpack(w)
	cl.countUnclaimed(&cl.machines[at], -1)
}

func (cl *clusterState) chain(w *needState, at int32) {
	cl.rooms.forget()
	l := &cl.machines[at]
	l.claim, l.next = w.at, -1
	cl.lastClaimed = max(cl.lastClaimed, w.at)
	l.bits &^= lKept
	if w.lastOne >= 0 {
		cl.machines[w.lastOne].next = at
	} else {
		w.claims = at
	}
	w.lastOne = at
}

// claimFree is claim for a machine that w takes from a free pool. No Need counts it yet, and its spare capacity is offered to others only after
// the allocation.
func (cl *clusterState) claimFree(w *needState, at int32) {
	cl.chain(w, at)
	if w.bits&wPacked != 0 {
		cl.unpack(w)
	}
	if w.bits&wSpread == 0 { // else it is counted when all are there
		match.Subtract(cl.rest(w), cl.amount(w, cl.machines[at].class))
	}
}

// release takes a machine out of its claimant's chain. The claimant's residual is for the caller to recount.
func (cl *clusterState) release(at int32) {
	l := &cl.machines[at]
	w := &cl.needs[l.claim]
	cl.rooms.forget()
	prev := int32(-1)
	for i := w.claims; i != at; i = cl.machines[i].next {
		prev = i
	}
	if prev < 0 {
		w.claims = l.next
	} else {
		cl.machines[prev].next = l.next
	}
	if w.lastOne == at {
		w.lastOne = prev
	}
	l.claim, l.next = -1, -1
	l.bits &^= lKept
	cl.spares.unlist(cl, at)
	cl.unpack(w)
	cl.countUnclaimed(l, +1)
}

// countUnclaimed updates the counts when a machine loses its claim (by 1) or gets one (by -1).
func (cl *clusterState) countUnclaimed(l *machineState, by int) {
	switch {
	case l.bits&lExcluded != 0:
		return
	case !l.state.Bound():
		cl.waiting += by
		cl.waitingStale = cl.waitingStale || by > 0
		return
	}
	cl.unclaimedCount += by
	cl.unclaimedStale = cl.unclaimedStale || by > 0
	if at, known := slices.BinarySearchFunc(cl.unclaimedOf, l.class, compareClasses); known {
		cl.unclaimedOf[at].n += int32(by)
	}
	if l.state == inventory.Configured && l.bits&lForeign == 0 {
		cl.excess += by
	}
}

// unclaimedInFlight lists by id the machines in flight that no Need claims. Some of them may have been claimed since the list was made.
func unclaimedInFlight(cl *clusterState) []int32 {
	if cl.waitingStale || len(cl.waitingAt) > 2*cl.waiting+8 {
		cl.waitingStale, cl.waitingAt = false, cl.waitingAt[:0]
		for _, at := range cl.byID {
			if cl.machines[at].claim < 0 {
				cl.waitingAt = append(cl.waitingAt, at)
			}
		}
	}
	return cl.waitingAt
}

// unclaimed lists the unclaimed bound machines in walk order. Some of them may have been claimed since the list was made.
func (cl *clusterState) unclaimed() []int32 {
	if cl.unclaimedCount == 0 {
		return nil
	}
	if cl.unclaimedStale || len(cl.unclaimedAt) > 2*cl.unclaimedCount+8 {
		if cl.unclaimedCount > unclaimedFew && !cl.inOrder { // so that they are sorted once
			cl.walkOrder(cl.bound, nil)
			cl.inOrder = true
		}
		cl.unclaimedStale, cl.unclaimedAt, cl.unclaimedOf = false, cl.unclaimedAt[:0], cl.unclaimedOf[:0]
		for _, at := range cl.bound {
			if cl.machines[at].claim < 0 {
				cl.unclaimedAt = append(cl.unclaimedAt, at)
			}
		}
		if !cl.inOrder {
			var few [unclaimedFew]walkKey
			cl.walkOrder(cl.unclaimedAt, few[:0])
		}
	}
	return cl.unclaimedAt
}

// classCount is how many unclaimed machines are of a class.
type classCount struct {
	class uint32
	n     int32
}

func compareClasses(x classCount, class uint32) int { return cmp.Compare(x.class, class) }

// someUnclaimed reports whether w can use some unclaimed machine: thousands of Needs can be short beside thousands of machines that none of them can use.
func someUnclaimed(cl *clusterState, w *needState) bool {
	list := cl.unclaimed()
	if len(list) <= unclaimedFew {
		return len(list) > 0
	}
	if len(cl.unclaimedOf) == 0 {
		for _, at := range list {
			if l := &cl.machines[at]; l.claim < 0 {
				cl.unclaimedOf = append(cl.unclaimedOf, classCount{l.class, 1})
			}
		}
		slices.SortFunc(cl.unclaimedOf, func(a, b classCount) int { return compareClasses(a, b.class) })
		all := cl.unclaimedOf
		cl.unclaimedOf = all[:0]
		for _, c := range all {
			if last := len(cl.unclaimedOf) - 1; last >= 0 && cl.unclaimedOf[last].class == c.class {
				cl.unclaimedOf[last].n++
			} else {
				cl.unclaimedOf = append(cl.unclaimedOf, c)
			}
		}
	}
	return slices.ContainsFunc(cl.unclaimedOf, func(c classCount) bool { return c.n > 0 && cl.fits(w, c.class) })
}

// unclaimedFew is how many unclaimed machines are sorted by themselves.
const unclaimedFew = 16

// recount computes the residual of a Need from its claims and shares.
func (cl *clusterState) recount(w *needState) {
	rest := cl.rest(w)
	copy(rest, cl.aggregate(w))
	cl.restOf(w, rest, nil)
}

// restOf takes off all, the aggregate of a Need, what it has, but for the claims that are left out.
func (cl *clusterState) restOf(w *needState, rest []int64, without func(l *machineState) bool) []int64 {
	var buf [8]int64
	if w.bits&wSpread != 0 {
		r := roomsOf(cl, w)
		if without != nil { // during credit, when nothing is promised yet
			r = &cl.rooms.other
			fillRooms(cl, r, w, without)
		}
		return cl.lacks(w, rest, r.Served())
	}
	for i := w.claims; i >= 0; i = cl.machines[i].next {
		if l := &cl.machines[i]; l.bits&lKept == 0 && (without == nil || !without(l)) {
			match.Subtract(rest, cl.worth(w, l, buf[:0]))
		}
	}
	for i := w.received; i >= 0; i = cl.shares[i].nextTo {
		match.Subtract(rest, cl.moreAt(cl.shares[i].vec, 1))
	}
	for i := range cl.promisedTo(w) {
		match.Subtract(rest, cl.amount(w, cl.promisedTo(w)[i].class))
	}
	return rest
}

// claimUnclaimed claims unclaimed bound machines one after the other, as far as w is short and they are usable, pass, and contribute.
// pass may be nil.
func (cl *clusterState) claimUnclaimed(w *needState, pass func(at int32, l *machineState) bool) {
	if !someUnclaimed(cl, w) {
		return
	}
	var buf [8]int64
	untilNothing(cl, w, func() {
		full := fullValuesOf(cl, w)
		for _, at := range cl.unclaimed() {
			l := &cl.machines[at]
			if l.claim >= 0 || l.bits&(lExcluded|lGone) != 0 || full.has(at) || !cl.usable(w, l) || pass != nil && !pass(at, l) {
				continue
			}
			if !cl.short(w) {
				return
			}
			if contributes(cl, w, at, cl.worth(w, l, buf[:0])) && claimAndRaise(cl, w, at) {
				return
			}
		}
	})
}

// claimAndRaise is claim in a walk. It reports whether each value may hold more now, so that a machine that the walk passed over may contribute:
// with a hard spread the walk begins again then.
func claimAndRaise(cl *clusterState, w *needState, at int32) bool {
	if w.bits&wSpread == 0 {
		cl.claim(w, at)
		return false
	}
	most := roomsOf(cl, w).Most()
	cl.claim(w, at)
	return roomsOf(cl, w).Most() > most
}

// untilNothing walks over machines that w may claim. With a hard spread it begins again as long as w claims something: a machine may let
// one contribute that comes before it.
func untilNothing(cl *clusterState, w *needState, walk func()) {
	for last := w.lastOne; ; last = w.lastOne {
		if walk(); w.bits&wSpread == 0 || w.lastOne == last || !cl.short(w) {
			return
		}
	}
}

// worth is what a machine contributes to w, whole, while the shares of others on it stay. The result may be buf.
func (cl *clusterState) worth(w *needState, l *machineState, buf []int64) []int64 {
	if l.out < 0 {
		return cl.amount(w, l.class)
	}
	buf = append(buf[:0], cl.supply(l)...)
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if cl.shares[i].to != w.at {
			match.Subtract(buf, cl.moreAt(cl.shares[i].vec, 0))
		}
	}
	return cl.inUnits(w, buf)
}
