package planner

import (
	"cmp"
	"slices"

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
			(&sharing{al.plan, cl, al.x}).run(w, func(*machineState) bool { return true })
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
	al.reattributeFrom(cl, w, cl.bound, cl.pack)
	if cl.short(w) && len(cl.flight) > 0 {
		al.reattributeFrom(cl, w, cl.flight, func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) })
	}
}

func (al *allocator) reattributeFrom(cl *clusterState, w *needState, from []int32, order func(a, b int32) int) {
	priority := w.priority
	var values []int64
	if w.bits&wSame != 0 {
		values = cl.values(al.w.Inventory, w.key)
	}
	list := al.x.list[:0]
	for _, at := range from {
		if servesLower(cl, w, at, values) {
			list = append(list, at)
		}
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
		if !contributes(cl, w, at, al.displaceable(cl, w, l)) {
			continue
		}
		for i := l.shares; i >= 0; {
			loser := &cl.needs[cl.shares[i].to]
			if loser.priority >= priority {
				i = cl.shares[i].nextOn
				continue
			}
			cl.dropSharesOf(loser, at) // all at once: the loser counts once
			al.queue.requeue(cl, loser)
			i = l.shares
		}
		loser := &cl.needs[l.claim]
		cl.release(at)
		cl.recount(loser)
		al.queue.requeue(cl, loser)
		cl.claim(w, at)
		al.clusters.markStale(cl)
	}
	al.x.list = list
}

// servesLower reports whether a machine serves a lower priority than w. values are those of the key of a gang.
func servesLower(cl *clusterState, w *needState, at int32, values []int64) bool {
	l := &cl.machines[at]
	return l.claim >= 0 && cl.needs[l.claim].priority < w.priority && l.bits&lExcluded == 0 && cl.usable(w, l) &&
		(values == nil || values[at] == int64(w.domain))
}

// displaceable is what a machine counts for w when shares of lower priority on it are lost. The result may be al.buf.
func (al *allocator) displaceable(cl *clusterState, w *needState, l *machineState) []int64 {
	worth := append(al.buf[:0], cl.supply(l)...)
	al.buf = worth
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if s := &cl.shares[i]; s.to != w.at && cl.needs[s.to].priority >= w.priority {
			match.Subtract(worth, cl.at_(s.vec, 0))
		}
	}
	return cl.inUnits(w, worth)
}
