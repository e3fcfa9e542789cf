package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Values of Acknowledgement.echo (WIRE-6.10).
const (
	echoHello    = "hello"
	echoRollup   = "rollup"
	echoHeld     = "rollup-held"
	echoRejected = "rollup-rejected"
	// EchoResync ends a replay of node states.
	EchoResync = "node-state-resync-complete"
)

// sessionOpened installs a session, replacing an older one, or renews the installed one (SHARD-7.3, 7.5).
func (c *sessions) sessionOpened(e SessionOpened) {
	if old := c.clusters.get(e.Cluster); old != nil && e.Session < old.Session {
		return // a stream that was replaced before its Hello got here
	}
	if c.superseded != "" {
		c.emit(CloseSession{Cluster: e.Cluster, Session: e.Session, Code: CodeUnavailable, Reason: "superseded"})
		return
	}
	cl := c.clusters.ensure(e.Cluster)
	renewed := cl.Session == e.Session
	if !renewed {
		if cl.connected() {
			c.sample(MetricSessions, "replaced", 1)
			c.loseSession(cl, "replaced")
		}
		c.sample(MetricSessions, "installed", 1)
		c.record(Record{Type: RecordSessionOpened, Cluster: cl.Name, Detail: clipText(fmt.Sprintf("operator %s, protocol %s, features %v",
			e.OperatorVersion, e.ProtocolVersion, e.Features))})
	}
	cl.Session, cl.Features, cl.has = e.Session, e.Features, featuresOf(e.Features)
	cl.Version, cl.Protocol = e.OperatorVersion, e.ProtocolVersion
	if !renewed {
		cl.SessionSince, cl.Heard, cl.ForgetAt = c.now, false, 0
		cl.Timeouts, cl.OneProbe = backoff{}, false // a new session deserves a new try (SHARD-16.9)
		clear(cl.blobs)
		clear(cl.failed)
		clear(cl.hints)
		cl.HintedAt, cl.hintBasis = 0, hintBasis{}
		clear(cl.statuses)
		c.trigger(triggerSession)
	}
	c.ledger.sharing.Session(cl.Name, cl.has.unplaced)
	cl.Reporting = false // the full set of node reports comes again after each Hello ack
	if !cl.has.nodeContents {
		c.machines.forgetContents(cl)
	}
	cl.holds, cl.facts = true, true
	cl.changed()
	if cl.Retired {
		c.admin.unretire(cl, "the cluster's operator came back")
	}
	c.emit(SendAck{Cluster: cl.Name, Session: cl.Session, Echo: echoHello, Hello: true, Term: c.ctl.Coordinator.Term, Epoch: c.epoch})
	c.resync(cl)
	c.draining.reissueInstructions(cl)
}

// resync sends the state of every machine of the cluster and the marker behind them (SHARD-18.5). Before every provider
// was listed once the marker would be a lie, on which the operator deletes node objects, so it waits (WIRE-6.21).
func (c *sessions) resync(cl *cluster) {
	n := int64(0)
	for _, i := range c.machines.machinesOf(cl) {
		if to, shown := c.machines.shownTo(i); shown && to == cl.Name {
			c.machines.sendNodeState(i, cl, false)
			n++
		}
	}
	if c.allListed() {
		c.emit(SendAck{Cluster: cl.Name, Session: cl.Session, Echo: EchoResync, Resync: n})
	}
}

// finishResyncs sends the replay to every session that opened before the first Lists were in.
func (c *sessions) finishResyncs() {
	for _, cl := range c.clusters.ordered {
		if cl.connected() {
			c.resync(cl)
		}
	}
}

// sessionClosed removes the session if it is the installed one; late clean-up of a replaced one changes nothing.
func (c *sessions) sessionClosed(e SessionClosed) {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) {
		return
	}
	c.sample(MetricSessions, "removed", 1)
	c.loseSession(cl, e.Reason)
	c.trigger(triggerSession)
}

// loseSession ends what needed the session. Demand stays: silence is never "no demand" (SHARD-2.4).
func (c *sessions) loseSession(cl *cluster, reason string) {
	c.record(Record{Type: RecordSessionClosed, Cluster: cl.Name, Detail: reason})
	cl.Session, cl.Heard, cl.Reporting = 0, false, false
	c.rollups.unstage(cl)
	c.left(cl)
	c.ledger.sharing.SessionClosed(cl.Name)
	cl.holds, cl.facts = true, true
	cl.changed()
	for _, o := range c.ops.ordered() {
		if o.Cluster != cl.Name {
			continue
		}
		switch {
		case o.Phase == phasePulling:
			c.commands.rollBack(o, OutcomeSessionLost, "the cluster's session ended during the bootstrap pull")
		case o.Phase == phaseInstructing && o.Kind == KindPreempt:
			c.draining.drainUnannounced(o)
		}
	}
}

