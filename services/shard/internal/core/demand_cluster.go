package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// add counts a report if the last counted one is old enough, and reports whether that makes enough of them over enough
// time. Time as well as count, because a reconnect loop makes three reports in a moment.
func (c *confirmation) add(now int64) (confirmed bool) {
	switch {
	case c.Count == 0:
		*c = confirmation{Count: 1, First: now, Last: now}
	case now-c.Last >= guardSpacing:
		c.Count++
		c.Last = now
	}
	return c.Count >= guardReports && c.Last-c.First >= guardElapsed
}

// forgetAfter is for how long a cluster without session, machines and operations is remembered. What it asked for acquires nothing
// without a session, and comes again with one. Why: a client that can open sessions could otherwise slow every cycle until a restart.
const forgetAfter = Hour

// left begins the time after which a cluster without a session is forgotten (SHARD-12.8).
func (c *sessions) left(cl *cluster) {
	cl.ForgetAt = c.now + forgetAfter
	c.timers.add(cl.ForgetAt, timerForget, cl.Name)
}

// forgetCluster forgets a cluster of which nothing is here but its name and its demand.
func (c *sessions) forgetCluster(t timer) {
	cl := c.clusters.get(t.Subject)
	if cl == nil || cl.connected() || cl.ForgetAt != t.At {
		return
	}
	if cl.Retired || cl.counts != [9]int{} || len(c.machines.machinesOf(cl)) > 0 ||
		slices.ContainsFunc(c.ops.ordered(), func(o *operation) bool { return o.Cluster == cl.Name }) {
		c.left(cl)
		return
	}
	c.record(Record{Type: RecordSessionClosed, Cluster: cl.Name, Detail: "The cluster is forgotten: it had no session and no machine for an hour."})
	delete(c.coord.home, cl.Name)
	c.ledger.sharing.Forget(cl.Name)
	c.emit(Persist{Bucket: BucketRoom, Key: cl.Name})
	c.rollups.reading = slices.DeleteFunc(c.rollups.reading, func(x *cluster) bool { return x == cl })
	c.rollups.unstage(cl)
	c.world.Demand.Remove(cl.Name)
	c.clusters.remove(cl)
	c.pub.dirty = true
	c.trigger(triggerSession)
}

// hold is why a Need of the cluster acquires nothing for now (SHARD-6.9). Parking has its own ledger.
func (c *sessions) hold(cl *cluster, n *demand.Need) demand.Hold {
	switch {
	case !cl.connected():
		return demand.HeldOffline
	case c.rollups.unread(cl):
		return demand.HeldNewCluster
	case !c.world.Inventory.HasDomains(n.Form.TopologyKey()):
		return demand.HeldTooManyDomains
	case cl.templateUntil(n.Form.Fingerprint) > c.now:
		return demand.HeldBootstrapBackoff
	}
	if c.ledger.parking.Parked(cl.Name, n.RowKey(), c.policy) {
		return demand.HeldParked
	}
	return demand.NotHeld
}

// bringHoldsUpToDate tells the engine of holds and facts that may have changed (SHARD-6.7). Which topology keys have domains follows from demand and machines.
func (c *sessions) bringHoldsUpToDate() {
	c.world.Inventory.ClassFor(c.world.Demand)
	n := c.world.Inventory.Turned()
	turned := n != c.turned
	c.turned = n
	for _, cl := range c.clusters.ordered {
		cl.holds = cl.holds || turned
		if cl.holds {
			cl.holds = false
			c.world.Demand.SetHolds(cl.Name, func(n *demand.Need) demand.Hold { return c.hold(cl, n) })
		}
		if cl.facts {
			cl.facts = false
			c.world.Demand.SetFacts(cl.Name, c.factsOf(cl))
		}
	}
}

func (c *sessions) factsOf(cl *cluster) demand.Facts {
	drained, failures := c.ledger.join.Counters(cl.Name, c.now, c.policy)
	if at := c.ledger.join.NextChange(cl.Name, c.policy); at > 0 {
		c.bootstraps.holdsEnd(cl, at)
	}
	return demand.Facts{Heard: cl.GateOpen, SharingPerMille: c.ledger.sharing.PerMille(cl.Name), ReportsReadiness: cl.Reporting,
		ReportingSince: cl.ReportingSince, JoinDrained: drained, JoinFailures: failures}
}
