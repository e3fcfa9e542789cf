package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// maybeCycle runs a cycle if one is wanted and the last one is long enough ago: the first change is served at once and a
// storm costs at most ten cycles a second and half of the loop's time; a tenth while an order lets no action start (SHARD-6.4).
func (c *planning) maybeCycle() {
	s := &c.cycle
	for len(s.HoldEnds) > 0 { // few; order does not matter, each only marks its cluster
		i := slices.IndexFunc(s.HoldEnds, func(h holdEnd) bool { return h.At <= c.now })
		if i < 0 {
			break
		}
		if cl := c.clusters.get(s.HoldEnds[i].Cluster); cl != nil {
			cl.holds, cl.facts = true, true
			cl.changed()
		}
		s.HoldEnds = slices.Delete(s.HoldEnds, i, i+1)
		c.trigger(triggerExpiry)
	}
	if !s.wanted || c.frozen() || !c.readable() {
		return
	}
	if s.next || !c.tick && s.Took > planApart || c.creditAhead() {
		c.timers.add(c.now+1, timerSpacing, "")
		return
	}
	if next := s.LastEnd + c.spacing(); c.now < next {
		c.timers.add(next, timerSpacing, "")
		return
	}
	if c.creditAgain() {
		c.timers.add(c.now+1, timerSpacing, "")
		return
	}
	if c.wanted.plans { // with the checkpoint, which waits for the rest of what follows the last plan
		return
	}
	c.runCycle()
}

// planApart is how long the last cycle took if the next one is a Tick by itself, so that no answer waits for it (SHARD-6.4).
const planApart = Millisecond

// heldSpacing is how many times as long as a cycle took the next one waits while nothing can start.
const heldSpacing = 9

// spacing is how long after a cycle the next one may begin.
func (c *planning) spacing() int64 {
	s := &c.cycle
	least := max(c.cfg.CycleMinSpacing, s.Took)
	if c.guards.allHeld() {
		return max(least, min(heldSpacing*s.Took, c.cfg.CycleInterval))
	}
	return least
}

// creditAhead does a part of what the next plan would do first about a large roll-up, and reports whether a part was left to do.
func (c *planning) creditAhead() bool {
	s := &c.cycle
	if len(s.large) == 0 {
		return false
	}
	if !c.ledger.isListed() { // the last plan may hold other gangs from now on
		return true
	}
	at := c.toCredit()
	if at < 0 {
		return false
	}
	if !c.tick {
		return true
	}
	x := &s.large[at]
	cluster, part := x.cluster, x.part
	x.part++
	c.beside(c.partsBeside(), func() { c.planner.CreditAhead(engine.Input{World: c.world, Policy: c.policy}, cluster, part) }, func() {})
	return true
}

// toCredit is the first large roll-up of which a part is left to credit, or -1.
func (c *planning) toCredit() int {
	s := &c.cycle
	c.sessions.bringHoldsUpToDate()
	for i := range s.large {
		s.large[i].beginAgain(c.world)
	}
	return slices.IndexFunc(s.large, func(x largeDemand) bool { return x.part < x.parts })
}

// creditAgain does the same about the clusters with so many rows whose demand stays: machines of theirs come, go and change for minutes after a large
// roll-up. It takes as many steps if nothing of a cluster changed, so that a core made of a checkpoint takes them, too.
func (c *planning) creditAgain() bool {
	c.addLarge()
	return c.creditAhead()
}

// isCredited reports whether nothing of this is left to do before a plan.
func (c *planning) isCredited() bool {
	c.addLarge()
	return c.toCredit() < 0
}

// addLarge adds the clusters with so many rows to those that are credited before the plan.
func (c *planning) addLarge() {
	s := &c.cycle
	for _, d := range c.world.Demand.Clusters() {
		if rows := len(d.Needs); (rows > listRowsPart || rows > demand.PartRows && c.differs(d.Name)) && !slices.ContainsFunc(s.large, func(x largeDemand) bool { return x.cluster == d.Name }) {
			s.large = append(s.large, largeDemand{cluster: d.Name, part: planner.LookParts, parts: planner.AheadParts(rows)})
		}
	}
}

// differs reports whether a large demand has many different requirements: what each may choose from is put in order again when classes change.
func (c *planning) differs(cluster string) bool {
	cl := c.clusters.get(cluster)
	return cl != nil && cl.Width.Requirements > demand.PartRows
}

// creditsMost is how often a credit before a plan may begin.
const creditsMost = 4

// beginAgain lets the credit of a cluster begin again if its demand changed since it began, but not for ever. That machines did is for the plan: they may
// change without a pause.
func (x *largeDemand) beginAgain(w *engine.World) {
	d := w.Demand.Cluster(x.cluster)
	if d == nil {
		return
	}
	begin := planner.BeginPart(len(d.Needs))
	if x.part > begin && x.of != d.Version && x.begun < creditsMost {
		x.part = begin
	}
	if x.part == begin {
		x.of, x.begun = d.Version, x.begun+1
	}
}

// creditsAhead notes that a large roll-up is the demand of a cluster now, if a plan is to follow.
func (s *lastPlan) creditsAhead(cluster string, rows int) {
	s.large = slices.DeleteFunc(s.large, func(x largeDemand) bool { return x.cluster == cluster })
	if s.wanted && rows > demand.PartRows {
		s.large = append(s.large, largeDemand{cluster: cluster, parts: planner.AheadParts(rows)})
	}
}

// ended takes note of when the step of the last cycle was over. Spacing counts from there: counted from its start, cycles
// that take longer than the spacing would follow each other without a gap, with one event of anybody between two.
func (c *planning) ended(at int64) {
	s := &c.cycle
	if s.Open && at > s.LastEnd {
		s.Took, s.LastEnd = at-s.LastEnd, at
	}
	s.Open = false
}

