package planner

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"

// When demand exceeds supply, hundreds of thousands of Needs are short after their allocations. They are recorded in allocation order as the allocations
// run, so that preemption and the result do not collect and sort them again.

// unmet is a Need that is short after its allocation.
type unmet struct {
	at       int32 // in unmetNeeds.asked
	ref      engine.Ref
	preempts bool // preemption may help it
}

// unmetNeeds is all short Needs, in allocation order.
type unmetNeeds struct {
	known  bool // the list is complete: no Need lost anything
	gained bool // some may be covered since
	list   []unmet
	asked  []pendingNeed // the queue of the allocations
}

func (u *unmetNeeds) begin() { u.known, u.gained, u.list = false, false, u.list[:0] }

// end frees memory that only large plans need.
func (u *unmetNeeds) end() {
	u.asked = nil
	if cap(u.list) > keepAllocations {
		u.list = nil
	}
}

// noteUnmet records that the Need of allocation i is short.
func (p *planning) noteUnmet(i int, s *pendingNeed, preempts bool) {
	at := int32(i)
	if p.order != nil {
		at = p.order[i].at
	}
	u := &p.unmet
	if len(u.list) == cap(u.list) && cap(u.list) >= radixMin {
		u.list = append(make([]unmet, 0, max(2*len(u.list), len(p.allocationOrder)/2)), u.list...)
	}
	u.list = append(u.list, unmet{at, engine.Ref{Block: s.allocation.cl, Row: s.row}, preempts})
}

// mayPreempt reports whether preemption considers w. It ignores a gang without a domain.
func (w *needState) mayPreempt() bool { return w.bits&wSame == 0 || w.bits&wChosen != 0 }

// isShort reports whether a recorded Need is still short.
func (p *planning) isShort(u *unmet) bool {
	if !p.unmet.gained {
		return true
	}
	t := p.unmet.asked[u.at].allocation
	cl, w := p.state(t)
	return cl.short(w)
}

// callPreemptors queues the Needs that preemption considers.
func (p *planning) callPreemptors() {
	p.called = p.called[:0]
	defer func() { p.allocationOrder, p.requeued = p.called, p.requeued[:0] }()
	if u := &p.unmet; u.known {
		for i := range u.list {
			if x := &u.list[i]; x.preempts && p.isShort(x) && !p.beyondReach(&u.asked[x.at]) {
				p.called = append(p.called, u.asked[x.at])
			}
		}
		return
	}
	p.stillShort(func(cl *clusterState) bool { return cl.served == p.plans }, func(t allocation, s *pendingNeed) {
		if s != nil && (!s.worthAllocating() || p.beyondReach(s)) {
			return
		}
		if s == nil {
			if cl, w := p.state(t); held(w) || cl.beyondHelp(w) {
				return
			}
		}
		p.called = append(p.called, pendingNeed{allocation: t, open: true})
	})
}

// eachShort visits every short Need in allocation order, once all blocks are written. s is the cached entry of a Need whose cluster did not
// change, and nil for the others.
func (p *planning) eachShort(visit func(r engine.Ref, s *pendingNeed)) {
	if !p.unmet.known {
		p.stillShort(func(cl *clusterState) bool { return len(cl.block.Missing) == 0 }, func(t allocation, s *pendingNeed) {
			if s != nil {
				visit(engine.Ref{Block: t.cl, Row: s.row}, s)
			} else {
				visit(p.refOf(t), nil)
			}
		})
		return
	}
	for i := range p.unmet.list {
		u := &p.unmet.list[i]
		if !p.isShort(u) {
			continue
		}
		if p.marks[u.ref.Block]&staleMark != 0 {
			visit(u.ref, nil)
		} else {
			visit(u.ref, &p.unmet.asked[u.at])
		}
	}
}
