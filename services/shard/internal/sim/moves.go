package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// move is machines on their way from one shard to another, by the protocol of COORD-12.11: the donor reserves, the recipient
// adopts, the donor lets go; what ends early is first taken back from the recipient, then from the donor.
type move struct {
	id       string
	from, to *member
	order    core.ReserveInstruction
	state    moveState
	machines []string // that the donor reserved, then those that the recipient adopted
	attempt  int64    // of the instruction of this state
	kept     []string // that the donor has reserved
	taken    []string // that the recipient has adopted, and the coordinator has not heard of
}

type moveState uint8

const (
	movePlanned moveState = iota
	moveReserved
	moveAdopted
	moveWithdrawing
	moveCancelling
)

func (s moveState) String() string {
	return [...]string{"reserve", "transfer", "release", "withdraw", "cancel"}[s]
}

// exception is a machine that a move gave to another shard than its domain says.
type exception struct {
	holder *member
	move   string
	back   bool // its holder acts on it no more
}

// notify returns the member that the move speaks to in its state.
func (mv *move) notify() *member {
	if mv.state == moveReserved || mv.state == moveWithdrawing {
		return mv.to
	}
	return mv.from
}

func (mv *move) instructionID() string {
	return fmt.Sprintf("move/%s/%s/%d", mv.id, mv.state, mv.attempt)
}

// beginMove plans a move of some machines that are alike.
func (co *coordinator) beginMove(r *random) {
	if len(co.members) == 1 {
		return
	}
	p := pick(r, co.w.providers)
	if len(p.order) == 0 {
		return
	}
	m, count, narrow := pick(r, p.order), r.between(1, 4), r.chance(.5)
	tier := uint8(1)
	switch {
	case m.State == inventory.Speculative:
		tier = 2
	case m.State != inventory.Idle:
		return
	}
	from := co.members[0]
	for _, x := range co.members {
		if co.holds(x.s, m) {
			from = x
		}
	}
	to := co.members[(slices.Index(co.members, from)+1)%len(co.members)]
	co.odd++
	mv := &move{id: fmt.Sprintf("m%d", co.odd), from: from, to: to, attempt: 1}
	mv.order = core.ReserveInstruction{Move: mv.id, To: to.s.id, InstanceType: m.InstanceType, CapacityType: uint8(m.CapacityType), Count: count, Tier: tier}
	if narrow {
		mv.order.Zone = m.Zone
	}
	co.moves = append(co.moves, mv)
	co.w.struck(MachineMove, m.ID, "", "%s: %d of %s from %s to %s, tier %d", mv.id, count, m.InstanceType, from.s.id, to.s.id, tier)
	if after := r.between(second, minute); r.chance(.4) { // the need went away
		co.w.after(after, func() { co.giveUpMove(mv) })
	}
}

// giveUpMove takes a move back, as far as it has not been decided (COORD-12.18).
func (co *coordinator) giveUpMove(mv *move) {
	switch mv.state {
	case movePlanned:
		co.stepMove(mv, moveCancelling)
	case moveReserved:
		co.stepMove(mv, moveWithdrawing)
	}
}

func (co *coordinator) stepMove(mv *move, to moveState) {
	co.w.note("", "", "coordinator: %s goes from %s to %s: %v", mv.id, mv.state, to, mv.machines)
	mv.state, mv.attempt = to, 1
	co.newViews()
}

// endMove forgets a move.
func (co *coordinator) endMove(mv *move) {
	co.moves = slices.DeleteFunc(co.moves, func(x *move) bool { return x == mv })
	co.newViews()
}

// moveOrders are the instructions of moves that a shard has to answer.
func (co *coordinator) moveOrders(m *member) (out []core.Instruction) {
	for _, mv := range co.moves {
		if mv.notify() != m {
			continue
		}
		co.seq++
		x := core.Instruction{ID: mv.instructionID(), Term: co.term, Sequence: co.seq, Attempt: mv.attempt}
		switch mv.state {
		case movePlanned:
			order := mv.order
			x.Reserve = &order
		case moveReserved, moveAdopted:
			x.Transfer = &core.TransferInstruction{Move: mv.id, From: mv.from.s.id, To: mv.to.s.id, Machines: slices.Clone(mv.machines), Speculative: mv.order.Tier == 2}
		default:
			x.CancelMove = mv.id
		}
		out = append(out, x)
	}
	return out
}

// moveAcked takes an answer to one of them.
func (co *coordinator) moveAcked(m *member, a core.AckInstruction) {
	i := slices.IndexFunc(co.moves, func(mv *move) bool { return mv.notify() == m && mv.instructionID() == a.ID })
	if i < 0 {
		return
	}
	mv := co.moves[i]
	if a.Outcome == core.InstructionAccepted {
		m.done = append(m.done, a.ID)
		co.moveOn(mv, a.Machines)
		return
	}
	switch mv.state {
	case movePlanned:
		co.stepMove(mv, moveCancelling)
	case moveReserved:
		co.stepMove(mv, moveWithdrawing)
	default:
		mv.attempt++
	}
}

