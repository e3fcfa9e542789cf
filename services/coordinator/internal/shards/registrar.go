package shards

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Group is what a ShardRegistry needs of the replica it runs on.
type Group interface {
	State() *fleet.State
	Propose(ctx context.Context, e *pb.Envelope, wait bool) (*replica.Committed, error)
	Confirm(ctx context.Context) error
	Actor() string
}

// registrar puts what reports bring into common log entries: thousands of shards start at once after a restore, and
// each alone would be an entry and an fsync (COORD-4.8).
type registrar struct {
	group Group
	ctx   context.Context // of the leadership

	mu      sync.Mutex
	waiting []*request
	armed   bool
	busy    bool
	running sync.WaitGroup
}

// request is what one report wants committed.
type request struct {
	ops     []*pb.Operation
	caller  trace.Span // of the report
	results []*fleet.Refusal
	err     error
	done    chan struct{}
}

func (r *request) bytes() int {
	sum := 0
	for _, op := range r.ops {
		sum += proto.Size(op)
	}
	return sum
}

// commit waits for the entry that ops become part of, and returns one result for each.
func (r *registrar) commit(ctx context.Context, ops ...*pb.Operation) ([]*fleet.Refusal, error) {
	w := &request{ops: ops, caller: trace.SpanFromContext(ctx), done: make(chan struct{})}
	r.mu.Lock()
	if r.ctx.Err() != nil {
		r.mu.Unlock()
		return nil, replica.ErrNotLeader
	}
	r.waiting = append(r.waiting, w)
	if !r.armed {
		r.armed = true
		r.running.Go(r.flushLater)
	}
	r.mu.Unlock()
	defer pause(ctx)()
	select {
	case <-w.done:
		return w.results, w.err
	case <-ctx.Done():
		return nil, replica.ErrOutcomeUnknown
	}
}

// start runs f beside the reports, unless the leadership is over.
func (r *registrar) start(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() == nil {
		r.running.Go(f)
	}
}

// wait ends with everything that was started. The leadership is over.
func (r *registrar) wait() {
	r.ended() // every caller that saw the leadership go on has started by now
	r.running.Wait()
}

func (r *registrar) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx.Err() != nil
}

// flushLater waits for the window and proposes what gathered.
func (r *registrar) flushLater() {
	r.mu.Lock()
	window := batchWindow
	if r.busy {
		window = batchWindowBusy
	}
	r.mu.Unlock()
	timer := time.NewTimer(window)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
	}
	r.mu.Lock()
	all := r.waiting
	r.waiting, r.armed, r.busy = nil, false, len(all) >= batchBusy
	r.mu.Unlock()
	for len(all) > 0 {
		n, ops, bytes := 0, 0, 0
		for n < len(all) && (n == 0 || ops+len(all[n].ops) <= batchMax && bytes+all[n].bytes() <= batchBytesMax) {
			ops, bytes = ops+len(all[n].ops), bytes+all[n].bytes()
			n++
		}
		r.flush(all[:n])
		all = all[n:]
	}
}

func (r *registrar) flush(batch []*request) {
	var ops []*pb.Operation
	var callers []trace.SpanContext
	for _, w := range batch {
		ops, callers = append(ops, w.ops...), append(callers, w.caller.SpanContext())
	}
	ctx, cancel := context.WithTimeout(replica.WithCallers(r.ctx, callers...), replica.ApplyTimeout)
	defer cancel()
	entry := replica.Envelope(r.group.Actor(), ops...)
	for _, w := range batch {
		w.caller.SetAttributes(attribute.String(replica.RequestID, entry.GetRequestId()))
	}
	got, err := r.group.Propose(ctx, entry, true)
	at := 0
	for _, w := range batch {
		if w.err = err; err == nil {
			w.results = got.Results[at : at+len(w.ops)]
		}
		at += len(w.ops)
		close(w.done)
	}
}
