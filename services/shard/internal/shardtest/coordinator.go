package shardtest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Coordinator answers ReportShard as a test says, over real HTTP/2.
type Coordinator struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler

	mu      sync.Mutex
	reports []*pb.ShardReport
	acks    map[string]*pb.InstructAck
	pending map[string]*pb.CoordinatorInstruction
	order   []string

	// Term and UUID are those of every answer.
	Term int64
	UUID string
	// Answer replaces the answer to a report; nil or a nil answer gives the usual one. An error is returned as it is.
	Answer func(*pb.ShardReport) (*pb.ReportAck, error)

	Addr string
}

// NewCoordinator returns a coordinator of term 1.
func NewCoordinator() *Coordinator {
	return &Coordinator{Term: 1, UUID: "11111111-1111-4111-8111-111111111111", acks: map[string]*pb.InstructAck{}, pending: map[string]*pb.CoordinatorInstruction{}}
}

// Serve runs it on loopback until the test ends.
func (c *Coordinator) Serve(t testing.TB) *Coordinator {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Addr = ln.Addr().String()
	s, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.CoordinatorName, Limits: rpc.Limits{ReadMaxBytes: 32 << 20, SendMaxBytes: 32 << 20},
		Access: rpc.AllowAll(bigfleetv1alpha1connect.CoordinatorName, rpc.Allow(identity.Shard)),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCoordinatorHandler(c, opts...)
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a server ended with %v", err)
		}
	})
	return c
}

// ReportShard takes a report, keeps its acks, and sends what is pending.
func (c *Coordinator) ReportShard(_ context.Context, r *connect.Request[pb.ShardReport]) (*connect.Response[pb.ReportAck], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports = append(c.reports, r.Msg)
	for _, a := range r.Msg.InstructionAcks {
		c.acks[a.InstructionId] = a
		delete(c.pending, a.InstructionId)
	}
	if c.Answer != nil {
		if ack, err := c.Answer(r.Msg); ack != nil || err != nil {
			if err != nil {
				return nil, err
			}
			return connect.NewResponse(ack), nil
		}
	}
	out := &pb.ReportAck{CoordinatorTerm: c.Term, Acknowledged: true, ClusterUuid: c.UUID}
	for _, id := range c.order {
		if x := c.pending[id]; x != nil {
			out.Instructions = append(out.Instructions, proto.Clone(x).(*pb.CoordinatorInstruction))
		}
	}
	return connect.NewResponse(out), nil
}

// Instruct makes an instruction pending until it is acked. Term and sequence number are filled in.
func (c *Coordinator) Instruct(x *pb.CoordinatorInstruction) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = append(c.order, x.InstructionId)
	x.CoordinatorTerm, x.SequenceNumber = c.Term, int64(len(c.order))
	c.pending[x.InstructionId] = x
}

// Set changes the coordinator between two reports.
func (c *Coordinator) Set(f func(*Coordinator)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// Reports returns what came so far.
func (c *Coordinator) Reports() []*pb.ShardReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*pb.ShardReport(nil), c.reports...)
}

// Last is the newest report, or nil.
func (c *Coordinator) Last() *pb.ShardReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.reports) == 0 {
		return nil
	}
	return c.reports[len(c.reports)-1]
}

// Acked returns the ack of an instruction, waiting for it.
func (c *Coordinator) Acked(t testing.TB, id string) *pb.InstructAck {
	t.Helper()
	var out *pb.InstructAck
	Eventually(t, "instruction "+id+" is answered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		out = c.acks[id]
		return out != nil
	})
	return out
}
