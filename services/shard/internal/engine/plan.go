package engine

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Plan decides from nothing but its input: no warm state is used or left behind (ENG-2.1).
func Plan(in Input) *Result { return NewPlanner().Plan(in) }

// Planner gives the bytes of Plan and recomputes only what may have changed since its last call (ENG-21.1). It belongs to
// one World; a call with another one starts from nothing.
type Planner struct {
	p planning
}

// NewPlanner returns a Planner that remembers nothing.
func NewPlanner() *Planner { return &Planner{} }

// Forget drops everything remembered. The next call computes in full; its result is the same (ENG-2.4).
func (p *Planner) Forget() { p.p = planning{} }

// Plan is the function Plan with a memory.
func (pl *Planner) Plan(in Input) *Result {
	p := &pl.p
	if p.w != in.World {
		pl.Forget()
	}
	p.begin(in)
	p.credit()
	p.turns()
	p.exchange()
	p.lastLook()
	p.preemption()
	p.finish()
	p.publish()
	r := p.res
	p.res = nil
	return r
}

// begin brings everything that outlives a plan up to date.
func (p *planning) begin(in Input) {
	p.w, p.policy = in.World, in.Policy
	if p.policy == nil {
		p.policy = defaultPolicy
	}
	p.now = p.w.Inventory.Now()
	p.res = &Result{Now: p.now, Cycle: in.Cycle}
	if p.cat == nil {
		p.cat = newCatalog()
	}
	p.cat.begin(p.w)
	p.folding.begin(p.w)
	p.foldVersion = p.folding.version
	p.stock.begin(p.w.Inventory)
	p.beginTopologies()
	p.bought, p.displace = false, 0
}

// credit finds the clusters whose memory is out of date and credits them anew (ENG-21.2).
func (p *planning) credit() {
	p.dirty = p.dirty[:0]
	clusters := p.w.Demand.Clusters()
	p.states = p.states[:0]
	for at, d := range clusters {
		for int(d.ID) >= len(p.byID) {
			p.byID = append(p.byID, nil)
		}
		cl := p.byID[d.ID]
		if cl == nil {
			cl = &clusterState{}
			p.byID[d.ID] = cl
		}
		stale := cl.d != d || !p.stands(cl)
		cl.d, cl.at = d, int32(at)
		p.states = append(p.states, cl)
		if stale {
			p.dirty = append(p.dirty, cl)
		}
	}
	for _, cl := range p.dirty {
		cl.prepare(p)
	}
	for _, cl := range p.dirty {
		cl.credit(p, &p.x)
	}
	p.res.Counters.DirtyClusters = len(p.dirty)
	p.res.Counters.CreditMiss, p.res.Counters.CreditHit = len(p.dirty), len(clusters)-len(p.dirty)
	for _, cl := range p.states {
		p.res.Counters.OpenNeeds += cl.open
		p.res.Counters.JoinOverdue += cl.overdue
		p.res.Counters.JoinGuarded += len(cl.guarded)
	}
}

// stands reports whether what is remembered of a cluster is still right.
func (p *planning) stands(cl *clusterState) bool {
	_, version := p.w.Inventory.Members(cl.d.ID)
	if cl.spoiled || cl.policy != p.policy || cl.demandVersion != cl.d.Version || cl.supplyVersion != version ||
		cl.expires != 0 && cl.expires <= p.now {
		return false
	}
	if cl.classVersion != p.w.Inventory.ClassVersion() {
		cl.classVersion = p.w.Inventory.ClassVersion()
		cl.f.sync(p.w.Inventory)
		for i := range cl.wants {
			cl.wants[i].m.sync(p.w.Inventory)
		}
	}
	if cl.foldVersion != p.foldVersion {
		cl.foldVersion = p.foldVersion
		return cl.foldsStand(p)
	}
	return true
}

// publish writes the blocks. A cluster that nothing happened to keeps the one it had, unless the reason of a shortfall is
// another now: that may lie elsewhere in the shard.
func (p *planning) publish() {
	r := p.res
	r.Blocks = make([]*Block, len(p.states))
	for i, cl := range p.states {
		if cl.spoiled || cl.block == nil || cl.shorts > 0 && !p.reasonsStand(cl) {
			cl.block = p.judge(cl)
		}
		r.Blocks[i] = cl.block
		r.Counters.Shares += cl.block.receivers()
	}
	r.Counters.Displaced = p.displace
	r.Counters.ExchangeTries, r.Counters.ExchangeSaved = p.tries, p.saved
	for _, chunk := range p.w.Inventory.Flying().Chunks() {
		for _, i := range chunk {
			if pr, _ := p.w.Inventory.Promise(i); pr.Cause == inventory.ForPreempt {
				r.Counters.PromisesPreempt++
			} else {
				r.Counters.PromisesCreate++
			}
		}
	}
	p.shorts()
}

// reasonsStand reports whether the short rows of a cluster are short for the reasons that its block says.
func (p *planning) reasonsStand(cl *clusterState) bool {
	for i := range cl.wants {
		w := &cl.wants[i]
		if !cl.short(w) {
			continue
		}
		if w.bits&wFolded == 0 {
			if p.shortDetail(cl, w, w.hold) != cl.block.Verdicts[w.row].Detail {
				return false
			}
			continue
		}
		for _, row := range w.members {
			if v := &cl.block.Verdicts[row]; v.Status == Short && p.shortDetail(cl, w, v.Hold) != v.Detail {
				return false
			}
		}
	}
	return true
}

// shorts lists what is still short, in turn order.
func (p *planning) shorts() {
	p.queue = p.queue[:0]
	for _, cl := range p.states {
		if cl.shorts == 0 && !cl.spoiled {
			continue
		}
		for i := range cl.wants {
			if w := &cl.wants[i]; cl.short(w) {
				p.queue = append(p.queue, turnOf(cl, w))
			}
		}
	}
	sortTurns(p.queue)
	p.res.Short = make([]Ref, len(p.queue))
	for i, t := range p.queue {
		p.res.Short[i] = p.refOf(t)
	}
}
