package planner

import (
	"math"
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
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
	*plan
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

// numberOf returns the number of the question of a plain Need of one unit. Needs of a kind lie side by side: x remembers the last one.
func (qs *questions) numberOf(cl *clusterState, w *needState, x *scratch) uint32 {
	if qs.off.noRuns || w.bits&(wSame|wSpread|wWhole|wMany) != wWhole || cl.dimensions() > questionDims {
		return 0
	}
	unit, q := cl.unit(w), &x.question
	if x.number == 0 || q.matcher != w.matcher || q.bucket != w.bucket || q.frame != cl.f || !slices.Equal(q.unit[:len(unit)], unit) {
		*q = question{w.matcher, w.bucket, cl.f, inQuestion(unit)}
		x.number = qs.of(q)
	}
	return x.number
}

// run is the answer to a question: machines of one group, in the order of their ids.
type run struct {
	gen     uint32 // of the stock; 0 is no answer
	epoch   uint32 // names this answer to clusters: see joins
	pool    inventory.Pool
	cost    int64
	supply  []int64
	cursors []classCursor
}

// classCursor reads the machines of one class, some at a time.
type classCursor struct {
	class      uint32
	order      uint32 // of its head, or drained
	pos        int    // where that is in drawn
	chunk, at  int    // what is read next in the list of the class
	drawn      []drawn
	nextRefill int
}

// drawn is a machine that is free, or was when its row was read.
type drawn struct {
	idx         inventory.Index
	order       uint32
	attribution uint32
}

// pending is a machine that a Need took in a run.
type pending struct {
	want        int32
	idx         inventory.Index
	order       uint32
	attribution uint32
	kind        cover.Kind
}

// runs is the answers of the plan at work, and what came of them.
type runs struct {
	*plan
	workers  *workers
	free     *cover.FreePool
	clusters *clusters
	pending  *pendingList
	queue    *allocationQueue
	actions  *actionList
	cover    *cover.Search

	by      map[uint32]*run // by number of the question; nil after the first time
	last    *run            // of the last allocation that was looked at,
	lastAsk uint32          // and its question
	epoch   uint32          // of the newest answer
	joined  []uint32        // by cluster: the answer that its allocations need nothing beside
	took    []*clusterState // clusters that took in runs,
	taken   [][]pending     // by cluster: what nothing else of it knows of yet
	room    []pending       // for that
}

// begin forgets all answers.
func (r *runs) begin(clusters int) {
	clear(r.by)
	r.last, r.lastAsk = nil, 0
	r.joined, r.taken = slices.Grow(r.joined[:0], clusters)[:clusters], slices.Grow(r.taken[:0], clusters)[:clusters]
	clear(r.joined)
	clear(r.taken)
}

// drained is the order of the head of a cursor that has no more machines.
const drained = math.MaxUint32

// drawMost bounds how many rows a cursor reads at once. It reads twice as many each time: rows lie anywhere in memory, and many side by
// side take the time of few.
const drawMost = 1 << 13

// look finds the head of the class.
func (l *classCursor) look(p *plan, k inventory.Pool) {
	if l.pos < len(l.drawn) || l.draw(p, k) {
		l.order = l.drawn[l.pos].order
	} else {
		l.order = drained
	}
}

// draw reads the rows of the next machines of the list.
func (l *classCursor) draw(p *plan, k inventory.Pool) bool {
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
		l.drawn[i].order, l.drawn[i].attribution = r.Order, r.Attribution
	}
	l.nextRefill = min(2*l.nextRefill, drawMost)
	return len(l.drawn) > 0
}

// next returns the first free machine of the group, and its class.
func (r *run) next(rs *runs) (d drawn, class uint32, ok bool) {
	for {
		var first *classCursor
		order := uint32(drained)
		for i := range r.cursors {
			if l := &r.cursors[i]; l.order < order {
				first, order = l, l.order
			}
		}
		if first == nil {
			return d, 0, false
		}
		d = first.drawn[first.pos]
		first.pos++
		first.look(rs.plan, r.pool)
		if !rs.free.IsTaken(d.idx) { // by others, meanwhile
			return d, first.class, true
		}
	}
}

// answer records the answer of the last allocation: one machine of a group, without a tie.
func (rs *runs) answer(ask uint32) {
	x, ok := rs.cover.LastAnswer()
	if !ok {
		return
	}
	r, again := rs.by[ask]
	if !again {
		if rs.by == nil {
			rs.by = map[uint32]*run{}
		}
		rs.by[ask] = nil // one is no run
		return
	}
	if r == nil {
		r = &run{}
		rs.by[ask] = r
	}
	rs.epoch++
	rs.lastAsk = 0
	r.gen, r.epoch, r.pool, r.cost = x.Gen, rs.epoch, x.Pool, x.Cost
	r.supply = append(r.supply[:0], x.Supply...)
	r.cursors = slices.Grow(r.cursors[:0], len(x.Classes))[:len(x.Classes)]
	for i, s := range x.Classes {
		chunk, pos := rs.free.Start(x.Pool, s.Class)
		r.cursors[i] = classCursor{class: s.Class, chunk: chunk, at: pos, nextRefill: 2, drawn: r.cursors[i].drawn[:0]}
		r.cursors[i].look(rs.plan, x.Pool)
	}
}

