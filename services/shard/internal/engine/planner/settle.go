package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// settle writes the actions in the order of ENG-2.10 and what goes with them.
func (p *planning) settle() {
	p.acquisitions()
	p.preempts()
	p.reclaims()
	p.releases()
	p.costs()
	p.promises()
}

// taken notes the action for a machine that a Need takes. Needs take in allocation order, so that the list is in order, too; a
// Need sorts its own as it goes, which are few.
func (p *planning) taken(cl *clusterState, w *needState, i inventory.Index, k inventory.Pool, c *inventory.Class, order uint32) {
	if p.muted {
		return
	}
	p.growActions(1)
	p.acts, p.ids = append(p.acts, acquisition(cl, w, i, k, c)), append(p.ids, order)
	sortIn(p.acts, p.ids, len(p.acts)-1)
}

// acquisition is the action by which w takes a free machine.
func acquisition(cl *clusterState, w *needState, i inventory.Index, k inventory.Pool, c *inventory.Class) engine.Action {
	a := engine.Action{Machine: i, Kind: engine.Bootstrap, Cause: engine.CauseIdle, Need: engine.Ref{Block: cl.at, Row: w.row}, Cost: match.EffectiveCost(c, w.bucket), Drain: -1}
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

// growActions makes room for n more.
func (p *planning) growActions(n int) {
	if len(p.acts)+n > min(cap(p.acts), cap(p.ids)) {
		likely := p.total.open
		if turns := p.res.Counters.Allocations; turns > 0 && len(p.acts) > 0 { // by what allocations have taken so far, and an eighth
			likely = p.total.open * len(p.acts) / turns * 9 / 8
		}
		n = max(n, likely-len(p.acts), 64)
		p.acts, p.ids = slices.Grow(p.acts, n), slices.Grow(p.ids, n)
	}
}

// keepActions is up to how many actions the room for them is kept for the next plan.
const keepActions = 1024

// acquisitions lists Bootstraps and Provisions by allocation order of their Needs.
func (p *planning) acquisitions() {
	acting := p.handsOver.of(func(cl *clusterState) bool { return cl.handsOver && !cl.stale })
	straight := len(acting) == 0 && !p.resumed && !slices.ContainsFunc(p.stale, func(cl *clusterState) bool { return len(cl.flight) > 0 })
	if straight {
		if len(p.acts) > keepActions { // copying many costs more than making room for them in the next plan
			p.res.Actions, p.acts = p.acts, nil
			return
		}
		p.res.Actions = slices.Clone(p.acts)
		return
	}
	// Something was given back, taken out of allocation or is handed over: the claims say what it comes to.
	p.fresh = p.fresh[:0]
	p.res.Actions = slices.Grow(p.res.Actions, len(p.free.list))
	inv := p.w.Inventory
	acting = append(acting, p.stale...)
	for _, cl := range acting {
		for i := range cl.needs {
			if w := &cl.needs[i]; w.claims >= 0 && cl.acts(inv, w) {
				p.fresh = append(p.fresh, allocationOf(cl, w))
			}
		}
	}
	p.sorter.sort(p.fresh)
	for _, t := range p.fresh {
		cl, w := p.state(t)
		from := len(p.res.Actions)
		ref := engine.Ref{Block: cl.at, Row: w.row}
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			l := &cl.machines[at]
			kind, cause := cl.actionFor(inv, w, l)
			if kind != 0 {
				p.res.Actions = append(p.res.Actions, engine.Action{Machine: l.idx, Kind: kind, Cause: cause, Need: ref, Drain: -1,
					Cost: match.EffectiveCost(inv.Class(l.class), w.bucket)})
			}
		}
		slices.SortFunc(p.res.Actions[from:], func(a, b engine.Action) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cost, b.Cost), cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order))
		})
	}
}

// acts reports whether a plan does something for w.
func (cl *clusterState) acts(inv *inventory.Table, w *needState) bool {
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if kind, _ := cl.actionFor(inv, w, &cl.machines[at]); kind != 0 {
			return true
		}
	}
	return false
}

