package server

import (
	"fmt"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// The records of a List are kept in their wire form, so that a full list of half a million machines copies bytes instead
// of encoding structs again (PROV-16.6). They travel through connect in the unknown fields of a MachineList: the encoder
// writes unknown fields out as they are, and so a reader finds ordinary machines in field 1. What remains is JSON, which
// drops unknown fields: there the message is decoded first.

// binaryCodec is protobuf. It replaces connect's only to spare a large list one more copy.
type binaryCodec struct{}

func (binaryCodec) Name() string { return "proto" }

func (binaryCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	if list, ok := m.(*bigfleetv1alpha1.MachineList); ok {
		return marshalList(list)
	}
	return proto.Marshal(m)
}

// marshalList appends the small fields behind the rows; the order of fields is free.
func marshalList(list *bigfleetv1alpha1.MachineList) ([]byte, error) {
	rows := list.ProtoReflect().GetUnknown()
	head := &bigfleetv1alpha1.MachineList{
		Machines: list.GetMachines(), Revision: list.GetRevision(),
		Complete: list.GetComplete(), More: list.GetMore(), RemovedIds: list.GetRemovedIds(),
	}
	return proto.MarshalOptions{}.MarshalAppend(rows[:len(rows):cap(rows)], head)
}

func (binaryCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	return proto.Unmarshal(data, m)
}

// jsonCodec is proto3 JSON (WIRE-4.6). Unknown fields of requests are ignored (WIRE-4.7).
type jsonCodec struct{ name string }

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	if list, ok := m.(*bigfleetv1alpha1.MachineList); ok {
		wire, err := marshalList(list)
		if err != nil {
			return nil, err
		}
		m = &bigfleetv1alpha1.MachineList{}
		if err := proto.Unmarshal(wire, m); err != nil {
			return nil, err
		}
	}
	return protojson.Marshal(m)
}

func (c jsonCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	if len(data) == 0 {
		return fmt.Errorf("the body is empty; send {} for an empty request")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

func notProto(message any) error { return fmt.Errorf("%T is not a protobuf message", message) }

func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(binaryCodec{}),
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
	)
}
