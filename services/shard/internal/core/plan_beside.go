package core

import (
	"fmt"
	"slices"
)

// What takes long of a plan is made beside the loop (SHARD-6.11): a plan, and each part of a credit before one. The world stays as it is until it is made, so it follows
// from what the core knew when it began. Meanwhile the core only answers roll-ups of a few rows, which become demand after it.

// openPlan is a part of a plan that is being made.
type openPlan struct {
	make  func()
	done  func()
	given bool // Beside has given it out
	made  bool
}

// PlanMade says that what Beside gave out is made.
type PlanMade struct{}

func (PlanMade) event() EventKind { return KindPlanMade }

// Beside is what is to be made beside the loop after a step, once, on any goroutine, and the event that says so; nil: nothing. Until that event the core takes what Takes
// reports alone, and nothing else of it may be read but NextWake, Steps, Digest, Cycle and Reduced.
func (c *Core) Beside() (work func(), ends Event) {
	p := c.plans.open
	if p == nil || p.given {
		return nil, nil
	}
	p.given = true
	return p.run, PlanMade{}
}

func (p *openPlan) run() {
	p.make()
	p.made = true
}

// Takes reports whether Step may be given an event now. Others wait until what is made beside the loop is made.
func (c *Core) Takes(e Event) bool {
	if c.plans.open == nil {
		return true
	}
	switch e := e.(type) {
	case PlanMade:
		return true
	case RollupArrived:
		return c.rollups.answersNow(&e)
	}
	return false
}

// duringPlan applies one of the few events that come while a plan is made.
func duringPlan(c *Core, e Event) {
	switch e := e.(type) {
	case PlanMade:
		c.cycle.next = true // others come before the part that follows
		if c.plans.planMade(); c.plans.open == nil {
			c.rollups.takeAnswered()
		}
	case RollupArrived:
		c.rollups.answer(e)
	default:
		panic(fmt.Sprintf("core: %T while a plan is made", e))
	}
}

// beside makes a part of a plan, beside the loop if it may take long, and does the rest when it is made.
func (c *planning) beside(long bool, work, done func()) {
	p := &openPlan{make: work, done: done}
	if c.open = p; !long {
		c.planMade()
	}
}

// planMade goes on after a part of a plan. In a replay it was not made yet.
func (c *planning) planMade() {
	p := c.open
	if !p.made {
		p.run()
	}
	c.open = nil
	p.done()
}

// takesLong reports whether the next plan may take long: the last one did, or a large demand is new in it.
func (c *planning) takesLong() bool {
	return c.cfg.PlanBeside == BesideAlways || c.cfg.PlanBeside == BesideLong && (c.cycle.Took >= longPlan || len(c.cycle.large) > 0)
}

// The roll-ups that are answered while a plan is made have at most so many rows each and all together. They become demand in one step, where one counts as some rows at least.
const (
	answeredRowsMax  = 256
	answeredBytesMax = 64 << 10
	answeredAllMax   = 8192
	answeredLeast    = 16
)

// answersNow reports whether nothing but a plan could stand between a roll-up and its demand: a known cluster states something usual. All that it reads is the core's own.
func (c *rollups) answersNow(e *RollupArrived) bool {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) || !cl.Known || !cl.Heard || !cl.GateOpen || cl.Held.Count > 0 || cl.staged != nil || cl.Queued != nil {
		return false
	}
	if e.Reject != nil || len(e.Rows) > answeredRowsMax || e.Bytes > answeredBytesMax || e.Width.isWide() || c.answeredRows >= answeredAllMax {
		return false
	}
	if _, bad := c.poison[e.Hash]; bad || c.isLarge(cl, e) || cl.AsideUntil > c.now || c.tooManyKeys(e) != nil || c.draining.hides(cl, e.OutOfService) != "" {
		return false
	}
	in := *e
	in.OutOfService = nil // whose machines would only make it less suspicious
	return c.suspicious(cl, &in, totalsOf(in.Rows)) == ""
}

// answer acknowledges a roll-up that becomes demand when the plan is made. A newer one of the same cluster takes its place.
func (c *rollups) answer(e RollupArrived) {
	if !c.answersNow(&e) {
		panic(fmt.Sprintf("core: a roll-up of cluster %s cannot be answered while a plan is made", e.Cluster))
	}
	cl := c.clusters.get(e.Cluster)
	if e.Arrival <= cl.Arrival {
		return
	}
	cl.Arrival = e.Arrival
	hash := cl.Hash
	at := slices.IndexFunc(c.answered, func(x RollupArrived) bool { return x.Cluster == e.Cluster })
	if at >= 0 {
		hash = c.answered[at].Hash
		c.answered = slices.Delete(c.answered, at, at+1)
	}
	c.answered = append(c.answered, e)
	c.answeredRows += max(len(e.Rows), answeredLeast)
	c.measure(&e)
	if e.Hash == hash {
		c.ackRollup(cl, e, DispositionUnchanged)
	} else {
		c.ackRollup(cl, e, DispositionAccepted)
	}
}

// takeAnswered makes demand of what was answered while a plan was made.
func (c *rollups) takeAnswered() {
	if len(c.answered) > 0 {
		c.pub.dirty = true
	}
	for _, e := range c.answered {
		cl := c.clusters.get(e.Cluster)
		if e.Hash == cl.Hash {
			c.confirm(cl)
		} else {
			c.accept(cl, e, totalsOf(e.Rows), c.world.Demand.StageAll(e.Rows))
		}
		c.pub.notifyUnread(cl)
		cl.changed()
	}
	c.answered, c.answeredRows = nil, 0
}
