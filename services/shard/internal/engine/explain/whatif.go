package explain

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SettleRounds is how often a what-if plans at most when it is to settle (ENG-20.4).
const SettleRounds = 10

// Answer is what a what-if found (ENG-20.3). Both results are those of Plan: there is no second code path.
type Answer struct {
	Base     *engine.Result // of the input as it is
	World    *engine.World  // a copy with the edits and, when settling, with what the plans did
	Final    *engine.Result // of the last round, in World
	Rounds   int            // plans made with the edits
	Settled  bool           // the last one had no actions; always false without Settle
	Warnings []string

	Baseline []engine.View // actions without the edits, in plan order
	Actions  []engine.View // actions with the edits, round after round, each in plan order
	Changes  []RowChange

	CostNow      int64 // dollars per hour as billed now, in millionths
	CostBaseline int64 // after the actions without the edits
	CostThen     int64 // after the actions with the edits
}

// RowChange is a row whose verdict differs. Before is a row of Base, After one of Final; NoNeed where there is no such row.
type RowChange struct {
	Cluster       string
	Key           demand.RowKey
	Before, After engine.Ref
}

// WhatIf plans the input as it is and with edits (ENG-20.1). It changes nothing of the input but indexes that Plan keeps
// lazily. With settle it goes on as if every action, drain, boot and hold were over at once, until nothing is left to do.
// A nil after means the policy of the input for the edited plans too.
func WhatIf(in engine.Input, edits []Edit, after *engine.Policy, settle bool) *Answer {
	a := &Answer{Base: planner.Plan(in), World: in.World.Clone()}
	for _, e := range edits {
		if warning := e.Apply(a.World); warning != "" {
			a.Warnings = append(a.Warnings, warning)
		}
	}
	a.CostNow, a.CostBaseline = a.Base.CostBefore, a.Base.CostAfter
	for _, x := range a.Base.Actions {
		a.Baseline = append(a.Baseline, a.Base.View(in.World, x))
	}
	edited := engine.Input{World: a.World, Cycle: in.Cycle, Policy: in.Policy}
	if after != nil {
		edited.Policy = after
	}
	a.run(edited, settle)
	a.compare(in.World)
	return a
}

// run plans the edited world, and settles it if asked to.
func (a *Answer) run(in engine.Input, settle bool) {
	pl := planner.NewPlanner()
	for {
		a.Rounds++
		a.Final = pl.Plan(in)
		for _, x := range a.Final.Actions {
			a.Actions = append(a.Actions, a.Final.View(a.World, x))
		}
		a.CostThen = a.Final.CostAfter
		a.Settled = settle && len(a.Final.Actions)+len(a.Final.Promised) == 0 && !underWay(a.World)
		if !settle || a.Settled || a.Rounds == SettleRounds {
			return
		}
		CarryOut(a.World, a.Final, in.Policy)
	}
}

// underWay reports whether something is still happening that carryOut would end.
func underWay(w *engine.World) bool {
	inv := w.Inventory
	for i := range inv.All() {
		switch inv.Seen(i) {
		case inventory.Creating, inventory.Configuring, inventory.Draining, inventory.Deleting:
			if !inv.Foreign(i) || inv.Seen(i) == inventory.Configuring {
				return true
			}
		}
	}
	return false
}

