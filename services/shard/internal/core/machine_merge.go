package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// merged is the verdict on one fact.
type merged uint8

const (
	mergedNothing  merged = iota // same as known
	mergedAdopted                // adopted
	mergedSetAside               // not judged now; to be asked for again (SHARD-13.7)
)

// merge takes in one fact of a request that was sent when the mutation counter stood at asked (SHARD-13.6).
//
// A List answered before a Configure and applied after it would undo the binding and hand the machine to someone else:
// so a fact is set aside while a command is in flight or a pull waits, and when the machine changed after the request.
func (c *merger) merge(f Fact, asked int64) merged {
	i, known := c.world.Inventory.Find(f.Machine.ID)
	_, did := c.mergeAt(i, known, f, asked)
	return did
}

// mergeAt is merge where the caller has looked up the machine. It answers where the machine is now, None if nowhere.
func (c *merger) mergeAt(i inventory.Index, known bool, f Fact, asked int64) (inventory.Index, merged) {
	if !known {
		return c.meet(f)
	}
	return i, c.mergeKnown(i, f, asked)
}

func (c *merger) mergeKnown(i inventory.Index, f Fact, asked int64) merged {
	o := c.ops.byMachine[f.Machine.ID]
	if o != nil {
		switch o.Phase {
		case phasePulling, phaseReady, phaseSending, phaseFenced:
			if !o.untouched() || c.cols.at(i).mutation > asked || o.expects(f.Machine) {
				return mergedSetAside
			}
			// Asked for after the operation began, and nothing of the operation was sent: what it began on is not so.
			c.commands.rollBack(o, OutcomeStaleState, "the machine is "+f.Machine.State.String())
			return c.adopt(i, f, nil)
		case phaseAsking:
			if s := f.Machine.State; s != o.rpc().middle() && s != o.rpc().target() {
				return mergedSetAside // Get decides whether the command took effect (SHARD-14.7)
			}
		}
	}
	if c.cols.at(i).mutation > asked {
		return mergedSetAside
	}
	return c.adopt(i, f, o)
}

// adopt makes a fact the record of a machine, whatever edge it implies (SHARD-14.2).
func (c *merger) adopt(i inventory.Index, f Fact, o *operation) merged {
	inv := c.world.Inventory
	old := inventory.Machine{State: inv.State(i), Cluster: inv.Cluster(i)} // what an edge is judged by
	m := f.Machine
	if !boundState(m.State) && m.State != inventory.Failed {
		m.Cluster = "" // soft: a cluster on IDLE or DELETING is read as empty
	}
	explained, foreign := c.explains(o, old.State, m.State), inv.Foreign(i)
	held := c.ownership.boughtAsMine(o, i)
	if !c.machines.putKnown(i, m) {
		return mergedNothing
	}
	if old.State != m.State || old.Cluster != m.Cluster {
		if old.State != m.State {
			inv.SetSince(i, c.now)
			inv.SetStuck(i, false)
			c.touched(i)
		}
		if !foreign { // else it is the other shard that has a command to explain it
			c.noteEdge(i, old, m, explained)
		}
		c.attribute(i, old, m, f)
	}
	c.ownership.ownMachine(i, f)
	if o != nil && (old.State != m.State || o.Phase == phaseInstructing && m.Cluster != o.Cluster) {
		if m.State == inventory.Idle {
			c.ownership.relabelled(o, i, held)
		}
		c.commands.advance(o, i, m)
	} else {
		c.machines.announce(i)
	}
	c.afterEdge(i, old.State)
	return mergedAdopted
}

// explains reports whether an operation of ours leads over an edge: to its target, or, where it does not succeed, to Failed
// or back to where it began. How it ended is said by the operation itself.
func (c *merger) explains(o *operation, from, to inventory.State) bool {
	if from == to {
		return true
	}
	if o == nil {
		return false
	}
	r := o.rpc()
	switch {
	case from == r.middle() && to == r.start():
		return true
	case from != r.start() && from != r.middle():
		return false
	}
	return to == r.middle() || to == r.target() || to == inventory.Failed
}

