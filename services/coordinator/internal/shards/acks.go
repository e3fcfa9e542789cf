package shards

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// subjectOf takes the attempt off an instruction id: an answer to an older attempt answers the same thing.
func subjectOf(id string) string {
	if at := strings.LastIndexByte(id, '/'); at >= 0 {
		return id[:at]
	}
	return id
}

// attemptOf is the attempt that an instruction id ends with, or 0.
func attemptOf(id string) int32 {
	n, err := strconv.ParseInt(id[strings.LastIndexByte(id, '/')+1:], 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

// takeAcks reads the acks of one report and returns what has to be committed. Called with the shard locked.
func (d *ShardRegistry) takeAcks(st *fleet.State, s *shard, acks []*v1.InstructAck, now time.Time) []*pb.Operation {
	if len(acks) == 0 {
		return nil
	}
	s.refresh(st, now)
	var ops []*pb.Operation
	for _, a := range acks {
		outcome := a.GetOutcome()
		switch outcome {
		case v1.InstructAck_OUTCOME_ACCEPTED, v1.InstructAck_OUTCOME_REJECTED_STALE, v1.InstructAck_OUTCOME_REJECTED_INVALID, v1.InstructAck_OUTCOME_FAILED:
		default:
			outcome = v1.InstructAck_OUTCOME_FAILED // a newer peer (COORD-8.2)
		}
		o := s.pending[subjectOf(a.GetInstructionId())]
		if o == nil || outcome != v1.InstructAck_OUTCOME_ACCEPTED && attemptOf(a.GetInstructionId()) < o.attempt {
			// Of nothing that is pending, or a refusal that was counted already and comes again with a repeated report.
			d.ackWithoutOrder(st, s, a, outcome)
			continue
		}
		o.last = a
		d.config.Metrics.Acks.WithLabelValues(o.kind, outcome.String()).Inc()
		d.config.Log.Info("instruction answered", "shard", s.id, "instruction", a.GetInstructionId(), "term", st.Meta().GetFencingTerm(),
			"outcome", outcome.String(), "reason", a.GetReason())
		ops = append(ops, d.answer(st, s, o, a, outcome, now)...)
	}
	return ops
}

// ackWithoutOrder: a view that was followed by a newer one is still a fact. Everything else is counted and ignored.
func (d *ShardRegistry) ackWithoutOrder(st *fleet.State, s *shard, a *v1.InstructAck, outcome v1.InstructAck_Outcome) {
	subject := subjectOf(a.GetInstructionId())
	if v, ok := viewOf(subject); ok && subject == viewSubject(s.id, v) && outcome == v1.InstructAck_OUTCOME_ACCEPTED &&
		!fleet.NewerView(v, st.Shard(s.id).GetView()) {
		s.ackView(v)
		return
	}
	d.config.Metrics.AcksWithoutWork.Inc()
}

func (s *shard) ackView(v *pb.Version) {
	if s.acked == nil || fleet.NewerView(v, s.acked) {
		s.acked = v
	}
}

// answer carries one ack out.
func (d *ShardRegistry) answer(st *fleet.State, s *shard, o *pendingInstruction, a *v1.InstructAck, outcome v1.InstructAck_Outcome, now time.Time) []*pb.Operation {
	switch outcome {
	case v1.InstructAck_OUTCOME_ACCEPTED:
		return d.accepted(st, s, o, a)
	case v1.InstructAck_OUTCOME_REJECTED_STALE:
		// A coordinator with a higher term spoke to the shard: either this leader is not one any more, or it will learn so.
		d.registrar.start(func() {
			if err := d.config.Group.Confirm(d.ctx); err != nil {
				d.config.Log.Warn("a shard knows a higher term and leadership cannot be confirmed", "shard", s.id, "err", err)
			}
		})
		o.next = now.Add(retryMin)
		return nil
	case v1.InstructAck_OUTCOME_REJECTED_INVALID:
		return d.invalid(st, s, o, now)
	}
	return d.failed(st, s, o, a, now)
}

// accepted: the shard did it.
func (d *ShardRegistry) accepted(st *fleet.State, s *shard, o *pendingInstruction, a *v1.InstructAck) []*pb.Operation {
	switch o.kind {
	case kindView:
		if v, ok := viewOf(o.subject); ok {
			s.ackView(v)
		}
	case kindAssign:
		s.asserted[o.subject] = true
	case kindUnassign:
		s.released[o.subject] = true
	case kindRelease:
		return []*pb.Operation{{Kind: &pb.Operation_ReleaseCluster{ReleaseCluster: &pb.ReleaseCluster{
			ClusterId: o.payload.GetReleaseCluster().GetClusterId(), ShardId: s.id}}}}
	default:
		return d.advance(st, o, a)
	}
	delete(s.pending, o.subject)
	return nil
}

// advance turns an accepted step of a move into its next state (COORD-12.11).
func (d *ShardRegistry) advance(st *fleet.State, o *pendingInstruction, a *v1.InstructAck) []*pb.Operation {
	m := moveOf(st, o)
	if m == nil {
		return nil
	}
	next, ids, why := v1.Move_STATE_UNSPECIFIED, a.GetMachineIds(), ""
	switch o.kind {
	case kindReserve:
		if ids = d.rested(st, m, ids); len(ids) == 0 {
			next, why = v1.Move_STATE_CANCELLING, "the donor reserved no machine that may move now"
		} else {
			next = v1.Move_STATE_RESERVED
		}
	case kindAdopt:
		if len(ids) == 0 {
			next, why = v1.Move_STATE_WITHDRAWING, "the recipient adopted none of the machines"
		} else {
			next = v1.Move_STATE_ADOPTED
		}
	case kindLetGo:
		next, ids = v1.Move_STATE_DONE, nil
	case kindWithdraw:
		next = v1.Move_STATE_CANCELLING
		if len(ids) > 0 {
			next, why = v1.Move_STATE_ADOPTED, "the recipient had already adopted the machines"
		}
	case kindCancel:
		next, ids = v1.Move_STATE_ABORTED, nil
	}
	return []*pb.Operation{advanceMove(m, next, ids, why)}
}

func advanceMove(m *pb.Move, next v1.Move_State, ids []string, why string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AdvanceMove{AdvanceMove: &pb.AdvanceMove{
		MoveId: m.GetMoveId(), Expected: m.GetState(), Next: next, MachineIds: ids, Reason: why}}}
}

// moveOf is the open move that an order is a step of.
func moveOf(st *fleet.State, o *pendingInstruction) *pb.Move {
	parts := strings.Split(o.subject, "/")
	if len(parts) != 3 || parts[0] != "move" {
		return nil
	}
	return st.Move(parts[1])
}

// rested leaves out machines that moved too short a while ago (COORD-12.9). The donor un-reserves what is not named.
func (d *ShardRegistry) rested(st *fleet.State, m *pb.Move, ids []string) []string {
	tired := map[string]bool{}
	pause := time.Duration(st.Policy().GetMachineCooldownSeconds()) * time.Second
	now := time.Now()
	for other := range st.Moves() {
		if other.GetState() == v1.Move_STATE_DONE && other.GetMoveId() != m.GetMoveId() && d.ages.of(other, now) < pause {
			for _, id := range other.GetMachineIds() {
				tired[id] = true
			}
		}
	}
	var out []string
	for _, id := range ids {
		if !tired[id] {
			out = append(out, id)
		}
	}
	return out
}

// invalid: the shard can never do it.
func (d *ShardRegistry) invalid(st *fleet.State, s *shard, o *pendingInstruction, now time.Time) []*pb.Operation {
	if ops := d.abort(st, o, "the shard refused the step: "+cmp.Or(o.last.GetReason(), "no reason was given")); ops != nil {
		return ops
	}
	d.config.Log.Error("an instruction was refused as invalid", "shard", s.id, "instruction", o.subject, "reason", o.last.GetReason())
	if !endless(o.kind) {
		o.stuck = true
	}
	o.attempt++
	o.next = now.Add(retryMax)
	return nil
}

// failed: it may work later. After the last attempt a move is taken back, and anything else is listed as stuck.
func (d *ShardRegistry) failed(st *fleet.State, s *shard, o *pendingInstruction, a *v1.InstructAck, now time.Time) []*pb.Operation {
	hopeless := a.Retryable != nil && !a.GetRetryable()
	if (o.attempt >= attemptsMax || hopeless) && !endless(o.kind) {
		if ops := d.abort(st, o, "the shard could not take the step: "+a.GetReason()); ops != nil {
			return ops
		}
		o.stuck = true
		d.config.Log.Error("an instruction was abandoned", "shard", s.id, "instruction", o.subject, "attempts", o.attempt, "reason", a.GetReason())
	}
	o.next = now.Add(min(retryMin<<min(o.attempt-1, 5), retryMax))
	o.attempt++
	return nil
}

// endless are the kinds that are never given up: stopping halfway would leave machines without an owner.
func endless(kind string) bool {
	switch kind {
	case kindView, kindLetGo, kindWithdraw, kindCancel:
		return true
	}
	return false
}

// abort takes a move back whose step cannot be taken.
func (d *ShardRegistry) abort(st *fleet.State, o *pendingInstruction, why string) []*pb.Operation {
	m := moveOf(st, o)
	switch {
	case m == nil:
		return nil
	case o.kind == kindReserve:
		return []*pb.Operation{advanceMove(m, v1.Move_STATE_CANCELLING, nil, why)}
	case o.kind == kindAdopt:
		return []*pb.Operation{advanceMove(m, v1.Move_STATE_WITHDRAWING, nil, why)}
	}
	return nil
}
