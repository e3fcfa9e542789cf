package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// Plan decides from nothing but its input: no warm state is used or left behind (ENG-2.1).
func Plan(in engine.Input) *engine.Result { return NewPlanner().Plan(in) }

// Planner gives the bytes of Plan and recomputes only what may have changed since its last call (ENG-21.1). It belongs to
// one World; a call with another one starts from nothing.
type Planner struct {
	p   planning
	off fastPaths
	// Observe, if set, is told which phase of a plan begins. It decides nothing and must not touch the world.
	Observe func(Phase)
}

// Phase is a part of a plan, for those who measure (SHARD-29.3).
type Phase uint8

const (
	Phase1 Phase = 1 // credit, allocations and exchange
	Phase2 Phase = 2 // preemption
	Phase3 Phase = 3 // reclaim, release and verdicts
)

func (pl *Planner) enter(ph Phase) {
	if pl.Observe != nil {
		pl.Observe(ph)
	}
}

// NewPlanner returns a Planner that remembers nothing.
func NewPlanner() *Planner { return &Planner{} }

// Forget drops everything remembered. The next call computes in full; its result is the same (ENG-2.4).
func (p *Planner) Forget() { p.p = planning{} }

// Plan is the function Plan with a memory.
func (pl *Planner) Plan(in engine.Input) *engine.Result {
	p := &pl.p
	if p.w != in.World {
		pl.Forget()
	}
	p.plans++
	p.off, p.sorter.plain = pl.off, pl.off.noRadix
	pl.enter(Phase1)
	p.begin(in)
	p.credit()
	p.allocate()
	p.exchange()
	p.claimFreed()
	pl.enter(Phase2)
	p.preemption()
	pl.enter(Phase3)
	p.settle()
	p.publish()
	r := p.res
	p.res = nil
	return r
}

// begin brings everything that outlives a plan up to date.
func (p *planning) begin(in engine.Input) {
	p.w, p.policy = in.World, in.Policy.OrDefault()
	p.now = p.w.Inventory.Now()
	p.res = &engine.Result{Now: p.now, Cycle: in.Cycle}
	if p.cat == nil {
		p.cat = newCandidateIndexes()
	}
	if v := p.w.Demand.KeysVersion(); p.keysVersion != v { // label keys may have other numbers now, and Needs remember them
		p.keysVersion = v
		p.cat = newCandidateIndexes()
	}
	p.sweep()
	if p.cat.begin(p.w) { // matchers and frames are other ones now
		p.byID, p.states, p.places, p.pendingNeeds, p.stale = nil, nil, places{}, nil, nil
		p.handsOver, p.withUnclaimed, p.expiring, p.gangs = clusterSet{}, clusterSet{}, clusterSet{}, clusterSet{}
		p.started = false
	}
	if v := p.w.Inventory.OrderVersion(); p.orders != v {
		p.orders = v
		p.relabel()
	}
	p.folding.begin(p.w)
	p.x.begin()
	for _, x := range p.workerPool {
		x.begin()
	}
	p.foldVersion = p.folding.version
	p.followFree()
	p.free.begin(p.w.Inventory)
	p.notified = 0
	p.acts, p.ids, p.resumed = p.acts[:0], p.ids[:0], false
	p.beginTopologies()
	p.bought, p.displace = false, 0
}

// relabel brings up to date what is remembered of the order of ids.
func (p *planning) relabel() {
	for _, cl := range p.states {
		for i := range cl.machines {
			cl.machines[i].order = p.w.Inventory.Row(cl.machines[i].idx).Order
		}
	}
}

// credit finds the clusters whose memory is out of date and credits them again (ENG-21.2).
func (p *planning) credit() {
	p.dirty = p.dirty[:0]
	if !p.findDirty() {
		p.checkAll()
	}
	p.stale = p.stale[:0]
	for _, cl := range p.dirty {
		p.marks[cl.at] &^= staleMark
	}
	p.prepare()
	p.each(p.dirty, func(cl *clusterState, x *scratch) { // all of it at once, while what there is of a cluster is at hand
		cl.clear(p)
		cl.f = p.cat.ProjectionOf(cl.d, cl.dims, &x.frames)
		cl.readMembers(p, x)
		cl.findFolds(p, x)
		cl.setUp(p, x)
		cl.credit(p, x)
		p.listShort(cl, x)
	})
	p.remember()
	c := &p.res.Counters
	c.DirtyClusters, c.CreditMiss, c.CreditHit = len(p.dirty), len(p.dirty), len(p.states)-len(p.dirty)
	c.OpenNeeds, c.JoinOverdue, c.JoinGuarded = p.total.open, p.total.overdue, p.total.protected
}

