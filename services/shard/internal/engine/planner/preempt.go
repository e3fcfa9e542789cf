package planner

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// drainPlan is a machine that section 15 drains.
type drainPlan struct {
	idx       inventory.Index
	cl        *clusterState // where it is bound
	at        int32
	kind      engine.Kind
	cause     engine.Cause
	preemptor allocation
	gap       int64
	terms     engine.ScoreTerms
}

// handed is a promise that changed hands (ENG-15.4).
type handed struct {
	idx inventory.Index
	to  allocation
}

// victim is a machine that a preemptor takes.
type victim struct {
	effective int64
	cl        int32 // position in states
	at        int32
	class     uint32
}

// preemption is section 15: what Needs that are still short take from Needs of lower priority.
type preemption struct {
	*plan
	clusters  *clusters
	pending   *pendingList
	unmet     *unmetNeeds
	queue     *allocationQueue
	actions   *actionList
	spread    *spreading
	allocator *allocator

	victims        targets
	excess         targets
	inFlight       []inFlight // in flight, as 15.4 prefers them
	inFlightListed bool
	called         []pendingNeed
	request        request
	drained        []drainPlan
	handed         []handed
	buf            []int64
}

// run lets every short Need that may preempt do so, in allocation order.
func (pe *preemption) run() {
	pe.drained, pe.handed = pe.drained[:0], pe.handed[:0]
	pe.victims.begin(true)
	pe.excess.begin(false)
	pe.inFlightListed = false
	pe.callPreemptors()
	pe.queue.begin(pe.called, nil)
	pe.queue.visit(func(cl *clusterState, w *needState, _ *pendingNeed) {
		if w.bits&wLost != 0 {
			pe.allocator.claimUnclaimed(cl, w)
			if !held(w) && (w.bits&wGang == 0 || pe.allocator.canStart(cl, w)) {
				n := len(pe.actions.list)
				pe.allocator.acquireFree(cl, w)
				pe.actions.resumed = pe.actions.resumed || len(pe.actions.list) > n
			}
		}
		if !held(w) && cl.short(w) && w.mayPreempt() {
			pe.preemptFor(cl, w)
		}
	}, func() bool { return false })
	pe.queue.end()
}

// request is what a preemptor still lacks, on paper.
type request struct {
	*plan
	spread *spreading

	cl   *clusterState
	w    *needState
	rest []int64
}

// takes puts a machine against the request, if it contributes and lies in the domain.
func (h *request) takes(i inventory.Index, class uint32) bool {
	sup := h.cl.amount(h.w, class)
	if !match.Touches(sup, h.rest) {
		return false
	}
	switch {
	case h.w.bits&wSame != 0:
		if v, has := h.plan.w.Inventory.Value(i, h.w.key); !has || v != h.w.domain {
			return false
		}
	case h.w.bits&wSpread != 0:
		if !h.spread.gains(i, h.w.key, h.cl.unitsIn(h.w, sup)) {
			return false
		}
		h.recount()
		return true
	}
	match.Subtract(h.rest, sup)
	return true
}

// recount computes what a request with a hard spread still lacks.
func (h *request) recount() {
	h.rest = h.cl.lacks(h.w, append(h.rest[:0], h.cl.aggregate(h.w)...), h.spread.Served())
}

