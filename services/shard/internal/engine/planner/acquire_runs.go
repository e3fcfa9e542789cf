package planner

import (
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// A Need of one unit takes one machine: the cheapest that fits. Free machines only become fewer during the allocations. So the next Need with
// an equal question takes the next machine of the same group, as long as the group has one. A run is such a series of allocations. It
// records which Need gets which machine. The records of a cluster are written by the workers after the allocations, or earlier when another
// Need of the cluster has an allocation.

// question is what Needs of one unit must have in common to share an answer.
type question struct {
	matcher uint32
	bucket  demand.Bucket
	frame   *match.Projection
	unit    [questionDims]int64
}

// questionDims is how many dimensions a question has at most.
const questionDims = 4

// inQuestion is a vector of at most so many dimensions as a value that can be compared.
func inQuestion(v []int64) (x [questionDims]int64) {
	copy(x[:], v)
	return x
}

// questions numbers questions. 0 means none; a number is never reused.
type questions struct {
	mu     sync.Mutex
	number map[question]uint32
	last   uint32
}

func (q *questions) of(x *question) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, known := q.number[*x]
	if !known {
		if q.number == nil || len(q.number) >= match.CatalogMax {
			q.number = map[question]uint32{}
		}
		q.last++
		n = q.last
		q.number[*x] = n
	}
	return n
}

// questionOf returns the number of the question of a plain Need of one unit. Needs of a kind lie side by side: x remembers the last one.
func (p *planning) questionOf(cl *clusterState, w *needState, x *scratch) uint32 {
	if p.off.noRuns || w.bits&(wSame|wSpread|wWhole|wMany) != wWhole || cl.dimensions() > questionDims {
		return 0
	}
	unit, q := cl.unit(w), &x.question
	if x.number == 0 || q.matcher != w.matcher || q.bucket != w.bucket || q.frame != cl.f || !slices.Equal(q.unit[:len(unit)], unit) {
		*q = question{w.matcher, w.bucket, cl.f, inQuestion(unit)}
		x.number = p.questions.of(q)
	}
	return x.number
}

// run is the answer to a question: machines of one group, in the order of their ids.
type run struct {
	gen    uint32 // of the stock; 0 is no answer
	epoch  uint32 // names this answer to clusters: see joins
	pool   inventory.Pool
	cost   int64
	supply []int64
	lanes  []lane
}

// lane is the machines of one class, read some at a time.
type lane struct {
	class      uint32
	order      uint32 // of its head, or atEnd
	pos        int    // where that is in drawn
	chunk, at  int    // what is read next in the list of the class
	drawn      []drawn
	nextRefill int
}

// drawn is a machine that is free, or was when its row was read.
type drawn struct {
	idx   inventory.Index
	order uint32
	stamp uint32
}

// pending is a machine that a Need took in a run.
type pending struct {
	want  int32
	idx   inventory.Index
	order uint32
	stamp uint32
	kind  takenKind
}

// runs is the answers of the plan at work, and what came of them.
type runs struct {
	by      map[uint32]*run // by number of the question; nil after the first time
	last    *run            // of the last allocation that was looked at,
	lastAsk uint32          // and its question
	epoch   uint32          // of the newest answer
	joined  []uint32        // by cluster: the answer that its allocations need nothing beside
	took    []*clusterState // who took in runs,
	pending [][]pending     // by cluster: what nothing else of it knows of yet
	room    []pending       // for that
}

// begin forgets all answers.
func (r *runs) begin(clusters int) {
	clear(r.by)
	r.last, r.lastAsk = nil, 0
	r.joined, r.pending = slices.Grow(r.joined[:0], clusters)[:clusters], slices.Grow(r.pending[:0], clusters)[:clusters]
	clear(r.joined)
	clear(r.pending)
}

// drawMost bounds how many rows a lane reads at once. It reads twice as many each time: rows lie anywhere in memory, and many side by
// side take the time of few.
const drawMost = 1 << 13

// look finds the head of the lane.
func (l *lane) look(p *planning, k inventory.Pool) {
	if l.pos < len(l.drawn) || l.draw(p, k) {
		l.order = l.drawn[l.pos].order
	} else {
		l.order = atEnd
	}
}

