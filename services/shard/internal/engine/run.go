package engine

import (
	"math"
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// A Need of one unit takes one machine: the cheapest that fits. Free machines only become fewer while Needs take turns, so as
// long as the group that was the answer has another machine, the next Need with an equal question takes that. A run is such
// turns: who gets which machine is noted, and what has to be written about it is written cluster by cluster, on all workers,
// when the turns are over or somebody else of the cluster has a turn.

// question is what Needs of one unit have in common if one answer serves them all.
type question struct {
	matcher uint32
	bucket  demand.Bucket
	frame   *frame
	unit    [narrowDims]int64
}

// questions gives numbers to questions; 0 is none. A number is never given to another question.
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
		if q.number == nil || len(q.number) >= catalogMax {
			q.number = map[question]uint32{}
		}
		q.last++
		n = q.last
		q.number[*x] = n
	}
	return n
}

// questionOf returns the number of the question of a plain Need of one unit. Needs of a kind lie side by side: x remembers the
// last one.
func (p *planning) questionOf(cl *clusterState, w *want, x *scratch) uint32 {
	if w.bits&(wSame|wSpread|wWhole|wMany) != wWhole || cl.k() > narrowDims {
		return 0
	}
	q := question{w.matcher, w.bucket, cl.f, four(cl.unit(w))}
	if x.number == 0 || x.question != q {
		x.question, x.number = q, p.cat.questions.of(&q)
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
	pos        int // what is next in drawn
	chunk, at  int // what is read next in the list of the class
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
	last    *run            // of the last turn that was looked at,
	lastAsk uint32          // and its question
	epoch   uint32          // of the newest answer
	joined  []uint32        // by cluster: the answer that its turns need nothing beside
	took    []*clusterState // who took in runs
	room    []pending       // for what they take
}

// begin forgets all answers.
func (r *runs) begin(clusters int) {
	clear(r.by)
	r.last, r.lastAsk = nil, 0
	r.joined = slices.Grow(r.joined[:0], clusters)[:clusters]
	clear(r.joined)
}

const drawMost = 64 // rows that a lane reads at a time

// head skips what others took meanwhile and returns the next free machine, or nil at the end.
func (l *lane) head(s *stock, k inventory.Pool) *drawn {
	for {
		for ; l.pos < len(l.drawn); l.pos++ {
			if d := &l.drawn[l.pos]; !s.isTaken(d.idx) {
				return d
			}
		}
		if !l.draw(s, k) {
			return nil
		}
	}
}

// draw reads the rows of the next machines of the list: side by side, as in lookAhead.
func (l *lane) draw(s *stock, k inventory.Pool) bool {
	l.drawn, l.pos = l.drawn[:0], 0
	chunks := s.inv.Class(l.class).Pools[k].Chunks()
	for ; l.chunk < len(chunks) && len(l.drawn) < l.nextRefill; l.chunk, l.at = l.chunk+1, 0 {
		list := chunks[l.chunk]
		for ; l.at < len(list) && len(l.drawn) < l.nextRefill; l.at++ {
			r := s.inv.Row(list[l.at])
			l.drawn = append(l.drawn, drawn{list[l.at], r.Order, r.Stamp})
		}
		if l.at < len(list) {
			break
		}
	}
	l.nextRefill = min(2*l.nextRefill, drawMost)
	return len(l.drawn) > 0
}

// next returns the first free machine of the group and its class.
func (r *run) next(s *stock) (*drawn, uint32) {
	var first *drawn
	var from *lane
	order := uint32(math.MaxUint32)
	for i := range r.lanes {
		if d := r.lanes[i].head(s, r.pool); d != nil && d.order < order {
			first, from, order = d, &r.lanes[i], d.order
		}
	}
	if first == nil {
		return nil, 0
	}
	from.pos++
	return first, from.class
}

// answer notes what the turn that is over found out: one machine of a group, with no tie.
func (p *planning) answer(ask uint32) {
	c, x := &p.cover, &p.cover.last
	if x.mk == nil || x.gen != p.stock.gen || !x.fresh {
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
	gr, sh := x.mk.group(x.group), x.mk.shelves[x.mk.of[x.group]]
	r.gen, r.epoch, r.pool, r.cost = x.gen, p.runs.epoch, x.pool, gr.cost
	r.supply = append(r.supply[:0], x.mk.supply(x.mk.of[x.group])...)
	r.lanes = slices.Grow(r.lanes[:0], int(gr.to-gr.from))
	for _, s := range sh.slots[gr.from:gr.to] {
		cur := c.stock.cursor[x.pool][s.class]
		r.lanes = append(r.lanes, lane{class: s.class, chunk: int(cur.chunk), at: int(cur.pos), nextRefill: 2})
	}
}

// joins reports whether the next turn of a cluster, of a Need with a known answer, has nothing else to look at: no machine of
// its own that nobody claims, no share, none that it must not take. What the machine leaves over must be of no use to others
// of the cluster either, unless no receiver of shares comes behind.
func (p *planning) joins(cl *clusterState, at int32, r *run) bool {
	if cl.loose > 0 || len(cl.flight) > 0 || len(p.w.Inventory.Avoided(cl.d.ID)) > 0 {
		return false
	}
	if p.policy.Sharing && cl.d.Facts.SharingPerMille > 0 && len(cl.givers) > 0 {
		return false
	}
	if cl.d.Facts.SharingPerMille > 0 && cl.lastReceiver >= 0 {
		offers, agg := true, cl.aggregate(&cl.wants[at])
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

// runOn takes the turns from p.at on as far as they are a run. It reports whether there was any.
func (p *planning) runOn() bool {
	from := p.at
	for ; p.at < len(p.queue); p.at++ {
		s := &p.queue[p.at]
		if !s.turns() {
			continue
		}
		if s.ask == 0 {
			break
		}
		if s.ask != p.runs.lastAsk {
			p.runs.last, p.runs.lastAsk = p.runs.by[s.ask], s.ask
		}
		r := p.runs.last
		if r == nil || r.gen != p.stock.gen {
			break
		}
		cl := p.states[s.turn.cl]
		if p.runs.joined[s.turn.cl] != r.epoch && !p.joins(cl, s.turn.want, r) {
			break
		}
		d, class := r.next(&p.stock)
		if d == nil {
			r.gen = 0
			break
		}
		p.res.Counters.Turns++
		p.stock.take(d.idx, class, r.pool)
		p.takenAlone(Ref{s.turn.cl, s.row}, d, r)
		if cl.pending == nil {
			p.pend(cl)
		}
		cl.pending = append(cl.pending, pending{s.turn.want, d.idx, d.order, d.stamp, takenKind(class<<1 | uint32(r.pool))})
	}
	return p.at > from
}

// takenAlone is taken for a Need that takes one machine and no more.
func (p *planning) takenAlone(to Ref, d *drawn, r *run) {
	a := Action{Machine: d.idx, Kind: Bootstrap, Cause: CauseIdle, Need: to, Cost: r.cost, Drain: -1}
	if r.pool == inventory.SpeculativePool {
		a.Kind, a.Cause = Provision, CauseSpeculative
		p.bought = true
	}
	p.roomForActions()
	p.acts, p.ids = append(p.acts, a), append(p.ids, d.order)
}

// pend makes room for what a cluster takes in runs.
func (p *planning) pend(cl *clusterState) {
	p.runs.took = append(p.runs.took, cl)
	n := cl.open // each of them takes one at the most
	if len(p.runs.room) < n {
		p.stock.expect(p.total.open)
		p.runs.room = make([]pending, max(n, p.total.open))
	}
	cl.pending, p.runs.room = p.runs.room[:0:n], p.runs.room[n:]
	p.spoil(cl)
}

// settleRuns writes what was taken in runs.
func (p *planning) settleRuns() {
	p.each(p.runs.took, func(cl *clusterState, _ *scratch) {
		cl.settlePending(p)
		cl.pending = nil
		if cl.nobodyShort() {
			cl.served = p.plans
		}
	})
	clear(p.runs.took)
	p.runs.took, p.runs.room = p.runs.took[:0], nil
}

// settlePending makes the machines that were taken in runs those of their Needs.
func (cl *clusterState) settlePending(p *planning) {
	inv := p.w.Inventory
	cl.loc = slices.Grow(cl.loc, len(cl.pending))
	for _, x := range cl.pending {
		l := local{idx: x.idx, class: x.kind.class(), order: x.order, state: inventory.Idle, bits: lAcquired, claim: -1, next: -1, owner: -1,
			ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(x.kind.class()).Price}
		if x.stamp != 0 {
			l.recl = inv.StampRow(x.stamp).Reclamation
		}
		w := &cl.wants[x.want]
		if x.kind.pool() == inventory.SpeculativePool {
			l.state = inventory.Speculative
			w.bits |= wBought
		}
		cl.loc = append(cl.loc, l)
		cl.chain(w, int32(len(cl.loc)-1))
		clear(cl.rest(w))
	}
	cl.pending = cl.pending[:0]
}

// nobodyShort looks whether all Needs are covered.
func (cl *clusterState) nobodyShort() bool {
	for i := range cl.wants {
		if cl.short(&cl.wants[i]) {
			return false
		}
	}
	return true
}
