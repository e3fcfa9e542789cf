package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// journalOp writes the hint that lets a restart restore what facts cannot show (SHARD-13.15).
func (c *recovery) journalOp(o *operation) {
	e := JournalEntry{Machine: o.Machine, Kind: o.Kind, Cluster: o.Cluster, For: o.Attribution, Grace: o.Grace,
		Started: c.toWall(o.Started), Instruction: o.Instruction, PreemptorPriority: o.PreemptorPriority}
	if o.DrainEnds > 0 {
		e.DrainEnds = c.toWall(o.DrainEnds)
	}
	if p := o.Promise; p != nil {
		e.Promise = &PromiseNote{Cluster: p.Cluster, For: p.For, Cause: uint8(p.Cause)}
		if p.Expires > 0 {
			e.Promise.Expires = c.toWall(p.Expires)
		}
	}
	c.emit(Persist{Bucket: BucketJournal, Key: o.Machine, Value: codec.Marshal(e)})
}

// useJournal restores the intent of a machine found Creating and the reservation of one found Draining. A fact that
// disagrees wins.
func (c *recovery) useJournal(i inventory.Index, m inventory.Machine) {
	e, ok := c.journal[m.ID]
	if !ok {
		return
	}
	inv := c.world.Inventory
	switch {
	case m.State == inventory.Creating && e.Kind == KindProvision:
		inv.SetPromise(i, &inventory.Promise{Cluster: e.Cluster, For: e.For, Cause: inventory.ForCreate})
		c.clusters.ensure(e.Cluster)
	case m.State == inventory.Draining && (e.Kind == KindReclaim || e.Kind == KindPreempt) && e.Cluster == m.Cluster:
		if p := e.Promise; p != nil {
			left := int64(0)
			if p.Expires > 0 {
				if left = c.now + (p.Expires - c.wall); left <= c.now {
					return
				}
				left = min(left, c.now+(e.Grace+c.policy.DrainMargin)*Second) // whatever the wall clock did meanwhile
			}
			inv.SetPromise(i, &inventory.Promise{Cluster: p.Cluster, For: p.For, Cause: inventory.PromiseCause(p.Cause), Expires: left})
		}
		return // kept: the instruction is repeated to each new session
	case c.instructedBefore(&e, i):
		return // kept: the instruction is taken back at the next session
	}
	delete(c.journal, m.ID)
	c.emit(Persist{Bucket: BucketJournal, Key: m.ID})
}

// instructedBefore reports whether the process before instructed an operator to drain a machine and had not sent Drain yet. What
// the operator does by that instruction continues while this process knows nothing of it.
func (c *recovery) instructedBefore(e *JournalEntry, i inventory.Index) bool {
	inv := c.world.Inventory
	return e.Instruction != "" && (e.Kind == KindReclaim || e.Kind == KindPreempt) && inv.State(i) == inventory.Configured && inv.Cluster(i) == e.Cluster
}

// dropJournal forgets the entries that no fact has used, once all facts are in.
func (c *recovery) dropJournal() {
	for _, id := range sortedKeys(c.journal) {
		e := c.journal[id]
		if i, ok := c.world.Inventory.Find(id); ok && (c.world.Inventory.State(i) == inventory.Draining || c.instructedBefore(&e, i)) {
			continue
		}
		delete(c.journal, id)
		c.emit(Persist{Bucket: BucketJournal, Key: id})
	}
}

// reissueJournaled repeats the instructions of drains that the process before began, with what is left of their grace
// (SHARD-17.6, scenario 52).
func (c *recovery) reissueJournaled(cl *cluster) {
	for _, id := range sortedKeys(c.journal) {
		e := c.journal[id]
		i, ok := c.world.Inventory.Find(id)
		if ok && e.Cluster == cl.Name && c.instructedBefore(&e, i) {
			if cl.has.reclaimCancel {
				c.emit(SendReclaim{Instruction: e.Instruction, Cluster: cl.Name, Session: cl.Session, Machine: id, Cause: CauseVoluntary, Cancelled: true,
					Reason: "the shard was restarted and decides again"})
			}
			c.journalEnds(id)
			continue
		}
		if !ok || e.Cluster != cl.Name || e.Instruction == "" || c.world.Inventory.State(i) != inventory.Draining {
			continue
		}
		cause := CauseVoluntary
		if e.Kind == KindPreempt {
			cause = CausePreempt
		}
		c.emit(SendReclaim{Instruction: e.Instruction, Cluster: cl.Name, Session: cl.Session, Machine: id,
			GraceSecs: max(0, (e.DrainEnds-c.wall)/Second), PreemptorPriority: e.PreemptorPriority, Cause: cause})
	}
}

// journalEnds drops the entry of a machine whose inherited drain has ended.
func (c *recovery) journalEnds(id string) {
	if _, ok := c.journal[id]; ok {
		delete(c.journal, id)
		c.emit(Persist{Bucket: BucketJournal, Key: id})
	}
}