// draw reads the rows of the next machines of the list.
func (l *lane) draw(p *planning, k inventory.Pool) bool {
	inv := p.w.Inventory
	l.drawn, l.pos = slices.Grow(l.drawn[:0], l.nextRefill), 0
	chunks := inv.Class(l.class).Pools[k].Chunks()
	for l.chunk < len(chunks) && len(l.drawn) < l.nextRefill {
		list := chunks[l.chunk][l.at:]
		n := min(len(list), l.nextRefill-len(l.drawn))
		for _, i := range list[:n] {
			l.drawn = append(l.drawn, drawn{idx: i})
		}
		if l.at += n; n == len(list) {
			l.chunk, l.at = l.chunk+1, 0
		}
	}
	for i := range l.drawn {
		r := inv.Row(l.drawn[i].idx)
		l.drawn[i].order, l.drawn[i].stamp = r.Order, r.Stamp
	}
	l.nextRefill = min(2*l.nextRefill, drawMost)
	return len(l.drawn) > 0
}

// next returns the first free machine of the group, and its class.
func (r *run) next(p *planning) (d drawn, class uint32, ok bool) {
	for {
		var first *lane
		order := uint32(atEnd)
		for i := range r.lanes {
			if l := &r.lanes[i]; l.order < order {
				first, order = l, l.order
			}
		}
		if first == nil {
			return d, 0, false
		}
		d = first.drawn[first.pos]
		first.pos++
		first.look(p, r.pool)
		if !p.free.isTaken(d.idx) { // by others, meanwhile
			return d, first.class, true
		}
	}
}

// answer records the answer of the last allocation: one machine of a group, without a tie.
func (p *planning) answer(ask uint32) {
	c, x := &p.cover, &p.cover.last
	if x.mk == nil || x.gen != p.free.gen || !x.fresh {
		return
	}
	r, again := p.runs.by[ask]
	if !again {
		if p.runs.by == nil {
			p.runs.by = map[uint32]*run{}
		}
		p.runs.by[ask] = nil // one is no run
		return
	}
	if r == nil {
		r = &run{}
		p.runs.by[ask] = r
	}
	p.runs.epoch++
	p.runs.lastAsk = 0
	gr, sh := x.mk.tier(x.group), x.mk.groups[x.mk.of[x.group]]
	r.gen, r.epoch, r.pool, r.cost = x.gen, p.runs.epoch, x.pool, gr.cost
	r.supply = append(r.supply[:0], x.mk.supply(x.mk.of[x.group])...)
	n := int(gr.to - gr.from)
	r.lanes = slices.Grow(r.lanes[:0], n)[:n]
	for i, s := range sh.slots[gr.from:gr.to] {
		cur := c.free.cursor[x.pool][s.class]
		r.lanes[i] = lane{class: s.class, chunk: int(cur.chunk), at: int(cur.pos), nextRefill: 2, drawn: r.lanes[i].drawn[:0]}
		r.lanes[i].look(p, x.pool)
	}
}

// joins reports whether a Need with a known answer depends on nothing else: its cluster has no unclaimed machine, no share to offer and
// no machine to avoid. What the machine leaves over must also be of no use to a later Need of the cluster.
func (p *planning) joins(cl *clusterState, at int32, r *run) bool {
	if cl.unclaimedCount > 0 || len(cl.flight) > 0 || len(p.w.Inventory.Avoided(cl.d.ID)) > 0 {
		return false
	}
	if p.policy.Sharing && cl.d.Facts.SharingPerMille > 0 && len(cl.donors) > 0 {
		return false
	}
	if cl.d.Facts.SharingPerMille > 0 && cl.lastRecipient >= 0 {
		offers, agg := true, cl.aggregate(&cl.needs[at])
		for j, u := range cl.least {
			offers = offers && r.supply[j]-min(r.supply[j], agg[j]) >= u
		}
		if offers {
			return false
		}
	}
	p.runs.joined[cl.at] = r.epoch
	return true
}

