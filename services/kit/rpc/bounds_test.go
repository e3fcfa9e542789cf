package rpc

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// overfull calls try with a message for each string, bytes, list and map field that m can hold, that field above every bound.
func overfull(m protoreflect.MessageDescriptor, seen map[protoreflect.FullName]bool, wrap func(protoreflect.Message) protoreflect.Message, try func(field protoreflect.FieldDescriptor, m protoreflect.Message)) {
	if seen[m.FullName()] {
		return
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		fd := m.Fields().Get(i)
		with := func(set func(protoreflect.Message)) {
			out := dynamicpb.NewMessage(m)
			set(out)
			try(fd, wrap(out))
		}
		switch {
		case ignored(rules(fd)):
		case fd.IsMap():
			with(func(out protoreflect.Message) {
				key := protoreflect.ValueOfString(strings.Repeat("x", 1<<20)).MapKey()
				if fd.MapKey().Kind() == protoreflect.StringKind {
					out.Mutable(fd).Map().Set(key, out.Mutable(fd).Map().NewValue())
				}
			})
		case fd.IsList():
			with(func(out protoreflect.Message) {
				list := out.Mutable(fd).List()
				for range 300_000 {
					list.Append(list.NewElement())
				}
			})
			if fd.Kind() == protoreflect.StringKind {
				with(func(out protoreflect.Message) {
					out.Mutable(fd).List().Append(protoreflect.ValueOfString(strings.Repeat("x", 1<<20)))
				})
			}
			if fd.Kind() == protoreflect.MessageKind {
				overfull(fd.Message(), seen, func(inner protoreflect.Message) protoreflect.Message {
					out := dynamicpb.NewMessage(m)
					out.Mutable(fd).List().Append(protoreflect.ValueOfMessage(inner))
					return wrap(out)
				}, try)
			}
		case fd.Kind() == protoreflect.StringKind:
			with(func(out protoreflect.Message) { out.Set(fd, protoreflect.ValueOfString(strings.Repeat("x", 1<<20))) })
		case fd.Kind() == protoreflect.BytesKind:
			with(func(out protoreflect.Message) { out.Set(fd, protoreflect.ValueOfBytes(make([]byte, 65<<20))) })
		case fd.Kind() == protoreflect.MessageKind:
			overfull(fd.Message(), seen, func(inner protoreflect.Message) protoreflect.Message {
				out := dynamicpb.NewMessage(m)
				out.Set(fd, protoreflect.ValueOfMessage(inner))
				return wrap(out)
			}, try)
		}
	}
}

// WIRE-4.4: every string, bytes, repeated and map field of every request has a bound, also those that a later version adds.
func TestEveryFieldOfEveryRequestHasABound(t *testing.T) {
	tried := 0
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_bigfleet_v1alpha1_coordinator_proto, pb.File_bigfleet_v1alpha1_coordinatoradmin_proto, pb.File_bigfleet_v1alpha1_shardread_proto,
		pb.File_bigfleet_v1alpha1_shardadmin_proto, pb.File_bigfleet_v1alpha1_shard_proto, pb.File_bigfleet_v1alpha1_provider_proto,
		pb.File_bigfleet_v1alpha1_provideradmin_proto, pb.File_bigfleet_v1alpha1_console_proto, pb.File_bigfleet_v1alpha1_substratecontrol_proto,
	} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for k := range methods.Len() {
				plain := func(m protoreflect.Message) protoreflect.Message { return m }
				overfull(methods.Get(k).Input(), map[protoreflect.FullName]bool{}, plain, func(fd protoreflect.FieldDescriptor, m protoreflect.Message) {
					tried++
					if fd.IsMap() && fd.MapKey().Kind() != protoreflect.StringKind {
						return
					}
					if err := checkBounds(m); err == nil || !strings.Contains(err.Error(), string(fd.Name())) {
						t.Errorf("%s: %s is taken without a bound: %v", methods.Get(k).FullName(), fd.FullName(), err)
					}
				})
			}
		}
	}
	if tried < 200 {
		t.Fatalf("only %d fields were tried", tried)
	}
	if err := checkBounds((&pb.ShardReport{ShardId: "a", Capabilities: []string{"view/1"}}).ProtoReflect()); err != nil {
		t.Error(err)
	}
}
