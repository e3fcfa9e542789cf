package planner

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
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

// handed is a promise that changed hands (15.4).
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

// preemption is section 15.
func (p *planning) preemption() {
	p.drained, p.drainedAt, p.handed = p.drained[:0], nil, p.handed[:0]
	p.victims.begin(true)
	p.excess.begin(false)
	p.inFlightListed = false
	p.callPreemptors()
	p.visitInOrder(func(cl *clusterState, w *needState, _ *pendingNeed) {
		if w.bits&wLost != 0 {
			p.claimUnclaimed(cl, w)
			if !held(w) {
				n := len(p.acts)
				p.acquire(cl, w, inventory.IdlePool)
				p.acquire(cl, w, inventory.SpeculativePool)
				p.resumed = p.resumed || len(p.acts) > n
			}
		}
		if !held(w) && cl.short(w) && w.mayPreempt() {
			p.preemptFor(cl, w)
		}
	}, func() bool { return false })
	p.allocationOrder = nil
}

// request is what a preemptor still lacks, on paper.
type request struct {
	p    *planning
	cl   *clusterState
	w    *needState
	rest []int64
}

// takes puts a machine against the request, if it contributes, lies in the domain and keeps the skew.
func (h *request) takes(i inventory.Index, class uint32) bool {
	sup := h.cl.amount(h.w, class)
	if !match.Touches(sup, h.rest) {
		return false
	}
	if h.w.bits&(wSame|wSpread) != 0 {
		v, has := h.p.w.Inventory.Value(i, h.w.key)
		if !has || h.w.bits&wSame != 0 && v != h.w.domain {
			return false
		}
		if h.w.bits&wSpread != 0 {
			s := &h.p.spread
			at := s.find(v)
			if !s.mayGo(at, h.w.skew) {
				return false
			}
			s.counts[s.position(v)]++
		}
	}
	match.Subtract(h.rest, sup)
	return true
}

// preemptFor uses the three means of 15.2, the gentler first.
func (p *planning) preemptFor(cl *clusterState, w *needState) {
	h := &p.request
	h.p, h.cl, h.w = p, cl, w
	h.rest = append(h.rest[:0], cl.rest(w)...)
	if w.bits&wSpread != 0 {
		p.known(cl, w)
	}
	over := p.takeovers(h)
	excess := p.excessFor(h)
	before := append(p.buf[:0], h.rest...)
	p.buf = before
	victims := p.victimsFor(h)
	if len(victims) > 0 && match.IsZero(h.rest) && w.bits&wSpread == 0 {
		victims = p.spare(cl, w, before, victims)
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
		p.markStale(cl)
	}
	gang := w.bits&wSame != 0 && !match.Covers(cl.unit(w), cl.aggregate(w))
	if gang && !match.IsZero(h.rest) {
		return // 15.3: half a rack helps nobody
	}
	for _, at := range over {
		p.takeOver(cl, w, &p.inFlight[at])
	}
	for _, v := range excess {
		src := p.states[v.cl]
		l := &src.machines[v.at]
		stamped := int32(0)
		if stamp := p.stampOf(l); stamp != 0 {
			stamped = p.w.Inventory.StampRow(stamp).Priority
		}
		d := drainPlan{kind: engine.Reclaim, cause: engine.CauseExcessPromised, gap: int64(w.priority) - int64(stamped)}
		if w.priority > stamped {
			d.kind, d.cause = engine.Preempt, engine.CauseExcessTaken
		}
		p.drainFor(cl, w, v, d)
	}
	for _, v := range victims {
		d := drainPlan{kind: engine.Preempt, cause: engine.CauseInversion, gap: int64(w.priority) - v.effective}
		d.terms = p.scoreTerms(p.states[v.cl].machines[v.at].idx, d.gap)
		p.drainFor(cl, w, v, d)
	}
}

// promise counts a machine for w that is not its cluster's yet.
func (p *planning) promise(cl *clusterState, w *needState, i inventory.Index, class uint32, s inventory.State) {
	g := cl.gainOf(w)
	g.promised = append(g.promised, passed{i, class, s})
	match.Subtract(cl.rest(w), cl.amount(w, class))
	p.unmet.gained = true
	p.markStale(cl)
}

