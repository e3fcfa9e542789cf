package server

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"
)

// COORD-1.7, 16.9: every kind of refusal has its code, and none is FAILED_PRECONDITION, which sends callers to another
// replica.
func TestCodes(t *testing.T) {
	s := &Server{}
	for err, want := range map[error]connect.Code{
		&fleet.Refusal{Kind: fleet.Invalid}:    connect.CodeInvalidArgument,
		&fleet.Refusal{Kind: fleet.NotFound}:   connect.CodeNotFound,
		&fleet.Refusal{Kind: fleet.OtherOwner}: connect.CodeAlreadyExists,
		&fleet.Refusal{Kind: fleet.Refused}:    connect.CodeAborted,
		&fleet.Refusal{Kind: fleet.Full}:       connect.CodeResourceExhausted,
		&shards.Decommissioned{}:               connect.CodeNotFound,
		replica.ErrBusy:                        connect.CodeResourceExhausted,
		replica.ErrOutcomeUnknown:              connect.CodeUnavailable,
		errors.New("anything else"):            connect.CodeUnavailable,
	} {
		if got := connect.CodeOf(s.fail(err)); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	if err := s.fail(context.Canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the call is %v", err)
	}
	if len(codes) != int(fleet.Full) {
		t.Errorf("%d of %d kinds have a code", len(codes), fleet.Full)
	}
	for kind, code := range codes {
		if code == connect.CodeFailedPrecondition {
			t.Errorf("kind %d is answered as \"not the leader\"", kind)
		}
	}
}
