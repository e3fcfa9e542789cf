package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// commandDone takes the end of one attempt.
func (c *commands) commandDone(e CommandDone) {
	o := c.ops.byID[e.Op]
	if o == nil || o.Phase != phaseSending || o.Attempt != e.Attempt {
		return
	}
	o.Token, o.ProviderOp = e.Token, e.ProviderOp
	p := c.provider(o.Provider)
	class := Classify(e.Code, e.Sent, e.Ack != nil && e.AckRejected == "")
	c.machines.observeRPC(o, e)
	c.ownership.suspectIntruder(o, e.Code)
	p.Breaker.done(c.shared, p, hurtsBreaker(e.Code, class))
	p.throttle(class, e.Code)
	c.dispatcher.releaseSlot(o)
	if class == FenceSuspect {
		c.fenceSuspected(o, e)
		return
	}
	p.Fence.ended(c, p, o, class, e.Code)
	if p.Fence.unresolved(o) {
		o.Phase = phaseFenced // the confirming attempt had no answer; it is made again
		return
	}
	switch class {
	case Accepted:
		c.accepted(o, e)
	case NotTouched:
		c.notTouched(o, e)
	case Unknown:
		c.unknown(o, fmt.Sprintf("%s: %s", e.Code, clipText(e.Detail)))
	case Refused:
		c.refused(o, e)
	case Gone:
		o.Gone = true
		c.unknown(o, "the provider does not know the machine")
	}
}

// accepted merges the ack as a fact; the operation waits for its terminal state (SHARD-14.6).
func (c *commands) accepted(o *operation, e CommandDone) {
	c.guards.commandTaken(o)
	o.Phase, o.Accepted, o.Asks, o.Gone = phaseWaiting, c.now, 0, false
	if o.rpc() == RPCConfigure {
		c.emit(DropBlob{Request: o.Request})
		o.BlobAt = 0
	}
	c.provider(o.Provider).noteAccepted(c.now)
	c.touched(o.Index)
	c.cols.at(o.Index).mutation = 0 // the ack itself is not older than the change
	f := *e.Ack
	if f.Machine.State == o.rpc().start() { // an ack whose snapshot predates the transition says nothing new
		c.touched(o.Index)
		c.machines.announce(o.Index)
		return
	}
	was := c.world.Inventory.Machine(o.Index)
	c.merger.adopt(o.Index, f, o)
	c.touched(o.Index)
	if c.ops.byID[o.ID] != nil && was.State == c.world.Inventory.State(o.Index) {
		c.machines.announce(o.Index) // first shown now, although the record is what we made it at dispatch
	}
}

// notTouched rolls the operation back; the machine is never Failed for it.
func (c *commands) notTouched(o *operation, e CommandDone) {
	c.guards.backoffFail(o, rampNotTouched)
	detail := fmt.Sprintf("%s: %s", e.Code, clipText(e.Detail))
	c.rollBack(o, OutcomeNotTouched, detail)
}

// refused makes the machine Failed with the reason; a later fact with another state is adopted as ever (SHARD-14.8).
func (c *commands) refused(o *operation, e CommandDone) {
	c.guards.backoffFail(o, rampRefused)
	switch o.rpc() {
	case RPCConfigure:
		c.bootstraps.blobSuspected(o, e.Detail)
	case RPCCreate:
		c.pools.poolFailed(o)
	}
	inv := c.world.Inventory
	m := inv.Machine(o.Index)
	m.State, m.LastError = inventory.Failed, clipText(fmt.Sprintf("the provider refused %s: %s", o.rpc(), e.Detail))
	if o.drains() && o.Instruction != "" {
		c.draining.cancelInstruction(o, "the provider refused the drain")
	}
	c.machines.putKnown(o.Index, m)
	inv.SetSince(o.Index, c.now)
	inv.SetPromise(o.Index, nil)
	c.touched(o.Index)
	c.record(Record{Type: RecordMachineFailed, Machine: o.Machine, Provider: o.Provider, Cluster: o.Cluster,
		From: o.Before.State, To: inventory.Failed, Detail: m.LastError})
	c.end(o, OutcomeRefused, m.LastError)
	c.machines.announce(o.Index)
}

