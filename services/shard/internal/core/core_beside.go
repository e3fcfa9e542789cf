package core

import (
	"fmt"
	"slices"
)

// What takes long is made beside the loop (SHARD-6.11): plans, and parts of what goes before and after them. All that it is made of stays as it is until it is made, so it follows
// from what the core knew when it began. Meanwhile the core only answers roll-ups of a few rows, which become demand after it.

// besideWork is what is being made.
type besideWork struct {
	make  func() // touches neither the moment nor effects
	done  func()
	given bool // Beside has given it out
	made  bool
}

// PartMade says that what Beside gave out is made.
type PartMade struct{}

func (PartMade) event() EventKind { return KindPartMade }

// Beside is what is to be made beside the loop after a step, once, on any goroutine, and the event that says so; nil: nothing. Until that event the core takes what Takes
// reports alone, and nothing else of it may be read but NextWake, Steps, Digest, Cycle and Reduced.
func (c *Core) Beside() (work func(), ends Event) {
	w := c.open
	if w == nil || w.given {
		return nil, nil
	}
	w.given = true
	return w.run, PartMade{}
}

func (w *besideWork) run() {
	w.make()
	w.made = true
}

// Takes reports whether Step may be given an event now. Others wait until what is made beside the loop is made.
func (c *Core) Takes(e Event) bool {
	if c.open == nil {
		return true
	}
	switch e := e.(type) {
	case PartMade:
		return true
	case RollupArrived:
		return c.rollups.answersNow(&e)
	}
	return false
}

// meanwhile applies one of the few events that come while something is made beside the loop.
func meanwhile(c *Core, e Event) {
	switch e := e.(type) {
	case PartMade:
		c.cycle.next = true // others come before the part that follows
		if c.made(); c.open == nil {
			c.rollups.takeAnswered()
		}
	case RollupArrived:
		c.rollups.answer(e)
	default:
		panic(fmt.Sprintf("core: %T while something is made beside the loop", e))
	}
}

// beside makes something, beside the loop if it may take long, and does the rest when it is made. A step begins one thing, as the last that it does to what that is made of.
func (c *step) beside(long bool, work, done func()) {
	w := &besideWork{make: work, done: done}
	if c.open = w; !long {
		c.made()
	}
}

// partsBeside reports whether parts of large demand are made beside the loop.
func (c *step) partsBeside() bool { return c.cfg.Beside != BesideNever }

// made goes on after something was made. In a replay it was not made yet.
func (c *step) made() {
	w := c.open
	if !w.made {
		w.run()
	}
	c.open = nil
	w.done()
}

// takesLong reports whether the next plan may take long: the last one did, or a large demand is new in it.
func (c *planning) takesLong() bool {
	return c.cfg.Beside == BesideAlways || c.cfg.Beside == BesideLong && (c.cycle.Took >= longPlan || len(c.cycle.large) > 0)
}

// Roll-ups that are answered meanwhile become demand in one step, so they have about so many rows at most, where each counts as some at least.
const (
	answeredMax   = 8192
	answeredLeast = 16
)

// answersNow reports whether nothing but what is made could stand between a roll-up and its demand: a known cluster states something usual. All that it reads is the core's own.
func (c *rollups) answersNow(e *RollupArrived) bool {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) || !cl.Known || !cl.Heard || !cl.GateOpen || cl.Held.Count > 0 || cl.staged != nil || cl.Queued != nil {
		return false
	}
	if e.Reject != nil || c.isLarge(cl, e) || e.Width.isWide() || c.answeredRows >= answeredMax {
		return false
	}
	if _, bad := c.poison[e.Hash]; bad || cl.AsideUntil > c.now || c.tooManyKeys(e) != nil || c.draining.hides(cl, e.OutOfService) != "" {
		return false
	}
	in := *e
	in.OutOfService = nil // whose machines would only make it less suspicious
	return c.suspicious(cl, &in, totalsOf(in.Rows)) == ""
}

// answer acknowledges a roll-up that becomes demand later. A newer one of the same cluster takes its place.
func (c *rollups) answer(e RollupArrived) {
	if !c.answersNow(&e) {
		panic(fmt.Sprintf("core: a roll-up of cluster %s cannot be answered meanwhile", e.Cluster))
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

// takeAnswered makes demand of what was answered while something was made beside the loop.
func (c *rollups) takeAnswered() {
	if len(c.answered) > 0 {
		c.pub.dirty = true
		if c.takenAt != c.cycle.used {
			c.taken, c.takenAt = nil, c.cycle.used
		}
	}
	for _, e := range c.answered {
		c.taken = append(c.taken, e.Hash)
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
