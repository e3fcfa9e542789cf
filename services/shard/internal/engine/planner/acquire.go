package planner

import (
	"cmp"
	"slices"
	"sort"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// allocator lets Needs acquire, one after the other.
type allocator struct {
	*plan
	clusters *clusters
	pending  *pendingList
	unmet    *unmetNeeds
	queue    *allocationQueue
	spread   *spreading
	acquirer *acquirer
	gangs    *gangAllocator
	runs     *runs
	cover    *cover.Search
	x        *scratch
	buf      []int64
	sum      []int64
}

// allocate lets open Needs acquire machines, one after the other (ENG-12).
func (al *allocator) allocate() {
	al.queue.begin(al.pending.list, al.pending.order)
	al.runs.begin(len(al.clusters.states))
	al.unmet.begin()
	al.res.Counters.Allocations += al.clusters.total.settled
	al.queue.visit(func(cl *clusterState, w *needState, s *pendingNeed) {
		if len(al.runs.taken[cl.at]) > 0 {
			al.runs.settlePending(cl)
		}
		al.runs.joined[cl.at] = 0
		al.cover.NewAllocation()
		if cl.short(w) {
			al.res.Counters.Allocations++
			if al.allocateNeed(cl, w) && s != nil {
				al.clusters.covered = append(al.clusters.covered, covered{cl, s})
			}
			(&sharing{al.plan, cl, al.x}).finishOffers(w)
		}
		if s == nil {
			return
		}
		if cl.short(w) {
			al.pending.noteIdle(s, w)
			al.queue.noteUnmet(al.queue.at-1, s, w.mayPreempt())
		}
		if s.ask != 0 && len(al.w.Inventory.Avoided(cl.d.ID)) == 0 { // else others may have a better answer
			al.runs.answer(s.ask)
		}
	}, al.runs.runOn)
	al.runs.settle()
	al.queue.end()
	al.clusters.settle()
	al.unmet.asked, al.unmet.known = al.pending.list, al.queue.displaced == 0
	al.pending.dropStale()
}

// allocateNeed lets one Need acquire: shares and machines in flight of its own cluster, then Idle, then Speculative machines, then machines
// that serve a lower priority in its cluster (ENG-12.3). It reports whether what is bound to the cluster was enough.
func (al *allocator) allocateNeed(cl *clusterState, w *needState) bool {
	if w.bits&wSame != 0 {
		if !al.gangs.allocate(cl, w) {
			return false
		}
	} else {
		unclaimed, shares := cl.unclaimedCount, len(cl.shares)
		for missing := int64(-1); ; {
			if unclaimed > 0 {
				cl.claimUnclaimed(w, nil)
			}
			(&sharing{al.plan, cl, al.x}).run(w, boundSpares, flightSpares)
			now := unitsFor(cl.rest(w), cl.unit(w))
			if w.bits&wSpread == 0 || now == 0 || now == missing {
				break
			}
			missing = now // a share may let a machine count (ENG-13.9)
		}
		if !cl.short(w) {
			return true
		}
		last := w.lastOne
		cl.claimUnclaimedInFlight(w, nil)
		if unclaimed > 0 || len(cl.shares) > shares || w.lastOne != last {
			al.clusters.markStale(cl)
		}
	}
	al.takeBack(cl, w)
	if w.bits&wGang != 0 && !al.canStart(cl, w) {
		return false
	}
	al.acquireFree(cl, w)
	al.reattribute(cl, w)
	return false
}

// acquireFree takes free machines: Idle ones, then Speculative ones.
func (al *allocator) acquireFree(cl *clusterState, w *needState) {
	if w.bits&wSpread != 0 {
		al.spread.acquire(cl, w)
		return
	}
	al.acquirer.acquire(cl, w, inventory.IdlePool)
	al.acquirer.acquire(cl, w, inventory.SpeculativePool)
}

// reattribute credits machines of w's own cluster that serve a lower priority to w instead: bound ones, then those in flight (ENG-12.5).
func (al *allocator) reattribute(cl *clusterState, w *needState) {
	if !cl.short(w) || cl.needs[len(cl.needs)-1].priority >= w.priority {
		return
	}
	from, order := lower(cl, w), cl.pack
	if cl.lastClaimed < from {
		return
	}
	for _, machines := range [2][]int32{cl.bound, cl.flight} {
		list := al.x.list[:0]
		for _, at := range machines {
			if servesFrom(cl, w, from, at) {
				list = append(list, at)
			}
		}
		slices.SortFunc(list, func(a, b int32) int {
			x, y := cl.need(&cl.needs[cl.machines[a].claim]), cl.need(&cl.needs[cl.machines[b].claim])
			return cmp.Or(demand.CompareRank(&y.Form.Profile, &x.Form.Profile), order(a, b))
		})
		for _, at := range list {
			al.displace(cl, w, from, at)
		}
		al.x.list = list
		order = func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) }
	}
}

// takeBack credits to a Need that lost something its Own machines that a later Need or a gang that cannot start claims (ENG-12.5a).
func (al *allocator) takeBack(cl *clusterState, w *needState) {
	for at := w.own; at >= 0 && w.lost; at = cl.machines[at].ownNext {
		from := w.at + 1
		if by := cl.machines[at].claim; by >= 0 && by < w.at && !match.IsZero(lacksToStart(cl, &cl.needs[by], cl.rest(&cl.needs[by]))) {
			from = by
		}
		if servesFrom(cl, w, from, at) {
			al.displace(cl, w, w.at+1, at)
		}
	}
}

// displace credits a machine to w if that is short and it contributes. Needs from position from on lose their claim and their shares.
func (al *allocator) displace(cl *clusterState, w *needState, from, at int32) {
	l := &cl.machines[at]
	if !cl.short(w) || !contributes(cl, w, at, al.displaceable(cl, w, from, l)) {
		return
	}
	for i := l.shares; i >= 0; {
		if loser := &cl.needs[cl.shares[i].to]; loser.at < from {
			i = cl.shares[i].nextOn
		} else {
			cl.dropSharesOf(loser, at) // all at once: the loser counts once
			al.queue.displace(cl, loser, w)
			i = l.shares
		}
	}
	loser := &cl.needs[l.claim]
	cl.release(at)
	cl.recount(loser)
	al.queue.displace(cl, loser, w)
	cl.claim(w, at)
	al.clusters.markStale(cl)
}

// lower is the position of the first Need of lower priority than w, or behind the last one.
func lower(cl *clusterState, w *needState) int32 {
	return int32(sort.Search(len(cl.needs), func(i int) bool { return cl.needs[i].priority < w.priority }))
}

// servesFrom reports whether w can use a machine that a Need from position from on claims.
func servesFrom(cl *clusterState, w *needState, from, at int32) bool {
	l := &cl.machines[at]
	return l.claim >= from && l.bits&lExcluded == 0 && cl.usable(w, l) && inside(cl, w, at)
}

// inside reports whether a machine lies in the domain of w, if that is a gang.
func inside(cl *clusterState, w *needState, at int32) bool {
	return w.bits&wSame == 0 || cl.values(cl.cat.Inventory, w.key)[at] == int64(w.domain)
}

// displaceable is what a machine counts for w when shares of Needs from position from on are lost. The result may be al.buf.
func (al *allocator) displaceable(cl *clusterState, w *needState, from int32, l *machineState) []int64 {
	worth := append(al.buf[:0], cl.supply(l)...)
	al.buf = worth
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if s := &cl.shares[i]; s.to != w.at && s.to < from {
			match.Subtract(worth, cl.moreAt(s.vec, 0))
		}
	}
	return cl.inUnits(w, worth)
}
