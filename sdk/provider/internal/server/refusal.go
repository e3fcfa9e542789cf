package server

import (
	"errors"
	"fmt"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// refusalCodes is the one place where a refusal of the state machine gets its RPC code (PROV-4.1, WIRE-7.4). FAILED_PRECONDITION
// means a stale token and nothing else, ever (PROV-5.1).
var refusalCodes = map[lifecycle.Reason]connect.Code{
	lifecycle.DeleteUnsupported: connect.CodeUnimplemented,
	lifecycle.EmptyMachineID:    connect.CodeInvalidArgument,
	lifecycle.ShardIDTooLong:    connect.CodeInvalidArgument,
	lifecycle.Stale:             connect.CodeFailedPrecondition,
	lifecycle.UnknownMachine:    connect.CodeNotFound,
	lifecycle.BrokenRule:        connect.CodeInvalidArgument,
	lifecycle.MetadataTooLarge:  connect.CodeInvalidArgument,
	lifecycle.BlobTooLarge:      connect.CodeInvalidArgument,
	lifecycle.NegativeGrace:     connect.CodeInvalidArgument,
	lifecycle.BoundElsewhere:    connect.CodeAlreadyExists,
	lifecycle.WrongState:        connect.CodeAborted,
}

// Refusal builds the answer to a refused mutation: what, why and what to do (WIRE-5.2).
func Refusal(d lifecycle.Decision, q lifecycle.Request, r *lifecycle.Record, mark *lifecycle.Token, rules lifecycle.Rules) error {
	message, details := "", []proto.Message(nil)
	switch d.Reason {
	case lifecycle.DeleteUnsupported:
		message = "this provider cannot return hosts; keep the machine"
	case lifecycle.EmptyMachineID:
		message = "machine_id is empty; name the machine"
	case lifecycle.ShardIDTooLong:
		message = fmt.Sprintf("shard_id has %d bytes, at most %d are allowed", len(q.ShardID), rules.ShardIDBytesMax)
	case lifecycle.Stale:
		message = fmt.Sprintf("token (%d, %d) is not newer than the mark (%d, %d): %s",
			q.Token.Epoch, q.Token.Sequence, mark.Epoch, mark.Sequence, staleBecause(q.Token, *mark))
		details = append(details, &bigfleetv1alpha1.FenceDetail{
			ShardId: q.ShardID, MachineId: q.MachineID, OfferedEpoch: q.Token.Epoch, OfferedSequence: q.Token.Sequence,
			MarkEpoch: mark.Epoch, MarkSequence: mark.Sequence,
		})
	case lifecycle.UnknownMachine:
		message = fmt.Sprintf("there is no machine %.128q; List shows the machines", q.MachineID)
	case lifecycle.BrokenRule:
		message = "nothing was started: " + d.Detail
	case lifecycle.MetadataTooLarge:
		message = fmt.Sprintf("shard_metadata has %d bytes of keys and values, at most %d are stored; nothing was applied",
			lifecycle.MetadataBytes(q.Metadata), rules.MetadataBytesMax)
		if n := len(q.Cluster); n > lifecycle.ClusterBytesMax {
			message = fmt.Sprintf("cluster_id has %d bytes, at most %d are stored; nothing was applied", n, lifecycle.ClusterBytesMax)
		}
	case lifecycle.BlobTooLarge:
		message = fmt.Sprintf("bootstrap_blob has %d bytes, at most %d are taken; nothing was applied", q.BlobBytes, rules.BlobBytesMax)
	case lifecycle.NegativeGrace:
		message = fmt.Sprintf("grace_period_seconds is %d; use 0 for none", q.GraceSeconds)
	case lifecycle.BoundElsewhere:
		message = fmt.Sprintf("machine %q serves cluster %q; drain it before it can join %q", r.ID, r.Cluster, q.Cluster)
		details = append(details, stateDetail(r, q.Kind))
	case lifecycle.WrongState:
		message = fmt.Sprintf("machine %q is %s, %s starts in %s; read it with Get", r.ID, StateName(r.State), q.Kind, StateName(q.Kind.Edge().From))
		details = append(details, stateDetail(r, q.Kind))
	}
	return Error(refusalCodes[d.Reason], message, details...)
}

// staleBecause says what made a token stale. Only a higher epoch shows another process.
func staleBecause(offered, mark lifecycle.Token) string {
	switch {
	case offered.Epoch < mark.Epoch:
		return "another process of this shard has taken over"
	case offered.Sequence == mark.Sequence:
		return "this token was used before; every call, also a repeated one, needs a higher sequence"
	}
	return "a call with a later token of the same epoch came first; this call is late, or two processes use one epoch"
}

// Outdated is the answer to a shard process whose epoch is below the claimed one (PROV-6.18). The detail names no machine
// where the call named none, and no sequence: the claim holds for all of them.
func Outdated(q lifecycle.Request, claimed int64) error {
	return Error(refusalCodes[lifecycle.Stale],
		fmt.Sprintf("epoch %d of shard %q is over: a newer process has claimed epoch %d at this provider", q.Token.Epoch, q.ShardID, claimed),
		&bigfleetv1alpha1.FenceDetail{
			ShardId: q.ShardID, MachineId: q.MachineID, OfferedEpoch: q.Token.Epoch, OfferedSequence: q.Token.Sequence, MarkEpoch: claimed,
		})
}

func stateDetail(r *lifecycle.Record, k lifecycle.Kind) *bigfleetv1alpha1.StateDetail {
	return &bigfleetv1alpha1.StateDetail{MachineId: r.ID, Found: r.State, Needed: k.Edge().From, Cluster: r.Cluster}
}

// StateName is the state without the prefix of the enum.
func StateName(s lifecycle.State) string {
	const prefix = "MACHINE_STATE_"
	return s.String()[len(prefix):]
}

// Error is a status with its details.
func Error(code connect.Code, message string, details ...proto.Message) error {
	err := connect.NewError(code, errors.New(message))
	for _, m := range details {
		// A detail that cannot be encoded is left out: no caller depends on it (WIRE-5.3).
		if d, failed := connect.NewErrorDetail(m); failed == nil {
			err.AddDetail(d)
		}
	}
	return err
}
