package sim

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// expected is how an instruction of the event of this step has to be answered, if it is answered at once.
type expected struct {
	stale   bool // the whole reply is of the past: no answer at all
	outcome core.InstructionOutcome
	choice  bool // the shard may refuse: it has nothing to spare, or nothing of it is free any more
}

// follow notes what a reply of the coordinator asks for (COORD-8.4).
func (c *checker) follow(p *process, e core.Event) {
	c.viewed = false
	r, ok := e.(core.CoordinatorReplied)
	if !ok {
		return
	}
	c.orders, c.viewed = map[string]expected{}, slices.ContainsFunc(r.Instructions, func(x core.Instruction) bool { return x.SetView != nil })
	if r.Failed {
		p.removed = p.removed || r.Decommissioned
		return
	}
	stale := r.Term < c.term
	p.removed = p.removed && stale // nothing but a normal answer takes that back (SHARD-21.7)
	c.term = max(c.term, r.Term)
	for _, x := range r.Instructions {
		want := expected{stale: stale, outcome: core.InstructionAccepted, choice: x.Reserve != nil || x.Transfer != nil}
		switch {
		case c.accepted[x.ID]:
		case x.Term < c.term:
			want.outcome = core.InstructionStale
		case x.Invalid != "":
			want.outcome = core.InstructionInvalid
		}
		c.orders[x.ID] = want
	}
}

// remembers notes what a process has from its disk.
func (c *checker) remembers(x core.Control) {
	c.term = x.Coordinator.Term
	for _, d := range x.Done {
		c.accepted[d.ID] = true
	}
}

// acknowledged judges the answer to an instruction.
func (c *checker) acknowledged(a core.AckInstruction) {
	w := c.w
	w.tally.Checks++
	switch want, now := c.orders[a.ID]; {
	case now && want.stale:
		w.broken("stale-term-obeyed", "SHARD-21.5", "", "", "%s answers %s, which came with a reply of a term below %d", c.s.id, a.ID, c.term)
	case now && want.outcome != a.Outcome && !want.allows(a.Outcome):
		w.broken("instruction-answer", "SHARD-21.5", "", "", "%s answers %s with %s (%s), and %s is due", c.s.id, a.ID, a.Outcome, a.Reason, want.outcome)
	case strings.HasPrefix(a.ID, "deposed/"):
		w.broken("stale-term-obeyed", "SHARD-21.5", "", "", "%s answers %s, which a deposed leader sent", c.s.id, a.ID)
	}
	if a.Outcome == core.InstructionAccepted {
		c.accepted[a.ID] = true
	}
}

// allows reports whether an answer is one that a right shard may give in place of the expected one.
func (x expected) allows(o core.InstructionOutcome) bool {
	return x.outcome == core.InstructionAccepted && (o == core.InstructionFailed || x.choice && o == core.InstructionInvalid)
}

// withinSlice: no Create goes beyond the shard's slice of the elastic machines (COORD-11.4). What is there is counted, and what
// is asked for.
func (c *checker) withinSlice(p *process, r core.Record) {
	w, m := c.w, c.w.machine(r.Machine)
	v := p.publish.Status.Coord.View
	if w.coord == nil || m == nil || !m.CapacityType.Elastic() || v == nil || len(v.Quotas) == 0 || len(c.lied) > 0 || c.viewed {
		return
	}
	have := int64(1)
	for _, q := range w.providers {
		for _, x := range q.order {
			op := c.ops[c.ofM[x.ID]]
			asked := x.State == inventory.Speculative && x != m && op.Kind == core.KindProvision
			if x.CapacityType.Elastic() && (asked || x.State != inventory.Speculative && w.coord.mayAct(c.s, x)) {
				have++
			}
		}
	}
	if most := v.Quotas[0].Machines; have > most {
		w.broken("over-quota", "COORD-11.4", m.ID, r.Cluster, "%s starts a Create and would hold %d elastic machines; its slice is %d", c.s.id, have, most)
	}
}

// checkView: the view in force is the newest that a right leader sent, or the one of the disk (COORD-9.2).
func (c *checker) checkView(pub *core.Publish) {
	v := pub.Status.Coord.View
	if v == nil {
		return
	}
	if c.view != nil && compareViews(v, c.view) < 0 {
		c.w.broken("view-goes-back", "COORD-9.2", "", "", "%s obeys view %d/%d after %d/%d", c.s.id, v.Term, v.Index, c.view.Term, c.view.Index)
	}
	if m := c.w.coord.memberOf(c.s); compareViews(v, &m.view) > 0 {
		c.w.broken("view-unpublished", "SHARD-21.5", "", "", "%s obeys view %d/%d; the newest is %d/%d", c.s.id, v.Term, v.Index, m.view.Term, m.view.Index)
	}
	c.view = v
}

func (co *coordinator) memberOf(s *shard) *member {
	for _, m := range co.members {
		if m.s == s {
			return m
		}
	}
	return nil
}

// checkOwner: two shards on one provider never both act on one machine (SHARD-21.6, COORD-9.9b). An older process of the
// shard has a view of its own, and the fence is what stops that one.
func (c *checker) checkOwner(x core.Command) {
	m := c.w.machine(x.Machine)
	if c.w.coord == nil || m == nil || c.lied[m.ID] || c.misled[x.Op] {
		return
	}
	if !c.w.coord.mayAct(c.s, m) {
		c.w.broken("acts-on-anothers", "SHARD-21.6", m.ID, x.Cluster, "%s sends %s of %s (%s, zone %s), which is another shard's", c.s.id, x.RPC, m.ID, m.State, m.Zone)
	}
}

// ownsAtEnd reports whether a machine is this shard's to look after.
func (c *checker) ownsAtEnd(m *machine) bool { return c.w.coord == nil || c.w.coord.mayAct(c.s, m) }