// unknown keeps the transitional state and asks with Get: a timeout proves nothing (SHARD-14.7).
func (c *commands) unknown(o *operation, why string) {
	o.Phase = phaseAsking
	o.Asks++
	c.cols.at(o.Index).mutation = 0
	c.touched(o.Index)
	c.timers.add(c.now+rampAsk.after(int(o.Asks)), timerAsk, o.ID)
	_ = why
}

// askAgain sends the Get that an unknown outcome waits for.
func (c *commands) askAgain(id string) {
	if o := c.ops.byID[id]; o != nil && o.Phase == phaseAsking {
		c.reconciler.want(o.Provider, o.Machine, getForOperation)
	}
}

// answered judges an operation whose outcome was unknown by what Get says.
func (c *commands) answered(o *operation, e GetDone) {
	switch {
	case e.NotFound && o.Gone:
		c.vanish(o.Index, "the provider does not know the machine")
	case e.NotFound:
		o.Gone = true
		c.unknown(o, "not found")
	case e.Code != CodeOK || e.Row == nil:
		c.unknown(o, "no answer")
	case e.Row.Machine.State == o.rpc().start() && o.Before.State == o.rpc().start() && !c.reboundElsewhere(o, e.Row):
		c.retry(o)
	default:
		s := e.Row.Machine.State
		if s == o.rpc().middle() || s == o.rpc().target() {
			o.Phase, o.Accepted = phaseWaiting, c.now
			c.guards.commandTaken(o)
			c.provider(o.Provider).noteAccepted(c.now)
		}
		if c.merger.adopt(o.Index, *e.Row, o) == mergedNothing {
			c.machines.announce(o.Index)
		}
		if c.ops.byID[o.ID] != nil && o.Phase == phaseAsking {
			c.advance(o, o.Index, c.world.Inventory.Machine(o.Index))
		}
	}
}

// reboundElsewhere reports whether a machine that we drain serves another need: the drain has had its effect, and the owner of the
// Idle machine has configured it since, another shard for example. A second Drain would hit that workload.
func (c *commands) reboundElsewhere(o *operation, f *Fact) bool {
	return o.rpc() == RPCDrain && (f.Machine.Cluster != o.Cluster || c.cfg.Coordinated && !c.ownership.mine(&f.Machine, f.Owner))
}

// retry sends the same command once more with a fresh token: the contract makes a repeat with the same target safe. At
// most three attempts, then the operation is rolled back.
func (c *commands) retry(o *operation) {
	o.Gone = false
	if o.Attempt >= commandAttempts {
		c.guards.backoffFail(o, rampNotTouched)
		c.rollBack(o, OutcomeUnknown, fmt.Sprintf("the provider did not answer %d attempts, and the machine's state did not change", o.Attempt))
		return
	}
	o.Phase = phaseReady
	c.cycle.Redispatch = true
}

// advance moves an operation by an adopted fact.
func (c *commands) advance(o *operation, i inventory.Index, m inventory.Machine) {
	if o.Phase == phaseInstructing { // a drain that waits for its operator is about this machine in that cluster, and nothing else
		why := "the machine is " + m.State.String() + " already"
		if m.State == inventory.Configured {
			why = "the machine serves another cluster"
		}
		c.draining.cancelInstruction(o, why)
		c.endStale(o, why)
		c.machines.announce(i)
		return
	}
	r := o.rpc()
	switch {
	case m.State == r.target() && (r != RPCConfigure || m.Cluster == o.Cluster):
		c.machines.observePhase(o)
		c.guards.backoffCleared(o)
		switch {
		case o.drains():
			c.draining.drained(o)
		case r == RPCCreate:
			c.pools.created(m)
		case r == RPCConfigure:
			c.bootstraps.templateWorked(o)
		}
		c.end(o, OutcomeSuccess, o.forced(c.now))
	case m.State == r.middle() && (r != RPCConfigure || m.Cluster == o.Cluster):
		if o.Phase == phaseAsking {
			o.Phase, o.Accepted = phaseWaiting, c.now
		}
	case m.State == inventory.Failed:
		c.failedOnTheWay(o, m)
	case m.State == r.start() && (r != RPCDrain || m.Cluster == o.Cluster):
		c.guards.backoffFail(o, rampRefused)
		c.end(o, OutcomeFailed, "the machine returned to "+m.State.String())
	default:
		c.endStale(o, "the machine is "+m.State.String())
	}
	c.machines.announce(i)
}

