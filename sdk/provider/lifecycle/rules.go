package lifecycle

import (
	"errors"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
)

// brokenRule is one rule of the protos that a message breaks.
type brokenRule struct{ field, text string }

// brokenRules asks the rules generated from the protos (PROV-4.5, WIRE-3.1).
func brokenRules(m proto.Message) (all []brokenRule) {
	err := protovalidate.Validate(m)
	if err == nil {
		return nil
	}
	found, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return []brokenRule{{"", err.Error()}}
	}
	for _, v := range found.Violations {
		field := protovalidate.FieldPathString(v.Proto.GetField())
		all = append(all, brokenRule{field, field + ": " + v.Proto.GetMessage()})
	}
	return all
}

// message is the request as it travels, without the content of the blob, on which there is no rule.
func (q Request) message() proto.Message {
	switch q.Kind {
	case Create:
		return &bigfleetv1alpha1.CreateRequest{MachineId: q.MachineID, ShardId: q.ShardID, ShardEpoch: q.Token.Epoch, SequenceNumber: q.Token.Sequence}
	case Configure:
		return &bigfleetv1alpha1.ConfigureRequest{MachineId: q.MachineID, ShardId: q.ShardID, ShardEpoch: q.Token.Epoch, SequenceNumber: q.Token.Sequence,
			ClusterId: q.Cluster, ShardMetadata: q.Metadata}
	case Drain:
		return &bigfleetv1alpha1.DrainRequest{MachineId: q.MachineID, ShardId: q.ShardID, ShardEpoch: q.Token.Epoch, SequenceNumber: q.Token.Sequence,
			GracePeriodSeconds: q.GraceSeconds}
	}
	return &bigfleetv1alpha1.DeleteRequest{MachineId: q.MachineID, ShardId: q.ShardID, ShardEpoch: q.Token.Epoch, SequenceNumber: q.Token.Sequence}
}

// CheckRef names the broken rules of a MachineRef, joined.
func CheckRef(ref *bigfleetv1alpha1.MachineRef) error { return joined(brokenRules(ref)) }

func joined(rules []brokenRule) error {
	var all []error
	for _, r := range rules {
		all = append(all, errors.New(r.text))
	}
	return errors.Join(all...)
}
