package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// publish writes the blocks. A cluster that nothing happened to keeps the one it had, unless the reason of a shortfall is
// another now: that may lie elsewhere in the shard.
func (p *planning) publish() {
	r := p.res
	r.Short = make([]engine.Ref, 0, max(len(p.pendingNeeds), len(p.unmet.list)))
	for _, cl := range p.stale {
		cl.block = nil
	}
	p.judgeAll()
	r.Blocks = slices.Grow([]*engine.Block(nil), len(p.states))[:len(p.states)]
	if p.blocks == nil {
		for i, cl := range p.states {
			p.blockOf(cl)
			r.Blocks[i] = cl.block
		}
		p.recipients = 0
		for _, b := range r.Blocks {
			p.recipients += b.Recipients()
		}
	} else {
		copy(r.Blocks, p.blocks)
	}
	renew := func(cl *clusterState) {
		p.blockOf(cl)
		if old := r.Blocks[cl.at]; old != cl.block {
			p.recipients += cl.block.Recipients() - old.Recipients()
			r.Blocks[cl.at] = cl.block
		}
	}
	for _, cl := range p.dirty {
		renew(cl)
	}
	for _, cl := range p.stale {
		renew(cl)
	}
	p.eachShort(func(ref engine.Ref, s *pendingNeed) {
		if cl := p.states[ref.Block]; s != nil && (!s.fixed || s.moved) && !p.reasonStays(s) && cl.checked != p.plans {
			cl.checked = p.plans
			if !p.reasonsValid(cl) {
				cl.block = nil
				renew(cl)
			}
		}
		r.Short = append(r.Short, ref)
	})
	p.unmet.end()
	p.blocks = r.Blocks
	p.counters()
}

// judgeAll makes the blocks that are to be made again. Reasons of shortfalls that hang on what is free are found one after the
// other: pools remember what they were asked.
func (p *planning) judgeAll() {
	p.ready = p.ready[:0]
	add := func(list []*clusterState) {
		for _, cl := range list {
			if cl.block == nil && !cl.listed {
				cl.listed = true
				p.ready = append(p.ready, cl)
			}
		}
	}
	if p.blocks == nil {
		add(p.states)
	} else {
		add(p.dirty)
		add(p.stale)
	}
	aside := p.w.Inventory.Held().Len() == 0
	p.each(p.ready, func(cl *clusterState, x *scratch) {
		cl.block = p.judge(cl)
		cl.listed = false
		p.giveReasons(cl, x, func(w *needState) bool { return aside && w.bits&wSpread == 0 })
	})
	for _, cl := range p.ready {
		if !aside || cl.spreads {
			p.giveReasons(cl, &p.x, func(w *needState) bool { return !aside || w.bits&wSpread != 0 })
		}
	}
}

// giveReasons says of each short row of some Needs why it is short.
func (p *planning) giveReasons(cl *clusterState, x *scratch, of func(w *needState) bool) {
	cl.spreads = false
	for i := range cl.block.Missing {
		row := cl.block.Missing[i].Row
		w, v := &cl.needs[cl.rowNeed[row]], &cl.block.Verdicts[row]
		cl.spreads = cl.spreads || w.bits&wSpread != 0
		if !of(w) {
			continue
		}
		v.Detail = p.shortDetail(cl, w, v.Hold, x)
		v.Reason = v.Detail.Reason()
		if w.bits&wSame != 0 && !v.Satisfiable {
			v.Reason = engine.TopologyUnsatisfiable
		}
	}
}

// blockOf makes the block of a cluster if it has none.
func (p *planning) blockOf(cl *clusterState) {
	if cl.block == nil {
		cl.block = p.judge(cl)
		p.giveReasons(cl, &p.x, func(*needState) bool { return true })
	}
}

func (p *planning) counters() {
	c := &p.res.Counters
	c.Shares, c.Displaced, c.ExchangeTries, c.ExchangeSaved = p.recipients, p.displace, p.tries, p.saved
	for _, chunk := range p.w.Inventory.Flying().Chunks() {
		for _, i := range chunk {
			if pr, _ := p.w.Inventory.Promise(i); pr.Cause == inventory.ForPreempt {
				c.PromisesPreempt++
			} else {
				c.PromisesCreate++
			}
		}
	}
}

// reasonsValid reports whether the short rows of a cluster are short for the reasons that its block says.
func (p *planning) reasonsValid(cl *clusterState) bool {
	for i := range cl.needs {
		w := &cl.needs[i]
		if !cl.short(w) {
			continue
		}
		if w.bits&wFolded == 0 {
			if p.shortDetail(cl, w, w.hold, &p.x) != cl.block.Verdicts[w.row].Detail {
				return false
			}
			continue
		}
		for _, row := range cl.membersOf(w) {
			if v := &cl.block.Verdicts[row]; v.Status == engine.Short && p.shortDetail(cl, w, v.Hold, &p.x) != v.Detail {
				return false
			}
		}
	}
	return true
}
