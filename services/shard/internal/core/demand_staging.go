package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// A large roll-up is taken in part by part, one in each Tick, and clusters with one take turns (SHARD-8.9). Why: at
// all limits of a roll-up it would hold up the acknowledgements of every other cluster.

// rowBytes is how much of a roll-up counts as a row: a few rows may list millions of values.
const rowBytes = 256

// part is how many rows of it are taken in at once.
func (s *stagedRollup) part() int {
	return int(max(1, demand.PartRows*int64(len(s.event.Rows))/max(int64(len(s.event.Rows)), s.event.Bytes/rowBytes, 1)))
}

func (c *rollups) isLarge(cl *cluster, e *RollupArrived) bool {
	return c.world.Demand.IsLarge(cl.Name, max(len(e.Rows), int(e.Bytes/rowBytes)))
}

// beginRollup processes a roll-up, or keeps it: the newest waits for the one that is being taken in, and a large one that changes something for a checkpoint
// that waits for what is done in parts.
func (c *rollups) beginRollup(cl *cluster, e RollupArrived) {
	changes := e.Reject == nil && !(cl.Known && e.Hash == cl.Hash)
	if cl.Queued = nil; cl.staged != nil || c.wanted.asked && changes && c.isLarge(cl, &e) {
		cl.Queued = &e
		return
	}
	c.processRollup(cl, e)
}

// resume lets those begin that waited for a checkpoint, one in each Tick.
func (c *rollups) resume() {
	if slices.ContainsFunc(c.clusters.ordered, (*cluster).waitsToBegin) {
		c.timers.add(c.now+1, timerStage, "")
	}
}

// waitsToBegin reports whether a roll-up of the cluster waits, and not for another of its own.
func (cl *cluster) waitsToBegin() bool { return cl.Queued != nil && cl.staged == nil }

// stage begins to take in a roll-up.
func (c *rollups) stage(cl *cluster, e RollupArrived, totals []resource.Quantity) {
	labels, topology := c.world.Demand.NewKeys(e.LabelKeys, e.TopologyKeys)
	cl.staged = &stagedRollup{event: e, totals: totals, rows: c.world.Demand.Stage(e.Rows), labels: labels, topology: topology}
	c.staging = append(c.staging, cl)
	c.timers.add(c.now+1, timerStage, "")
}

// unstage gives up what is on its way of a cluster whose session ended: its operator sends all of it again. What is left of
// demand that went is given back in parts, too.
func (c *rollups) unstage(cl *cluster) {
	if s := cl.staged; s != nil {
		c.world.Demand.Drop(s.rows)
		c.staging = slices.DeleteFunc(c.staging, func(x *cluster) bool { return x == cl })
		c.timers.add(c.now+1, timerStage, "")
	}
	cl.staged, cl.Queued = nil, nil
}

// stagePart does one part of what is left to do: it gives back what demand used that is gone, then it takes in rows. Of the roll-ups that waited for a
// checkpoint it lets the next one begin before.
func (c *rollups) stagePart(beside bool) {
	if i := slices.IndexFunc(c.clusters.ordered, (*cluster).waitsToBegin); i >= 0 && !c.wanted.asked {
		cl := c.clusters.ordered[i]
		c.beginRollup(cl, *cl.Queued)
		c.resume()
	}
	if at := c.stagesNext(beside); !c.world.Demand.Sweep(demand.PartRows) && at >= 0 {
		cl := c.staging[at]
		c.staging = append(slices.Delete(c.staging, at, at+1), cl)
		switch {
		case cl.staged.ordered:
			c.staged(cl)
		case !c.world.Demand.StageMore(cl.staged.rows, cl.staged.part()):
			now := c.now
			c.beside(beside, func() { cl.staged.ordered = !c.world.Demand.Order(cl.Name, cl.staged.rows, now) }, c.stageOn)
			return
		}
	}
	c.stageOn()
}

// stagesNext is the place of the next cluster of which something can be done, or -1. While the credit before a plan goes on, what is taken in waits for that plan: it
// would begin again, and others would wait for two credits.
func (c *rollups) stagesNext(wait bool) int {
	wait = wait && !c.frozen() && c.readable() && slices.ContainsFunc(c.cycle.large, func(x largeDemand) bool { return x.begun > 0 })
	return slices.IndexFunc(c.staging, func(cl *cluster) bool { return !cl.staged.ordered || !wait })
}

// stageOn lets the next part follow, if there is one.
func (c *rollups) stageOn() {
	if c.stagesNext(true) >= 0 || c.world.Demand.Sweep(0) {
		c.timers.add(c.now+1, timerStage, "")
	}
}

// staged makes a roll-up that is taken in the demand of its cluster, and looks at the one that came meanwhile. The plan follows with
// the next event.
func (c *rollups) staged(cl *cluster) {
	s, queued := cl.staged, cl.Queued
	c.staging = slices.DeleteFunc(c.staging, func(x *cluster) bool { return x == cl })
	cl.staged, cl.Queued = nil, nil
	c.acceptRollup(cl, s.event, s.totals, s.rows)
	cl.changed()
	if queued != nil {
		c.beginRollup(cl, *queued)
	}
	c.pub.notifyUnread(cl)
	c.cycle.next = true
	c.cycle.creditsAhead(cl.Name, len(c.world.Demand.Cluster(cl.Name).Needs))
}

// TakesIn reports whether a roll-up with this content is being taken in or waits for that, or became demand after the last plan began: no plan has it yet.
func (c *reader) TakesIn(hash string) bool {
	return c.rollups.takenAt == c.cycle.used && slices.Contains(c.rollups.taken, hash) || slices.ContainsFunc(c.clusters.ordered, func(cl *cluster) bool {
		return cl.staged != nil && cl.staged.event.Hash == hash || cl.Queued != nil && cl.Queued.Hash == hash
	})
}

// finishStaging takes in what is left at once, so that a checkpoint need not say how far it got.
func (c *rollups) finishStaging() {
	for len(c.staging) > 0 {
		c.stagePart(false)
	}
	for c.world.Demand.Sweep(demand.PartRows) {
	}
}
