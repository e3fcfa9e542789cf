package reference

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ref names a need in the result.
func ref(d *Need) engine.Ref {
	if d == nil {
		return engine.NoNeed
	}
	return engine.Ref{Block: d.Cluster.block, Row: d.row}
}

// settling writes actions and the published result (ENG-16, ENG-2.6).
type settling struct{ verdicts }

// settle writes the result (ENG-2.6): actions in the order of ENG-2.10 with what ENG-2.11 asks for, blocks, verdicts.
func (n settling) settle() {
	n.acquisitions()
	n.drains()
	n.release()
	n.publish()
}

// acquisitions writes Bootstrap and Provision of each need, in allocation order.
func (n settling) acquisitions() {
	for _, d := range n.needs {
		var list []engine.Action
		for _, m := range d.claims {
			a := engine.Action{Machine: m.Index, Need: ref(d), Cost: n.Cost(d, m), Drain: -1}
			switch {
			case m.acquired && m.Seen == inventory.Idle:
				a.Kind, a.Cause = engine.Bootstrap, engine.CauseIdle
			case m.acquired:
				a.Kind, a.Cause = engine.Provision, engine.CauseSpeculative
			case m.Seen == inventory.Idle && d.hold == demand.NotHeld && !WithheldFor(m, d.Cluster.Name):
				a.Kind, a.Cause = engine.Bootstrap, engine.CauseHandover // ENG-9.10
			default:
				continue
			}
			list = append(list, a)
		}
		slices.SortFunc(list, func(a, b engine.Action) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Cost, b.Cost),
				strings.Compare(n.World.Inventory.ID(a.Machine), n.World.Inventory.ID(b.Machine)))
		})
		n.Result.Actions = append(n.Result.Actions, list...)
	}
}

// harmed is the row that a drained machine was attributed to, if it is still in the demand.
func (n settling) harmed(m *Machine) engine.Ref {
	if m.claim != nil {
		return ref(m.claim)
	}
	for _, c := range n.Clusters {
		if c.Name != m.Cluster || m.attribution == nil {
			continue
		}
		for i := range c.Needs {
			if k := c.Needs[i].RowKey(); k.Fingerprint == m.attribution.Fingerprint && k.Group == m.attribution.Group {
				return engine.Ref{Block: c.block, Row: int32(i)}
			}
		}
		for _, f := range c.folded {
			if f.Form.Fingerprint == m.attribution.Fingerprint && f.Group == m.attribution.Group {
				return ref(f)
			}
		}
	}
	return engine.NoNeed
}

// drains writes Preempts in the order of their choice, then Reclaims of excess in rounds over the clusters (ENG-16.1, 16.4).
// What is Configuring or in flight is left to mature (ENG-16.3).
func (n settling) drains() {
	var preempts []*Machine
	byCluster := map[string][]*Machine{}
	for _, m := range n.Machines {
		switch {
		case m.preempt != nil && m.preempt.kind == engine.Preempt:
			preempts = append(preempts, m)
		case n.isExcess(m):
			byCluster[m.Cluster] = append(byCluster[m.Cluster], m)
		}
	}
	slices.SortFunc(preempts, func(a, b *Machine) int { return cmp.Compare(a.preempt.order, b.preempt.order) })
	for _, m := range preempts {
		d := m.preempt
		n.drain(m, engine.Preempt, d.cause, engine.Drain{Grace: n.Policy.Grace(d.gap), Preemptor: ref(d.preemptor), Gap: d.gap, Score: d.terms.Sum(), Terms: d.terms})
	}
	for _, list := range byCluster {
		slices.SortFunc(list, func(a, b *Machine) int { // ENG-16.4
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
		for _, c := range n.Clusters {
			list := byCluster[c.Name]
			if round >= len(list) {
				continue
			}
			any = true
			m := list[round]
			dr := engine.Drain{Grace: n.Policy.ReclaimGrace, Preemptor: engine.NoNeed}
			if m.preempt != nil {
				dr.Preemptor, dr.Gap = ref(m.preempt.preemptor), m.preempt.gap
			}
			n.drain(m, engine.Reclaim, n.reclaimCause(c, m), dr)
			for _, d := range c.normalised {
				if rest := n.residual(d); !m.excluded && inside(d, m) && d.Spread == nil && n.Usable(d, m) && n.contributes(d, m, rest) {
					n.Result.Counters.ReclaimMatchesUnmet++
				}
			}
		}
		if !any {
			return
		}
	}
}

// promises is the planned drain of m, if there is one.
func (m *Machine) promises() []*plannedDrain {
	if m.preempt == nil {
		return nil
	}
	return []*plannedDrain{m.preempt}
}

// reclaimCause is the cause of a Reclaim (ENG-19.9).
func (n settling) reclaimCause(c *Cluster, m *Machine) engine.Cause {
	switch {
	case m.excluded:
		return engine.CauseNotJoined
	case m.preempt != nil:
		return engine.CauseExcessPromised
	}
	for _, d := range c.normalised {
		if d.Same != nil && d.chosen && n.own(d, m) && Value(m, d.Same.Key) != d.domain {
			return engine.CauseGangMoved
		}
	}
	return engine.CauseExcess
}

// drain writes one Preempt or Reclaim.
func (n settling) drain(m *Machine, k engine.Kind, c engine.Cause, d engine.Drain) {
	n.Result.Actions = append(n.Result.Actions, engine.Action{Machine: m.Index, Kind: k, Cause: c, Need: n.harmed(m), Cost: m.Price,
		Drain: int32(len(n.Result.Drains))})
	n.Result.Drains = append(n.Result.Drains, d)
}

// release deletes Idle machines whose hold has passed, dearest first (ENG-16.7 to 16.9). What is reserved for a
// move stays (ENG-16.8).
func (n settling) release() {
	list := n.selectMachines(func(m *Machine) bool {
		hold, ok := n.Policy.Hold.Of(m.CapacityType, m.Price)
		blocked := slices.ContainsFunc(m.Marks, func(w inventory.Withheld) bool { return w.Reason.BlocksRelease() })
		return ok && m.Seen == inventory.Idle && !m.Foreign && m.claim == nil && m.goesTo == nil && m.Promise == nil && !blocked &&
			n.Now-m.since >= hold
	}, func(a, b *Machine) int { return cmp.Or(cmp.Compare(b.Price, a.Price), byID(a, b)) })
	for _, m := range list {
		n.Result.Actions = append(n.Result.Actions, engine.Action{Machine: m.Index, Kind: engine.Delete, Cause: engine.CauseRelease, Need: engine.NoNeed, Cost: m.Price, Drain: -1})
	}
}
