package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// publisher writes the blocks of the result, and keeps those of clusters that did not change.
type publisher struct {
	*plan
	workers  *workers
	clusters *clusters
	pending  *pendingList
	unmet    *unmetNeeds
	queue    *allocationQueue
	exchange *exchange
	verdicts *verdicts
	reasons  *reasons
	x        *scratch

	blocks     []*engine.Block // of the plan before
	elsewhere  uint64          // Inventory.ElsewhereVersion then
	recipients int             // in them
	ready      []*clusterState
}

// forget drops the blocks of the plan before.
func (pub *publisher) forget() { pub.blocks, pub.recipients = nil, 0 }

// publish writes the blocks. A cluster that nothing happened to keeps the one it had, unless the reason of a shortfall is
// another now: that may lie elsewhere in the shard.
func (pub *publisher) publish() {
	r := pub.res
	r.Short = make([]engine.Ref, 0, max(len(pub.pending.list), len(pub.unmet.list)))
	for _, cl := range pub.clusters.stale {
		cl.block = nil
	}
	pub.judgeAll()
	r.Blocks = slices.Grow([]*engine.Block(nil), len(pub.clusters.states))[:len(pub.clusters.states)]
	if pub.blocks == nil {
		for i, cl := range pub.clusters.states {
			pub.blockOf(cl)
			r.Blocks[i] = cl.block
		}
		pub.recipients = 0
		for _, b := range r.Blocks {
			pub.recipients += b.Recipients()
		}
	} else {
		copy(r.Blocks, pub.blocks)
	}
	renew := func(cl *clusterState) {
		pub.blockOf(cl)
		if old := r.Blocks[cl.at]; old != cl.block {
			pub.recipients += cl.block.Recipients() - old.Recipients()
			r.Blocks[cl.at] = cl.block
		}
	}
	for _, cl := range pub.clusters.dirty {
		renew(cl)
	}
	for _, cl := range pub.clusters.stale {
		renew(cl)
	}
	moved := pub.elsewhere != pub.w.Inventory.ElsewhereVersion() // what other shards have free
	pub.elsewhere = pub.w.Inventory.ElsewhereVersion()
	pub.unmet.eachShort(func(ref engine.Ref, s *pendingNeed) {
		if cl := pub.clusters.states[ref.Block]; s != nil && (!s.fixed || s.moved) && (!pub.pending.reasonStays(s) || moved) && cl.checked != pub.plans {
			cl.checked = pub.plans
			if !pub.reasonsValid(cl) {
				cl.block = nil
				renew(cl)
			}
		}
		r.Short = append(r.Short, ref)
	})
	pub.unmet.end()
	pub.blocks = r.Blocks
	pub.counters()
}

// judgeAll makes the blocks that are to be made again. Reasons of shortfalls that hang on what is free are found one after the
// other: pools remember what they were asked.
func (pub *publisher) judgeAll() {
	pub.ready = pub.ready[:0]
	add := func(list []*clusterState) {
		for _, cl := range list {
			if cl.block == nil && !cl.listed {
				cl.listed = true
				pub.ready = append(pub.ready, cl)
			}
		}
	}
	if pub.blocks == nil {
		add(pub.clusters.states)
	} else {
		add(pub.clusters.dirty)
		add(pub.clusters.stale)
	}
	aside := pub.w.Inventory.Held().Len() == 0
	pub.workers.each(pub.ready, func(cl *clusterState, x *scratch) {
		cl.block = pub.verdicts.block(cl, pub.before(cl), x)
		cl.listed = false
		pub.giveReasons(cl, x, func(w *needState) bool { return aside && w.bits&wSpread == 0 })
	})
	for _, cl := range pub.ready {
		cl.checked = pub.plans
		if !aside || cl.spreads {
			pub.giveReasons(cl, pub.x, func(w *needState) bool { return !aside || w.bits&wSpread != 0 })
		}
	}
}

// giveReasons says of each short row of some Needs why it is short.
func (pub *publisher) giveReasons(cl *clusterState, x *scratch, of func(w *needState) bool) {
	cl.spreads = false
	for i := range cl.block.Missing {
		row := cl.block.Missing[i].Row
		w, v := &cl.needs[cl.rowNeed[row]], &cl.block.Verdicts[row]
		cl.spreads = cl.spreads || w.bits&wSpread != 0
		if !of(w) {
			continue
		}
		v.Detail = pub.reasons.of(cl, w, v.Hold, x)
		v.Reason = v.Detail.Reason()
		if w.bits&wSame != 0 && !v.Satisfiable {
			v.Reason = engine.TopologyUnsatisfiable
		}
	}
}

// before returns the block of a cluster in the plan before, or nil.
func (pub *publisher) before(cl *clusterState) *engine.Block {
	if pub.blocks == nil {
		return nil
	}
	return pub.blocks[cl.at]
}

// blockOf makes the block of a cluster if it has none.
func (pub *publisher) blockOf(cl *clusterState) {
	if cl.block == nil {
		cl.block = pub.verdicts.block(cl, pub.before(cl), pub.x)
		pub.giveReasons(cl, pub.x, func(*needState) bool { return true })
	}
}

func (pub *publisher) counters() {
	c := &pub.res.Counters
	c.Shares, c.Displaced, c.ExchangeTries, c.ExchangeSaved = pub.recipients, pub.queue.displaced, pub.exchange.tries, pub.exchange.saved
	for _, chunk := range pub.w.Inventory.InFlight().Chunks() {
		for _, i := range chunk {
			if pr, _ := pub.w.Inventory.Promise(i); pr.Cause == inventory.ForPreempt {
				c.PromisesPreempt++
			} else {
				c.PromisesCreate++
			}
		}
	}
}

// reasonsValid reports whether the short rows of a cluster are short for the reasons that its block says.
func (pub *publisher) reasonsValid(cl *clusterState) bool {
	for i := range cl.block.Missing {
		row := cl.block.Missing[i].Row
		v := &cl.block.Verdicts[row]
		if pub.reasons.of(cl, &cl.needs[cl.rowNeed[row]], v.Hold, pub.x) != v.Detail {
			return false
		}
	}
	return true
}