// preemptFor uses the three means of 15.2, the gentler first.
func (pe *preemption) preemptFor(cl *clusterState, w *needState) {
	h := &pe.request
	h.cl, h.w = cl, w
	h.rest = append(h.rest[:0], cl.rest(w)...)
	if w.bits&wSpread != 0 {
		pe.spread.withFree(cl, w)
		h.recount()
	}
	starts := w.bits&(wGang|wSpread) == wGang && !match.IsZero(lacksToStart(cl, w, h.rest)) // it takes what is free as well, if it can start (ENG-15.3)
	if starts {
		match.Subtract(h.rest, pe.allocator.freeFor(cl, w))
	}
	over := pe.takeovers(h)
	excess := pe.excessFor(h)
	before := append(pe.buf[:0], h.rest...)
	pe.buf = before
	victims := pe.victimsFor(h)
	if len(victims) > 0 && match.IsZero(h.rest) && w.bits&wSpread == 0 {
		victims = pe.spare(cl, w, before, victims)
	}
	if n := int32(len(excess) + len(victims)); n > 0 || w.gain > 0 {
		cl.gainOf(w).victims = n
	}
	if cl.victimsOf(w) > 0 {
		freed := make([]int64, cl.dimensions())
		cl.gainOf(w).freed = freed
		for _, list := range [][]victim{excess, victims} {
			for _, v := range list {
				match.Add(freed, cl.f.Supply(v.class))
			}
		}
		for j, want := range cl.aggregate(w) {
			if want == 0 {
				freed[j] = 0 // what the Need does not ask for is of no interest
			}
		}
		pe.clusters.markStale(cl)
	}
	gang := w.bits&(wSame|wGang) == wSame && !match.Covers(cl.unit(w), cl.aggregate(w))
	if gang && !match.IsZero(h.rest) || w.bits&wGang != 0 && !match.IsZero(lacksToStart(cl, w, h.rest)) {
		return // 15.3: part of a gang is of no use
	}
	if starts {
		n := len(pe.actions.list)
		pe.allocator.acquireFree(cl, w)
		pe.actions.resumed = pe.actions.resumed || len(pe.actions.list) > n
		pe.unmet.gained = pe.unmet.gained || len(pe.actions.list) > n
	}
	for _, at := range over {
		pe.takeOver(cl, w, &pe.inFlight[at])
	}
	for _, v := range excess {
		src := pe.clusters.states[v.cl]
		l := &src.machines[v.at]
		attributed := int32(0)
		if attribution := pe.attributionOf(l); attribution != 0 {
			attributed = pe.w.Inventory.AttributionRow(attribution).Priority
		}
		d := drainPlan{kind: engine.Reclaim, cause: engine.CauseExcessPromised, gap: int64(w.priority) - int64(attributed)}
		if w.priority > attributed {
			d.kind, d.cause = engine.Preempt, engine.CauseExcessTaken
		}
		pe.drainFor(cl, w, v, d)
	}
	for _, v := range victims {
		d := drainPlan{kind: engine.Preempt, cause: engine.CauseInversion, gap: int64(w.priority) - v.effective}
		d.terms = pe.scoreTerms(pe.clusters.states[v.cl].machines[v.at].idx, d.gap)
		pe.drainFor(cl, w, v, d)
	}
}

// promise counts a machine for w that is not its cluster's yet.
func (pe *preemption) promise(cl *clusterState, w *needState, i inventory.Index, class uint32, s inventory.State) {
	g := cl.gainOf(w)
	if w.bits&wSpread != 0 {
		r := roomsOf(cl, w)
		g.promised = append(g.promised, passed{i, class, s})
		if v, has := pe.w.Inventory.Value(i, w.key); has {
			cl.rooms.add(r, v, cl.unitsIn(w, cl.amount(w, class)))
		}
		cl.rooms.ranked = false
		cl.recount(w)
	} else {
		g.promised = append(g.promised, passed{i, class, s})
		match.Subtract(cl.rest(w), cl.amount(w, class))
	}
	pe.unmet.gained = true
	pe.clusters.markStale(cl)
}

func (pe *preemption) drainFor(cl *clusterState, w *needState, v victim, d drainPlan) {
	src := pe.clusters.states[v.cl]
	l := &src.machines[v.at]
	l.bits |= lGone
	if d.kind == engine.Preempt {
		l.bits |= lPreempt
	}
	pe.clusters.markStale(src)
	d.idx, d.cl, d.at, d.preemptor = l.idx, src, v.at, allocationOf(cl, w)
	pe.drained = append(pe.drained, d)
	pe.promise(cl, w, l.idx, l.class, l.state)
}

// inFlight is a machine in flight that 15.4 may hand on.
type inFlight struct {
	i      inventory.Index
	class  uint32
	prio   int32
	rank   int32
	price  int64
	handed bool
}