// runOn takes the allocations from p.at on as long as they are a run, and reports whether it took any. It is the hook of runs.
func (p *planning) runOn() bool {
	from := p.at
	for ; p.at < len(p.allocationOrder); p.at++ {
		s := p.next(p.at)
		if !s.worthAllocating() {
			p.noteUnmet(p.at, s, false)
			continue
		}
		if p.passes(s) {
			p.res.Counters.Allocations++
			p.noteUnmet(p.at, s, true)
			continue
		}
		if s.ask == 0 {
			break
		}
		if s.ask != p.runs.lastAsk {
			p.runs.last, p.runs.lastAsk = p.runs.by[s.ask], s.ask
		}
		r := p.runs.last
		if r == nil || r.gen != p.free.gen {
			break
		}
		if p.runs.joined[s.allocation.cl] != r.epoch && !p.joins(p.states[s.allocation.cl], s.allocation.need, r) {
			break
		}
		d, class, ok := r.next(p)
		if !ok {
			r.gen = 0
			break
		}
		p.res.Counters.Allocations++
		p.free.take(d.idx, class, r.pool)
		p.takenAlone(engine.Ref{Block: s.allocation.cl, Row: s.row}, &d, r)
		list := &p.runs.pending[s.allocation.cl]
		if *list == nil {
			p.pend(p.states[s.allocation.cl])
		}
		*list = append(*list, pending{s.allocation.need, d.idx, d.order, d.stamp, takenKind(class<<1 | uint32(r.pool))})
	}
	return p.at > from
}

// takenAlone is taken for a Need that takes exactly one machine.
func (p *planning) takenAlone(to engine.Ref, d *drawn, r *run) {
	a := engine.Action{Machine: d.idx, Kind: engine.Bootstrap, Cause: engine.CauseIdle, Need: to, Cost: r.cost, Drain: -1}
	if r.pool == inventory.SpeculativePool {
		a.Kind, a.Cause = engine.Provision, engine.CauseSpeculative
		p.bought = true
	}
	p.growActions(1)
	p.acts, p.ids = append(p.acts, a), append(p.ids, d.order)
}

// pend makes room for the machines that a cluster takes in runs.
func (p *planning) pend(cl *clusterState) {
	p.runs.took = append(p.runs.took, cl)
	n := cl.open // each of them takes one at the most
	if len(p.runs.room) < n {
		p.free.expect(p.total.open)
		p.runs.room = make([]pending, max(n, p.total.open))
	}
	p.runs.pending[cl.at], p.runs.room = p.runs.room[:0:n], p.runs.room[n:]
	p.markStale(cl)
}

// settleRuns writes the records of all runs.
func (p *planning) settleRuns() {
	p.each(p.runs.took, func(cl *clusterState, _ *scratch) {
		p.settlePending(cl)
		if cl.nobodyShort() {
			cl.served = p.plans
		}
	})
	clear(p.runs.took)
	clear(p.runs.pending)
	p.runs.took, p.runs.room = p.runs.took[:0], nil
}

// settlePending credits the machines taken in runs to their Needs.
func (p *planning) settlePending(cl *clusterState) {
	list := p.runs.pending[cl.at]
	inv := p.w.Inventory
	cl.machines = slices.Grow(cl.machines, len(list))
	for _, x := range list {
		l := machineState{idx: x.idx, class: x.kind.class(), order: x.order, state: inventory.Idle, bits: lAcquired, claim: -1, next: -1, owner: -1,
			ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(x.kind.class()).Price}
		if x.stamp != 0 {
			l.recl = inv.StampRow(x.stamp).Reclamation
		}
		w := &cl.needs[x.want]
		if x.kind.pool() == inventory.SpeculativePool {
			l.state = inventory.Speculative
			w.bits |= wBought
		}
		cl.machines = append(cl.machines, l)
		cl.chain(w, int32(len(cl.machines)-1))
		clear(cl.rest(w))
	}
	p.runs.pending[cl.at] = list[:0]
}

// nobodyShort reports whether all Needs are covered.
func (cl *clusterState) nobodyShort() bool {
	for i := range cl.needs {
		if cl.short(&cl.needs[i]) {
			return false
		}
	}
	return true
}
