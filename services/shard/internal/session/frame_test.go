package session

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// wire is a frame as it goes over the wire, and frames a codec that leaves it so.
type wire struct{ raw []byte }

type frames struct{ name string }

func (c frames) Name() string                { return c.name }
func (frames) Marshal(m any) ([]byte, error) { return m.(*wire).raw, nil }
func (frames) Unmarshal(raw []byte, m any) error {
	m.(*wire).raw = append([]byte(nil), raw...)
	return nil
}

// dial opens a stream to a handler over HTTP/2 on loopback, in one of the two encodings.
func dial(t *testing.T, h *Handler, codec string) *connect.BidiStreamForClient[wire, wire] {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), StopTimeout: time.Second, Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.ShardName, Limits: rpc.Limits{ReadMaxBytes: 1 << 20, SendMaxBytes: 1 << 20},
		Access: map[string]rpc.Access{bigfleetv1alpha1connect.ShardSessionProcedure: rpc.HandlerDecides()},
		New:    func(o ...connect.HandlerOption) (string, http.Handler) { return NewHTTP(h, o...) }}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = server.Run(ctx, ln); close(ended) }()
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: ln.Addr().String(), Limits: rpc.Limits{ReadMaxBytes: 1 << 20, SendMaxBytes: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	s := connect.NewClient[wire, wire](client.HTTP, client.BaseURL+bigfleetv1alpha1connect.ShardSessionProcedure,
		append(client.Options, connect.WithCodec(frames{codec}))...).CallBidiStream(t.Context())
	t.Cleanup(func() {
		_ = s.CloseRequest()
		_ = s.CloseResponse()
		client.CloseIdle()
		cancel()
		<-ended
	})
	return s
}

func limited(h *Handler) *Handler {
	h.cfg.SessionAgeMax, h.cfg.SlowAfter = time.Hour, time.Minute
	h.cfg.Outbox = OutboxLimits{EssentialFrames: 100, Bytes: 1 << 20}
	return h
}

var blue = []*pb.OperatorMessage{
	{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "blue", ProtocolVersion: "v1alpha1"}}},
	{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: "blue", Needs: []*pb.CapacityNeed{
		{RowId: "r", AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "1"}}}}}},
}

// WIRE-4.2, SHARD-8.1: the frames of a session get to the core in both encodings of the wire.
func TestSessionsSpeakProtobufAndJSON(t *testing.T) {
	for codec, marshal := range map[string]func(proto.Message) ([]byte, error){"proto": proto.Marshal, "json": protojson.Marshal} {
		t.Run(codec, func(t *testing.T) {
			x := newShell(t, newGate(t))
			s := dial(t, limited(x.h), codec)
			for _, m := range blue {
				raw, err := marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(&wire{raw}); err != nil {
					t.Fatal(err)
				}
			}
			for {
				x.mu.Lock()
				got := append(x.rollups[:0:0], x.rollups...)
				x.mu.Unlock()
				if len(got) > 0 {
					if got[0].Cluster != "blue" || len(got[0].Rows) != 1 || got[0].Reject != nil {
						t.Fatalf("%+v", got[0])
					}
					return
				}
				select {
				case <-t.Context().Done():
					t.Fatal("no roll-up came")
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
}

// WIRE-6.7, SHARD-10.8: bytes that are no frame end the session, and the operator reads why: as Hello, as a roll-up, as anything else.
func TestBytesThatAreNoFrame(t *testing.T) {
	hello, err := proto.Marshal(blue[0])
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{"a broken roll-up": {2<<3 | 2, 3, 0x1a, 9, 'x'}, "no message": {0xff, 0xff}} {
		for _, sent := range [][][]byte{{bad}, {hello, bad}} {
			t.Run(name, func(t *testing.T) {
				s := dial(t, limited(newShell(t, newGate(t)).h), "proto")
				for _, raw := range sent {
					if err := s.Send(&wire{raw}); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := s.Receive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("the session ended with %v", err)
				}
			})
		}
	}
}
