package rpc

import (
	"context"
	"fmt"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bounds of fields of a request that have no rule of their own in the protos. A rule of the protos may be lower or higher. Fields
// marked IGNORE_ALWAYS are checked by their handler, one by one.
const (
	// TextBytesMax bounds a string: four times the longest name that Kubernetes or a cloud gives to anything.
	TextBytesMax = 4 << 10
	// BlobBytesMax bounds a bytes field: the longest is the user data of a machine.
	BlobBytesMax = 16 << 20
	// ItemsMax bounds a list or a map: twice the largest list of the contract.
	ItemsMax = 100_000
)

// bounded refuses requests with a field above its bound, before anything stores or logs it.
type bounded struct{}

func (bounded) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if err := withinBounds(req.Any()); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
}

func (bounded) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (bounded) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return next(ctx, boundedConn{conn})
	}
}

type boundedConn struct{ connect.StreamingHandlerConn }

func (c boundedConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err
	}
	return withinBounds(m)
}

func withinBounds(message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return nil
	}
	if err := checkBounds(m.ProtoReflect()); err != nil {
		return connect.NewError(connect.CodeInvalidArgument, err)
	}
	return nil
}

// CheckBounds applies the bounds to a part of a request that the protos leave to its handler.
func CheckBounds(m proto.Message) error { return checkBounds(m.ProtoReflect()) }

func checkBounds(m protoreflect.Message) (err error) {
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		err = checkField(fd, v)
		return err == nil
	})
	return err
}

func checkField(fd protoreflect.FieldDescriptor, v protoreflect.Value) (err error) {
	switch {
	case fd.IsMap():
		if r := rules(fd); ignored(r) {
			return nil
		} else if n := v.Map().Len(); n > max(ItemsMax, int(r.GetMap().GetMaxPairs())) {
			return tooLarge(fd, n, "entries", max(ItemsMax, int(r.GetMap().GetMaxPairs())))
		}
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			if err = checkValue(fd, fd.MapKey().Kind(), key.Value()); err == nil {
				err = checkValue(fd, fd.MapValue().Kind(), value)
			}
			return err == nil
		})
	case fd.IsList():
		if r := rules(fd); ignored(r) {
			return nil
		} else if n := v.List().Len(); n > max(ItemsMax, int(r.GetRepeated().GetMaxItems())) {
			return tooLarge(fd, n, "items", max(ItemsMax, int(r.GetRepeated().GetMaxItems())))
		}
		switch fd.Kind() {
		case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
			for i := 0; err == nil && i < v.List().Len(); i++ {
				err = checkValue(fd, fd.Kind(), v.List().Get(i))
			}
		}
	case fd.Kind() == protoreflect.MessageKind && ignored(rules(fd)):
		return nil
	default:
		err = checkValue(fd, fd.Kind(), v)
	}
	return err
}

func checkValue(fd protoreflect.FieldDescriptor, kind protoreflect.Kind, v protoreflect.Value) error {
	switch kind {
	case protoreflect.StringKind:
		if n := len(v.String()); n > TextBytesMax && n > int(rules(fd).GetString().GetMaxBytes()) {
			return tooLarge(fd, n, "bytes", max(TextBytesMax, int(rules(fd).GetString().GetMaxBytes())))
		}
	case protoreflect.BytesKind:
		if n := len(v.Bytes()); n > BlobBytesMax && n > int(rules(fd).GetBytes().GetMaxLen()) {
			return tooLarge(fd, n, "bytes", max(BlobBytesMax, int(rules(fd).GetBytes().GetMaxLen())))
		}
	case protoreflect.MessageKind:
		return checkBounds(v.Message())
	}
	return nil
}

func tooLarge(fd protoreflect.FieldDescriptor, n int, unit string, most int) error {
	return fmt.Errorf("%s has %d %s; at most %d are allowed", fd.FullName().Name(), n, unit, most)
}

func rules(fd protoreflect.FieldDescriptor) *validate.FieldRules {
	r, _ := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	return r
}

func ignored(r *validate.FieldRules) bool { return r.GetIgnore() == validate.Ignore_IGNORE_ALWAYS }
