package engine

import (
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
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
	gang    bool
	key     symbol.ID // of a gang,
	all     [narrowDims]int64
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

// questionOf returns the number of the question of a plain Need of one unit, or of a gang that has nothing of its own. Needs of a
// kind lie side by side: x remembers the last one.
func (p *planning) questionOf(cl *clusterState, w *want, x *scratch) uint32 {
	bare := w.isBare()
	if !bare && w.bits&(wSame|wSpread|wWhole|wMany) != wWhole || cl.k() > narrowDims {
		return 0
	}
	unit, all, q := cl.unit(w), cl.unit(w)[:0], &x.question
	if bare {
		all = cl.aggregate(w)
	}
	if x.number == 0 || q.matcher != w.matcher || q.bucket != w.bucket || q.frame != cl.f || q.gang != bare || !slices.Equal(q.unit[:len(unit)], unit) ||
		q.key != w.key || !slices.Equal(q.all[:len(all)], all) {
		*q = question{w.matcher, w.bucket, cl.f, four(unit), bare, w.key, four(all)}
		x.number = p.cat.questions.of(q)
	}
	return x.number
}

// isBare reports whether w is a gang that has nothing of its own.
func (w *want) isBare() bool { return w.bits&(wSame|wChosen) == wSame && w.claims < 0 && w.own < 0 }

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
	last    *run            // of the last turn that was looked at,
	lastAsk uint32          // and its question
	epoch   uint32          // of the newest answer
	joined  []uint32        // by cluster: the answer that its turns need nothing beside
	took    []*clusterState // who took in runs,
	pending [][]pending     // by cluster: what nothing else of it knows of yet
	room    []pending       // for that

	refused     map[uint32]uint32 // by number of the question of a gang: the stock that had no room for it
	lastRefused uint32            // the question that was looked up last, if it was refused
}

// begin forgets all answers.
func (r *runs) begin(clusters int) {
	clear(r.by)
	clear(r.refused)
	r.last, r.lastAsk, r.lastRefused = nil, 0, 0
	r.joined, r.pending = slices.Grow(r.joined[:0], clusters)[:clusters], slices.Grow(r.pending[:0], clusters)[:clusters]
	clear(r.joined)
	clear(r.pending)
}

// A lane reads twice as many rows each time, up to drawMost: rows lie anywhere in memory, and many side by side take the time of
// few. From drawTogether on all workers read them.
const (
	drawMost     = 1 << 13
	drawTogether = 1 << 11
)

// look finds out what the head of the lane is.
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
	if len(l.drawn) >= drawTogether && p.workers() > 1 {
		l.readTogether(inv)
	} else {
		readDrawn(inv, l.drawn)
	}
	l.nextRefill = min(2*l.nextRefill, drawMost)
	return len(l.drawn) > 0
}

func readDrawn(inv *inventory.Table, list []drawn) {
	for i := range list {
		r := inv.Row(list[i].idx)
		list[i].order, list[i].stamp = r.Order, r.Stamp
	}
}

// readTogether is readDrawn on two goroutines.
func (l *lane) readTogether(inv *inventory.Table) {
	first, second := l.drawn[:len(l.drawn)/2], l.drawn[len(l.drawn)/2:]
	var done sync.WaitGroup
	done.Go(func() { readDrawn(inv, first) })
	readDrawn(inv, second)
	done.Wait()
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
		if !p.stock.isTaken(d.idx) { // by others, meanwhile
			return d, first.class, true
		}
	}
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
	n := int(gr.to - gr.from)
	r.lanes = slices.Grow(r.lanes[:0], n)[:n]
	for i, s := range sh.slots[gr.from:gr.to] {
		cur := c.stock.cursor[x.pool][s.class]
		r.lanes[i] = lane{class: s.class, chunk: int(cur.chunk), at: int(cur.pos), nextRefill: 2, drawn: r.lanes[i].drawn[:0]}
		r.lanes[i].look(p, x.pool)
	}
}

// joins reports whether the next turn of a cluster, of a Need with a known answer, has nothing else to look at: no machine of
// its own that nobody claims, no share, none that it must not take. What the machine leaves over must be of no use to others
// of the cluster either, unless no receiver of shares comes behind.
func (p *planning) joins(cl *clusterState, at int32, r *run) bool {
	p.chores.await(p, cl)
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
	p.runs.joined[cl.at], cl.shared = r.epoch, 0
	return true
}

// runOn takes the turns from p.at on as far as they are a run. It reports whether there was any.
func (p *planning) runOn() bool {
	from := p.at
	for ; p.at < len(p.queue); p.at++ {
		s := p.next(p.at)
		if !s.turns() {
			p.noteUnmet(p.at, s, false)
			continue
		}
		if p.passes(s) {
			p.res.Counters.Turns++
			p.noteUnmet(p.at, s, true)
			continue
		}
		if s.ask == 0 {
			break
		}
		if s.bare {
			if !p.refuses(s) {
				break
			}
			p.res.Counters.Turns++
			p.noteUnmet(p.at, s, false)
			continue
		}
		if s.ask != p.runs.lastAsk {
			p.runs.last, p.runs.lastAsk = p.runs.by[s.ask], s.ask
		}
		r := p.runs.last
		if r == nil || r.gen != p.stock.gen {
			break
		}
		if p.runs.joined[s.turn.cl] != r.epoch && !p.joins(p.states[s.turn.cl], s.turn.want, r) {
			break
		}
		d, class, ok := r.next(p)
		if !ok {
			r.gen = 0
			break
		}
		p.res.Counters.Turns++
		p.stock.take(d.idx, class, r.pool)
		p.takenAlone(Ref{s.turn.cl, s.row}, &d, r)
		list := &p.runs.pending[s.turn.cl]
		if *list == nil {
			p.pend(p.states[s.turn.cl])
		}
		*list = append(*list, pending{s.turn.want, d.idx, d.order, d.stamp, takenKind(class<<1 | uint32(r.pool))})
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
	p.roomForActions(1)
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
	p.runs.pending[cl.at], p.runs.room = p.runs.room[:0:n], p.runs.room[n:]
	p.spoil(cl)
}

// settleRuns writes what was taken in runs.
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

// settlePending makes the machines that were taken in runs those of their Needs.
func (p *planning) settlePending(cl *clusterState) {
	list := p.runs.pending[cl.at]
	inv := p.w.Inventory
	cl.loc = slices.Grow(cl.loc, len(list))
	for _, x := range list {
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
	p.runs.pending[cl.at] = list[:0]
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
