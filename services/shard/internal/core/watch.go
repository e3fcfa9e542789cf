package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// stuckAfter is how long a machine may stay in its state before somebody should look, or 0 (SHARD-14.14).
func (c *Core) stuckAfter(i inventory.Index) int64 {
	switch c.world.Inventory.State(i) {
	case inventory.Creating:
		return c.cfg.CreatingStuckAfter
	case inventory.Configuring:
		return c.cfg.ConfiguringStuckAfter
	case inventory.Draining:
		grace := c.policy.ReclaimGrace * Second
		if o := c.ops.byMachine[c.world.Inventory.ID(i)]; o != nil && o.drains() {
			grace = o.Grace * Second
		}
		return grace + drainStuckExtra
	case inventory.Deleting:
		return deletingStuck
	}
	return 0
}

// watch marks a machine that takes too long and asks about it every minute. A stuck promise must not hide unmet demand
// for ever, so it stops counting as supply; when it arrives it is ordinary supply.
func (c *Core) watch(id string) {
	inv := c.world.Inventory
	i, ok := inv.Find(id)
	if !ok {
		return
	}
	limit := c.stuckAfter(i)
	if limit == 0 {
		return
	}
	if late := inv.Since(i) + limit; c.now < late {
		c.timers.add(late, timerStuck, id)
		return
	}
	m := inv.Machine(i)
	if !inv.Stuck(i) {
		c.record(Record{Type: RecordMachineStuck, Machine: id, Provider: m.Provider, Cluster: m.Cluster, From: m.State,
			Detail: fmt.Sprintf("%s for %d s", m.State, (c.now-inv.Since(i))/Second)})
	}
	if m.State == inventory.Creating || m.State == inventory.Configuring || m.State == inventory.Draining {
		inv.SetStuck(i, true)
		c.trigger(triggerExpiry)
	}
	if !c.frozen() {
		c.want(m.Provider, id, getForStuck)
	}
	c.timers.add(c.now+stuckAskEvery, timerStuck, id)
}

// journalOp writes the hint that lets a restart restore what facts cannot show (SHARD-13.15).
func (c *Core) journalOp(o *operation) {
	e := JournalEntry{Machine: o.Machine, Kind: o.Kind, Cluster: o.Cluster, For: o.Stamp, Grace: o.Grace,
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
func (c *Core) useJournal(i inventory.Index, m inventory.Machine) {
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
	}
	delete(c.journal, m.ID)
	c.emit(Persist{Bucket: BucketJournal, Key: m.ID})
}

// dropJournal forgets the entries that no fact has used, once all facts are in.
func (c *Core) dropJournal() {
	for _, id := range sortedKeys(c.journal) {
		if i, ok := c.world.Inventory.Find(id); ok && c.world.Inventory.State(i) == inventory.Draining {
			continue
		}
		delete(c.journal, id)
		c.emit(Persist{Bucket: BucketJournal, Key: id})
	}
}

// reissueJournaled repeats the instructions of drains that the process before began, with what is left of their grace
// (SHARD-17.6, scenario 52).
func (c *Core) reissueJournaled(cl *cluster) {
	for _, id := range sortedKeys(c.journal) {
		e := c.journal[id]
		i, ok := c.world.Inventory.Find(id)
		if !ok || e.Cluster != cl.name || e.Instruction == "" || c.world.Inventory.State(i) != inventory.Draining {
			continue
		}
		cause := CauseVoluntary
		if e.Kind == KindPreempt {
			cause = CausePreempt
		}
		c.emit(SendReclaim{Instruction: e.Instruction, Cluster: cl.name, Session: cl.session, Machine: id,
			GraceSecs: max(0, (e.DrainEnds-c.wall)/Second), PreemptorPriority: e.PreemptorPriority, Cause: cause})
	}
}

// journalEnds drops the entry of a machine whose inherited drain has ended.
func (c *Core) journalEnds(id string) {
	if _, ok := c.journal[id]; ok {
		delete(c.journal, id)
		c.emit(Persist{Bucket: BucketJournal, Key: id})
	}
}
