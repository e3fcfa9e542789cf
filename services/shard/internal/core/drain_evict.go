package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// evictPatience is how long the machines of a tier 3 move may take to be drained: the longest grace, and time for the
// reclaim budget to let them go. What is Idle by then is given, the others stay.
const evictPatience = 30 * Minute

// evict begins a reservation of machines that have to be drained first (COORD-12.13). They are reserved from here on, so
// that no need takes them when they are Idle; they go through the same Reclaim, guards and budget as any other machine.
func (c *coordinatorState) evict(x Instruction) {
	r := x.Reserve
	if c.cycle.result == nil {
		c.reply(x, InstructionFailed, "no cycle has run yet", nil)
		return
	}
	inv := c.world.Inventory
	var ids []string
	for _, v := range planner.Evictable(c.world, c.policy, c.cycle.result, r.Priority, r.Interruption) {
		m := inv.Machine(v.Machine)
		if int64(len(ids)) == r.Count {
			break
		}
		if c.ops.byMachine[m.ID] != nil || len(inv.Withheld(v.Machine)) > 0 || !c.wantedBy(r, &m) {
			continue
		}
		inv.Withhold(v.Machine, inventory.Withheld{Reason: inventory.WithheldReserved})
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		c.reply(x, InstructionInvalid, "no machine here has a lower priority and a lower penalty", nil)
		return
	}
	c.record(Record{Type: RecordInstruction, Outcome: "draining", Detail: clipText(fmt.Sprintf("%s: %d machines are drained for move %s to %s", x.ID, len(ids), r.Move, r.To))})
	c.wait(pendingInstruction{Instruction: x, Deadline: c.now + evictPatience, Pending: ids})
	c.trigger(triggerAdmin)
}

// wantedBy reports whether a machine is of the kind that a move asks for.
func (c *coordinatorState) wantedBy(r *ReserveInstruction, m *inventory.Machine) bool {
	return (r.InstanceType == "" || m.InstanceType == r.InstanceType) && (r.Zone == "" || m.Zone == r.Zone) &&
		(r.CapacityType == 0 || uint8(m.CapacityType) == r.CapacityType) && satisfies(m, r.Requirements) && holds(m, r)
}

// planEvictions adds the drains of moves to the decisions of a new plan.
func (c *coordinatorState) planEvictions(planned map[planKey]int64, wanted map[string]bool) {
	for _, w := range c.Waiting {
		r := w.Instruction.Reserve
		if r == nil || len(w.Pending) == 0 {
			continue
		}
		for _, v := range planner.Evictable(c.world, c.policy, c.cycle.result, r.Priority, r.Interruption) {
			id := c.world.Inventory.ID(v.Machine)
			key := planKey{id, KindReclaim}
			if _, already := planned[key]; already || !slices.Contains(w.Pending, id) {
				continue
			}
			at, old := c.cycle.planned[key]
			if !old {
				at = c.now
			}
			planned[key], wanted[id] = at, true
			a := engine.Action{Kind: KindReclaim, Machine: v.Machine, Need: engine.NoNeed, Drain: -1, Cause: engine.CauseMoved}
			c.cycle.waiting[KindReclaim] = append(c.cycle.waiting[KindReclaim], decision{action: a, index: v.Machine, machine: id,
				cycle: c.cycle.N, planned: at, evict: &eviction{v, r.Priority}})
		}
	}
}

// evicting reports whether a machine's drain belongs to a move that still waits for it.
func (c *coordinatorState) evicting(id string) bool {
	return slices.ContainsFunc(c.Waiting, func(w pendingInstruction) bool {
		return w.Instruction.Reserve != nil && slices.Contains(w.Pending, id)
	})
}

// drainedFor looks which machines of a move are Idle, and which will never be.
func (c *coordinatorState) drainedFor(w *pendingInstruction) {
	inv := c.world.Inventory
	w.Pending = slices.DeleteFunc(slices.Clone(w.Pending), func(id string) bool {
		i, ok := inv.Find(id)
		if !ok {
			return true
		}
		switch s := inv.State(i); {
		case s == inventory.Configured || s == inventory.Draining || c.ops.byMachine[id] != nil:
			return false
		case s == inventory.Idle && !inv.Foreign(i):
			w.Taken = append(w.Taken, id)
			return true
		}
		inv.Lift(i, inventory.WithheldReserved, "")
		return true
	})
}

// evicted answers a tier 3 reservation with what could be drained.
func (c *coordinatorState) evicted(w pendingInstruction) {
	r := w.Instruction.Reserve
	c.unreserve(w.Pending)
	if len(w.Taken) == 0 {
		c.reply(w.Instruction, InstructionInvalid, "none of the machines could be drained in time", nil)
		return
	}
	slices.Sort(w.Taken)
	kept := Reservation{Move: r.Move, To: r.To, Machines: w.Taken}
	c.ctl.Reservations = append(slices.Clone(c.ctl.Reservations), kept)
	c.trigger(triggerAdmin)
	c.reply(w.Instruction, InstructionAccepted, "", kept.Machines, Persist{Bucket: BucketReservations, Key: kept.Move, Value: codec.Marshal(kept)})
}

// unreserve lets machines go that were marked for a move.
func (c *coordinatorState) unreserve(ids []string) {
	for _, id := range ids {
		if i, ok := c.world.Inventory.Find(id); ok {
			c.world.Inventory.Lift(i, inventory.WithheldReserved, "")
		}
	}
	c.trigger(triggerAdmin)
}