// nodeReported keeps what a cluster sees of a machine's node. It feeds node names, latencies and ENG-17, nothing else.
func (c *sessions) nodeReported(e NodeReported) {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) {
		return
	}
	if e.LastOfFullSet && !cl.Reporting {
		cl.Reporting, cl.ReportingSince, cl.facts = true, c.now, true
		c.trigger(triggerNode)
	}
	if e.Machine == "" {
		return
	}
	i, known := c.world.Inventory.Find(e.Machine)
	if !known || c.world.Inventory.Cluster(i) != cl.Name {
		return // a cluster may speak of its own machines only
	}
	was := cl.nodes[e.Machine]
	if !e.Present {
		delete(cl.nodes, e.Machine)
		if was != nil {
			c.nodeGone(i)
		}
	} else {
		n := &node{name: e.Node, ready: e.Ready, at: c.now, contents: e.Contents}
		if n.contents == nil && was != nil && cl.has.nodeContents {
			n.contents = was.contents
		}
		cl.nodes[e.Machine] = n
	}
	next := inventory.NotReady
	switch old := c.world.Inventory.Readiness(i); {
	case e.Present && e.Ready:
		next = inventory.ReadyOnce
	case old.WasReady():
		next = inventory.ReadyLost
	}
	if c.world.Inventory.SetReadiness(i, next) {
		c.outages.outageMoved(i)
		c.trigger(triggerNode)
		if next == inventory.ReadyOnce {
			c.ledger.join.Ready(cl.Name)
			cl.facts = true
			c.machines.observeReady(i)
		}
	}
	c.machines.occupied(i, cl)
	if e.Present && (was == nil || was.name != e.Node) {
		c.machines.announce(i) // the node name is known now
	}
}

// nodeGone asks the provider about a Configured machine whose node is no more: an interrupted machine is known at once and
// not with the next List. Many at a time are a List's business (SHARD-13.18).
func (c *sessions) nodeGone(i inventory.Index) {
	inv := c.world.Inventory
	if p := c.provider(inv.Provider(i)); inv.State(i) == inventory.Configured && len(p.asked) < nodeGoneGetsMax {
		c.reconciler.want(p.Name, inv.ID(i), getForPoll)
	}
}

// unplacedReported keeps the newest report of Pods that the scheduler could not place (ENG-11.11).
func (c *sessions) unplacedReported(e UnplacedReported) {
	cl := c.clusters.get(e.Cluster)
	if !cl.current(e.Session) {
		return
	}
	news := !slices.EqualFunc(cl.Unplaced, e.Rows, UnplacedRow.Equal)
	cl.Unplaced = e.Rows
	cl.changed()
	byID := make(map[string]int64, len(e.Rows))
	full := map[string][]string{}
	for _, r := range e.Rows {
		byID[r.RowID] = max(r.Pods, 1)
		if len(r.Full) > 0 && r.RowID != "" {
			full[r.RowID] = r.Full
		}
	}
	pods := make(map[demand.RowKey]int64, len(e.Rows))
	if d := c.world.Demand.Cluster(cl.Name); d != nil && len(byID) > 0 {
		for i := range d.Needs {
			if n := &d.Needs[i]; n.RowID != "" && byID[n.RowID] > 0 {
				pods[n.RowKey()] = byID[n.RowID]
			}
		}
	}
	c.ledger.sharing.Report(cl.Name, pods, c.now)
	c.world.Demand.SetFull(cl.Name, func(n *demand.Need) []string { return full[n.RowID] })
	if e.StatesUnbound {
		c.ledger.sharing.ReportUnbound(cl.Name, c.rowsOf(cl.Name, e.Unbound))
	}
	if news { // it is repeated with each heartbeat, and a heartbeat that says nothing new causes no cycle (SHARD-6.5)
		c.trigger(triggerNode)
	}
}

// rowsOf finds the keys of a cluster's rows by their ids, which are sorted.
func (c *sessions) rowsOf(cluster string, ids []string) map[demand.RowKey]bool {
	rows := map[demand.RowKey]bool{}
	if d := c.world.Demand.Cluster(cluster); d != nil && len(ids) > 0 {
		for i := range d.Needs {
			if _, listed := slices.BinarySearch(ids, d.Needs[i].RowID); listed {
				rows[d.Needs[i].RowKey()] = true
			}
		}
	}
	return rows
}