// findDirty follows what has changed since the last plan. It reports false if that cannot be known.
func (p *planning) findDirty() bool {
	d, inv := p.w.Demand, p.w.Inventory
	byDemand, nextDemand, ok := d.Changes(p.demandSince)
	bySupply, nextCluster, ok2 := inv.ClusterChanges(p.clusterSince)
	p.demandSince, p.clusterSince = nextDemand, nextCluster
	if !ok || !ok2 || !p.started || p.setVersion != d.SetVersion() || p.lastPolicy != p.policy {
		p.started, p.setVersion, p.lastPolicy = true, d.SetVersion(), p.policy
		return false
	}
	for _, id := range byDemand {
		p.check(p.byID[id])
	}
	for _, id := range bySupply {
		if int(id) < len(p.byID) && p.byID[id] != nil && !p.byID[id].gone {
			p.check(p.byID[id])
		}
	}
	for _, cl := range p.stale {
		p.check(cl)
	}
	for _, cl := range p.expiring.list {
		p.check(cl)
	}
	if p.lastFold != p.foldVersion {
		for _, cl := range p.gangs.list {
			p.check(cl)
		}
	}
	slices.SortFunc(p.dirty, func(a, b *clusterState) int { return int(a.at) - int(b.at) })
	return true
}

// check puts a cluster among the dirty ones if what is remembered of it is not right any more.
func (p *planning) check(cl *clusterState) {
	if !cl.isDirty && !cl.gone && !p.valid(cl) {
		cl.isDirty = true
		p.marks[cl.at] |= dirtyMark
		p.dirty = append(p.dirty, cl)
	}
}

// checkAll looks at every cluster, and at which there are.
func (p *planning) checkAll() {
	for _, cl := range p.states {
		cl.gone = true
	}
	p.places.leaving = append(p.places.leaving[:0], p.states...)
	p.states = p.states[:0]
	p.reindexed = true
	p.marks = slices.Grow(p.marks[:0], len(p.w.Demand.Clusters()))[:len(p.w.Demand.Clusters())]
	clear(p.marks)
	p.total, p.blocks, p.recipients = counted{}, nil, 0
	for at, d := range p.w.Demand.Clusters() {
		for int(d.ID) >= len(p.byID) {
			p.byID = append(p.byID, nil)
		}
		cl := p.byID[d.ID]
		if cl == nil || cl.d != d {
			cl = p.places.take(len(p.w.Demand.Clusters()) - at)
			cl.d, cl.stale = d, true
			p.byID[d.ID] = cl
		}
		cl.at, cl.gone = int32(at), false
		cl.isDirty = !p.valid(cl)
		if cl.isDirty {
			p.dirty = append(p.dirty, cl)
			p.marks[at] |= dirtyMark
			cl.counted = counted{}
		}
		p.total.add(cl.counted, 1)
		p.states = append(p.states, cl)
	}
}

func (c *counted) add(o counted, by int) {
	c.open, c.overdue, c.protected = c.open+by*o.open, c.overdue+by*o.overdue, c.protected+by*o.protected
}

// remember files the clusters that were credited where later steps and later plans look for them.
func (p *planning) remember() {
	p.handsOver.sweep(inHandsOver, func(cl *clusterState) bool { return !cl.gone && cl.handsOver })
	p.withUnclaimed.sweep(inLoose, func(cl *clusterState) bool { return !cl.gone && cl.mayGive() })
	p.expiring.sweep(inExpiring, func(cl *clusterState) bool { return !cl.gone && cl.expires != 0 })
	p.closeUp()
	left := p.reindexed // a cluster is gone or has no gang any more; the set is long and seldom read
	for _, cl := range p.dirty {
		left = left || cl.sets&inGangs != 0 && len(cl.gangRows) == 0
		p.total.add(cl.counted, -1)
		cl.counted = counted{cl.open, cl.overdue, len(cl.protected)}
		p.total.add(cl.counted, 1)
		if cl.handsOver {
			p.handsOver.add(cl, inHandsOver)
		}
		if cl.mayGive() {
			p.withUnclaimed.add(cl, inLoose)
		}
		if cl.expires != 0 {
			p.expiring.add(cl, inExpiring)
		}
		if len(cl.gangRows) > 0 {
			p.gangs.add(cl, inGangs)
		}
	}
	if left {
		p.gangs.sweep(inGangs, func(cl *clusterState) bool { return !cl.gone && len(cl.gangRows) > 0 })
	}
	p.mergePendingNeeds()
	for _, cl := range p.dirty {
		cl.isDirty = false
		p.marks[cl.at] &^= dirtyMark
	}
	if p.reindexed {
		p.leavePlaces()
	}
	p.reindexed = false
	p.lastClasses, p.lastFold = p.w.Inventory.ClassVersion(), p.foldVersion
}