// joins reports whether a Need with a known answer depends on nothing else: its cluster has no unclaimed machine, no share to offer and
// no machine to avoid. What the machine leaves over must also be of no use to a later Need of the cluster.
func (rs *runs) joins(cl *clusterState, at int32, r *run) bool {
	if cl.unclaimedCount > 0 || len(cl.flight) > 0 || len(rs.w.Inventory.Avoided(cl.d.ID)) > 0 {
		return false
	}
	if rs.policy.Sharing && cl.d.Facts.SharingPerMille > 0 && (len(cl.unpacked) > 0 || !cl.spares.none()) {
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
	rs.joined[cl.at] = r.epoch
	return true
}

// runOn takes the allocations from p.at on as long as they are a run, and reports whether it took any. It is the hook of runs.
func (rs *runs) runOn() bool {
	from := rs.queue.at
	for ; rs.queue.at < len(rs.queue.entries); rs.queue.at++ {
		s := rs.queue.next(rs.queue.at)
		if !s.worthAllocating() {
			rs.queue.noteUnmet(rs.queue.at, s, false)
			continue
		}
		if rs.pending.passes(s) {
			rs.res.Counters.Allocations++
			rs.queue.noteUnmet(rs.queue.at, s, true)
			continue
		}
		if s.ask == 0 {
			break
		}
		if s.ask != rs.lastAsk {
			rs.last, rs.lastAsk = rs.by[s.ask], s.ask
		}
		r := rs.last
		if r == nil || r.gen != rs.free.Gen {
			break
		}
		if rs.joined[s.allocation.cl] != r.epoch && !rs.joins(rs.clusters.states[s.allocation.cl], s.allocation.need, r) {
			break
		}
		d, class, ok := r.next(rs)
		if !ok {
			r.gen = 0
			break
		}
		rs.res.Counters.Allocations++
		rs.free.Take(d.idx, class, r.pool)
		rs.actions.takenAlone(engine.Ref{Block: s.allocation.cl, Row: s.row}, &d, r)
		list := &rs.taken[s.allocation.cl]
		if *list == nil {
			rs.pend(rs.clusters.states[s.allocation.cl])
		}
		*list = append(*list, pending{s.allocation.need, d.idx, d.order, d.attribution, cover.Kind(class<<1 | uint32(r.pool))})
	}
	return rs.queue.at > from
}

// pend makes room for the machines that a cluster takes in runs.
func (rs *runs) pend(cl *clusterState) {
	rs.took = append(rs.took, cl)
	n := cl.open // each of them takes one at the most
	if len(rs.room) < n {
		rs.free.Expect(rs.clusters.total.open)
		rs.room = make([]pending, max(n, rs.clusters.total.open))
	}
	rs.taken[cl.at], rs.room = rs.room[:0:n], rs.room[n:]
	rs.clusters.markStale(cl)
}

// settle writes the records of all runs.
func (rs *runs) settle() {
	rs.workers.each(rs.took, func(cl *clusterState, _ *scratch) {
		rs.settlePending(cl)
		if noneShort(cl) {
			cl.served = rs.plans
		}
	})
	clear(rs.took)
	clear(rs.taken)
	rs.took, rs.room = rs.took[:0], nil
}

// settlePending credits the machines taken in runs to their Needs.
func (rs *runs) settlePending(cl *clusterState) {
	list := rs.taken[cl.at]
	inv := rs.w.Inventory
	cl.machines = slices.Grow(cl.machines, len(list))
	for _, x := range list {
		l := machineState{idx: x.idx, class: x.kind.Class(), order: x.order, state: inventory.Idle, bits: lAcquired, claim: -1, next: -1, owner: -1,
			ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(x.kind.Class()).Price}
		if x.attribution != 0 {
			l.recl = inv.AttributionRow(x.attribution).Reclamation
		}
		w := &cl.needs[x.want]
		if x.kind.Pool() == inventory.SpeculativePool {
			l.state = inventory.Speculative
			w.bits |= wBought
		}
		cl.machines = append(cl.machines, l)
		cl.chain(w, int32(len(cl.machines)-1))
		clear(cl.rest(w))
	}
	rs.taken[cl.at] = list[:0]
}

// noneShort reports whether all Needs are covered.
func noneShort(cl *clusterState) bool {
	for i := range cl.needs {
		if cl.short(&cl.needs[i]) {
			return false
		}
	}
	return true
}
