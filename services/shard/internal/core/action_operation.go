package core

import (
	"strconv"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// operationID makes the id of an operation: shard, epoch, counter (SHARD-4.4).
func (c *commands) operationID(n int64) string {
	return c.cfg.ShardID + "/" + strconv.FormatInt(c.epoch, 10) + "/" + strconv.FormatInt(n, 10)
}

// wireID is the id of a bootstrap request or reclaim instruction of an operation's attempt.
func wireID(op string, what string, attempt int64) string {
	return hex16(newHash().str(op).str(what).i64(attempt).sum())
}

func (c *commands) snapshot(i inventory.Index) before {
	inv := c.world.Inventory
	b := before{State: inv.State(i), Cluster: inv.Cluster(i), Since: inv.Since(i), Ready: uint8(inv.Readiness(i))}
	if s, ok := inv.Attribution(i); ok {
		b.Attribution = &s
	}
	if p, ok := inv.Promise(i); ok {
		b.Promise = &p
	}
	return b
}

// open makes an operation of a decision and records its start. The caller moves the machine.
func (c *commands) open(d *decision) *operation {
	c.opCount++
	v := &d.view
	o := &operation{
		ID: c.operationID(c.opCount), N: c.opCount, Kind: v.Kind, Index: d.index, Machine: v.Machine,
		Provider: c.world.Inventory.Provider(d.index), Cluster: v.Cluster, Cycle: d.cycle, Cause: v.Cause,
		Need: v.Row, RowID: v.RowID, Priority: v.Priority, Domain: v.Domain, Cost: v.Cost, Price: v.Price,
		Score: v.Score, Terms: termsOf(v.Terms), Grace: v.Grace, Preemptor: v.Preemptor, PreemptorCluster: v.PreemptorCluster,
		PreemptorRowID: v.PreemptorRowID, PreemptorPriority: v.PreemptorPriority, Attribution: d.attribution, Reqs: d.reqs, Promise: d.promise, Started: c.now,
		Unmet: c.ledger.unmetSince(v.Cluster, v.Row), Planned: d.planned, Wanted: d.cycle, Before: c.snapshot(d.index),
	}
	if v.Kind == KindDelete {
		o.Cluster = ""
	}
	c.ops.add(o)
	c.guards.started(v.Kind)
	how := ""
	if v.Cause == engine.CauseHandover {
		how = ByHandover
	}
	c.emit(Sample{Metric: MetricActions, Label1: v.Kind.String(), Label2: how, Value: 1})
	c.emit(Sample{Metric: MetricDispatchWait, Label1: v.Kind.String(), Value: c.now - d.planned})
	c.recordOp(RecordStarted, o, "", c.whyEmptied(o))
	return o
}

// whyEmptied says of a machine whose node took no Pods why not: its Pods have left, so it is surplus.
func (c *commands) whyEmptied(o *operation) string {
	if cl := c.clusters.get(o.Cluster); o.Kind == KindReclaim && cl != nil {
		if out, is := cl.out[o.Machine]; is {
			return "Its Node took no Pods: " + out.String() + "."
		}
	}
	return ""
}

// end closes an operation with its one outcome (SHARD-15.11) and frees what it held.
func (c *commands) end(o *operation, out Outcome, detail string) {
	c.dispatcher.releaseSlot(o)
	c.draining.uncommit(o)
	if mark, withheld := c.draining.markAfter(o); withheld && out != OutcomeSuccess {
		c.world.Inventory.Lift(o.Index, mark.Reason, mark.Cluster)
	}
	if o.BlobAt != 0 || o.Phase == phasePulling {
		c.emit(DropBlob{Request: o.Request})
	}
	c.ops.remove(o)
	c.emit(Sample{Metric: MetricOutcomes, Label1: o.Kind.String(), Label2: out.String(), Value: 1})
	c.recordOp(RecordEnded, o, out.String(), detail)
	c.emit(Persist{Bucket: BucketJournal, Key: o.Machine})
	if out == OutcomeSuccess && o.Kind == KindDelete {
		c.sample(MetricIdleReleases, "", 1)
	}
	c.reconciler.requestOwed(o)
	if c.cfg.Coordinated {
		if i, ok := c.world.Inventory.Find(o.Machine); ok {
			c.ownership.reown(i)
		}
		if len(c.coord.Waiting) > 0 {
			c.timers.add(c.now, timerInstruction, "")
		}
	}
	c.trigger(triggerMachine)
}

// restore puts the machine's record back to what it was before the operation.
func (c *commands) restore(o *operation) {
	inv := c.world.Inventory
	if i, ok := inv.Find(o.Machine); !ok || i != o.Index {
		return
	}
	c.draining.uncommit(o)
	c.machines.move(o.Index, o.Before.State, o.Before.Cluster)
	inv.SetAttribution(o.Index, o.Before.Attribution)
	inv.SetPromise(o.Index, o.Before.Promise)
	inv.SetSince(o.Index, o.Before.Since)
	inv.SetReadiness(o.Index, inventory.Readiness(o.Before.Ready))
}

// rollBack ends an operation of which no provider call can have taken effect (SHARD-14.1).
func (c *commands) rollBack(o *operation, out Outcome, detail string) {
	c.restore(o)
	if o.drains() && o.Instruction != "" {
		c.draining.cancelInstruction(o, "the machine stays")
	}
	c.end(o, out, detail)
	c.machines.announceRollback(o)
}
