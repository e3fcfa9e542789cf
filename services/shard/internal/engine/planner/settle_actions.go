package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// actionList is the actions for what was taken from the free pools, in the order of allocations.
type actionList struct {
	*plan
	clusters *clusters

	list    []engine.Action
	orders  []uint32 // the order of each machine
	resumed bool     // a Need took after the allocations, or something else than in its allocation
	muted   bool     // what is taken is no action yet
	bought  bool     // some Need took a Speculative machine
}

// taken notes the action for a machine that a Need takes. Needs take in allocation order, so that the list is in order, too; a
// Need sorts its own as it goes, which are few.
func (as *actionList) taken(cl *clusterState, w *needState, i inventory.Index, k inventory.Pool, class uint32, c *inventory.Class, order uint32) {
	if as.muted {
		return
	}
	as.grow(1)
	a := acquisition(engine.Ref{Block: cl.at, Row: w.row}, i, k, cl.matcher(w).Cost(class, c, w.bucket))
	as.list, as.orders = append(as.list, a), append(as.orders, order)
	sortIn(as.list, as.orders, len(as.list)-1)
}

// acquisition is the action by which a Need takes a free machine.
func acquisition(to engine.Ref, i inventory.Index, k inventory.Pool, cost int64) engine.Action {
	a := engine.Action{Machine: i, Kind: engine.Bootstrap, Cause: engine.CauseIdle, Need: to, Cost: cost, Drain: -1}
	if k == inventory.SpeculativePool {
		a.Kind, a.Cause = engine.Provision, engine.CauseSpeculative
	}
	return a
}

// sortIn moves the action at a position before those of the same Need that come after it (ENG-2.10).
func sortIn(list []engine.Action, ids []uint32, at int) {
	a, order := list[at], ids[at]
	for ; at > 0 && list[at-1].Need == a.Need; at-- {
		x := &list[at-1]
		if cmp.Or(cmp.Compare(x.Kind, a.Kind), cmp.Compare(x.Cost, a.Cost), cmp.Compare(ids[at-1], order)) < 0 {
			break
		}
		list[at-1], list[at], ids[at-1], ids[at] = a, *x, order, ids[at-1]
	}
}

// grow makes room for n more.
func (as *actionList) grow(n int) {
	if len(as.list)+n > min(cap(as.list), cap(as.orders)) {
		likely := as.clusters.total.open
		if allocations := as.res.Counters.Allocations; allocations > 0 && len(as.list) > 0 { // by what allocations have taken so far, and an eighth
			likely = as.clusters.total.open * len(as.list) / allocations * 9 / 8
		}
		n = max(n, likely-len(as.list), 64)
		as.list, as.orders = slices.Grow(as.list, n), slices.Grow(as.orders, n)
	}
}

// keepActions is up to how many actions the room for them is kept for the next plan.
const keepActions = 1024

// takenAlone is taken for a Need that takes exactly one machine.
func (as *actionList) takenAlone(to engine.Ref, d *drawn, r *run) {
	as.bought = as.bought || r.pool == inventory.SpeculativePool
	as.grow(1)
	as.list, as.orders = append(as.list, acquisition(to, d.idx, r.pool, r.cost)), append(as.orders, d.order)
}
