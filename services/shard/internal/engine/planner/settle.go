package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// settling writes the actions.
type settling struct {
	*plan
	free       *cover.FreePool
	clusters   *clusters
	pending    *pendingList
	actions    *actionList
	preemption *preemption

	unclaimed []int32                   // scratch
	drainedAt map[inventory.Index]int32 // positions in preemption.drained, made on first use
	compared  int                       // Needs, with machines that are reclaimed
}

// selfCheckMost is how many Needs a plan compares with machines that are reclaimed, to count what no plan may do. One cluster can have 50,000 and thousands.
const selfCheckMost = 1_000_000

// run writes the actions in the order of ENG-2.10 and what goes with them.
func (st *settling) run() {
	st.drainedAt, st.compared = nil, 0
	st.acquisitions()
	st.preempts()
	st.reclaims()
	st.releases()
	st.costs()
	st.promises()
}

// acquisitions lists Bootstraps and Provisions by allocation order of their Needs.
func (st *settling) acquisitions() {
	acting := st.clusters.handsOver.of(func(cl *clusterState) bool { return cl.handsOver && !cl.stale })
	straight := len(acting) == 0 && !st.actions.resumed && !slices.ContainsFunc(st.clusters.stale, func(cl *clusterState) bool { return len(cl.flight) > 0 })
	if straight {
		if len(st.actions.list) > keepActions { // copying many costs more than making room for them in the next plan
			st.res.Actions, st.actions.list = st.actions.list, nil
			return
		}
		st.res.Actions = slices.Clone(st.actions.list)
		return
	}
	// Something was given back, taken out of allocation or is handed over: the claims say what it comes to.
	st.pending.fresh = st.pending.fresh[:0]
	st.res.Actions = slices.Grow(st.res.Actions, len(st.free.Taken))
	inv := st.w.Inventory
	acting = append(acting, st.clusters.stale...)
	for _, cl := range acting {
		for i := range cl.needs {
			if w := &cl.needs[i]; w.claims >= 0 && st.acts(cl, inv, w) {
				st.pending.fresh = append(st.pending.fresh, allocationOf(cl, w))
			}
		}
	}
	st.pending.sorter.sort(st.pending.fresh)
	for _, t := range st.pending.fresh {
		cl, w := st.clusters.state(t)
		from := len(st.res.Actions)
		ref := engine.Ref{Block: cl.at, Row: w.row}
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			l := &cl.machines[at]
			kind, cause := cl.actionFor(inv, w, l)
			if kind != 0 {
				st.res.Actions = append(st.res.Actions, engine.Action{Machine: l.idx, Kind: kind, Cause: cause, Need: ref, Drain: -1,
					Cost: cl.matcher(w).Cost(l.class, inv.Class(l.class), w.bucket)})
			}
		}
		slices.SortFunc(st.res.Actions[from:], func(a, b engine.Action) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cost, b.Cost), cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order))
		})
	}
}

// acts reports whether a plan does something for w.
func (st *settling) acts(cl *clusterState, inv *inventory.Table, w *needState) bool {
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if kind, _ := cl.actionFor(inv, w, &cl.machines[at]); kind != 0 {
			return true
		}
	}
	return false
}

// actionFor is what happens to a claimed machine: it is acquired, or handed over to the Need that credit gave it (ENG-9.10).
func (cl *clusterState) actionFor(inv *inventory.Table, w *needState, l *machineState) (engine.Kind, engine.Cause) {
	switch {
	case l.bits&lAcquired != 0 && l.state == inventory.Idle:
		return engine.Bootstrap, engine.CauseIdle
	case l.bits&lAcquired != 0:
		return engine.Provision, engine.CauseSpeculative
	case l.state == inventory.Idle && !held(w) && !inv.WithheldFrom(l.idx, cl.d.Name):
		return engine.Bootstrap, engine.CauseHandover
	}
	return 0, 0
}

