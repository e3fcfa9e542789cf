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

// stage begins to take in a roll-up.
func (c *rollups) stage(cl *cluster, e RollupArrived, totals []resource.Quantity) {
	labels, topology := c.world.Demand.NewKeys(e.LabelKeys, e.TopologyKeys)
	cl.staged = &stagedRollup{e, totals, c.world.Demand.Stage(e.Rows), labels, topology}
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
	cl.staged, cl.queuedRollup = nil, nil
}

// stagePart does one part of what is left to do: it gives back what demand used that is gone, then it takes in rows.
func (c *rollups) stagePart() {
	if !c.world.Demand.Sweep(demand.PartRows) && len(c.staging) > 0 {
		cl := c.staging[0]
		c.staging = c.staging[1:]
		if rows := cl.staged.rows; c.world.Demand.StageMore(rows, cl.staged.part()) || c.world.Demand.Order(cl.Name, rows, c.now) {
			c.staging = append(c.staging, cl)
		} else {
			c.staged(cl)
		}
	}
	if len(c.staging) > 0 || c.world.Demand.Sweep(0) {
		c.timers.add(c.now+1, timerStage, "")
	}
}

// staged makes a roll-up that is taken in the demand of its cluster, and looks at the one that came meanwhile. The plan follows with
// the next event.
func (c *rollups) staged(cl *cluster) {
	s, queued := cl.staged, cl.queuedRollup
	cl.staged, cl.queuedRollup = nil, nil
	c.acceptRollup(cl, s.event, s.totals, s.rows)
	cl.changed()
	if queued != nil {
		c.processRollup(cl, *queued)
	}
	c.pub.notifyUnread(cl)
	c.cycle.next = true
	c.cycle.creditsAhead(cl.Name, len(c.world.Demand.Cluster(cl.Name).Needs))
}

// TakesIn reports whether a roll-up with this content is being taken in: no plan has it yet.
func (c *reader) TakesIn(hash string) bool {
	return slices.ContainsFunc(c.rollups.staging, func(cl *cluster) bool {
		return cl.staged.event.Hash == hash || cl.queuedRollup != nil && cl.queuedRollup.Hash == hash
	})
}

// finishStaging takes in what is left at once, so that a checkpoint need not say how far it got.
func (c *rollups) finishStaging() {
	for len(c.staging) > 0 {
		c.stagePart()
	}
	for c.world.Demand.Sweep(demand.PartRows) {
	}
}
