package shards

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Kinds of instructions, for subjects, metrics and logs.
const (
	kindView     = "view"
	kindAssign   = "assign"
	kindUnassign = "unassign"
	kindRelease  = "release"
	kindReserve  = "reserve"
	kindAdopt    = "adopt"
	kindLetGo    = "let-go"
	kindWithdraw = "withdraw"
	kindCancel   = "cancel"
)

// due is one instruction that a shard needs. Its subject is a function of what and which version, never of time or leader,
// so the receiver's memory of what it did holds across failovers (COORD-8.1).
type due struct {
	subject, kind string
	payload       *v1.CoordinatorInstruction
}

// dues derives the instructions a shard needs. It reads the replicated state and the shard's acks, nothing else.
func dues(st *fleet.State, s *shard) []due {
	if st.Merging() {
		return nil // COORD-12.5: nothing is taken away before every shard reported its holdings
	}
	var out []due
	row := st.Shard(s.id)
	if s.view {
		if d, ok := viewDue(st, s, row); ok {
			out = append(out, d)
		}
		for c := range st.ClustersOf(s.id) {
			for _, r := range c.GetReleases() {
				if r.GetShardId() == s.id && r.GetReleasedIn() == nil {
					out = append(out, due{fmt.Sprintf("%s/%s/%s/%d", kindRelease, c.GetClusterId(), c.GetShardId(), c.GetBoundAtUnixNanos()), kindRelease,
						&v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_ReleaseCluster{ReleaseCluster: &v1.ReleaseCluster{
							ClusterId: c.GetClusterId(), ToShardId: c.GetShardId()}}}})
				}
			}
		}
	} else {
		out = append(out, legacyDues(st, s)...)
	}
	if s.moves {
		for m := range st.OpenMoves() {
			if d, ok := moveDue(m, s.id); ok {
				out = append(out, d)
			}
		}
	}
	return out
}

// viewDue is the shard's view, unless the shard says that it obeys this version. That report is enough while nothing waits
// for an ack; otherwise this leader must have heard the ack itself. An ack alone is never enough: a shard that lost its
// disk has forgotten what it acked.
func viewDue(st *fleet.State, s *shard, row *pb.Shard) (due, bool) {
	obeyed := s.reported != nil && fleet.SameView(s.reported, row.GetView())
	acked := s.acked != nil && fleet.SameView(s.acked, row.GetView())
	if row.GetProvider() == "" || obeyed && (acked || !st.Awaited(s.id)) {
		return due{}, false
	}
	return due{viewSubject(s.id, row.GetView()), kindView, &v1.CoordinatorInstruction{}}, true
}

func viewSubject(id string, v *pb.Version) string {
	return fmt.Sprintf("%s/%s/%d-%d", kindView, id, v.GetTerm(), v.GetIndex())
}

// viewOf reads the version out of a view's subject.
func viewOf(subject string) (*pb.Version, bool) {
	at := strings.LastIndexByte(subject, '/')
	term, index, ok := strings.Cut(subject[at+1:], "-")
	t, err1 := strconv.ParseInt(term, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 64)
	return &pb.Version{Term: t, Index: i}, ok && err1 == nil && err2 == nil
}

// legacyDues gives an older shard its domains one by one (COORD-8.9).
func legacyDues(st *fleet.State, s *shard) []due {
	var out []due
	for d := range st.DomainsOf(s.id) {
		if d.GetOwner() != s.id {
			continue
		}
		subject := legacySubject(d)
		switch {
		case fleet.InHandover(d) && !s.released[subject]:
			out = append(out, due{subject, kindUnassign, &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_UnassignDomain{
				UnassignDomain: &v1.UnassignDomain{TopologyKey: d.GetKey(), TopologyValue: d.GetValue()}}}})
		case !fleet.InHandover(d) && !s.asserted[subject]:
			out = append(out, due{subject, kindAssign, &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_AssignDomain{
				AssignDomain: &v1.AssignDomain{TopologyKey: d.GetKey(), TopologyValue: d.GetValue()}}}})
		}
	}
	return out
}

func legacySubject(d *pb.Domain) string {
	kind := kindAssign
	if fleet.InHandover(d) {
		kind = kindUnassign
	}
	return fmt.Sprintf("%s/%s=%s/%d", kind, d.GetKey(), d.GetValue(), d.GetSinceUnixNanos())
}