// harmed is the Need that a drained machine was claimed by, or else the row that it was attributed to, or NoNeed.
func (st *settling) harmed(cl *clusterState, l *machineState) engine.Ref {
	if l.claim >= 0 {
		return engine.Ref{Block: cl.at, Row: cl.needs[l.claim].row}
	}
	attribution := st.attributionOf(l)
	if attribution == 0 {
		return engine.NoNeed
	}
	key := st.w.Inventory.AttributionRow(attribution).Key
	if row, ok := cl.d.Row(key); ok {
		return engine.Ref{Block: cl.at, Row: int32(row)}
	}
	if l.owner >= 0 {
		return engine.Ref{Block: cl.at, Row: cl.needs[l.owner].row}
	}
	return engine.NoNeed
}

func (st *settling) drainAction(cl *clusterState, l *machineState, k engine.Kind, c engine.Cause, d engine.Drain) {
	st.res.Actions = append(st.res.Actions, engine.Action{Machine: l.idx, Kind: k, Cause: c, Need: st.harmed(cl, l), Cost: l.price,
		Drain: int32(len(st.res.Drains))})
	st.res.Drains = append(st.res.Drains, d)
}

func (cs *clusters) refOf(t allocation) engine.Ref {
	cl, w := cs.state(t)
	return engine.Ref{Block: cl.at, Row: w.row}
}

// preempts lists Preempts by allocation order of the preemptor, then as they were chosen.
func (st *settling) preempts() {
	for _, d := range st.preemption.drained {
		if d.kind == engine.Preempt {
			st.drainAction(d.cl, &d.cl.machines[d.at], engine.Preempt, d.cause, engine.Drain{Grace: st.policy.Grace(d.gap), Preemptor: st.clusters.refOf(d.preemptor),
				Gap: d.gap, Score: d.terms.Sum(), Terms: d.terms})
		}
	}
}

// reclaims lists the unclaimed machines of heard clusters: the first of every cluster, then the second, and so on (ENG-16.4).
func (st *settling) reclaims() {
	type queue struct {
		cl   *clusterState
		list []int32
	}
	var queues []queue
	inv, all := st.w.Inventory, st.unclaimed[:0]
	for _, cl := range st.clusters.withExcess() {
		from := len(all)
		for at := range cl.machines[:cl.members] {
			if l := &cl.machines[at]; l.state == inventory.Configured && l.claim < 0 && l.bits&lPreempt == 0 && !inv.Row(l.idx).Foreign() {
				all = append(all, int32(at))
			}
		}
		list := all[from:]
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b int32) int {
			x, y := st.promisedAt(cl, a), st.promisedAt(cl, b)
			if x >= 0 || y >= 0 {
				return cmp.Compare(uint32(x), uint32(y)) // -1 is the largest
			}
			return cl.keep(b, a)
		})
		queues = append(queues, queue{cl, list})
	}
	st.unclaimed, st.res.Drains = all, slices.Grow(st.res.Drains, len(all))
	for round := 0; len(queues) > 0; round++ {
		for _, q := range queues {
			st.reclaim(q.cl, q.list[round])
		}
		queues = slices.DeleteFunc(queues, func(q queue) bool { return len(q.list) == round+1 })
	}
}

// promisedAt returns the position in drained of a Reclaim that has a preemptor, or -1.
func (st *settling) promisedAt(cl *clusterState, at int32) int32 {
	if cl.machines[at].bits&lGone == 0 {
		return -1
	}
	if st.drainedAt == nil {
		st.drainedAt = make(map[inventory.Index]int32, len(st.preemption.drained))
		for i := range st.preemption.drained {
			st.drainedAt[st.preemption.drained[i].idx] = int32(i)
		}
	}
	if i, ok := st.drainedAt[cl.machines[at].idx]; ok {
		return i
	}
	return -1
}

