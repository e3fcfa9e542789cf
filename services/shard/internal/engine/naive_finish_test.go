package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

func ref(d *nNeed) Ref {
	if d == nil {
		return Nobody
	}
	return Ref{d.c.at, d.row}
}

// finish writes the result (ENG-2.6): actions in the order of ENG-2.10 with what ENG-2.11 asks for, blocks, verdicts.
func (n *naive) finish() {
	n.acquisitions()
	n.drains()
	n.release()
	n.publish()
}

func (n *naive) acquisitions() {
	for _, d := range n.needs {
		var list []Action
		for _, m := range d.claims {
			a := Action{Machine: m.i, Need: ref(d), Cost: n.cost(d, m), Drain: -1}
			switch {
			case m.acquired && m.state == inventory.Idle:
				a.Kind, a.Cause = Bootstrap, CauseIdle
			case m.acquired:
				a.Kind, a.Cause = Provision, CauseSpeculative
			case m.state == inventory.Idle && d.hold == demand.NotHeld && !withheldFor(m, d.c.d.Name):
				a.Kind, a.Cause = Bootstrap, CauseHandover // ENG-9.10
			default:
				continue
			}
			list = append(list, a)
		}
		slices.SortFunc(list, func(a, b Action) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cost, b.Cost),
				strings.Compare(n.w.Inventory.ID(a.Machine), n.w.Inventory.ID(b.Machine)))
		})
		n.out.Actions = append(n.out.Actions, list...)
	}
}

// harmed is the row that a drained machine was stamped for, if it is still in the demand.
func (n *naive) harmed(m *nMachine) Ref {
	if m.claim != nil {
		return ref(m.claim)
	}
	for _, c := range n.clusters {
		if c.d.Name != m.m.Cluster || m.stamp == nil {
			continue
		}
		for i := range c.d.Needs {
			if k := c.d.Needs[i].RowKey(); k.Fingerprint == m.stamp.Fingerprint && k.Group == m.stamp.Group {
				return Ref{c.at, int32(i)}
			}
		}
		for _, f := range c.fold {
			if f.n.Form.Fingerprint == m.stamp.Fingerprint && f.n.Group == m.stamp.Group {
				return ref(f)
			}
		}
	}
	return Nobody
}

// drains is ENG-16.1; what is Configuring or in flight is left to mature (ENG-16.3).
func (n *naive) drains() {
	var preempts []*nMachine
	byCluster := map[string][]*nMachine{}
	for _, m := range n.machines {
		switch {
		case m.preempt != nil && m.preempt.kind == Preempt:
			preempts = append(preempts, m)
		case n.isExcess(m):
			byCluster[m.m.Cluster] = append(byCluster[m.m.Cluster], m)
		}
	}
	slices.SortFunc(preempts, func(a, b *nMachine) int { return cmp.Compare(a.preempt.order, b.preempt.order) })
	for _, m := range preempts {
		d := m.preempt
		n.drain(m, Preempt, d.cause, Drain{Grace: n.p.grace(d.gap), Preemptor: ref(d.preemptor), Gap: d.gap, Score: d.terms.Sum(), Terms: d.terms})
	}
	for _, list := range byCluster {
		slices.SortFunc(list, func(a, b *nMachine) int { // ENG-16.4
			if (a.preempt != nil) != (b.preempt != nil) {
				return cmp.Compare(len(b.promises()), len(a.promises()))
			}
			if a.preempt != nil {
				return cmp.Compare(a.preempt.order, b.preempt.order)
			}
			return keepOrder(b, a)
		})
	}
	for round := 0; ; round++ {
		any := false
		for _, c := range n.clusters {
			list := byCluster[c.d.Name]
			if round >= len(list) {
				continue
			}
			any = true
			m := list[round]
			dr := Drain{Grace: n.p.ReclaimGrace, Preemptor: Nobody}
			if m.preempt != nil {
				dr.Preemptor, dr.Gap = ref(m.preempt.preemptor), m.preempt.gap
			}
			n.drain(m, Reclaim, n.reclaimCause(c, m), dr)
			for _, d := range c.needs {
				if rest := n.residual(d); !m.shunned && inside(d, m) && d.spread == nil && n.usable(d, m) && n.contributes(d, m, rest) {
					n.out.Counters.ReclaimMatchesUnmet++
				}
			}
		}
		if !any {
			return
		}
	}
}

func (m *nMachine) promises() []*nDrain {
	if m.preempt == nil {
		return nil
	}
	return []*nDrain{m.preempt}
}

func (n *naive) reclaimCause(c *nCluster, m *nMachine) Cause {
	switch {
	case m.shunned:
		return CauseNotJoined
	case m.preempt != nil:
		return CauseExcessPromised
	}
	for _, d := range c.needs {
		if d.same != nil && d.chosen && n.own(d, m) && value(m, d.same.Key) != d.domain {
			return CauseGangMoved
		}
	}
	return CauseExcess
}

func (n *naive) drain(m *nMachine, k Kind, c Cause, d Drain) {
	n.out.Actions = append(n.out.Actions, Action{Machine: m.i, Kind: k, Cause: c, Need: n.harmed(m), Cost: m.m.Price,
		Drain: int32(len(n.out.Drains))})
	n.out.Drains = append(n.out.Drains, d)
}