// compare lists the rows whose verdicts differ, by cluster, then in the order of the base and of what is new.
func (a *Answer) compare(before *engine.World) {
	for bi, b := range a.Base.Blocks {
		for i := range b.Needs {
			key := b.Needs[i].RowKey()
			_, then := a.Final.Verdict(b.Cluster, key)
			now := engine.Ref{Block: int32(bi), Row: int32(i)}
			if then.None() || !sameVerdict(before, a.Base, now, a.World, a.Final, then) {
				a.Changes = append(a.Changes, RowChange{b.Cluster, key, now, then})
			}
		}
	}
	for bi, b := range a.Final.Blocks {
		for i := range b.Needs {
			key := b.Needs[i].RowKey()
			if _, now := a.Base.Verdict(b.Cluster, key); now.None() {
				a.Changes = append(a.Changes, RowChange{b.Cluster, key, engine.NoNeed, engine.Ref{Block: int32(bi), Row: int32(i)}})
			}
		}
	}
	slices.SortStableFunc(a.Changes, func(x, y RowChange) int {
		return cmp.Or(strings.Compare(x.Cluster, y.Cluster), cmp.Compare(boolean(x.Before.None()), boolean(y.Before.None())))
	})
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sameVerdict compares what people would call the verdict: how the row stands, why, by how much, and where.
func sameVerdict(w1 *engine.World, r1 *engine.Result, a engine.Ref, w2 *engine.World, r2 *engine.Result, b engine.Ref) bool {
	x, y := &r1.Blocks[a.Block].Verdicts[a.Row], &r2.Blocks[b.Block].Verdicts[b.Row]
	if x.Status != y.Status || x.Detail != y.Detail || x.Reason != y.Reason || x.Hold != y.Hold || r1.Domain(a) != r2.Domain(b) || x.Cost != y.Cost {
		return false
	}
	if x.Status != engine.Short {
		return true
	}
	m1, m2 := r1.Blocks[a.Block].Missing[x.Missing], r2.Blocks[b.Block].Missing[y.Missing]
	return slices.Equal(m1.Residual.Quantities(w1.Space.Dimensions), m2.Residual.Quantities(w2.Space.Dimensions))
}

// CarryOut does at once what a plan says, ends everything that is under way, and lets every hold pass. The clock stands
// still, so nothing expires.
func CarryOut(w *engine.World, r *engine.Result, p *engine.Policy) {
	p = p.OrDefault()
	inv := w.Inventory
	now := inv.Now()
	for _, x := range r.Promised {
		inv.SetPromise(x.Machine, &x.To)
	}
	for _, a := range r.Actions {
		switch a.Kind {
		case engine.Bootstrap, engine.Provision:
			_, cluster := r.Need(a.Need)
			settleIn(inv, a.Machine, cluster, r.Attribution(a.Need))
		case engine.Preempt, engine.Reclaim:
			if a.Cause == engine.CauseNotJoined {
				inv.Withhold(a.Machine, inventory.Withheld{Reason: inventory.WithheldNotJoined, Cluster: inv.Cluster(a.Machine), Until: now + p.JoinRetryHold})
			}
			if promise, ok := r.Promise(a, now, p); ok {
				inv.SetPromise(a.Machine, &promise)
			}
			inv.Move(a.Machine, inventory.Draining, inv.Cluster(a.Machine))
		case engine.Delete:
			inv.Move(a.Machine, inventory.Deleting, "")
		}
	}
	for i := range inv.All() {
		if !inv.Foreign(i) || inv.Seen(i) == inventory.Configuring { // what another shard has begun will end too
			arrive(inv, r, p, i)
		}
	}
}

// settleIn makes a machine a Configured one of a cluster, with a Node that has joined.
func settleIn(inv *inventory.Table, i inventory.Index, cluster string, s inventory.Attribution) {
	inv.SetPromise(i, nil)
	inv.Move(i, inventory.Configured, cluster)
	inv.SetAttribution(i, &s)
	inv.SetSince(i, inv.Now())
	inv.SetReadiness(i, inventory.ReadyOnce)
}

// arrive ends what is under way for one machine.
func arrive(inv *inventory.Table, r *engine.Result, p *engine.Policy, i inventory.Index) {
	switch inv.Seen(i) {
	case inventory.Configuring:
		inv.Move(i, inventory.Configured, inv.Cluster(i))
		inv.SetReadiness(i, inventory.ReadyOnce)
		inv.SetSince(i, inv.Now())
	case inventory.Deleting:
		inv.Move(i, inventory.Speculative, "")
		inv.SetAnnounced(i, false) // the next host is another one
	case inventory.Creating, inventory.Draining:
		inv.Move(i, inventory.Idle, "")
		inv.SetLeaving(i, false)
		inv.SetAttribution(i, nil)
		if promise, ok := inv.Promise(i); ok { // ENG-5.9
			if ref, ok := r.HandsOver(i, promise); ok {
				settleIn(inv, i, promise.Cluster, r.Attribution(ref))
				return
			}
			inv.SetPromise(i, nil)
		}
	}
	if inv.Seen(i) == inventory.Idle {
		if hold, ok := p.Hold.Of(inv.CapacityType(i), inv.Price(i)); ok {
			inv.SetSince(i, min(inv.Since(i), inv.Now()-hold))
		}
	}
}