// actionFor is what happens to a claimed machine: it is acquired, or handed over to the Need that credit gave it (9.10).
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

// harmed is the Need that a drained machine was claimed by, or else the row that it was stamped for, or Nobody.
func (p *planning) harmed(cl *clusterState, l *machineState) engine.Ref {
	if l.claim >= 0 {
		return engine.Ref{Block: cl.at, Row: cl.needs[l.claim].row}
	}
	stamp := p.stampOf(l)
	if stamp == 0 {
		return engine.Nobody
	}
	key := p.w.Inventory.StampRow(stamp).Key
	if row, ok := cl.d.Row(key); ok {
		return engine.Ref{Block: cl.at, Row: int32(row)}
	}
	if l.owner >= 0 {
		return engine.Ref{Block: cl.at, Row: cl.needs[l.owner].row}
	}
	return engine.Nobody
}

func (p *planning) drainAction(cl *clusterState, l *machineState, k engine.Kind, c engine.Cause, d engine.Drain) {
	p.res.Actions = append(p.res.Actions, engine.Action{Machine: l.idx, Kind: k, Cause: c, Need: p.harmed(cl, l), Cost: l.price,
		Drain: int32(len(p.res.Drains))})
	p.res.Drains = append(p.res.Drains, d)
}

func (p *planning) refOf(t allocation) engine.Ref {
	cl, w := p.state(t)
	return engine.Ref{Block: cl.at, Row: w.row}
}

// preempts lists Preempts by allocation order of the preemptor, then as they were chosen.
func (p *planning) preempts() {
	for _, d := range p.drained {
		if d.kind == engine.Preempt {
			p.drainAction(d.cl, &d.cl.machines[d.at], engine.Preempt, d.cause, engine.Drain{Grace: p.policy.Grace(d.gap), Preemptor: p.refOf(d.preemptor),
				Gap: d.gap, Score: d.terms.Sum(), Terms: d.terms})
		}
	}
}

// reclaims lists what nobody claims in heard clusters, the first of every cluster, then the second, and so on (16.4).
func (p *planning) reclaims() {
	type queue struct {
		cl   *clusterState
		list []int32
	}
	var queues []queue
	inv := p.w.Inventory
	for _, cl := range p.withExcess() {
		var list []int32
		for at := range cl.machines[:cl.members] {
			if l := &cl.machines[at]; l.state == inventory.Configured && l.claim < 0 && l.bits&lPreempt == 0 && !inv.Row(l.idx).Foreign() {
				list = append(list, int32(at))
			}
		}
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b int32) int {
			x, y := p.promisedAt(cl, a), p.promisedAt(cl, b)
			if x >= 0 || y >= 0 {
				return cmp.Compare(uint32(x), uint32(y)) // -1 is the largest
			}
			return cl.keep(b, a)
		})
		queues = append(queues, queue{cl, list})
	}
	for round := 0; len(queues) > 0; round++ {
		for _, q := range queues {
			p.reclaim(q.cl, q.list[round])
		}
		queues = slices.DeleteFunc(queues, func(q queue) bool { return len(q.list) == round+1 })
	}
}

// promisedAt returns the position in drained of a Reclaim that has a preemptor, or -1.
func (p *planning) promisedAt(cl *clusterState, at int32) int32 {
	if cl.machines[at].bits&lGone == 0 {
		return -1
	}
	if p.drainedAt == nil {
		p.drainedAt = make(map[inventory.Index]int32, len(p.drained))
		for i := range p.drained {
			p.drainedAt[p.drained[i].idx] = int32(i)
		}
	}
	if i, ok := p.drainedAt[cl.machines[at].idx]; ok {
		return i
	}
	return -1
}