// moveDue is the step of a move that a shard has to take (COORD-12.11).
func moveDue(m *pb.Move, id string) (due, bool) {
	at := func(kind string, payload *v1.CoordinatorInstruction) (due, bool) {
		return due{"move/" + m.GetMoveId() + "/" + kind, kind, payload}, true
	}
	switch {
	case m.GetState() == v1.Move_STATE_PLANNED && m.GetFrom() == id:
		return at(kindReserve, &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_ReserveMachines{ReserveMachines: &v1.ReserveMachines{
			MoveId: m.GetMoveId(), ToShardId: m.GetTo(), InstanceType: m.GetSelector().GetInstanceType(), Zone: m.GetSelector().GetZone(),
			CapacityType: m.GetSelector().GetCapacityType(), Requirements: m.GetSelector().GetRequirements(), MinUnit: m.GetSelector().GetMinUnit(),
			Count: m.GetWanted(), Tier: m.GetTier(), RequesterPriority: m.GetPriority(), RequesterInterruptionBucket: m.GetInterruptionBucket()}}})
	case m.GetState() == v1.Move_STATE_RESERVED && m.GetTo() == id:
		return at(kindAdopt, handPayload(m))
	case m.GetState() == v1.Move_STATE_ADOPTED && m.GetFrom() == id:
		return at(kindLetGo, handPayload(m))
	case m.GetState() == v1.Move_STATE_WITHDRAWING && m.GetTo() == id:
		return at(kindWithdraw, cancelPayload(m))
	case m.GetState() == v1.Move_STATE_CANCELLING && m.GetFrom() == id:
		return at(kindCancel, cancelPayload(m))
	}
	return due{}, false
}

func handPayload(m *pb.Move) *v1.CoordinatorInstruction {
	if m.GetTier() == v1.MoveTier_MOVE_TIER_QUOTA {
		return &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_ReassignSpeculative{ReassignSpeculative: &v1.ReassignSpeculative{
			MachineIds: m.GetMachineIds(), MoveId: m.GetMoveId(), FromShardId: m.GetFrom(), ToShardId: m.GetTo()}}}
	}
	return &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_TransferOwnership{TransferOwnership: &v1.TransferOwnership{
		MachineIds: m.GetMachineIds(), MoveId: m.GetMoveId(), FromShardId: m.GetFrom(), ToShardId: m.GetTo()}}}
}

func cancelPayload(m *pb.Move) *v1.CoordinatorInstruction {
	return &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_CancelMove{CancelMove: &v1.CancelMove{MoveId: m.GetMoveId(), Reason: m.GetReason()}}}
}

// refresh brings a shard's pending instructions in line with what it needs. Called with the shard locked.
func (s *shard) refresh(st *fleet.State, now time.Time) []*pendingInstruction {
	list := dues(st, s)
	keep := make(map[string]bool, len(list))
	out := make([]*pendingInstruction, 0, len(list))
	for _, d := range list {
		keep[d.subject] = true
		o := s.pending[d.subject]
		if o == nil {
			s.sequence++
			o = &pendingInstruction{subject: d.subject, kind: d.kind, sequence: s.sequence, since: now, attempt: 1}
			s.pending[d.subject] = o
		}
		o.payload = d.payload
		out = append(out, o)
	}
	for subject := range s.pending {
		if !keep[subject] {
			delete(s.pending, subject)
		}
	}
	slices.SortFunc(out, func(x, y *pendingInstruction) int { return cmp.Compare(x.sequence, y.sequence) })
	return out
}

// instructions are the pending instructions that are due now, as they go on the wire. Called with the shard locked.
func (s *shard) instructions(st *fleet.State, now time.Time) (out []*v1.CoordinatorInstruction, fresh bool) {
	n := 0
	for _, o := range s.refresh(st, now) {
		if o.next.After(now) || o.stuck || o.kind != kindView && n >= instructionsMax {
			continue
		}
		if o.kind != kindView {
			n++
		}
		fresh = fresh || !o.sent
		o.sent = true
		out = append(out, s.wire(st, o))
	}
	return out, fresh
}

// wire renders an instruction. The view, which can be large, is derived only when it is sent.
func (s *shard) wire(st *fleet.State, o *pendingInstruction) *v1.CoordinatorInstruction {
	out := &v1.CoordinatorInstruction{CoordinatorTerm: st.Meta().GetFencingTerm(), SequenceNumber: o.sequence,
		InstructionId: o.subject + "/" + strconv.Itoa(int(o.attempt)), Attempt: o.attempt, Payload: o.payload.GetPayload()}
	if o.kind == kindView {
		out.Payload = &v1.CoordinatorInstruction_SetView{SetView: st.View(s.id)}
	}
	return out
}
