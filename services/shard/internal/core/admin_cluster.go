package core

import (
	"fmt"
	"slices"
)

// adminAccept believes a roll-up that the guard holds, or a first one that asks for almost nothing (SHARD-11.4, 12.3).
func (c *orders) adminAccept(e AdminAsked) {
	cl := c.clusters.get(e.Cluster)
	if cl == nil || cl.HeldRollup == nil && (cl.GateOpen || cl.Gate.Count == 0) {
		c.answer(e, CodeNotFound, "no roll-up of this cluster is held", nil)
		return
	}
	before := cl.Rows
	after := before
	if cl.HeldRollup != nil {
		after = len(cl.HeldRollup.Rows)
	}
	if !e.Check {
		if h := cl.HeldRollup; h != nil {
			accepted := *h
			accepted.Received = 0 // the lag of its cycle does not count the wait for the order
			c.rollups.unstage(cl)
			c.rollups.acceptRollup(cl, accepted, totalsOf(h.Rows), c.world.Demand.StageAll(h.Rows))
		}
		c.rollups.openGate(cl, "accepted by "+e.Actor)
	}
	c.answer(e, CodeOK, "", AcceptedRollup{Before: before, After: after, Surplus: max(0, cl.bound()-after)})
}

// adminRetire declares a silent cluster dead (SHARD-12.6). It is never automatic.
func (c *orders) adminRetire(e AdminAsked) {
	cl := c.clusters.get(e.Cluster)
	if cl == nil {
		c.answer(e, CodeNotFound, "no such cluster", nil)
		return
	}
	bound := cl.bound()
	switch {
	case cl.Retired:
		c.answer(e, CodeOK, "", Retired{Bound: bound, Fresh: cl.Fresh})
		return
	case cl.connected():
		c.answer(e, CodeAborted, "the cluster has an open session: stop its operator first", nil)
		return
	case !c.pub.silent(cl) && bound > 0:
		c.answer(e, CodeAborted, fmt.Sprintf("the cluster has reported within the last %d s", c.cfg.SilentAfter/Second), nil)
		return
	case abs(int64(bound)-e.Bound)*10 > int64(bound):
		c.answer(e, CodeAborted, fmt.Sprintf("the cluster has %d bound machines, not %d", bound, e.Bound), nil)
		return
	}
	if !e.Check {
		cl.Retired, cl.Known, cl.Hash, cl.Rows, cl.Totals = true, false, "", 0, nil
		c.ctl.Retired = append(slices.Clone(c.ctl.Retired), cl.Name)
		slices.Sort(c.ctl.Retired)
		c.rollups.unstage(cl)
		c.world.Demand.Replace(cl.Name, nil, nil, c.now)
		cl.holds, cl.facts = true, true
		c.rollups.openGate(cl, "retired by "+e.Actor)
		c.trigger(triggerAdmin)
	}
	c.answer(e, CodeOK, "", Retired{Bound: bound, Fresh: cl.Fresh})
}

// adminUnretire takes back that a cluster is dead.
func (c *orders) adminUnretire(e AdminAsked) {
	cl := c.clusters.get(e.Cluster)
	if cl == nil || !cl.Retired {
		c.answer(e, CodeOK, "the cluster is not retired", nil)
		return
	}
	if !e.Check {
		c.unretire(cl, "unretired by "+e.Actor)
	}
	c.answer(e, CodeOK, "", nil)
}

// unretire takes the declaration back: nothing more is drained until the cluster's demand is known.
func (c *orders) unretire(cl *cluster, why string) {
	cl.Retired, cl.GateOpen, cl.Gate, cl.facts = false, false, confirmation{}, true
	cl.changed()
	c.ctl.Retired = slices.DeleteFunc(slices.Clone(c.ctl.Retired), func(n string) bool { return n == cl.Name })
	c.emit(Persist{Bucket: BucketRetired, Key: cl.Name})
	c.record(Record{Type: RecordAdmin, Cluster: cl.Name, Detail: why})
	c.commands.keepAll(cl, why)
	c.trigger(triggerAdmin)
}