func (p *planning) reclaim(cl *clusterState, at int32) {
	l := &cl.machines[at]
	d := engine.Drain{Grace: p.policy.ReclaimGrace, Preemptor: engine.Nobody}
	cause := engine.CauseExcess
	if i := p.promisedAt(cl, at); i >= 0 {
		d.Preemptor, d.Gap = p.refOf(p.drained[i].preemptor), p.drained[i].gap
		cause = engine.CauseExcessPromised
	} else if l.owner >= 0 {
		if w := &cl.needs[l.owner]; w.bits&(wSame|wChosen) == wSame|wChosen && cl.values(p.w.Inventory, w.key)[at] != int64(w.domain) {
			cause = engine.CauseGangMoved
		}
	}
	if l.bits&lExcluded != 0 {
		cause = engine.CauseNotJoined
	}
	p.drainAction(cl, l, engine.Reclaim, cause, d)
	if l.bits&lExcluded == 0 {
		p.res.Counters.ReclaimMatchesUnmet += cl.couldUse(p, l, at)
	}
}

// couldUse counts the short Needs of the cluster that a machine could have served: there must be none.
func (cl *clusterState) couldUse(p *planning, l *machineState, at int32) int {
	n := 0
	for i := range cl.needs {
		w := &cl.needs[i]
		if w.bits&wSpread != 0 || !cl.short(w) || !cl.usable(w, l) || !match.Touches(cl.supply(l), cl.rest(w)) {
			continue
		}
		if w.bits&wSame != 0 && (w.bits&wChosen == 0 || cl.values(p.w.Inventory, w.key)[at] != int64(w.domain)) {
			continue
		}
		n++
	}
	return n
}

// releases lists Idle machines whose hold is over and that nobody took, dearest first (16.7 to 16.9).
func (p *planning) releases() {
	inv := p.w.Inventory
	from := len(p.res.Actions)
	for _, c := range [...]inventory.CapacityType{inventory.OnDemand, inventory.Spot} {
		hold, ok := p.policy.Hold.Of(c)
		if !ok {
			continue
		}
	oldest:
		for _, chunk := range inv.Releasable(c).Chunks() {
			for _, i := range chunk {
				r := inv.Row(i)
				if p.now-r.Since < hold {
					break oldest
				}
				if !p.free.isTaken(i) {
					p.res.Actions = append(p.res.Actions, engine.Action{Machine: i, Kind: engine.Delete, Cause: engine.CauseRelease, Need: engine.Nobody,
						Cost: inv.Class(r.Class).Price, Drain: -1})
				}
			}
		}
	}
	slices.SortFunc(p.res.Actions[from:], func(a, b engine.Action) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order))
	})
}

// costs is ENG-P15.
func (p *planning) costs() {
	inv := p.w.Inventory
	p.res.CostBefore = inv.Billed()
	p.res.CostAfter = p.res.CostBefore
	for i := range p.res.Actions {
		switch a := &p.res.Actions[i]; a.Kind {
		case engine.Provision:
			p.res.CostAfter = resource.AddSat(p.res.CostAfter, inv.Price(a.Machine))
		case engine.Delete:
			p.res.CostAfter -= inv.Price(a.Machine)
		}
	}
}

// promises lists the promises that changed hands, by machine id.
func (p *planning) promises() {
	inv := p.w.Inventory
	for _, h := range p.handed {
		pr, _ := inv.Promise(h.idx)
		cl, _ := p.state(h.to)
		p.res.Promised = append(p.res.Promised, engine.Promised{Machine: h.idx, To: inventory.Promise{Cluster: cl.d.Name,
			For: p.stampFor(h.to), Cause: pr.Cause, Expires: pr.Expires}})
	}
	slices.SortFunc(p.res.Promised, func(a, b engine.Promised) int { return cmp.Compare(inv.Row(a.Machine).Order, inv.Row(b.Machine).Order) })
}

func (p *planning) stampFor(t allocation) inventory.Stamp {
	cl, w := p.state(t)
	return engine.StampOf(cl.need(w))
}
