package fleet

import (
	"iter"
	"maps"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// transitions are the legal steps of a move (COORD-12.11).
var transitions = map[v1.Move_State][]v1.Move_State{
	v1.Move_STATE_PLANNED:     {v1.Move_STATE_RESERVED, v1.Move_STATE_CANCELLING},
	v1.Move_STATE_RESERVED:    {v1.Move_STATE_ADOPTED, v1.Move_STATE_WITHDRAWING},
	v1.Move_STATE_ADOPTED:     {v1.Move_STATE_DONE},
	v1.Move_STATE_WITHDRAWING: {v1.Move_STATE_CANCELLING, v1.Move_STATE_ADOPTED},
	v1.Move_STATE_CANCELLING:  {v1.Move_STATE_ABORTED},
}

func (a *applier) createMove(op *pb.CreateMove) *Refusal {
	m := op.GetMove()
	if !validID(m.GetMoveId()) {
		return invalid("a move needs an id")
	}
	if a.s.moves.get(m.GetMoveId()) != nil {
		return nil
	}
	if m.GetState() != v1.Move_STATE_PLANNED {
		return invalid("a move starts as PLANNED")
	}
	if m.GetFrom() == m.GetTo() || m.GetWanted() < 1 || m.GetTier() == v1.MoveTier_MOVE_TIER_UNSPECIFIED {
		return invalid("a move needs two shards, a tier and a number of machines")
	}
	for _, id := range []string{m.GetFrom(), m.GetTo()} {
		sh, r := a.liveShard(id)
		if r != nil {
			return r
		}
		if sh.GetProvider() != m.GetProvider() || m.GetProvider() == "" {
			return refused("other-provider", "", "shard %q uses provider %q, the move is about %q", id, sh.GetProvider(), m.GetProvider())
		}
	}
	policy, reserved := a.s.Policy(), int64(a.s.exceptions.len())
	if int64(a.s.openMoves.len()) >= int64(policy.GetMaxOpenMoves()) {
		return &Refusal{Kind: Full, Reason: "open-moves", Say: "the fleet has the largest number of open moves"}
	}
	for other := range a.s.OpenMoves() {
		if other.GetState() != v1.Move_STATE_ADOPTED {
			reserved += int64(other.GetWanted())
		}
	}
	if reserved+int64(m.GetWanted()) > int64(policy.GetMaxExceptions()) {
		return &Refusal{Kind: Full, Reason: "exceptions", Say: "the fleet has the largest number of machine exceptions"}
	}
	m = proto.CloneOf(m)
	m.StartedAtUnixNanos, m.UpdatedAtUnixNanos, m.MachineIds = a.at, a.at, nil
	a.putMove(m)
	return nil
}

// advanceMove takes a move one step further, with everything that belongs to the step. A move that is not in the
// expected state is left alone: another entry was faster, or this is a repetition.
func (a *applier) advanceMove(op *pb.AdvanceMove) *Refusal {
	old := a.s.moves.get(op.GetMoveId())
	if old == nil {
		return unknown("move", op.GetMoveId())
	}
	if old.GetState() != op.GetExpected() {
		return nil
	}
	if !slices.Contains(transitions[op.GetExpected()], op.GetNext()) {
		return invalid("a move cannot change from %s to %s", op.GetExpected(), op.GetNext())
	}
	a.step(proto.CloneOf(old), op.GetNext(), op.GetMachineIds(), op.GetReason())
	return nil
}

// step changes the state of a move. m is a copy that the caller gives away.
func (a *applier) step(m *pb.Move, next v1.Move_State, machines []string, reason string) {
	m.State, m.UpdatedAtUnixNanos = next, a.at
	if reason != "" {
		m.Reason = reason
	}
	switch next {
	case v1.Move_STATE_RESERVED:
		m.MachineIds = distinct(machines, int(m.GetWanted()), nil)
		if m.GetTier() == v1.MoveTier_MOVE_TIER_QUOTA {
			a.takeTransit(m, int32(len(m.MachineIds)))
		}
	case v1.Move_STATE_ADOPTED:
		m.MachineIds = distinct(machines, len(m.MachineIds), m.MachineIds)
		for _, id := range m.MachineIds {
			a.except(m.GetProvider(), id, m.GetTo(), m.GetMoveId())
		}
		a.endTransit(m, int32(len(m.MachineIds)))
	case v1.Move_STATE_ABORTED:
		m.MachineIds = nil
		a.endTransit(m, 0)
	}
	a.putMove(m)
	a.touchProvider(m.GetProvider())
	if next, ok := a.nextWithout(m); ok {
		a.step(proto.CloneOf(m), next, nil, "")
	}
}

// distinct returns the first n different ids that are in allowed; nil allows all.
func distinct(ids []string, n int, allowed []string) []string {
	var out []string
	for _, id := range ids {
		if id != "" && len(out) < n && !slices.Contains(out, id) && (allowed == nil || slices.Contains(allowed, id)) {
			out = append(out, id)
		}
	}
	return out
}

func (a *applier) purgeMoves(op *pb.PurgeMoves) *Refusal {
	for id, m := range a.s.moves.all() {
		if !Open(m) && m.GetUpdatedAtUnixNanos() < op.GetBeforeUnixNanos() {
			a.dropMove(id)
		}
	}
	return nil
}

// except makes a shard the owner of one machine. Every shard of the provider learns of it, because any of them may
// be given the machine's domain one day.
func (a *applier) except(provider, machine, owner, move string) {
	a.putException(&pb.Exception{Provider: provider, MachineId: machine, Owner: owner, MoveId: move, SinceUnixNanos: a.at})
	a.touchProvider(provider)
}

func (a *applier) putExceptionOp(op *pb.PutException) *Refusal {
	e := op.GetException()
	sh, r := a.liveShard(e.GetOwner())
	if r != nil {
		return r
	}
	if e.GetMachineId() == "" || e.GetProvider() == "" || sh.GetProvider() != e.GetProvider() {
		return invalid("an exception needs a machine and an owner of the same provider")
	}
	if old := a.s.Exception(e.GetProvider(), e.GetMachineId()); old.GetOwner() == e.GetOwner() {
		return nil
	} else if old == nil && a.s.exceptions.len() >= int(a.s.Policy().GetMaxExceptions()) {
		return &Refusal{Kind: Full, Reason: "exceptions", Say: "the fleet has the largest number of machine exceptions"}
	}
	a.except(e.GetProvider(), e.GetMachineId(), e.GetOwner(), e.GetMoveId())
	return nil
}

// dropException ends an exception that its holder returned (COORD-9.7).
func (a *applier) dropException(op *pb.DropException) *Refusal {
	old := a.s.Exception(op.GetProvider(), op.GetMachineId())
	if old == nil || old.GetOwner() != op.GetOwner() {
		return nil
	}
	a.removeException(old)
	a.touchProvider(op.GetProvider())
	return nil
}

// abandonExceptions ends the exceptions of a shard that is gone.
func (a *applier) abandonExceptions(id string) {
	for _, e := range slices.Collect(a.s.ExceptionsOf(id)) {
		a.removeException(e)
		a.touchProvider(e.GetProvider())
	}
}

// abandonMoves continues with the open moves of a shard that is gone, as far as the other side allows: a donor still has
// to un-reserve, and a recipient may have adopted. It runs after the shard's row changed.
func (a *applier) abandonMoves(id string) {
	for _, m := range slices.Collect(a.s.OpenMoves()) {
		if m.GetFrom() != id && m.GetTo() != id {
			continue
		}
		why := "shard " + id + " is gone"
		switch m.GetState() {
		case v1.Move_STATE_PLANNED:
			a.step(proto.CloneOf(m), v1.Move_STATE_CANCELLING, nil, why)
		case v1.Move_STATE_RESERVED:
			a.step(proto.CloneOf(m), v1.Move_STATE_WITHDRAWING, nil, why)
		default:
			if next, ok := a.nextWithout(m); ok {
				a.step(proto.CloneOf(m), next, nil, why)
			}
		}
	}
}

// nextWithout is the state that follows when the shard that the current one speaks to is gone.
func (a *applier) nextWithout(m *pb.Move) (v1.Move_State, bool) {
	gone := func(id string) bool {
		sh := a.s.shards.get(id)
		return !Live(sh) || sh.GetProvider() != m.GetProvider()
	}
	switch {
	case m.GetState() == v1.Move_STATE_WITHDRAWING && gone(m.GetTo()):
		return v1.Move_STATE_CANCELLING, true
	case m.GetState() == v1.Move_STATE_CANCELLING && gone(m.GetFrom()):
		return v1.Move_STATE_ABORTED, true
	case m.GetState() == v1.Move_STATE_ADOPTED && gone(m.GetFrom()):
		return v1.Move_STATE_DONE, true
	}
	return 0, false
}

// sortedMap walks a map in key order.
func sortedMap[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}