// listShort notes who is short in a cluster, while it is at hand.
func (p *planning) listShort(cl *clusterState, x *scratch) {
	if cl.shorts == 0 {
		return
	}
	at := cl.newsAt
	for i := range cl.needs {
		if w := &cl.needs[i]; cl.short(w) {
			p.notePending(&p.news[at], cl, w, x)
			at++
		}
	}
}

// closeUp moves what clusters have noted together: there was room for all of their rows.
func (p *planning) closeUp() {
	n := 0
	for _, cl := range p.dirty {
		if cl.newsAt > n {
			copy(p.news[n:], p.news[cl.newsAt:cl.newsAt+cl.shorts])
		}
		n += cl.shorts
	}
	p.news = p.news[:n]
}

// mayGive reports whether the cluster has machines that nobody in it needs, or may find use for in a last look.
func (cl *clusterState) mayGive() bool { return cl.excess > 0 || len(cl.excluded) > 0 || cl.freed }

// mergePendingNeeds replaces the entries of dirty clusters, and brings the others up to date with the classes.
func (p *planning) mergePendingNeeds() {
	if len(p.pendingNeeds) == 0 {
		p.pendingNeeds, p.news = p.news, nil
		p.order = p.sorter.order(p.pendingNeeds)
		return
	}
	p.order = nil
	p.sorter.sortPending(p.news)
	out, at := p.oldPendingNeeds[:0], 0
	moved := p.lastClasses != p.w.Inventory.ClassVersion()
	for i := range p.pendingNeeds {
		s := &p.pendingNeeds[i]
		if p.reindexed {
			cl := p.byID[s.cluster]
			if cl.gone {
				continue
			}
			s.allocation.cl = cl.at
		}
		if p.marks[s.allocation.cl]&dirtyMark != 0 {
			continue
		}
		if s.moved = moved; moved {
			s.idle, s.reasonValid = notIdle, false
			s.judge(p.state(s.allocation))
		}
		for ; at < len(p.news) && compareAllocations(p.news[at].allocation, s.allocation) < 0; at++ {
			out = append(out, p.news[at])
		}
		out = append(out, *s)
	}
	out = append(out, p.news[at:]...)
	p.oldPendingNeeds, p.pendingNeeds = p.pendingNeeds, out
}

// dropStale keeps of what stands, in order, what the next plan has a use for: clusters that took something are credited
// again. In a cold plan that is nearly all, and what gets allocations is put in order by number alone.
func (p *planning) dropStale() {
	if p.order == nil {
		return
	}
	left := 0
	for i := range p.pendingNeeds {
		if p.marks[p.pendingNeeds[i].allocation.cl]&staleMark == 0 {
			left++
		}
	}
	list := make([]pendingNeed, 0, left)
	for _, k := range p.order {
		if s := &p.pendingNeeds[k.at]; p.marks[s.allocation.cl]&staleMark == 0 {
			list = append(list, *s)
		}
	}
	p.pendingNeeds, p.order = list, nil
}

// valid reports whether what is remembered of a cluster is still right.
func (p *planning) valid(cl *clusterState) bool {
	_, version := p.w.Inventory.Members(cl.d.ID)
	if cl.stale || cl.policy != p.policy || cl.demandVersion != cl.d.Version || cl.supplyVersion != version ||
		cl.expires != 0 && cl.expires <= p.now {
		return false
	}
	if cl.foldVersion == p.foldVersion {
		return true
	}
	stand := cl.foldsValid(p)
	cl.foldVersion = p.foldVersion
	return stand
}
