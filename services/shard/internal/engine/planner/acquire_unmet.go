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
	*plan
	clusters *clusters
	pending  *pendingList

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

// note records that the Need of allocation i is short.
func (u *unmetNeeds) note(at int32, s *pendingNeed, preempts bool, most int) {
	if len(u.list) == cap(u.list) && cap(u.list) >= radixMin {
		u.list = append(make([]unmet, 0, max(2*len(u.list), most/2)), u.list...)
	}
	u.list = append(u.list, unmet{at, engine.Ref{Block: s.allocation.cl, Row: s.row}, preempts})
}

// mayPreempt reports whether preemption considers w. It ignores a gang without a domain.
func (w *needState) mayPreempt() bool { return w.bits&wSame == 0 || w.bits&wChosen != 0 }

// isShort reports whether a recorded Need is still short.
func (u *unmetNeeds) isShort(x *unmet) bool {
	if !u.gained {
		return true
	}
	t := u.asked[x.at].allocation
	cl, w := u.clusters.state(t)
	return cl.short(w)
}

// eachShort visits every short Need in allocation order, once all blocks are written. s is the cached entry of a Need whose cluster did not
// change, and nil for the others.
func (u *unmetNeeds) eachShort(visit func(r engine.Ref, s *pendingNeed)) {
	if !u.known {
		u.pending.stillShort(func(cl *clusterState) bool { return len(cl.block.Missing) == 0 }, func(t allocation, s *pendingNeed) {
			if s != nil {
				visit(engine.Ref{Block: t.cl, Row: s.row}, s)
			} else {
				visit(u.clusters.refOf(t), nil)
			}
		})
		return
	}
	for i := range u.list {
		x := &u.list[i]
		if !u.isShort(x) {
			continue
		}
		if u.clusters.marks[x.ref.Block]&staleMark != 0 {
			visit(x.ref, nil)
		} else {
			visit(x.ref, &u.asked[x.at])
		}
	}
}