// noteEdge records edges without a command of ours and bindings that contradict ours (SHARD-14.2, 14.4).
func (c *merger) noteEdge(i inventory.Index, old, m inventory.Machine, explained bool) {
	if !explained {
		c.emit(Sample{Metric: MetricUnexpectedEdges, Label1: old.State.String(), Label2: m.State.String(), Value: 1})
		c.record(Record{Type: RecordUnexpectedEdge, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster,
			From: old.State, To: m.State, Detail: "no command of this shard caused this"})
		if old.State == inventory.Configured && c.clusters.get(old.Cluster) != nil {
			c.ledger.lostMachine(old.Cluster)
		}
	}
	if old.Cluster != "" && m.Cluster != "" && old.Cluster != m.Cluster {
		c.sample(MetricBindingConflicts, "", 1)
		c.record(Record{Type: RecordBindingConflict, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster,
			Detail: fmt.Sprintf("bound to %s here, to %s at the provider", old.Cluster, m.Cluster)})
	}
	if m.State == inventory.Failed && old.State != inventory.Failed {
		c.record(Record{Type: RecordMachineFailed, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster,
			From: old.State, To: m.State, Detail: clipText(m.LastError)})
	}
	if old.State == inventory.Failed && m.State != inventory.Failed {
		c.record(Record{Type: RecordMachineRecovered, Machine: m.ID, Provider: m.Provider, Cluster: m.Cluster,
			From: old.State, To: m.State})
	}
}

// attribute keeps, takes or clears the attribution and promise of a machine whose state or binding changed (SHARD-14.3).
func (c *merger) attribute(i inventory.Index, old, m inventory.Machine, f Fact) {
	inv := c.world.Inventory
	switch {
	case boundState(m.State):
		if m.Cluster != old.Cluster {
			if f.HasAttribution {
				inv.SetAttribution(i, &f.Attribution)
			} else {
				inv.SetAttribution(i, nil)
			}
			if p, ok := inv.Promise(i); ok && p.Cluster != m.Cluster {
				inv.SetPromise(i, nil)
			}
			inv.SetReadiness(i, inventory.NoReport)
			if cl := c.clusters.get(m.Cluster); cl != nil {
				delete(cl.nodes, m.ID)
			}
		}
	case m.State == inventory.Failed:
		inv.SetPromise(i, nil)
	default:
		inv.SetAttribution(i, nil) // a dead workload's priority must not stay on an Idle machine
		inv.SetReadiness(i, inventory.NoReport)
		if m.State == inventory.Speculative || m.State == inventory.Deleting {
			inv.SetPromise(i, nil)
		}
	}
	if m.State == inventory.Configured && old.State != inventory.Configured {
		inv.SetPromise(i, nil) // bound now: the attribution says for whom
	}
}

// meet takes in a machine that was not known. Its attribution comes from the provider's echo (SHARD-13.14), or from
// the journal where the echo cannot have it (SHARD-13.15).
func (c *merger) meet(f Fact) (inventory.Index, merged) {
	inv := c.world.Inventory
	m := f.Machine
	if !boundState(m.State) && m.State != inventory.Failed {
		m.Cluster = ""
	}
	if c.admin.forgotten(f) {
		return inventory.None, mergedNothing
	}
	i := c.machines.putNew(m, c.now)
	c.cols.at(i).mutation = 0
	if boundState(m.State) && f.HasAttribution {
		inv.SetAttribution(i, &f.Attribution)
	}
	c.ownership.ownMachine(i, f)
	c.recovery.useJournal(i, m)
	c.coord.markReserved(i)
	c.machines.announce(i)
	c.afterEdge(i, 0)
	return i, mergedAdopted
}

// afterEdge arms the watchdog and starts what a new state calls for.
func (c *merger) afterEdge(i inventory.Index, from inventory.State) {
	inv := c.world.Inventory
	s := inv.State(i)
	if s == from {
		return
	}
	id := inv.ID(i)
	if limit := c.machines.stuckAfter(i); limit > 0 {
		c.timers.add(c.now+limit, timerStuck, id)
	}
	if s != inventory.Draining && !(s == inventory.Configured && from == 0) { // 0: it was not known, and its entry was looked at
		c.recovery.journalEnds(id)
	}
	c.guards.stateChanged(i, s)
	if s == inventory.Idle {
		c.commands.handOver(i)
	}
	if s == inventory.Configured {
		c.machines.observeConfigured(i)
	}
	if s == inventory.Speculative {
		c.ownership.slotReturned(id, from)
	}
}