func (c *commands) endStale(o *operation, detail string) {
	if o.drains() && o.Instruction != "" && !o.Acked {
		delete(c.ops.byInstr, o.Instruction)
	}
	c.end(o, OutcomeStaleState, detail)
}

// Classes of Machine.failure on the wire that the core tells apart.
const (
	failureCapacity  = 1
	failureQuota     = 2
	failureBootstrap = 4
	failureNotReady  = 5
	failureHostLost  = 8
)

// failedOnTheWay ends an operation whose machine failed after the command was accepted.
func (c *commands) failedOnTheWay(o *operation, m inventory.Machine) {
	c.guards.backoffFail(o, rampRefused)
	switch o.rpc() {
	case RPCConfigure:
		if m.Failure == 0 || m.Failure == failureBootstrap || m.Failure == failureNotReady {
			c.bootstraps.blobSuspected(o, m.LastError)
		}
	case RPCCreate:
		if m.Failure == 0 || m.Failure == failureCapacity || m.Failure == failureQuota {
			c.pools.poolFailed(o)
		}
	}
	c.end(o, OutcomeFailed, clipText(m.LastError))
}

// vanish removes a machine that the provider does not know any more (SHARD-13.13).
func (c *commands) vanish(i inventory.Index, why string) {
	inv := c.world.Inventory
	m := inv.Machine(i)
	o := c.ops.byMachine[m.ID]
	c.record(Record{Type: RecordMachineVanished, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster, From: m.State, Detail: why})
	to, shown := c.machines.shownTo(i)
	if subscriber := c.machines.subscribed(i); !shown && subscriber != "" {
		to, shown = subscriber, true
	}
	if shown {
		gone := m
		gone.State, gone.LastError = inventory.Failed, "no longer exists at the provider"
		c.machines.release(i, to, gone)
	}
	if o != nil {
		if o.Kind == KindDelete {
			c.machines.observePhase(o)
			c.end(o, OutcomeSuccess, "")
		} else {
			if o.drains() {
				delete(c.ops.byInstr, o.Instruction)
			}
			c.end(o, OutcomeFailed, "the machine no longer exists at the provider")
		}
	}
	if cl := c.clusters.get(m.Cluster); cl != nil && boundState(m.State) {
		c.ledger.lostMachine(cl.Name)
	}
	c.machines.removeMachine(i)
	c.ownership.giveBack(func(e Exception) bool { return e.Machine == m.ID })
}

// handOver starts the Bootstrap of a promised machine that has become Idle, if the last plan credited it to the need of
// its promise; otherwise the promise ends (SHARD-15.9). So there is no window in which a promised machine is free, and
// none is forced on a need that went away.
func (c *commands) handOver(i inventory.Index) {
	inv := c.world.Inventory
	p, ok := inv.Promise(i)
	if !ok || c.cycle.result == nil {
		return
	}
	ref, yes := c.cycle.result.HandsOver(i, p)
	if !yes {
		inv.SetPromise(i, nil)
		c.machines.announce(i)
		return
	}
	if p.Expires == 0 { // a start that is held back or undone must not keep the machine forever for a need that may go away
		p.Expires = c.now + c.policy.DrainMargin*Second
		inv.SetPromise(i, &p)
	}
	d := c.decisionOf(engine.Action{Machine: i, Kind: KindBootstrap, Cause: engine.CauseHandover, Need: ref,
		Cost: c.machines.effectiveCost(i, p), Drain: -1})
	d.planned = c.now
	if c.dispatcher.mayStart(d) == notBlocked {
		c.dispatcher.startDecision(d)
	}
}
