package shards

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Group is what a Desk needs of the replica it runs on.
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
	ctx   context.Context // of the reign

	mu      sync.Mutex
	waiting []*wish
	armed   bool
	busy    bool
	running sync.WaitGroup
}

// wish is what one report wants committed.
type wish struct {
	ops     []*pb.Operation
	caller  trace.Span // of the report
	results []*fleet.Refusal
	err     error
	done    chan struct{}
}

// commit waits for the entry that ops become part of, and returns one result for each.
func (r *registrar) commit(ctx context.Context, ops ...*pb.Operation) ([]*fleet.Refusal, error) {
	w := &wish{ops: ops, caller: trace.SpanFromContext(ctx), done: make(chan struct{})}
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

// start runs f beside the reports, unless the reign is over.
func (r *registrar) start(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() == nil {
		r.running.Go(f)
	}
}

// wait ends with everything that was started. The reign is over.
func (r *registrar) wait() {
	r.ended() // whoever saw the reign go on has started by now
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
		n, ops := 0, 0
		for n < len(all) && (n == 0 || ops+len(all[n].ops) <= batchMax) {
			ops += len(all[n].ops)
			n++
		}
		r.flush(all[:n])
		all = all[n:]
	}
}

func (r *registrar) flush(batch []*wish) {
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
