package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// crediting is section 9 for one cluster.
type crediting struct {
	*plan
	cl *clusterState
	x  *scratch
}

// run is section 9: what the cluster has already, before anything is acquired. It reads nothing but the cluster, so
// clusters may be credited at the same time.
func (c *crediting) run() {
	cl := c.cl
	cl.freed = false
	c.roundOwn()
	c.roundRest()
	c.roundSpill()
	c.keepBusy()
	c.dropEmpty()
	c.keepInUse()
	cl.open, cl.shorts, cl.handsOver = 0, 0, false
	for _, at := range cl.flight {
		if l := &cl.machines[at]; l.state == inventory.Idle && l.claim >= 0 {
			cl.handsOver = true
		}
	}
	for i := range cl.needs {
		if w := &cl.needs[i]; cl.short(w) {
			cl.shorts++
			cl.freed = cl.freed || w.bits&wSpread != 0 // what it claimed last may let a machine contribute that it passed over (ENG-12.9)
			if !held(w) {
				cl.open++
			}
		}
	}
}

// readiness is section 17: machines whose Nodes never joined are not credited, within bounds.
func (m *members) readiness() {
	cl := m.cl
	cl.excluded, cl.protected = cl.excluded[:0:0], cl.protected[:0:0]
	cl.overdue, cl.expires = 0, 0
	f := cl.d.Facts
	if !f.ReportsReadiness {
		return
	}
	inv, now := m.w.Inventory, m.now
	configured := 0
	var overdue []int32
	for _, at := range cl.bound {
		l := &cl.machines[at]
		if l.state != inventory.Configured {
			continue
		}
		configured++
		r := inv.Row(l.idx)
		if r.Foreign() || r.Readiness().WasReady() {
			continue
		}
		if due := max(r.Since, f.ReportingSince) + m.policy.JoinTimeout; now >= due {
			overdue = append(overdue, at)
		} else if cl.expires == 0 || due < cl.expires {
			cl.expires = due
		}
	}
	slices.SortFunc(overdue, func(a, b int32) int {
		x, y := &cl.machines[a], &cl.machines[b]
		return cmp.Or(cmp.Compare(inv.Row(x.idx).Since, inv.Row(y.idx).Since), cmp.Compare(x.order, y.order))
	})
	allowed := max(1, int(m.policy.JoinGuardPerMille)*configured/1000) - int(f.JoinDrained)
	allowed = min(allowed, int(m.policy.JoinFailures-f.JoinFailures))
	if len(overdue) >= 5 && 2*len(overdue) > configured {
		allowed = 0
	}
	for i, at := range overdue {
		if i < allowed {
			cl.machines[at].bits |= lExcluded
			cl.excluded = append(cl.excluded, cl.machines[at].idx)
		} else {
			cl.protected = append(cl.protected, cl.machines[at].idx)
		}
	}
	cl.overdue = len(overdue)
	cl.bound = slices.DeleteFunc(cl.bound, func(at int32) bool { return cl.machines[at].bits&lExcluded != 0 })
	slices.Sort(cl.excluded)
	slices.Sort(cl.protected)
}

// roundOwn is ENG-9.3: every Need claims its Own bound machines in keep order. No machine is the Own of two; gangs choose a
// domain (ENG-10.3).
func (c *crediting) roundOwn() {
	cl := c.cl
	for i := range cl.needs {
		w := &cl.needs[i]
		switch {
		case w.own < 0 || w.bits&wZero != 0:
		case w.bits&wSame != 0:
			c.ownDomain(w)
		default:
			untilNothing(cl, w, func() {
				for at := w.own; at >= 0 && cl.machines[at].state.Bound() && cl.short(w); at = cl.machines[at].ownNext {
					l := &cl.machines[at]
					if l.claim < 0 && match.Touches(cl.supply(l), cl.rest(w)) && cl.usable(w, l) && (w.bits&wSpread == 0 || contributes(cl, w, at, cl.amount(w, l.class))) &&
						claimAndRaise(cl, w, at) {
						return
					}
				}
			})
		}
	}
}

// roundRest is ENG-9.4.
func (c *crediting) roundRest() {
	cl := c.cl
	for i := range cl.needs {
		w := &cl.needs[i]
		if !cl.short(w) || w.bits&wChosen != 0 {
			continue
		}
		if w.bits&wSame != 0 {
			c.provisionalDomain(w)
			continue
		}
		if cl.unclaimedCount > 0 {
			cl.claimUnclaimed(w, func(_ int32, l *machineState) bool { return l.bits&lOurs == 0 })
		}
		(&sharing{c.plan, cl, c.x}).run(w, boundSpares)
		if cl.unclaimedCount > 0 {
			cl.claimUnclaimed(w, nil)
		}
		if w.own >= 0 {
			untilNothing(cl, w, func() {
				for at := w.own; at >= 0 && cl.short(w); at = cl.machines[at].ownNext {
					if cl.claimInFlight(w, at) {
						return
					}
				}
			})
		}
	}
}

// claimInFlight claims an in-flight machine if it is unclaimed and w can use it. It reports whether a walk begins again: see claimAndRaise.
func (cl *clusterState) claimInFlight(w *needState, at int32) bool {
	l := &cl.machines[at]
	if l.state.Bound() || l.claim >= 0 || l.bits&lGone != 0 || !cl.usable(w, l) {
		return false
	}
	var buf [8]int64
	return contributes(cl, w, at, cl.worth(w, l, buf[:0])) && claimAndRaise(cl, w, at)
}

// claimUnclaimedInFlight claims unclaimed in-flight machines as far as w is short: its Own first, then any of the cluster by id. pass
// may be nil.
func (cl *clusterState) claimUnclaimedInFlight(w *needState, pass func(at int32, l *machineState) bool) {
	if len(cl.flight) == 0 {
		return
	}
	again := func(at int32) bool { return (pass == nil || pass(at, &cl.machines[at])) && cl.claimInFlight(w, at) }
	untilNothing(cl, w, func() {
		for at := w.own; at >= 0 && cl.short(w); at = cl.machines[at].ownNext {
			if again(at) {
				return
			}
		}
		full := fullValuesOf(cl, w)
		for _, at := range unclaimedInFlight(cl) {
			if !cl.short(w) || !full.has(at) && again(at) {
				return
			}
		}
	})
}

// roundSpill is ENG-9.6: a machine in flight for a row that is gone still arrives in this cluster, so other Needs may claim it. A gang claims
// such machines inside its domain, and chooses its domain by them if it has none.
func (c *crediting) roundSpill() {
	cl := c.cl
	if len(cl.flight) == 0 {
		return
	}
	for i := range cl.needs {
		w := &cl.needs[i]
		if !cl.short(w) {
			continue
		}
		if w.bits&wSame != 0 {
			c.spillGang(w)
			continue
		}
		(&sharing{c.plan, cl, c.x}).run(w, flightSpares)
		untilNothing(cl, w, func() {
			full := fullValuesOf(cl, w)
			for _, at := range unclaimedInFlight(cl) {
				if !cl.short(w) || !full.has(at) && cl.claimInFlight(w, at) {
					return
				}
			}
		})
	}
}
