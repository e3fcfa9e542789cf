package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// The shard's two sides of a move of machines between shards (COORD-12.3): the donor reserves and lets go, the recipient adopts.

// reserve keeps machines for a move: unclaimed ones, beyond this shard's own margin, fewer than asked being fine
// (COORD-12.12).
func (c *coordinatorState) reserve(x Instruction) {
	r := x.Reserve
	if i := slices.IndexFunc(c.ctl.Reservations, func(o Reservation) bool { return o.Move == r.Move }); i >= 0 {
		c.reply(x, InstructionAccepted, "", c.ctl.Reservations[i].Machines)
		return
	}
	state := inventory.Idle
	switch r.Tier {
	case 1:
	case 2:
		state = inventory.Speculative
	case 3:
		c.evict(x)
		return
	default:
		c.reply(x, InstructionInvalid, fmt.Sprintf("tier %d does not exist", r.Tier), nil)
		return
	}
	free := c.reservable(r, state)
	if state == inventory.Idle { // a tenth of the bucket stays here, which of a small one is no machine
		free = free[:len(free)-len(free)/10]
	}
	free = free[:min(len(free), int(r.Count))]
	if len(free) == 0 {
		c.reply(x, InstructionInvalid, "no machine of this kind can be spared", nil)
		return
	}
	kept := Reservation{Move: r.Move, To: r.To}
	for _, i := range free {
		c.world.Inventory.Withhold(i, inventory.Withheld{Reason: inventory.WithheldReserved})
		kept.Machines = append(kept.Machines, c.world.Inventory.ID(i))
	}
	c.ctl.Reservations = append(slices.Clone(c.ctl.Reservations), kept)
	c.trigger(triggerAdmin)
	c.reply(x, InstructionAccepted, "", kept.Machines, Persist{Bucket: BucketReservations, Key: kept.Move, Value: codec.Marshal(kept)})
}

func (c *coordinatorState) reservable(r *ReserveInstruction, state inventory.State) (out []inventory.Index) {
	inv := c.world.Inventory
	for i := range inv.All() {
		m := inv.Machine(i)
		_, promised := inv.Promise(i)
		if m.State != state || inv.Foreign(i) || promised || len(inv.Withheld(i)) > 0 || c.ops.byMachine[m.ID] != nil ||
			!c.wantedBy(r, &m) ||
			c.plannedFor(m.ID) {
			continue
		}
		out = append(out, i)
	}
	return out
}

// holds reports whether a machine covers the smallest unit of the requester.
func holds(m *inventory.Machine, r *ReserveInstruction) bool {
	offer := m.Allocatable
	if len(offer) == 0 {
		offer = m.Resources
	}
	for _, u := range r.MinUnit {
		if !slices.ContainsFunc(offer, func(q quantity) bool { return q.Name == u.Name && q.Milli >= u.Milli }) {
			return false
		}
	}
	return true
}

// plannedFor reports whether the last plan takes a machine.
func (c *coordinatorState) plannedFor(id string) bool {
	for _, k := range []Kind{KindBootstrap, KindProvision} {
		if _, ok := c.cycle.planned[planKey{id, k}]; ok {
			return true
		}
	}
	return false
}

// transfer is either side of a move: the recipient asks the provider about each machine and adopts it, the donor then
// lets go of what was adopted (COORD-12.14, 12.15).
func (c *coordinatorState) transfer(x Instruction) {
	t := x.Transfer
	switch {
	case t.Move == "":
		c.reply(x, InstructionInvalid, "unsupported: no move id", nil)
	case t.To == c.cfg.ShardID:
		w := pendingInstruction{Instruction: x, Deadline: c.now + transferPatience, Pending: slices.Clone(t.Machines)}
		c.Waiting = append(c.Waiting, w)
		c.timers.add(w.Deadline, timerInstruction, x.ID)
		for _, id := range t.Machines {
			for _, p := range c.providers {
				c.reconciler.want(p.Name, id, getForMove)
			}
		}
		if len(t.Machines) == 0 {
			c.retryInstructions()
		}
	case t.From == c.cfg.ShardID:
		c.letGo(x)
	default:
		c.reply(x, InstructionInvalid, "this shard is neither side of the move", nil)
	}
}

// moveAnswered counts a Get that a transfer waited for.
func (c *coordinatorState) moveAnswered(machine string, f *Fact) {
	for n := range c.Waiting {
		w := &c.Waiting[n]
		t := w.Instruction.Transfer
		if t == nil || !slices.Contains(w.Pending, machine) {
			continue
		}
		w.Pending = slices.DeleteFunc(slices.Clone(w.Pending), func(id string) bool { return id == machine })
		want := inventory.Idle
		if t.Speculative {
			want = inventory.Speculative
		}
		if f != nil && f.Machine.State == want && f.Machine.Cluster == "" {
			w.Taken = append(w.Taken, machine)
		}
	}
	c.retryInstructions()
}

