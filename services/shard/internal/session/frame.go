package session

import (
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// Received is an OperatorMessage that is still encoded. Decoding and the rules need a stack of 16 to 32 KB, and a goroutine that
// has grown one keeps it: thousands of sessions at rest would hold on to theirs. So a session's own goroutine only takes
// frames out of the stream.
type Received struct{ raw []byte }

// message decodes the frame.
func (f *Received) message() (*pb.OperatorMessage, error) {
	m := &pb.OperatorMessage{}
	return m, proto.Unmarshal(f.raw, m)
}

// rollup returns the bytes of the roll-up if the frame is one and nothing else.
func (f *Received) rollup() ([]byte, bool) { return f.only(2) }

// only returns the bytes of a payload by its number, if the frame is that and nothing else.
func (f *Received) only(payload protowire.Number) ([]byte, bool) {
	num, kind, n := protowire.ConsumeTag(f.raw)
	if n < 0 || num != payload || kind != protowire.BytesType {
		return nil, false
	}
	v, m := protowire.ConsumeBytes(f.raw[n:])
	return v, m >= 0 && n+m == len(f.raw)
}

// aside runs f on a goroutine of its own and waits for it. Its panic is the caller's.
func aside(f func()) {
	done := make(chan any)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	if p := <-done; p != nil {
		panic(p)
	}
}

// NewHTTP mounts the handler, as the generated constructor does for decoded messages.
func NewHTTP(h *Handler, options ...connect.HandlerOption) (string, http.Handler) {
	method := pb.File_bigfleet_v1alpha1_shard_proto.Services().ByName("Shard").Methods().ByName("Session")
	serve := Wrap(connect.NewBidiStreamHandler(bigfleetv1alpha1connect.ShardSessionProcedure, h.Session, connect.WithSchema(method),
		connect.WithHandlerOptions(options...), connect.WithCodec(binary{}), connect.WithCodec(text{})))
	return "/" + bigfleetv1alpha1connect.ShardName + "/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != bigfleetv1alpha1connect.ShardSessionProcedure {
			http.NotFound(w, r)
			return
		}
		serve.ServeHTTP(w, r)
	})
}

// binary and text are the codecs of protobuf and its JSON, for messages and for what is Received.
type (
	binary struct{}
	text   struct{}
)

func (binary) Name() string { return "proto" }
func (text) Name() string   { return "json" }

func (binary) Marshal(m any) ([]byte, error) { return proto.Marshal(m.(proto.Message)) }
func (text) Marshal(m any) ([]byte, error)   { return protojson.Marshal(m.(proto.Message)) }

func (binary) Unmarshal(raw []byte, into any) error {
	if f, is := into.(*Received); is {
		f.raw = append([]byte(nil), raw...)
		return nil
	}
	return proto.Unmarshal(raw, into.(proto.Message))
}

func (text) Unmarshal(raw []byte, into any) (err error) {
	f, is := into.(*Received)
	m, _ := into.(proto.Message)
	if is {
		m = &pb.OperatorMessage{}
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, m); err != nil || !is {
		return err
	}
	f.raw, err = proto.Marshal(m)
	return err
}