// runCycle is one cycle, in the order of SHARD-6.7.
func (c *planning) runCycle() {
	s := &c.cycle
	c.ledger.listShort()
	for t, set := range s.pending {
		if set {
			c.sample(MetricCycleTriggers, trigger(t).String(), 1)
		}
	}
	again := s.pending == [triggers]bool{triggerPostponed: true}
	long, large := c.takesLong(), s.large
	s.pending, s.wanted, s.large = [triggers]bool{}, false, nil
	if len(large) > 0 { // what is taken in may have waited for this plan
		c.timers.add(c.now+1, timerStage, "")
	}
	s.N++
	s.At, s.Wall, s.Started, s.Deferred = c.now, c.wall, 0, false

	c.phase(PhaseSnapread)
	c.lapse(c.world.Inventory.Advance(c.now))
	c.ledger.advance()
	c.ownership.applyQuotas()
	c.sessions.bringHoldsUpToDate()
	c.plan(long, true, func(r *engine.Result) {
		c.pub.spellsAhead(large)
		c.usePlan(r, again)
	})
}

// plan makes the plan of a cycle, and if it shows gangs to hold, once more with these held (ENG-18.3).
func (c *planning) plan(long, holds bool, use func(*engine.Result)) {
	in := engine.Input{World: c.world, Cycle: c.cycle.N, Policy: c.policy}
	var r *engine.Result
	var broken string
	c.beside(long, func() {
		r = c.planner.Plan(in)
		broken = c.audit.Broken(c.world, c.policy, r)
	}, func() {
		if holds && c.holdFruitless(r) {
			c.plan(long, false, use)
			return
		}
		if broken != "" { // before anything of it is done (ENG-2.12)
			panic("core: broken plan: " + broken)
		}
		use(r)
	})
}

// holdFruitless holds gangs that a plan gave what they cannot start on, and reports whether there are any.
func (c *planning) holdFruitless(r *engine.Result) bool {
	names := c.ledger.parking.Fruitless(r, c.policy)
	for _, name := range names {
		c.clusters.ensure(name).holds = true
	}
	if len(names) > 0 {
		c.sessions.bringHoldsUpToDate()
	}
	return len(names) > 0
}

// usePlan is what follows from a plan.
func (c *planning) usePlan(r *engine.Result, again bool) {
	s := &c.cycle
	c.phase(PhaseNone)
	c.compareBeside(r)
	c.phase(PhaseEmit)
	c.keepPromises(r)
	s.result, s.used, s.usedAt = r, s.N, s.At
	c.ledger.plan(r)
	c.replaceDecisions(r)
	for _, at := range s.Rollups {
		c.sample(MetricCycleLag, "", c.now-at)
	}
	s.Rollups = s.Rollups[:0]
	s.LastEnd, s.Took, s.Open = s.At, 0, true
	s.Redispatch = true
	c.followPostponed(r.Counters.Groups, again)
	c.timers.add(c.now+c.cfg.CycleInterval, timerCycle, "")
	c.phase(PhaseExecute)
	c.dispatcher.dispatch()
	c.phase(PhaseNone)
	c.pub.hintsDue()
	if s.wanted { // by what this plan taught: no event of others has to come first
		c.timers.add(c.now+c.cfg.CycleMinSpacing, timerSpacing, "")
	}
	c.pub.cycled = true
	c.dispatcher.checkCheap()
}

// followPostponed makes plans follow until all Needs that were postponed have had a turn since something changed (ENG-12.11).
func (c *planning) followPostponed(groups int, again bool) {
	s := &c.cycle
	if s.Turns = min(s.Turns-1, int64(groups)-1); !again {
		s.Turns = int64(groups) - 1
	}
	if s.Turns > 0 {
		c.trigger(triggerPostponed)
	}
}

// lapse records promises and marks that ended by time.
func (c *planning) lapse(list []inventory.Lapse) {
	for _, l := range list {
		if l.Promise != nil {
			c.machines.announce(l.Index)
		}
	}
}

// keepPromises stores the promises that changed hands (ENG-15.4).
func (c *planning) keepPromises(r *engine.Result) {
	for _, p := range r.Promised {
		to := p.To
		if c.world.Inventory.SetPromise(p.Machine, &to) {
			c.machines.announce(p.Machine)
		}
	}
}

// replaceDecisions makes the new plan's actions the ones to start. Decisions that did not start are not kept: a stale
// decision is a wrong one, and the new plan has derived again what is still true (SHARD-6.8).
func (c *planning) replaceDecisions(r *engine.Result) {
	s := &c.cycle
	dropped := 0
	for k := range s.waiting {
		dropped += len(s.waiting[k])
		s.waiting[k] = s.waiting[k][:0]
	}
	planned, held := make(map[planKey]int64, len(r.Actions)), map[planKey]bool{}
	wanted := map[string]bool{}
	again := 0
	for _, a := range r.Actions {
		id := c.world.Inventory.ID(a.Machine)
		key := planKey{id, a.Kind}
		at, old := s.planned[key]
		if !old {
			at = c.now
		} else {
			again++
		}
		planned[key] = at
		if s.held[key] {
			held[key] = true
		}
		if a.Kind == KindPreempt || a.Kind == KindReclaim {
			wanted[id] = true
		}
		s.waiting[a.Kind] = append(s.waiting[a.Kind], decision{action: a, index: a.Machine, machine: id, cycle: s.N, planned: at})
	}
	c.coord.planEvictions(planned, wanted)
	c.draining.planOutOfService(planned, wanted)
	s.planned, s.held = planned, held
	if n := dropped - again; n > 0 {
		c.sample(MetricDropped, "", int64(n))
	}
	c.draining.cancelUnwanted(wanted)
}
