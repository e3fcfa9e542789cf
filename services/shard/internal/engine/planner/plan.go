package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
)

// Plan decides from nothing but its input: no warm state is used or left behind (ENG-2.1).
func Plan(in engine.Input) *engine.Result { return NewPlanner().Plan(in) }

// Planner gives the bytes of Plan and recomputes only what may have changed since its last call (ENG-21.1). It belongs to
// one World; a call with another one starts from nothing.
type Planner struct {
	p   *planning // nil remembers nothing
	off fastPaths
	// Observe, if set, is called as each phase of a plan begins. It decides nothing and must not touch the world.
	Observe func(Phase)
}

// Phase is a part of a plan that is measured by itself (SHARD-29.3).
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
func (pl *Planner) Forget() { pl.p = nil }

// Plan is the function Plan with a memory.
func (pl *Planner) Plan(in engine.Input) *engine.Result {
	if pl.p == nil || pl.p.w != in.World {
		pl.p = newPlanning()
	}
	p := pl.p
	p.plans++
	p.off, p.pending.sorter.plain = pl.off, pl.off.noRadix
	pl.enter(Phase1)
	p.begin(in)
	p.credit()
	p.postponing.run()
	p.allocator.allocate()
	p.exchange.run()
	p.allocator.claimFreed()
	pl.enter(Phase2)
	p.preemption.run()
	pl.enter(Phase3)
	p.settling.run()
	p.publisher.publish()
	r := p.res
	p.res = nil
	return r
}

// begin brings everything that outlives a plan up to date.
func (p *planning) begin(in engine.Input) {
	p.w = in.World
	if p.cat == nil {
		p.cat = cover.NewIndexes()
	}
	p.sweep(len(p.cat.ByID))
	p.follow(in)
	p.res = &engine.Result{Now: p.now, Cycle: in.Cycle}
	p.free.Begin(p.w.Inventory)
	p.tops.notified = 0
	p.actions.list, p.actions.orders, p.actions.resumed = p.actions.list[:0], p.actions.orders[:0], false
	p.tops.begin()
	p.actions.bought, p.queue.displaced = false, 0
}

// follow brings up to date what credit reads. It reports whether everything that clusters remember is of no use any more.
func (p *planning) follow(in engine.Input) (fresh bool) {
	p.policy, p.now = in.Policy.OrDefault(), p.w.Inventory.Now()
	if fresh = p.cat.Begin(p.w); fresh { // matchers and frames are other ones now
		p.clusters.forget()
		p.tops.forget()
		p.pending.list, p.folding.stock = nil, nil
	}
	if v := p.w.Inventory.OrderVersion(); p.orders != v {
		p.orders = v
		p.clusters.relabel()
	}
	p.folding.begin(p.w)
	p.workers.begin()
	return fresh
}

// credit finds the clusters whose memory is out of date and credits them again (ENG-21.2).
func (p *planning) credit() {
	p.clusters.dirty = p.clusters.dirty[:0]
	if !p.clusters.findDirty() {
		p.clusters.checkAll()
		p.publisher.forget()
	}
	ahead := p.clusters.creditedAhead()
	p.clusters.stale = p.clusters.stale[:0]
	for _, cl := range p.clusters.dirty {
		p.clusters.marks[cl.at] &^= staleMark
		cl.again = p.stays(cl, &p.workers.own)
	}
	p.findMatchers()
	p.makeRoom()
	p.workers.each(p.clusters.dirty, func(cl *clusterState, x *scratch) { // all of it at once, while what there is of a cluster is at hand
		if cl.again {
			p.makeAgain(cl, x)
		} else {
			p.makeNeeds(cl, x, nil)
		}
		p.creditNeeds(cl, x)
	})
	p.endCredit()
	p.clusters.dirty = append(p.clusters.dirty, ahead...)
	p.lastClasses, p.folding.last = p.w.Inventory.ClassVersion(), p.folding.version
	c := &p.res.Counters
	c.DirtyClusters, c.CreditMiss, c.CreditHit = len(p.clusters.dirty), len(p.clusters.dirty), len(p.clusters.states)-len(p.clusters.dirty)
	c.OpenNeeds, c.JoinOverdue, c.JoinGuarded = p.clusters.total.open, p.clusters.total.overdue, p.clusters.total.protected
}

// makeNeeds makes the Needs of a cluster in which the gangs of some rows have left their folds.
func (p *planning) makeNeeds(cl *clusterState, x *scratch, left []int32) {
	needs := p.beginNeeds(cl, x, left)
	needs.findFolds(0, len(cl.d.Needs))
	needs.setUpRows(0, len(cl.d.Needs))
	needs.endSetUp()
}

// beginNeeds forgets what a cluster was credited with, and reads its machines.
func (p *planning) beginNeeds(cl *clusterState, x *scratch, left []int32) normalising {
	needs, m := normalising{&p.plan, &p.folding, cl, x}, members{&p.plan, cl, x}
	needs.clear(left)
	cl.f = p.cat.ProjectionOf(cl.d, cl.dims, &x.frames)
	m.read()
	if len(cl.gangRows) > 0 {
		needs.listOwns()
	}
	return needs
}

// creditNeeds credits the Needs of a cluster with its machines, again as long as gangs leave folds, and lists those that are short.
func (p *planning) creditNeeds(cl *clusterState, x *scratch) {
	needs, m, c := normalising{&p.plan, &p.folding, cl, x}, members{&p.plan, cl, x}, crediting{&p.plan, cl, x}
	m.gather()
	for c.run(); needs.leave(); c.run() {
		p.makeNeeds(cl, x, cl.left)
		m.gather()
	}
	p.pending.listShort(cl, x)
}

// endCredit puts what was found out about the dirty clusters where the steps after credit look for it.
func (p *planning) endCredit() {
	p.clusters.file()
	p.pending.closeUp()
	p.pending.merge()
	p.clusters.endCredit()
}
