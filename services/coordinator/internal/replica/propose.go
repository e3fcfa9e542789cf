package replica

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

var (
	// ErrNotLeader: another replica leads; nothing was proposed.
	ErrNotLeader = errors.New("this replica is not the leader")
	// ErrOutcomeUnknown: the entry may or may not be committed. All operations are idempotent: repeat it.
	ErrOutcomeUnknown = errors.New("the outcome is not known yet")
	// ErrTooLarge: the entry has more than ProposalBytesMax; nothing was proposed.
	ErrTooLarge = errors.New("the request is too large to be committed")
	// ErrBusy: OutstandingMax proposals are under way; nothing was proposed.
	ErrBusy = errors.New("too many proposals are in progress")
)

// ProposalBytesMax bounds one entry. The largest is one report with all its holdings. It is far below store.EntryBytesMax and the
// limit of a row in a snapshot, so that whatever was committed can be read again.
const ProposalBytesMax = 64 << 20

// Committed is what became of a proposal.
type Committed struct {
	// State is the one that the entry led to.
	State *fleet.State
	// Results has one element for each operation; nil is success.
	Results []*fleet.Refusal
}

// Err returns the first refusal.
func (c *Committed) Err() *fleet.Refusal { return (&fleet.Outcome{Results: c.Results}).Err() }

// Envelope makes a log entry of operations. A Node sets its own time when it proposes it.
func Envelope(actor string, ops ...*pb.Operation) *pb.Envelope {
	return &pb.Envelope{
		Format: fleet.Format, Level: fleet.LevelOf(ops), ProposedAtUnixNanos: time.Now().UnixNano(),
		Actor: actor, RequestId: rand.Text(), Operations: ops,
	}
}

// Actor is how the audit names what this replica does by itself.
func (n *Node) Actor() string { return "coordinator/" + n.config.NodeID }

// NodeID is the id of this replica.
func (n *Node) NodeID() string { return n.config.NodeID }

// Propose commits an entry and returns what it did. When OutstandingMax proposals are under way it is ErrBusy, or, with
// wait, it waits its turn inside ctx (COORD-4.9).
func (n *Node) Propose(ctx context.Context, e *pb.Envelope, wait bool) (got *Committed, err error) {
	ctx, span := n.config.Tracer.Tracer(tracerName).Start(ctx, "proposal", trace.WithAttributes(attribute.String(RequestID, e.GetRequestId()),
		attribute.Int("operations", len(e.GetOperations()))), trace.WithLinks(linksOf(ctx)...))
	defer func() {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		} else {
			span.SetAttributes(attribute.Int64("index", int64(got.State.Index())))
		}
		span.End()
	}()
	if e.GetLevel() > n.State().Meta().GetFeatureLevel() && n.State().Meta().GetFeatureLevel() > 0 {
		return nil, errors.New("the group has not reached the feature level of this operation yet") // COORD-4.5
	}
	select {
	case n.slots <- struct{}{}:
	default:
		if !wait {
			return nil, ErrBusy
		}
		select {
		case n.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, ErrBusy
		}
	}
	return n.propose(ctx, e)
}

// propose holds a slot, which is free again when the outcome is known, whether the caller waited or not.
func (n *Node) propose(ctx context.Context, e *pb.Envelope) (*Committed, error) {
	e.ProposedAtUnixNanos = n.config.Clock().UnixNano()
	data, err := proto.Marshal(e)
	if err == nil && len(data) > ProposalBytesMax {
		err = fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(data), ProposalBytesMax)
	}
	if err != nil {
		<-n.slots
		return nil, err
	}
	timeout := ApplyTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(end), time.Millisecond))
	}
	p := &proposal{data: data, timeout: timeout, start: time.Now(), done: make(chan struct{}), left: make(chan struct{})}
	n.submit(p)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.got, p.err
	case <-timer.C:
	case <-ctx.Done():
	}
	close(p.left)
	return nil, ErrOutcomeUnknown
}

// await reads the outcome of an entry: the future's error and the machine's answer (COORD-4.6).
func (n *Node) await(future raft.ApplyFuture, start time.Time) (*Committed, error) {
	if err := future.Error(); err != nil {
		n.config.Metrics.Apply.WithLabelValues("error").Inc()
		switch {
		case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
			return nil, ErrNotLeader
		case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrRaftShutdown):
			return nil, err
		}
		return nil, errors.Join(ErrOutcomeUnknown, err)
	}
	got, ok := future.Response().(applied)
	if !ok || got.err != nil {
		n.config.Metrics.Apply.WithLabelValues("fsm_error").Inc()
		return nil, errors.Join(ErrOutcomeUnknown, got.err)
	}
	n.config.Metrics.Commit.Observe(time.Since(start).Seconds())
	out := &Committed{State: got.state, Results: got.outcome.Results}
	if out.Err() != nil {
		n.config.Metrics.Apply.WithLabelValues("fsm_error").Inc()
	} else {
		n.config.Metrics.Apply.WithLabelValues("success").Inc()
	}
	return out, nil
}