// release is ENG-16.7 to 16.9: what is withheld for a move or forgotten stays (ENG-16.8).
func (n *naive) release() {
	list := n.select_(func(m *nMachine) bool {
		hold, ok := n.p.Hold.Of(m.m.CapacityType)
		blocked := slices.ContainsFunc(m.marks, func(w inventory.Withheld) bool { return w.Reason.BlocksRelease() })
		return ok && m.state == inventory.Idle && !m.foreign && m.claim == nil && m.goesTo == nil && m.promise == nil && !blocked &&
			n.now-m.since >= hold
	}, func(a, b *nMachine) int { return cmp.Or(cmp.Compare(b.m.Price, a.m.Price), byID(a, b)) })
	for _, m := range list {
		n.out.Actions = append(n.out.Actions, Action{Machine: m.i, Kind: Delete, Cause: CauseRelease, Need: Nobody, Cost: m.m.Price, Drain: -1})
	}
}

func billed(s inventory.State) bool {
	return s == inventory.Creating || s == inventory.Idle || s == inventory.Configuring || s == inventory.Configured || s == inventory.Draining
}

func (n *naive) publish() {
	out := n.out
	for _, m := range n.machines {
		if billed(m.m.State) && !m.foreign {
			out.CostBefore = resource.AddSat(out.CostBefore, m.m.Price)
		}
		if m.promise != nil && !m.foreign && (m.state == inventory.Creating || m.state == inventory.Idle || m.state == inventory.Draining) {
			if m.promise.Cause == inventory.ForPreempt {
				out.Counters.PromisesPreempt++
			} else {
				out.Counters.PromisesCreate++
			}
		}
	}
	out.CostAfter = out.CostBefore
	for _, a := range out.Actions {
		switch a.Kind {
		case Provision:
			out.CostAfter = resource.AddSat(out.CostAfter, n.w.Inventory.Price(a.Machine))
		case Delete:
			out.CostAfter -= n.w.Inventory.Price(a.Machine)
		}
	}
	for _, c := range n.clusters {
		out.Blocks = append(out.Blocks, n.block(c))
	}
	for _, m := range n.machines {
		if m.goesTo != nil && m.preempt == nil {
			out.Promised = append(out.Promised, Promised{Machine: m.i, To: inventory.Promise{Cluster: m.goesTo.c.d.Name,
				For: out.Stamp(ref(m.goesTo)), Cause: m.promise.Cause, Expires: m.promise.Expires}})
		}
	}
	for _, d := range n.needs {
		if n.short(d) {
			out.Short = append(out.Short, ref(d))
		}
	}
	out.Counters.Displaced = n.displace
}

func (n *naive) block(c *nCluster) *Block {
	b := &Block{Cluster: c.d.Name, Needs: c.d.Needs, Verdicts: make([]Verdict, len(c.d.Needs))}
	for _, f := range c.fold {
		b.Folded = append(b.Folded, Folded{Need: f.n, Members: f.members})
	}
	for _, d := range c.needs {
		for _, m := range d.claims {
			kind := ClaimBound
			switch {
			case m.kept:
				kind = ClaimKept
			case m.acquired && m.state == inventory.Idle:
				kind = ClaimIdle
			case m.acquired:
				kind = ClaimPurchased
			case !m.state.Bound():
				kind = ClaimInFlight
			}
			b.Claims = append(b.Claims, Claim{Machine: m.i, Row: d.row, Kind: kind})
		}
		for _, m := range d.promised {
			b.Claims = append(b.Claims, Claim{Machine: m.i, Row: d.row, Kind: ClaimPromised})
		}
		n.out.Counters.Shares += min(1, len(d.received))
		for _, s := range d.received {
			at := slices.IndexFunc(b.Shares, func(x Share) bool { return x.Machine == s.on.i && x.Row == d.row })
			if at < 0 {
				at = len(b.Shares)
				b.Shares = append(b.Shares, Share{Machine: s.on.i, Row: d.row})
			}
			b.Shares[at].Units += s.units
		}
	}
	for _, m := range n.machines {
		if m.m.Cluster == c.d.Name && m.shunned {
			b.Shunned = append(b.Shunned, m.i)
		}
		if m.m.Cluster == c.d.Name && m.guarded {
			b.Guarded = append(b.Guarded, m.i)
		}
	}
	slices.SortFunc(b.Claims, func(x, y Claim) int { return cmp.Compare(x.Machine, y.Machine) })
	slices.SortFunc(b.Shares, func(x, y Share) int { return cmp.Or(cmp.Compare(x.Machine, y.Machine), cmp.Compare(x.Row, y.Row)) })
	slices.Sort(b.Shunned)
	slices.Sort(b.Guarded)
	for _, d := range c.needs {
		n.verdicts(b, d)
	}
	slices.SortFunc(b.Missing, func(x, y Missing) int { return cmp.Compare(x.Row, y.Row) })
	for i := range b.Missing {
		b.Verdicts[b.Missing[i].Row].Missing = int32(i)
	}
	return b
}
