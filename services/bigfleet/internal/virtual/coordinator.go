package virtual

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Coordinator answers a shard's reports with the instructions that a test gives it, again until they are answered.
type Coordinator struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler

	mu      sync.Mutex
	pending []*pb.CoordinatorInstruction
	sent    int64
	acks    map[string]*pb.InstructAck
}

const (
	coordinatorTerm = 1
	coordinatorUUID = "11111111-1111-4111-8111-111111111111"
)

func newCoordinator() *Coordinator { return &Coordinator{acks: map[string]*pb.InstructAck{}} }

func (c *Coordinator) server(log *slog.Logger) (*rpc.Server, error) {
	return rpc.NewServer(rpc.ServerConfig{Log: log, Services: []rpc.Service{{
		Name: bigfleetv1alpha1connect.CoordinatorName, Limits: rpc.Limits{ReadMaxBytes: 16 << 20, SendMaxBytes: 16 << 20},
		Access: rpc.AllowAll(bigfleetv1alpha1connect.CoordinatorName, rpc.Allow(identity.Shard)),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewCoordinatorHandler(c, opts...)
		},
	}}})
}

// ReportShard takes the answers to instructions and sends what has none yet.
func (c *Coordinator) ReportShard(_ context.Context, r *connect.Request[pb.ShardReport]) (*connect.Response[pb.ReportAck], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range r.Msg.GetInstructionAcks() {
		c.acks[a.GetInstructionId()] = a
	}
	out := &pb.ReportAck{CoordinatorTerm: coordinatorTerm, Acknowledged: true, ClusterUuid: coordinatorUUID}
	for _, x := range c.pending {
		if c.acks[x.GetInstructionId()] == nil {
			out.Instructions = append(out.Instructions, proto.Clone(x).(*pb.CoordinatorInstruction))
		}
	}
	return connect.NewResponse(out), nil
}

// Views tells the shard what is its own, and waits until it obeys.
func (v *Fleet) Views(id string, index uint64, view *pb.ShardView) {
	v.T.Helper()
	view.Version = &pb.ViewVersion{Term: coordinatorTerm, Index: index}
	v.Instructs(&pb.CoordinatorInstruction{InstructionId: id, Payload: &pb.CoordinatorInstruction_SetView{SetView: view}})
}

// Instructs gives the shard an order, and waits until it is carried out.
func (v *Fleet) Instructs(x *pb.CoordinatorInstruction) {
	v.T.Helper()
	c := v.Coordinator
	c.mu.Lock()
	c.sent++
	x.CoordinatorTerm, x.SequenceNumber = coordinatorTerm, c.sent
	c.pending = append(c.pending, x)
	c.mu.Unlock()
	v.Until("instruction "+x.GetInstructionId()+" is answered", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		a := c.acks[x.GetInstructionId()]
		if a != nil && a.GetOutcome() != pb.InstructAck_OUTCOME_ACCEPTED {
			v.T.Fatalf("instruction %s was answered %v", x.GetInstructionId(), a)
		}
		return a != nil
	})
}
