package server

import (
	"context"
	"errors"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// codes is COORD-16.9. FAILED_PRECONDITION is not in it: on these services it means "not the leader" and nothing else.
var codes = map[fleet.Kind]connect.Code{
	fleet.Invalid: connect.CodeInvalidArgument, fleet.NotFound: connect.CodeNotFound, fleet.OtherOwner: connect.CodeAlreadyExists,
	fleet.Refused: connect.CodeAborted, fleet.Full: connect.CodeResourceExhausted,
}

// notLeader says who leads, as far as this replica knows (COORD-6.2.2).
func (s *Server) notLeader() *connect.Error {
	if s.node.HandingOver() {
		return rpc.NewError(connect.CodeUnavailable, "this replica is handing leadership over: retry in a moment",
			&v1.RetryHint{AfterMillis: handOverHint.Milliseconds()})
	}
	hint := s.node.Leader()
	say := "this replica does not lead, and it knows of no leader"
	if hint.GetLeaderId() != "" {
		say = "this replica does not lead: " + hint.GetLeaderId() + " does"
	}
	if hint.GetLeaderAddress() != "" {
		return rpc.NewError(connect.CodeFailedPrecondition, say, &v1.NotLeader{Leader: hint})
	}
	// Every client asks every replica now. One comes back at once, thousands are spread out.
	return rpc.NewError(connect.CodeFailedPrecondition, say, &v1.NotLeader{Leader: hint},
		&v1.RetryHint{AfterMillis: s.admission.asks.later(time.Now()).Milliseconds()})
}

// fail turns an error into what the caller may see.
func (s *Server) fail(err error) error {
	var known *connect.Error
	var refusal *fleet.Refusal
	var gone *shards.Decommissioned
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.As(err, &refusal):
		return refuse(refusal)
	case errors.As(err, &gone):
		return rpc.NewError(connect.CodeNotFound, gone.Error()+": an admin can readmit it",
			&v1.ShardDecommissioned{ShardId: gone.Row.GetShardId(), RemovedAtUnixNanos: gone.Row.GetRemovedAtUnixNanos(), Actor: gone.Row.GetRemovedBy()})
	case errors.Is(err, replica.ErrNotLeader):
		return s.notLeader()
	case errors.Is(err, replica.ErrBusy):
		return rpc.NewError(connect.CodeResourceExhausted, "too many proposals are in progress: retry in a moment",
			&v1.Problem{Reason: "busy", Message: "too many proposals are in progress", Hint: "retry in a moment"})
	case errors.Is(err, replica.ErrTooLarge):
		return rpc.NewError(connect.CodeInvalidArgument, err.Error()+": send less at a time",
			&v1.Problem{Reason: "too-large", Message: err.Error(), Hint: "send less at a time"})
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return rpc.NewError(connect.CodeUnavailable, err.Error()+": repeating the call is safe")
}

// refuse is the answer to an order or a report that the state does not allow.
func refuse(r *fleet.Refusal) error {
	problem := &v1.Problem{Reason: r.Reason, Message: r.Say, Hint: r.Hint}
	say := r.Error()
	if len(r.Blockers) > 0 {
		say += " (" + strings.Join(r.Blockers, ", ") + ")"
	}
	if r.Kind == fleet.Refused {
		return rpc.NewError(codes[r.Kind], say, &v1.RefusedByState{Reason: r.Reason, Blockers: r.Blockers, ForcePossible: r.Force}, problem)
	}
	return rpc.NewError(codes[r.Kind], say, problem)
}

// invalidArgument refuses a request that can never succeed.
func invalidArgument(reason, say string) error {
	return rpc.NewError(connect.CodeInvalidArgument, say, &v1.Problem{Reason: reason, Message: say})
}

// notFound refuses a request about something that does not exist.
func notFound(what, name string) error {
	return refuse(&fleet.Refusal{Kind: fleet.NotFound, Reason: "unknown-" + what, Say: "there is no " + what + " " + quoted(name),
		Hint: "list the " + what + "s and use one of their names"})
}

func quoted(s string) string { return `"` + s + `"` }

// lower is an enum value as a metric label.
func lower(value, prefix string) string { return strings.ToLower(strings.TrimPrefix(value, prefix)) }
