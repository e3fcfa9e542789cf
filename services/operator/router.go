package operator

import (
	"context"
	"sync"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/nodereport"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/session"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/unplaced"
)

// Limits of queues. A queue that is full drops the newest frame, which the shard repeats.
const (
	reclaimParallel = 8
	reclaimQueue    = 4096
)

// Features that this operator has (WIRE-2.8).
var features = []string{publish.FeatureAck, nodereport.Feature, nodereport.FeatureContents, featureDrainReport, unplaced.Feature, outofservice.Feature, "need-status", "reclaim-cancel", "released"}

const featureDrainReport = "drain-report"

// router gives each frame to whom it concerns. It never waits (OP-4.11).
type router struct {
	*parts
	ctx      context.Context // of the work; answers outlive neither it nor their session
	reclaims chan reclaim
	tasks    sync.WaitGroup
}

type reclaim struct {
	link *session.Link
	in   *pb.ReclaimInstruction
}

func newRouter(p *parts) *router {
	return &router{parts: p, reclaims: make(chan reclaim, reclaimQueue)}
}

// Opened implements session.Receiver.
func (r *router) Opened(l *session.Link) {
	r.upcoming.Opened()
	r.hints.Opened()
	r.drains.Opened()
	r.demand.Opened(l)
}

// Closed implements session.Receiver.
func (r *router) Closed(*session.Link, error) {
	r.demand.Closed()
	r.reports.Closed()
	r.needStatus.Session(false)
	r.instruments.Connected.Set(0)
}

// Receive implements session.Receiver.
func (r *router) Receive(l *session.Link, m *pb.ShardMessage) {
	switch p := m.Payload.(type) {
	case *pb.ShardMessage_Ack:
		r.acknowledged(l, p.Ack)
	case *pb.ShardMessage_BootstrapRequest:
		r.bootstrapRequest(l, p.BootstrapRequest)
	case *pb.ShardMessage_ReclaimInstruction:
		select {
		case r.reclaims <- reclaim{l, p.ReclaimInstruction}:
		default:
			r.instruments.UnknownFrames.WithLabelValues("reclaim_lane_full").Inc()
		}
	case *pb.ShardMessage_ReclaimCancel:
		r.drains.Cancel(p.ReclaimCancel)
	case *pb.ShardMessage_NodeStateUpdate:
		r.nodeState(p.NodeStateUpdate)
	case *pb.ShardMessage_AvailableCapacity:
		r.hints.Update(p.AvailableCapacity)
	case *pb.ShardMessage_NeedStatus:
		r.needStatus.Status(p.NeedStatus)
	default:
		r.instruments.UnknownFrames.WithLabelValues("unknown_payload").Inc()
	}
}

func (r *router) acknowledged(l *session.Link, a *pb.Acknowledgement) {
	switch session.Echo(a) {
	case session.EchoHello:
		r.instruments.Connected.Set(1)
		r.demand.Greeted()
		r.needStatus.Session(true)
		if l.Has(nodereport.Feature) {
			r.reports.Greeted(l, l.Has(nodereport.FeatureContents))
		}
	case session.EchoResynced:
		r.upcoming.Resynced()
		r.drains.Resynced()
	default:
		r.demand.Answered(a)
	}
}

// bootstrapRequest answers beside every queue: a blob that waits for slow writes expires, and a healthy machine fails
// (OP-4.12).
func (r *router) bootstrapRequest(l *session.Link, in *pb.BootstrapRequest) {
	respond := func(out *pb.BootstrapBlobResponse) {
		l.Respond(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: out}})
	}
	if !r.renderer.Enter() {
		respond(r.renderer.Overloaded(in.RequestId))
		return
	}
	r.tasks.Go(func() { respond(r.renderer.Answer(r.ctx, in)) })
}

func (r *router) nodeState(m *pb.NodeStateUpdate) {
	if m.MachineId == "" {
		r.instruments.UnknownFrames.WithLabelValues("node_state_without_machine").Inc()
		return
	}
	r.know(m)
	r.upcoming.Update(m)
}

// runReclaims answers reclaim instructions until the work ends.
func (r *router) runReclaims(ctx context.Context) error {
	var workers sync.WaitGroup
	for range reclaimParallel {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case q := <-r.reclaims:
					ack := r.drains.Instruct(ctx, q.in)
					if !q.link.Respond(&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: ack}}) {
						r.log.Info("the answer to a reclaim could not be sent; the shard asks again", "instruction", q.in.InstructionId)
					}
				}
			}
		})
	}
	workers.Wait()
	r.tasks.Wait()
	return nil
}