func (p *planning) drainFor(cl *clusterState, w *needState, v victim, d drainPlan) {
	src := p.states[v.cl]
	l := &src.machines[v.at]
	l.bits |= lGone
	if d.kind == engine.Preempt {
		l.bits |= lPreempt
	}
	p.markStale(src)
	d.idx, d.cl, d.at, d.preemptor = l.idx, src, v.at, allocationOf(cl, w)
	p.drained = append(p.drained, d)
	p.promise(cl, w, l.idx, l.class, l.state)
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

// listInFlight sorts what is in flight as 15.4 prefers it, whoever asks.
func (p *planning) listInFlight() {
	inv := p.w.Inventory
	p.inFlightListed, p.inFlight = true, p.inFlight[:0]
	for _, chunk := range inv.Flying().Chunks() { // by id
		for _, i := range chunk {
			pr, _ := inv.Promise(i)
			r := inv.Row(i)
			p.inFlight = append(p.inFlight, inFlight{i: i, class: r.Class, prio: pr.For.Priority, rank: takeoverRank(r.Seen()),
				price: inv.Class(r.Class).Price})
		}
	}
	slices.SortStableFunc(p.inFlight, func(a, b inFlight) int {
		return cmp.Or(cmp.Compare(a.prio, b.prio), cmp.Compare(a.rank, b.rank), cmp.Compare(a.price, b.price))
	})
}

// takeovers lists what 15.4 hands on: positions in machines in flight.
func (p *planning) takeovers(h *request) []int32 {
	if !p.inFlightListed {
		p.listInFlight()
	}
	inv := p.w.Inventory
	priority := h.w.priority
	var out []int32
	for at := range p.inFlight {
		f := &p.inFlight[at]
		if f.prio >= priority || match.IsZero(h.rest) {
			break
		}
		if f.handed || !h.cl.fits(h.w, f.class) || inv.WithheldFrom(f.i, h.cl.d.Name) {
			continue
		}
		pr, _ := inv.Promise(f.i)
		if src, at := p.machineOf(f.i, pr.Cluster); src != nil {
			l := &src.machines[at]
			if src == h.cl && l.claim == h.w.at || src.effective(p, l) >= int64(priority) {
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
func (p *planning) machineOf(i inventory.Index, cluster string) (*clusterState, int32) {
	c := p.w.Demand.Cluster(cluster)
	if c == nil {
		return nil, -1
	}
	cl := p.byID[c.ID]
	// Members were gathered in the inventory's order, so the position of the machine there is its place here.
	at := p.w.Inventory.MemberPosition(i)
	return cl, at
}

// effective is the effective priority of 15.7; of a machine in flight, that of those who count on it.
func (cl *clusterState) effective(p *planning, l *machineState) int64 {
	e := int64(-1 << 40)
	if l.state.Bound() {
		if stamp := p.stampOf(l); stamp != 0 {
			e = int64(p.w.Inventory.StampRow(stamp).Priority)
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
func (p *planning) takeOver(cl *clusterState, w *needState, f *inFlight) {
	inv := p.w.Inventory
	i := f.i
	f.handed = true
	pr, _ := inv.Promise(i)
	if src, at := p.machineOf(i, pr.Cluster); src != nil {
		l := &src.machines[at]
		if l.claim >= 0 {
			loser := &src.needs[l.claim]
			src.release(at)
			src.recount(loser)
			p.lose(src, loser)
		}
		for l.shares >= 0 {
			s := l.shares
			loser := &src.needs[src.shares[s].to]
			src.dropShare(s)
			src.recount(loser)
			p.lose(src, loser)
		}
		l.bits |= lGone
		p.markStale(src)
	}
	p.handed = append(p.handed, handed{i, allocationOf(cl, w)})
	p.promise(cl, w, i, inv.Row(i).Class, inv.Row(i).Seen())
}

// lose gives a Need that lost a promise its place later in this order.
func (p *planning) lose(cl *clusterState, w *needState) {
	w.bits |= wLost
	p.unmet.known = false
	if !p.queued(cl, w) {
		displaced, hold := p.displace, w.hold
		w.hold = demand.NotHeld // held ones look again too
		p.requeue(cl, w)
		w.hold, p.displace = hold, displaced
	}
}

// excessFor lists what 15.5 gives: Configured machines of other heard clusters that nobody claims.
func (p *planning) excessFor(h *request) []victim {
	if match.IsZero(h.rest) {
		return nil
	}
	if !p.excess.built {
		p.excess.listExcess(p)
	}
	return p.excess.choose(h, math.MaxInt64)
}

// victimsFor lists the victims of 15.6 that are needed, best first. Takeovers may have changed who counts on one since
// they were listed; the order stays, as stamps do.
func (p *planning) victimsFor(h *request) []victim {
	if match.IsZero(h.rest) || h.cl.need(h.w).Form.NeverPreempts {
		return nil
	}
	if !p.victims.built {
		p.victims.listVictims(p)
	}
	return p.victims.choose(h, int64(h.w.priority))
}

// stampOf is the number of a machine's stamp, or 0.
func (p *planning) stampOf(l *machineState) uint32 { return p.w.Inventory.Row(l.idx).Stamp }

// scoreTerms is ENG-15.9.
func (p *planning) scoreTerms(i inventory.Index, gap int64) engine.ScoreTerms {
	var s inventory.StampRow
	if stamp := p.w.Inventory.Row(i).Stamp; stamp != 0 {
		s = *p.w.Inventory.StampRow(stamp)
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

// spare drops victims that are not needed, worst first (15.10).
func (p *planning) spare(cl *clusterState, w *needState, residual []int64, victims []victim) []victim {
	sum := make([]sum128, len(residual))
	for j, r := range residual {
		for _, v := range victims {
			sum[j].add(uint64(cl.amount(w, v.class)[j]), 1)
		}
		if r > 0 {
			sum[j].sub(uint64(r), 1)
		}
	}
	keep := make([]bool, len(victims))
	for i, v := range slices.Backward(victims) {
		sup := cl.amount(w, v.class)
		for j, r := range residual {
			if r > 0 && !sum[j].atLeast(uint64(sup[j])) {
				keep[i] = true
			}
		}
		if !keep[i] {
			for j := range residual {
				sum[j].sub(uint64(sup[j]), 1)
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
