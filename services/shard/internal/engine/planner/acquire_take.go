package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// acquirer takes free machines for Needs.
type acquirer struct {
	*plan
	free     *cover.FreePool
	clusters *clusters
	tops     *topologies
	actions  *actionList
	cover    *cover.Search

	taking []cover.Machine // what is being taken
	local  cover.DomainIndex
}

// take moves a free machine into a cluster, claimed by w.
func (aq *acquirer) take(cl *clusterState, w *needState, i inventory.Index, k inventory.Pool) {
	inv := aq.w.Inventory
	r := inv.Row(i)
	aq.free.Take(i, r.Class, k)
	aq.actions.taken(cl, w, i, k, r.Class, inv.Class(r.Class), r.Order)
	if w.bits&wSame != 0 {
		aq.tops.notify() // this one, too
	}
	if k == inventory.SpeculativePool {
		aq.actions.bought = true
		w.bits |= wBought
	}
	aq.keepFree(cl, w, i, r.Class, r, aq.takesPerAllocation())
	aq.clusters.markStale(cl)
}

// takesPerAllocation is how many machines allocations have taken so far, on the average, and not 0.
func (aq *acquirer) takesPerAllocation() int {
	return 1 + (len(aq.free.Taken)-1)/max(aq.res.Counters.Allocations, 1)
}

// keepFree makes a machine that w takes from a free pool one of the cluster. takes is how many each of its Needs will take.
func (aq *acquirer) keepFree(cl *clusterState, w *needState, i inventory.Index, class uint32, r *inventory.Row, takes int) {
	inv := aq.w.Inventory
	l := machineState{idx: i, class: class, order: r.Order, state: r.Seen(), bits: lAcquired, claim: -1, next: -1, owner: -1,
		ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(class).Price}
	if r.Attribution != 0 {
		l.recl = inv.AttributionRow(r.Attribution).Reclamation
	}
	if at := cl.vacated(i); at >= 0 {
		cl.spares.unlist(cl, at)
		l.used = cl.machines[at].used
		cl.machines[at] = l
		cl.claimFree(w, at)
		return
	}
	if len(cl.machines) == cap(cl.machines) { // by as much as its Needs will take at the least, rather than again and again
		n := min(cl.open*takes, max(len(cl.machines), 32)) // where demand exceeds supply, most will take nothing
		n = max(len(cl.machines)/2, n, 4)
		cl.machines, cl.more = slices.Grow(cl.machines, n), slices.Grow(cl.more, n*cl.dimensions())
	}
	cl.machines = append(cl.machines, l)
	if w.bits&wSame != 0 {
		cl.noteValue(w.key, w.domain)
	}
	cl.claimFree(w, int32(len(cl.machines)-1))
}

// vacated returns the place that a machine had in cl.machines before an exchange gave it back, or -1: tries take the same few
// machines again and again.
func (cl *clusterState) vacated(i inventory.Index) int32 {
	for n, at := range cl.empty {
		if cl.machines[at].idx == i {
			cl.empty[n] = cl.empty[len(cl.empty)-1]
			cl.empty = cl.empty[:len(cl.empty)-1]
			return at
		}
	}
	return -1
}

// acquire takes free machines of one pool by the cover rule (ENG-13).
func (aq *acquirer) acquire(cl *clusterState, w *needState, k inventory.Pool) {
	if !cl.short(w) || !aq.free.Any(cl.matcher(w), k) {
		return
	}
	c := aq.cover
	c.Ask(aq.free, cl.d.ID, k, cl.unit(w), cl.rest(w), w.bits&wMany != 0, cl.perHost(w))
	some := false
	if w.bits&wSame != 0 {
		t := aq.tops.of(w.key)
		d, ok := t.Top.Domain(w.domain)
		if !ok {
			return
		}
		if len(c.Spare) > 0 {
			c.AvoidFor(aq.free, cl.d.ID, k, func(i inventory.Index) bool {
				v, has := aq.w.Inventory.Value(i, w.key)
				return has && v == w.domain
			})
		}
		aq.tops.candidatesIn(&aq.local, cl, w, t, int(d), k)
		some = c.In(&aq.local, &t.Domains, d)
		aq.tops.here = place{t, d}
		defer func() { aq.tops.here = place{} }()
	} else {
		some = c.Everywhere(aq.cat.Of(cl.matcher(w), cl.f, w.bucket))
	}
	if !some {
		return
	}
	c.Run()
	aq.taking = aq.taking[:0]
	for _, pk := range c.Picks {
		aq.taking = c.Listed(aq.taking, pk.Group, pk.N)
	}
	aq.takeAll(cl, w, k)
}

// takeAll takes the machines that were chosen for w.
func (aq *acquirer) takeAll(cl *clusterState, w *needState, k inventory.Pool) {
	for _, x := range aq.taking {
		aq.take(cl, w, x.Index, k)
	}
}