func (st *settling) reclaim(cl *clusterState, at int32) {
	l := &cl.machines[at]
	d := engine.Drain{Grace: st.policy.ReclaimGrace, Preemptor: engine.NoNeed}
	cause := engine.CauseExcess
	if i := st.promisedAt(cl, at); i >= 0 {
		d.Preemptor, d.Gap = st.clusters.refOf(st.preemption.drained[i].preemptor), st.preemption.drained[i].gap
		cause = engine.CauseExcessPromised
	} else if l.owner >= 0 {
		if w := &cl.needs[l.owner]; w.bits&(wSame|wChosen) == wSame|wChosen && cl.values(st.w.Inventory, w.key)[at] != int64(w.domain) {
			cause = engine.CauseGangMoved
		}
	}
	if l.bits&lExcluded != 0 {
		cause = engine.CauseNotJoined
	}
	st.drainAction(cl, l, engine.Reclaim, cause, d)
	if st.compared += len(cl.needs); l.bits&lExcluded == 0 && st.compared <= selfCheckMost {
		st.res.Counters.ReclaimMatchesUnmet += st.couldUse(cl, l, at)
	}
}

// couldUse counts the short Needs of the cluster that a machine could have served: there must be none.
func (st *settling) couldUse(cl *clusterState, l *machineState, at int32) int {
	n := 0
	for i := range cl.needs {
		w := &cl.needs[i]
		if w.bits&wSpread != 0 || !cl.short(w) || !cl.usable(w, l) || !match.Touches(cl.supply(l), cl.rest(w)) {
			continue
		}
		if w.bits&wSame != 0 && (w.bits&wChosen == 0 || cl.values(st.w.Inventory, w.key)[at] != int64(w.domain)) {
			continue
		}
		n++
	}
	return n
}

// releases lists the Idle machines whose hold is over and that no Need took, dearest first (ENG-16.7 to 16.9). The table says which may go (ENG-16.8).
func (st *settling) releases() {
	inv := st.w.Inventory
	from := len(st.res.Actions)
	for _, c := range [...]inventory.CapacityType{inventory.OnDemand, inventory.Spot} {
		shortest, ok := st.policy.Hold.Shortest(c)
		if !ok {
			continue
		}
	oldest:
		for _, chunk := range inv.Releasable(c).Chunks() {
			for _, i := range chunk {
				r := inv.Row(i)
				if st.now-r.Since < shortest {
					break oldest
				}
				if hold, _ := st.policy.Hold.Of(c, inv.Class(r.Class).Price); st.now-r.Since >= hold && !st.free.IsTaken(i) {
					st.res.Actions = append(st.res.Actions, engine.Action{Machine: i, Kind: engine.Delete, Cause: engine.CauseRelease, Need: engine.NoNeed,
						Cost: inv.Class(r.Class).Price, Drain: -1})
				}
			}
		}
	}
	slices.SortFunc(st.res.Actions[from:], func(a, b engine.Action) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order))
	})
}

// costs is ENG-P15.
func (st *settling) costs() {
	inv := st.w.Inventory
	st.res.CostBefore = inv.Billed()
	st.res.CostAfter = st.res.CostBefore
	for i := range st.res.Actions {
		switch a := &st.res.Actions[i]; a.Kind {
		case engine.Provision:
			st.res.CostAfter = resource.AddSat(st.res.CostAfter, inv.Price(a.Machine))
		case engine.Delete:
			st.res.CostAfter -= inv.Price(a.Machine)
		}
	}
}

// promises lists the promises that changed hands, by machine id.
func (st *settling) promises() {
	inv := st.w.Inventory
	for _, h := range st.preemption.handed {
		pr, _ := inv.Promise(h.idx)
		cl, _ := st.clusters.state(h.to)
		st.res.Promised = append(st.res.Promised, engine.Promised{Machine: h.idx, To: inventory.Promise{Cluster: cl.d.Name,
			For: st.clusters.attributionFor(h.to), Cause: pr.Cause, Expires: pr.Expires}})
	}
	slices.SortFunc(st.res.Promised, func(a, b engine.Promised) int { return cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order) })
}

func (cs *clusters) attributionFor(t allocation) inventory.Attribution {
	cl, w := cs.state(t)
	if w.row >= engine.FoldedRow {
		return engine.AttributionOf(cl.folds[w.row-engine.FoldedRow].Attributed(cl.d.Needs))
	}
	return engine.AttributionOf(cl.need(w))
}