// moveOn is the step after an accepted instruction.
func (co *coordinator) moveOn(mv *move, machines []string) {
	switch mv.state {
	case movePlanned:
		mv.machines = machines
		co.stepMove(mv, moveReserved)
	case moveReserved:
		co.adopted(mv, machines)
	case moveWithdrawing:
		if len(machines) > 0 {
			co.adopted(mv, machines)
		} else {
			co.stepMove(mv, moveCancelling)
		}
	case moveAdopted, moveCancelling:
		co.endMove(mv)
	}
}

// adopted decides a move: what the recipient took is its own.
func (co *coordinator) adopted(mv *move, machines []string) {
	mv.machines = machines
	for _, id := range machines {
		co.exceptions[id] = exception{holder: mv.to, move: mv.id}
	}
	mv.taken = nil
	co.stepMove(mv, moveAdopted)
}

// returned drops the exceptions that their holder gave back (COORD-9.7).
func (co *coordinator) returned(m *member, ids []string) {
	for _, id := range ids {
		if e, ok := co.exceptions[id]; ok && e.holder == m {
			co.w.note(id, "", "coordinator: the exception of %s ends", id)
			delete(co.exceptions, id)
			co.newViews()
		}
	}
}

// newViews makes the next view of every shard: each learns of every exception.
func (co *coordinator) newViews() {
	for _, m := range co.members {
		co.newView(m)
	}
}

// viewMoves puts into a view what moves say.
func (co *coordinator) viewMoves(m *member, v *core.View) {
	for _, id := range sortedKeys(co.exceptions) {
		e := co.exceptions[id]
		x := core.Exception{Machine: id, Owner: e.holder.s.id, Move: e.move}
		if e.holder == m {
			v.In = append(v.In, x)
		} else {
			v.Out = append(v.Out, x)
		}
	}
	for _, mv := range co.moves {
		switch {
		case mv.state == moveAdopted:
		case mv.to != m:
			for _, id := range mv.machines {
				v.Out = append(v.Out, core.Exception{Machine: id, Owner: mv.to.s.id, Move: mv.id})
			}
		case mv.state == moveReserved || mv.state == moveWithdrawing:
			v.Arriving = append(v.Arriving, mv.id)
		}
	}
}

// byMove returns the member that may act on a free machine whose domain is holder's, moves considered; nil: none may. Between the
// donor's answer and the recipient's none may. The recipient may from its own answer on, which the coordinator has yet to hear. What
// the holder of an exception gave back belongs to no member until the coordinator has heard of it.
func (co *coordinator) byMove(id string, holder *member) *member {
	if e, ok := co.exceptions[id]; ok {
		if e.back && holder != e.holder {
			return nil
		}
		holder = e.holder
	}
	for _, mv := range co.moves {
		switch {
		case slices.Contains(mv.taken, id):
			return mv.to
		case slices.Contains(mv.kept, id) && holder == mv.from:
			return nil
		}
	}
	return holder
}

// notified notes what a shard has answered, before the coordinator hears of it: from then on it acts by its answer, also where the
// coordinator has gone on meanwhile.
func (co *coordinator) notified(a core.AckInstruction) {
	if a.Outcome != core.InstructionAccepted || a.Reason == "duplicate" {
		return
	}
	for _, mv := range co.moves {
		asked, ok := strings.CutPrefix(a.ID, "move/"+mv.id+"/")
		if !ok {
			continue
		}
		switch step, _, _ := strings.Cut(asked, "/"); {
		case step == movePlanned.String():
			mv.kept = slices.Clone(a.Machines)
		case step == moveReserved.String() && mv.state != moveAdopted:
			mv.taken = slices.Clone(a.Machines)
		case step == moveAdopted.String(), step == moveCancelling.String():
			mv.kept = nil
		}
	}
}

// started notes what a process has from the disk of the one before: an answer that was not stored was never given.
// An answer that was stored may be lost: who drops a reservation because its move is cancelled may act again.
func (co *coordinator) started(p *process, x *core.Control) {
	for _, mv := range co.moves {
		switch {
		case mv.from.s == p.s && (mv.state == movePlanned || mv.state == moveCancelling):
			mv.kept = nil
			for _, r := range x.Reservations {
				if r.Move == mv.id {
					mv.kept = slices.Clone(r.Machines)
				}
			}
		case mv.to.s == p.s && (mv.state == moveReserved || mv.state == moveWithdrawing):
			mv.taken = nil
			if x.View == nil {
				break
			}
			for _, e := range x.View.In {
				if e.Move == mv.id {
					mv.taken = append(mv.taken, e.Machine)
				}
			}
		}
	}
}

// gaveBack notes that a holder has on its disk that it acts on a machine no more (COORD-9.7).
func (co *coordinator) gaveBack(p *process, ids []string) {
	for _, id := range ids {
		if e, ok := co.exceptions[id]; ok && e.holder.s == p.s {
			e.back = true
			co.exceptions[id] = e
		}
	}
}

// shiftQuota gives shards another slice of the elastic machines (COORD-11.4), or none.
func (co *coordinator) shiftQuota(r *random) {
	m, n, lift := pick(r, co.members), r.between(0, int64(co.w.nMachine)), r.chance(.2)
	if m.quota = []core.Quota{{Provider: "all", Machines: n}}; lift {
		m.quota = nil
	}
	co.w.struck(QuotaShift, "", "", "%s may have %v", m.s.id, m.quota)
	co.newView(m)
}