// listInFlight sorts the machines in flight in the order of 15.4, which is the same for every preemptor.
func (pe *preemption) listInFlight() {
	inv := pe.w.Inventory
	pe.inFlightListed, pe.inFlight = true, pe.inFlight[:0]
	for _, chunk := range inv.InFlight().Chunks() { // by id
		for _, i := range chunk {
			pr, _ := inv.Promise(i)
			r := inv.Row(i)
			pe.inFlight = append(pe.inFlight, inFlight{i: i, class: r.Class, prio: pr.For.Priority, rank: takeoverRank(r.Seen()),
				price: inv.Class(r.Class).Price})
		}
	}
	slices.SortStableFunc(pe.inFlight, func(a, b inFlight) int {
		return cmp.Or(cmp.Compare(a.prio, b.prio), cmp.Compare(a.rank, b.rank), cmp.Compare(a.price, b.price))
	})
}

// takeovers lists what 15.4 hands on: positions in machines in flight.
func (pe *preemption) takeovers(h *request) []int32 {
	if !pe.inFlightListed {
		pe.listInFlight()
	}
	inv := pe.w.Inventory
	priority := h.w.priority
	var out []int32
	for at := range pe.inFlight {
		f := &pe.inFlight[at]
		if f.prio >= priority || match.IsZero(h.rest) {
			break
		}
		if f.handed || !h.cl.fits(h.w, f.class) || inv.WithheldFrom(f.i, h.cl.d.Name) {
			continue
		}
		pr, _ := inv.Promise(f.i)
		if src, at := pe.clusters.machineOf(f.i, pr.Cluster); src != nil {
			l := &src.machines[at]
			if src == h.cl && l.claim == h.w.at || pe.effective(src, l) >= int64(priority) {
				continue
			}
		}
		if h.takes(f.i, f.class) {
			out = append(out, int32(at))
		}
	}
	return out
}

func takeoverRank(s inventory.State) int32 {
	switch s {
	case inventory.Idle:
		return 0
	case inventory.Draining:
		return 1
	}
	return 2
}

// machineOf finds a machine in the state of a cluster.
func (cs *clusters) machineOf(i inventory.Index, cluster string) (*clusterState, int32) {
	c := cs.w.Demand.Cluster(cluster)
	if c == nil {
		return nil, -1
	}
	cl := cs.byID[c.ID]
	// Members were gathered in the inventory's order, so the position of the machine there is its place here.
	at := cs.w.Inventory.MemberPosition(i)
	return cl, at
}

// effective is the effective priority of 15.7; of a machine in flight, the effective priority of the Needs that count on it.
func (p *plan) effective(cl *clusterState, l *machineState) int64 {
	e := int64(-1 << 40)
	if l.state.Bound() {
		if attribution := p.attributionOf(l); attribution != 0 {
			e = int64(p.w.Inventory.AttributionRow(attribution).Priority)
		}
	}
	if l.claim >= 0 {
		e = max(e, int64(cl.needs[l.claim].priority))
	}
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		e = max(e, int64(cl.needs[cl.shares[i].to].priority))
	}
	return e
}

// takeOver hands the promise of a machine on to w. Whoever counted on it is short again.
func (pe *preemption) takeOver(cl *clusterState, w *needState, f *inFlight) {
	inv := pe.w.Inventory
	i := f.i
	f.handed = true
	pr, _ := inv.Promise(i)
	if src, at := pe.clusters.machineOf(i, pr.Cluster); src != nil {
		l := &src.machines[at]
		if l.claim >= 0 {
			loser := &src.needs[l.claim]
			src.release(at)
			src.recount(loser)
			pe.lose(src, loser)
		}
		for l.shares >= 0 {
			s := l.shares
			loser := &src.needs[src.shares[s].to]
			src.dropShare(s)
			src.recount(loser)
			pe.lose(src, loser)
		}
		l.bits |= lGone
		pe.clusters.markStale(src)
	}
	pe.handed = append(pe.handed, handed{i, allocationOf(cl, w)})
	pe.promise(cl, w, i, inv.Row(i).Class, inv.Row(i).Seen())
}

