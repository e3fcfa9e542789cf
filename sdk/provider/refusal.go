package provider

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
	lifecycle.EmptyCluster:      connect.CodeInvalidArgument,
	lifecycle.MetadataTooLarge:  connect.CodeInvalidArgument,
	lifecycle.BlobTooLarge:      connect.CodeInvalidArgument,
	lifecycle.NegativeGrace:     connect.CodeInvalidArgument,
	lifecycle.BoundElsewhere:    connect.CodeAlreadyExists,
	lifecycle.WrongState:        connect.CodeAborted,
}

// refusal builds the answer to a refused mutation: what, why and what to do (WIRE-5.2).
func refusal(why lifecycle.Reason, q lifecycle.Request, r *lifecycle.Record, mark *lifecycle.Token) error {
	say, details := "", []proto.Message(nil)
	switch why {
	case lifecycle.DeleteUnsupported:
		say = "this provider cannot give hosts back; keep the machine"
	case lifecycle.EmptyMachineID:
		say = "machine_id is empty; name the machine"
	case lifecycle.ShardIDTooLong:
		say = fmt.Sprintf("shard_id has %d bytes, at most %d are allowed", len(q.ShardID), ShardIDBytesMax)
	case lifecycle.Stale:
		say = fmt.Sprintf("token (%d, %d) is not newer than the mark (%d, %d): another process of this shard has taken over",
			q.Token.Epoch, q.Token.Sequence, mark.Epoch, mark.Sequence)
		details = append(details, &bigfleetv1alpha1.FenceDetail{
			ShardId: q.ShardID, MachineId: q.MachineID, OfferedEpoch: q.Token.Epoch, OfferedSequence: q.Token.Sequence,
			MarkEpoch: mark.Epoch, MarkSequence: mark.Sequence,
		})
	case lifecycle.UnknownMachine:
		say = fmt.Sprintf("no machine %.128q here; List shows what there is", q.MachineID)
	case lifecycle.EmptyCluster:
		say = "cluster_id is empty; name the cluster to join"
	case lifecycle.MetadataTooLarge:
		say = fmt.Sprintf("shard_metadata has %d bytes of keys and values, at most %d are stored; nothing was applied",
			lifecycle.MetadataBytes(q.Metadata), MetadataBytesMax)
	case lifecycle.BlobTooLarge:
		say = fmt.Sprintf("bootstrap_blob has %d bytes, at most %d are taken; nothing was applied", q.BlobBytes, BlobBytesMax)
	case lifecycle.NegativeGrace:
		say = fmt.Sprintf("grace_period_seconds is %d; use 0 for none", q.GraceSeconds)
	case lifecycle.BoundElsewhere:
		say = fmt.Sprintf("machine %q serves cluster %q; drain it before it can join %q", r.ID, r.Cluster, q.Cluster)
		details = append(details, stateDetail(r, q.Kind))
	case lifecycle.WrongState:
		say = fmt.Sprintf("machine %q is %s, %s starts in %s; read it with Get", r.ID, stateName(r.State), q.Kind, stateName(q.Kind.Edge().From))
		details = append(details, stateDetail(r, q.Kind))
	}
	return newError(refusalCodes[why], say, details...)
}

func stateDetail(r *lifecycle.Record, k Kind) *bigfleetv1alpha1.StateDetail {
	return &bigfleetv1alpha1.StateDetail{MachineId: r.ID, Found: r.State, Needed: k.Edge().From, Cluster: r.Cluster}
}

// stateName is the state without the prefix of the enum.
func stateName(s State) string {
	const prefix = "MACHINE_STATE_"
	return s.String()[len(prefix):]
}

func newError(code connect.Code, say string, details ...proto.Message) error {
	err := connect.NewError(code, errors.New(say))
	for _, m := range details {
		// A detail that cannot be encoded is left out: nobody depends on one being there (WIRE-5.3).
		if d, failed := connect.NewErrorDetail(m); failed == nil {
			err.AddDetail(d)
		}
	}
	return err
}