// adopted ends the recipient's part of a move.
func (c *coordinatorState) adopted(w pendingInstruction) {
	if len(w.Taken) == 0 {
		c.reply(w.Instruction, InstructionInvalid, "the provider shows none of the machines as free", nil)
		return
	}
	slices.Sort(w.Taken)
	v := c.editView()
	for _, id := range w.Taken {
		v.Out = slices.DeleteFunc(v.Out, func(x Exception) bool { return x.Machine == id })
		v.Returned = slices.DeleteFunc(v.Returned, func(x Exception) bool { return x.Machine == id })
		v.In = append(v.In, Exception{Machine: id, Owner: c.cfg.ShardID, Move: w.Instruction.Transfer.Move})
	}
	c.ownership.reownAll()
	c.trigger(triggerAdmin)
	c.reply(w.Instruction, InstructionAccepted, "", w.Taken, c.keepView())
}

// editView makes the view ready to be changed by a move; its version stays, so the coordinator's next one replaces it.
func (c *coordinatorState) editView() *View {
	v := View{OnlyShard: true, Under: c.cfg.ProviderAddress}
	if c.ctl.View != nil {
		v = *c.ctl.View
	}
	v.In, v.Out, v.Returned = slices.Clone(v.In), slices.Clone(v.Out), slices.Clone(v.Returned)
	c.ctl.View = &v
	return &v
}

// letGo ends the donor's part of a move: exactly the adopted machines leave, the others are free again.
func (c *coordinatorState) letGo(x Instruction) {
	t := x.Transfer
	v := c.editView()
	for _, id := range t.Machines {
		v.In = slices.DeleteFunc(v.In, func(e Exception) bool { return e.Machine == id })
		v.Out = append(v.Out, Exception{Machine: id, Owner: t.To, Move: t.Move})
	}
	c.dropReservation(t.Move)
	c.ownership.reownAll()
	c.reply(x, InstructionAccepted, "", nil, c.keepView(), Persist{Bucket: BucketReservations, Key: t.Move})
}

// cancelMove undoes what this shard did for a move, or says what it has adopted already.
func (c *coordinatorState) cancelMove(x Instruction) {
	var taken []string
	if v := c.ctl.View; v != nil {
		for _, e := range v.In {
			if e.Move == x.CancelMove {
				taken = append(taken, e.Machine)
			}
		}
	}
	c.Waiting = slices.DeleteFunc(c.Waiting, func(w pendingInstruction) bool {
		if r := w.Instruction.Reserve; r != nil && r.Move == x.CancelMove {
			c.unreserve(append(slices.Clone(w.Pending), w.Taken...))
			return true
		}
		return w.Instruction.Transfer != nil && w.Instruction.Transfer.Move == x.CancelMove
	})
	c.dropReservation(x.CancelMove)
	slices.Sort(taken)
	c.reply(x, InstructionAccepted, "", taken, Persist{Bucket: BucketReservations, Key: x.CancelMove})
}

// dropReservation frees the machines of a reservation. Nothing but a release, a cancellation or a person's order does
// this, whatever time passes: the recipient may have adopted already (COORD-12.16).
func (c *coordinatorState) dropReservation(move string) {
	inv := c.world.Inventory
	c.ctl.Reservations = slices.DeleteFunc(slices.Clone(c.ctl.Reservations), func(r Reservation) bool {
		if r.Move != move {
			return false
		}
		for _, id := range r.Machines {
			if i, ok := inv.Find(id); ok {
				inv.Lift(i, inventory.WithheldReserved, "")
			}
		}
		return true
	})
	c.trigger(triggerAdmin)
}

// markReserved keeps a reserved machine reserved after a restart.
func (c *coordinatorState) markReserved(i inventory.Index) {
	id := c.world.Inventory.ID(i)
	for _, r := range c.ctl.Reservations {
		if slices.Contains(r.Machines, id) {
			c.world.Inventory.Withhold(i, inventory.Withheld{Reason: inventory.WithheldReserved})
		}
	}
}

// keepAdopted carries over what a move gave to this shard as long as the leader has not heard of it. Otherwise the answer
// to the leader's withdrawal, "not adopted", would be made true by the view that came with it, with work under way on
// those machines (COORD-12.14).
func (c *coordinatorState) keepAdopted(v *View) {
	if c.ctl.View == nil {
		return
	}
	v.In = slices.Clone(v.In)
	for _, e := range c.ctl.View.In {
		if slices.Contains(v.Arriving, e.Move) && !slices.ContainsFunc(v.In, func(x Exception) bool { return x.Machine == e.Machine }) {
			v.In = append(v.In, e)
		}
	}
}