// lose gives a Need that lost a promise its place later in this order.
func (pe *preemption) lose(cl *clusterState, w *needState) {
	w.bits |= wLost
	pe.unmet.known = false
	pe.queue.requeue(cl, w) // a held one, too
}

// excessFor chooses excess (ENG-15.5): unclaimed Configured machines of other heard clusters.
func (pe *preemption) excessFor(h *request) []victim {
	if match.IsZero(h.rest) {
		return nil
	}
	if !pe.excess.built {
		pe.excess.listExcess()
	}
	return pe.excess.choose(h, math.MaxInt64)
}

// victimsFor lists the victims of 15.6 that are needed, best first. Takeovers may have changed which Needs count on one
// since they were listed. The order stays, as attributions do.
func (pe *preemption) victimsFor(h *request) []victim {
	if match.IsZero(h.rest) || h.cl.need(h.w).Form.NeverPreempts {
		return nil
	}
	if !pe.victims.built {
		pe.victims.listVictims()
	}
	return pe.victims.choose(h, int64(h.w.priority))
}

// attributionOf is the number of a machine's attribution, or 0.
func (p *plan) attributionOf(l *machineState) uint32 { return p.w.Inventory.Row(l.idx).Attribution }

// scoreTerms is ENG-15.9.
func (p *plan) scoreTerms(i inventory.Index, gap int64) engine.ScoreTerms {
	var s inventory.AttributionRow
	if attribution := p.w.Inventory.Row(i).Attribution; attribution != 0 {
		s = *p.w.Inventory.AttributionRow(attribution)
	}
	cents := func(x demand.Penalty) int64 { return max(1, int64(x)*50) }
	w := p.policy.VictimWeights
	return engine.ScoreTerms{
		Priority:     w.Priority * 100_000 * gap,
		Drain:        w.Drain * 100_000 / p.policy.DrainSeconds(p.w.Inventory.DrainSeconds(i)),
		Interruption: w.Interruption * 10_000_000 / cents(s.Interruption),
		Reclamation:  w.Reclamation * 10_000_000 / cents(s.Reclamation),
	}
}

// spare drops victims that are not needed, worst first (ENG-15.10).
func (pe *preemption) spare(cl *clusterState, w *needState, residual []int64, victims []victim) []victim {
	sum := make([]cover.Sum, len(residual))
	for j, r := range residual {
		for _, v := range victims {
			sum[j].Add(uint64(cl.amount(w, v.class)[j]), 1)
		}
		if r > 0 {
			sum[j].Sub(uint64(r), 1)
		}
	}
	keep := make([]bool, len(victims))
	for i, v := range slices.Backward(victims) {
		sup := cl.amount(w, v.class)
		for j, r := range residual {
			if r > 0 && !sum[j].AtLeast(uint64(sup[j])) {
				keep[i] = true
			}
		}
		if !keep[i] {
			for j := range residual {
				sum[j].Sub(uint64(sup[j]), 1)
			}
		}
	}
	var out []victim
	for i, v := range victims {
		if keep[i] {
			out = append(out, v)
		}
	}
	return out
}

// callPreemptors queues the Needs that preemption considers.
func (pe *preemption) callPreemptors() {
	pe.called = pe.called[:0]
	if u := pe.unmet; u.known {
		for i := range u.list {
			if x := &u.list[i]; x.preempts && pe.unmet.isShort(x) && !pe.beyondReach(&u.asked[x.at]) {
				pe.called = append(pe.called, u.asked[x.at])
			}
		}
		return
	}
	pe.pending.stillShort(func(cl *clusterState) bool { return cl.served == pe.plans }, func(t allocation, s *pendingNeed) {
		if s != nil && (!s.worthAllocating() || pe.beyondReach(s)) {
			return
		}
		if s == nil {
			if cl, w := pe.clusters.state(t); held(w) || cl.beyondHelp(w) {
				return
			}
		}
		pe.called = append(pe.called, pendingNeed{allocation: t, open: true})
	})
}
