package core

import (
	"fmt"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// instruct tells the operator to cordon and drain, before the provider's Drain: otherwise routine scale-down kills pods
// without honouring disruption budgets (SHARD-17.1).
func (c *draining) instruct(o *operation, cl *cluster) {
	o.Phase = phaseInstructing
	if o.Instruction == "" {
		o.Instruction = wireID(o.ID, "reclaim", 1)
		c.ops.byInstr[o.Instruction] = o
	}
	c.sendInstruction(o, cl, o.Grace, false, "")
	if !cl.has.reclaimCancel {
		c.commit(o)
	}
	c.armDeadline(o, cl)
	c.timers.add(c.now+reclaimRepeat, timerRepeat, o.ID)
	if o.Kind == KindPreempt {
		c.timers.add(c.now+preemptAckWait, timerAckWait, o.ID)
	}
}

// commit makes a drain that can no longer be taken back count as begun: the operator has acknowledged it, or cannot
// receive a withdrawal. Were the machine still supply, the next plan would find another one in excess instead of it
// and both would go (SHARD-17.4a). What the machine is reserved for counts on it from here.
func (c *draining) commit(o *operation) {
	inv := c.world.Inventory
	if o.Committed || inv.State(o.Index) != inventory.Configured {
		return
	}
	o.Committed = true
	inv.SetLeaving(o.Index, true)
	if o.Promise != nil {
		p := *o.Promise
		p.Expires = c.now + preemptAckWait + (o.Grace+c.policy.DrainMargin)*Second
		inv.SetPromise(o.Index, &p)
	}
	c.trigger(triggerMachine)
}

// uncommit takes that back: the operation ends, or its operator came back as one that can receive a withdrawal.
func (c *draining) uncommit(o *operation) {
	if !o.Committed {
		return
	}
	o.Committed = false
	inv := c.world.Inventory
	inv.SetLeaving(o.Index, false)
	if o.Promise != nil && inv.State(o.Index) == inventory.Configured {
		inv.SetPromise(o.Index, o.Before.Promise)
	}
	c.trigger(triggerMachine)
}

func (c *draining) sendInstruction(o *operation, cl *cluster, grace int64, cancelled bool, reason string) {
	cause := CauseVoluntary
	if o.Kind == KindPreempt {
		cause = CausePreempt
	}
	s := SendReclaim{Instruction: o.Instruction, Cluster: cl.Name, Session: cl.Session, Machine: o.Machine, GraceSecs: grace,
		PreemptorPriority: o.PreemptorPriority, Cause: cause, Cancelled: cancelled, Reason: reason}
	if n := cl.nodes[o.Machine]; n != nil {
		s.Node = n.name
	}
	c.emit(s)
}

// repeatInstruction sends an unacked instruction again, with the same id (SHARD-17.4).
func (c *draining) repeatInstruction(id string) {
	o := c.ops.byID[id]
	if o == nil || o.Phase != phaseInstructing || c.frozen() {
		return
	}
	c.timers.add(c.now+reclaimRepeat, timerRepeat, o.ID)
	if o.Acked {
		return
	}
	if cl := c.clusters.get(o.Cluster); cl != nil && cl.connected() && !c.guards.pausedFor(o.Kind, o.Cluster, o.Provider) {
		o.Repeats++
		c.sendInstruction(o, cl, o.Grace, false, "")
	}
}

// reissueInstructions sends every open instruction of a cluster on its new session: unacked ones at once, and those of
// machines that drain with what is left of their grace (SHARD-17.4, 17.6).
func (c *draining) reissueInstructions(cl *cluster) {
	for _, o := range c.ops.ordered() {
		if o.Cluster != cl.Name || !o.drains() || o.Instruction == "" {
			continue
		}
		switch {
		case o.Phase == phaseInstructing:
			c.armDeadline(o, cl)
			c.sendInstruction(o, cl, c.graceLeft(o), false, "")
			if cl.has.reclaimCancel && !(o.Kind == KindPreempt && o.Acked) {
				c.uncommit(o)
			} else {
				c.commit(o)
			}
			o.Acked = false // this session's operator has to say it again
		case c.world.Inventory.State(o.Index) == inventory.Draining:
			c.sendInstruction(o, cl, max(0, (o.DrainEnds-c.now)/Second), false, "")
		}
	}
	c.recovery.reissueJournaled(cl)
}

// reclaimAcked takes the operator's word that the node is cordoned.
func (c *draining) reclaimAcked(e ReclaimAcked) {
	o := c.ops.byInstr[e.Instruction]
	if o == nil || o.Cluster != e.Cluster {
		c.sample(MetricStrayAnswers, "reclaim_ack", 1)
		return
	}
	if cl := c.clusters.get(e.Cluster); !cl.current(e.Session) {
		c.sample(MetricStrayAnswers, "reclaim_ack", 1)
		return
	}
	first := !o.Acked
	o.Acked = true
	text, why := "no node was cordoned", "no node was cordoned"
	for _, f := range e.Failures {
		text = fmt.Sprintf("%s: %s %s", f.Node, f.Reason, clipText(f.Message))
		why = "no node was cordoned: " + clipText(f.Message)
	}
	if first && (e.NodesStarted <= 0 || len(e.Failures) > 0) {
		c.sample(MetricReclaimsUnresolved, "", 1)
		c.recordOp(RecordStarted, o, "unresolved", text)
	}
	voluntary := o.Kind == KindReclaim && e.NodesStarted <= 0
	switch {
	case o.Phase != phaseInstructing:
	case voluntary && e.failed(nodeAmbiguous, nodeAPIError), voluntary && e.failed(nodeStillTrying) && o.Deadline == 0:
		c.giveUpDrain(o, why) // there may be a node with Pods, and it takes more (SHARD-17.7)
	case voluntary && e.failed(nodeStillTrying): // its operator reports in the end
	case o.Deadline == 0 || e.NodesStarted <= 0 || o.Cause == engine.CauseNotJoined || o.Drain.State == drainDone: // nothing is left to evict
		c.drainNow(o, "")
	case o.Kind == KindPreempt:
		c.commit(o) // what it is reserved for counts on it from here
	}
}

// armDeadline makes a drain wait for the operator's last word, if the operator gives one: Drain goes out when it says that
// nothing is left, and not before (SHARD-17.10).
func (c *draining) armDeadline(o *operation, cl *cluster) {
	switch {
	case !cl.has.drainReport:
		o.Deadline = 0
	case o.Deadline == 0:
		o.Deadline = c.now + o.Grace*Second
		wait := o.Deadline
		if o.Kind == KindReclaim {
			wait += drainReportWait
		}
		c.timers.add(wait, timerDrainEnd, o.ID)
	}
}

// graceLeft is what is left of an operation's grace, in whole seconds.
func (c *draining) graceLeft(o *operation) int64 {
	if o.Deadline == 0 {
		return o.Grace
	}
	return max(0, (o.Deadline-c.now)/Second)
}

// drainEnds is when the grace of a drain ends: the operator's deadline while it evicts, the provider's from the Drain on.
func (o *operation) drainEnds() int64 {
	if o.DrainEnds > 0 {
		return o.DrainEnds
	}
	return o.Deadline
}

// drainDeadline ends the wait for the operator's last word: a preemption drains at its own deadline, a voluntary reclaim is
// given up unless the policy is to force it.
func (c *draining) drainDeadline(id string) {
	o := c.ops.byID[id]
	if o == nil || o.Phase != phaseInstructing || o.Deadline == 0 {
		return
	}
	if o.Kind == KindPreempt || c.cfg.DrainForce {
		c.drainNow(o, "the deadline of the drain has passed")
		return
	}
	c.giveUpDrain(o, "the operator did not report within the deadline that the node is empty")
}

// giveUpDrain ends a voluntary drain that its cluster does not let happen. The machine stays and is left alone for a while
// (SHARD-17.11).
func (c *draining) giveUpDrain(o *operation, why string) {
	if n := len(o.Drain.Blocking); n > 0 {
		why += "; blocked by " + strings.Join(o.Drain.Blocking[:min(n, 5)], ", ")
	}
	b := c.guards.drains[o.Machine]
	if b == nil {
		b = &drainBackoff{}
		if c.guards.drains == nil {
			c.guards.drains = map[string]*drainBackoff{}
		}
		c.guards.drains[o.Machine] = b
	}
	b.Backoff.fail(rampDrain, c.now, o.Machine+"/drain")
	b.Why = clipText(why)
	c.timers.add(b.Backoff.Until, timerDispatch, "")
	c.cancelInstruction(o, why)
	c.endCancelled(o, why)
	c.cycle.Redispatch = true
}

// ackWaitOver drains for a Preempt whose ack did not come in time (SHARD-17.5).
func (c *draining) ackWaitOver(id string) {
	o := c.ops.byID[id]
	if o == nil || o.Phase != phaseInstructing || o.Kind != KindPreempt || o.Acked {
		return
	}
	if o.Deadline != 0 { // its operator says when the node is empty; the deadline stands
		c.commit(o)
		return
	}
	c.drainNow(o, "cordon unconfirmed")
}

// drainNow makes the operation ready to send Drain. The machine is Draining once the command leaves. A note says why
// there was no ack.
func (c *draining) drainNow(o *operation, note string) {
	if note != "" {
		c.recordOp(RecordStarted, o, "", note)
	}
	o.Phase = phaseReady
	c.commit(o)
	c.cycle.Redispatch = true
}

// drainUnannounced drains for a Preempt whose cluster has no session, so that no operator can evict (SHARD-17.5). First it waits
// for one handover of the operator.
func (c *draining) drainUnannounced(o *operation) {
	if c.cfg.SessionHandoverWait > 0 {
		if o.Instruction == "" {
			o.Instruction = wireID(o.ID, "reclaim", 1)
			c.ops.byInstr[o.Instruction] = o
		}
		o.Phase = phaseInstructing
		c.timers.add(c.now+c.cfg.SessionHandoverWait, timerHandover, o.ID)
		c.timers.add(c.now+reclaimRepeat, timerRepeat, o.ID) // a session that comes in time gets the instruction, and may not answer either
		c.timers.add(c.now+c.cfg.SessionHandoverWait+preemptAckWait, timerAckWait, o.ID)
		return
	}
	c.drainWithoutSession(o)
}

// handoverOver drains for a Preempt for which no session came.
func (c *draining) handoverOver(id string) {
	o := c.ops.byID[id]
	if o == nil || o.Phase != phaseInstructing || c.frozen() {
		return
	}
	if cl := c.clusters.get(o.Cluster); cl == nil || !cl.connected() {
		c.drainWithoutSession(o)
	}
}

func (c *draining) drainWithoutSession(o *operation) {
	c.sample(MetricEvictionsSkipped, "", 1)
	c.drainNow(o, "eviction skipped: the cluster has no session")
}

// sendDrain moves the machine to Draining, with its reservation if it has one, and sends the command.
func (c *draining) sendDrain(o *operation) {
	inv := c.world.Inventory
	if inv.State(o.Index) != inventory.Draining {
		o.DrainEnds = c.now + c.graceLeft(o)*Second
		if o.Cause == engine.CauseNotJoined {
			c.ledger.join.Drained(o.Cluster, c.now)
			c.clusters.ensure(o.Cluster).facts = true
		}
		c.withholdAfter(o)
		c.machines.move(o.Index, inventory.Draining, o.Cluster)
		if o.Promise != nil {
			p := *o.Promise
			p.Expires = o.DrainEnds + c.policy.DrainMargin*Second
			inv.SetPromise(o.Index, &p)
		}
		c.machines.announce(o.Index)
	}
	c.commands.send(o)
}

// drained clears what bound the machine, when the drain has ended and not when it was acknowledged (SHARD-14.5).
func (c *draining) drained(o *operation) {
	delete(c.guards.drains, o.Machine)
	delete(c.ops.byInstr, o.Instruction)
	c.withholdAfter(o)
}

// withholdAfter keeps a machine away for a while, if it is drained for what it is. It holds from the drain on: a plan may promise
// a machine that drains, and the cluster that gives it up would get it straight back.
func (c *draining) withholdAfter(o *operation) {
	if mark, withheld := c.markAfter(o); withheld {
		c.world.Inventory.Withhold(o.Index, mark)
	}
}

// markAfter is how a machine is withheld after a drain: from the cluster that its node did not join (ENG-17.7), or from all, if a
// person drained it (SHARD-18.11).
func (c *draining) markAfter(o *operation) (mark inventory.Withheld, withheld bool) {
	until := c.now + c.policy.JoinRetryHold
	switch o.Cause {
	case engine.CauseNotJoined:
		return inventory.Withheld{Reason: inventory.WithheldNotJoined, Until: until, Cluster: o.Cluster}, true
	case engine.CauseDrained:
		return inventory.Withheld{Reason: inventory.WithheldDrained, Until: until}, true
	}
	return mark, false
}

// cancelUnwanted ends drains that the new plan does not ask for any more, as long as nothing but an instruction was
// sent. A peer that cannot receive a withdrawal has cordoned for good: its operation waits for the ack and continues (SHARD-17.4).
func (c *draining) cancelUnwanted(wanted map[string]bool) {
	turns := max(1, int64(c.cycle.result.Counters.Groups)) // a plan in which some Needs are postponed says nothing about those of the others
	for _, o := range c.ops.ordered() {
		if wanted[o.Machine] {
			o.Wanted = c.cycle.N
		}
		if o.Phase != phaseInstructing || c.cycle.N-o.Wanted < turns || o.Committed || c.coord.evicting(o.Machine) {
			continue
		}
		cl := c.clusters.get(o.Cluster)
		if cl == nil || !cl.connected() || !cl.has.reclaimCancel {
			continue
		}
		c.cancelInstruction(o, "no longer wanted")
		c.endCancelled(o, "the plan no longer uses the machine")
	}
}

func (c *draining) endCancelled(o *operation, why string) {
	c.commands.end(o, OutcomeCancelled, why)
}

// cancelInstruction takes an instruction back, so that the operator uncordons.
func (c *draining) cancelInstruction(o *operation, why string) {
	delete(c.ops.byInstr, o.Instruction)
	cl := c.clusters.get(o.Cluster)
	if cl == nil || !cl.connected() || !cl.has.reclaimCancel {
		return
	}
	c.recordOp(RecordEnded, o, "cancellation_sent", why)
	c.sendInstruction(o, cl, 0, true, why)
}

// drainReported keeps the operator's last word on a drain (SHARD-17.9).
func (c *draining) drainReported(e DrainReported) {
	o := c.ops.byInstr[e.Instruction]
	if o == nil || o.Cluster != e.Cluster {
		return
	}
	if cl := c.clusters.get(e.Cluster); !cl.current(e.Session) {
		return
	}
	if e.State == drainDone && o.DrainEnds > 0 && c.now >= o.DrainEnds {
		return // nothing is evicted after the deadline: what was left went with the machine
	}
	o.Drain = drainNote{State: e.State, PodsLeft: e.PodsLeft, Blocking: e.Blocking, Reason: e.Reason}
	if o.Phase != phaseInstructing || o.Deadline == 0 {
		return
	}
	switch {
	case e.State == drainDone && o.Acked: // else the ack, which is repeated until it comes, continues
		c.drainNow(o, "")
	case e.State == drainDeadlineExceeded && (o.Kind == KindPreempt || c.cfg.DrainForce):
		c.drainNow(o, "the deadline of the drain has passed")
	case (e.State == drainDeadlineExceeded || e.State == drainStopped) && o.Kind == KindReclaim:
		why := "the drain was stopped"
		if e.State == drainDeadlineExceeded {
			why = "the deadline of the drain has passed"
		}
		if e.Reason != "" {
			why += ": " + e.Reason
		}
		c.giveUpDrain(o, why)
	}
}
