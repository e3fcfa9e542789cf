// Package spans makes traces of what a shard does: roll-up → cycle → operation → bootstrap pull, reclaim instruction and
// provider call (SHARD-30.2).
//
// The shell shows it each event and its effects; the core knows nothing of spans. The operation id is an attribute of an
// operation and of everything under it, so that the traces of a shard, an operator and a provider can be joined. It owns
// the open spans and nothing else, and it never decides anything. Without a tracer that records, none is made.
//
// A Spans is used by the loop's goroutine alone; the contexts that it gives out may be used anywhere. Start at Spans.Step.
package spans

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Spans is the open spans of one shard.
type Spans struct {
	tracer  trace.Tracer
	rollups []trace.Span // accepted, and not used by a cycle yet
	cycle   trace.Span   // of the step at work; nil: none has begun
	done    int64        // last cycle that ended
	ops     map[string]*operation
	machine map[string]*operation // at most one operation is open on a machine
	pulls   map[string]trace.Span // by request
	orders  map[string]trace.Span // by instruction
}

// operation is one open operation.
type operation struct {
	id      string
	machine string
	span    trace.Span
	ctx     context.Context
	started []string // requests and instructions under it
}

// rollupsMax bounds the roll-ups that wait for a cycle; more are not traced.
const rollupsMax = 64

// New returns no spans yet.
func New(p trace.TracerProvider) *Spans {
	return &Spans{tracer: p.Tracer("github.com/bigfleet-dev/bigfleet/services/shard"), ops: map[string]*operation{}, machine: map[string]*operation{},
		pulls: map[string]trace.Span{}, orders: map[string]trace.Span{}}
}

// Step takes one event and what came of it, before the effects are carried out.
func (s *Spans) Step(at core.At, e core.Event, effects []core.Effect) {
	began := time.Unix(0, at.Wall)
	switch e := e.(type) {
	case core.BootstrapAnswered:
		end(s.pulls, e.Request, e.Error)
	case core.ReclaimAcked:
		end(s.orders, e.Instruction, "")
	}
	for _, x := range effects {
		switch x := x.(type) {
		case core.Record:
			s.record(began, &x)
		case core.PullBootstrap:
			if o := s.machine[x.Machine.ID]; o != nil {
				s.pulls[x.Request] = o.child(s.tracer, "bootstrap pull", attribute.String("cluster", x.Cluster))
				o.started = append(o.started, x.Request)
			}
		case core.SendReclaim:
			if o := s.machine[x.Machine]; o != nil && !x.Cancelled && s.orders[x.Instruction] == nil {
				s.orders[x.Instruction] = o.child(s.tracer, "reclaim instruction", attribute.String("cluster", x.Cluster))
				o.started = append(o.started, x.Instruction)
			}
		case *core.Publish:
			s.published(began, x)
		}
	}
}

func (s *Spans) record(began time.Time, r *core.Record) {
	switch r.Type {
	case core.RecordRollupAccepted:
		if len(s.rollups) < rollupsMax {
			_, span := s.tracer.Start(context.Background(), "roll-up", trace.WithTimestamp(began), trace.WithAttributes(attribute.String("cluster", r.Cluster)))
			s.rollups = append(s.rollups, span)
		}
	case core.RecordStarted:
		ctx := trace.ContextWithSpan(context.Background(), s.current(began, r.Cycle))
		o := &operation{id: r.Op, machine: r.Machine}
		o.ctx, o.span = s.tracer.Start(ctx, "operation "+r.Kind.String(), trace.WithAttributes(attribute.String("operation", r.Op),
			attribute.String("machine", r.Machine), attribute.String("cluster", r.Cluster), attribute.String("need", r.Fingerprint),
			attribute.String("cause", r.Cause.String()), attribute.Int64("cycle", r.Cycle)))
		s.ops[r.Op], s.machine[r.Machine] = o, o
	case core.RecordEnded:
		o := s.ops[r.Op]
		if o == nil {
			return
		}
		for _, id := range o.started { // what was never answered
			end(s.pulls, id, "not answered")
			end(s.orders, id, "not answered")
		}
		o.span.SetAttributes(attribute.String("outcome", r.Outcome))
		if r.Outcome != "success" {
			o.span.SetStatus(codes.Error, r.Outcome)
		}
		o.span.End()
		delete(s.ops, r.Op)
		if s.machine[o.machine] == o {
			delete(s.machine, o.machine)
		}
	}
}

// current is the span of the cycle at work. An operation that starts later than its cycle hangs on nothing: its attribute
// names the cycle.
func (s *Spans) current(began time.Time, cycle int64) trace.Span {
	if s.cycle != nil || cycle <= s.done {
		return s.cycle
	}
	ctx, links := context.Background(), []trace.Link(nil)
	for i, r := range s.rollups {
		if i == 0 {
			ctx = trace.ContextWithSpan(ctx, r)
		} else {
			links = append(links, trace.Link{SpanContext: r.SpanContext()})
		}
	}
	_, s.cycle = s.tracer.Start(ctx, "cycle", trace.WithTimestamp(began), trace.WithLinks(links...), trace.WithAttributes(attribute.Int64("cycle", cycle)))
	return s.cycle
}

// published ends the cycle that the step ran, and the roll-ups that it used.
func (s *Spans) published(began time.Time, p *core.Publish) {
	if p.Status.Cycle <= s.done {
		return
	}
	s.current(began, p.Status.Cycle).End()
	for _, r := range s.rollups {
		r.End()
	}
	s.cycle, s.rollups, s.done = nil, nil, p.Status.Cycle
}

func (o *operation) child(t trace.Tracer, name string, more ...attribute.KeyValue) trace.Span {
	_, span := t.Start(o.ctx, name, trace.WithAttributes(append(more, attribute.String("operation", o.id), attribute.String("machine", o.machine))...))
	return span
}

func end(open map[string]trace.Span, id, failure string) {
	span := open[id]
	if span == nil {
		return
	}
	if failure != "" {
		span.SetStatus(codes.Error, failure)
	}
	span.End()
	delete(open, id)
}

// Call begins the span of a provider call under its operation and returns the context for the call, and what ends it. The
// spans of the RPC layer hang under it.
func (s *Spans) Call(ctx context.Context, c core.Command) (context.Context, func(error)) {
	if o := s.ops[c.Op]; o != nil {
		ctx = trace.ContextWithSpan(ctx, o.span)
	}
	ctx, span := s.tracer.Start(ctx, "provider "+c.RPC.String(), trace.WithAttributes(attribute.String("operation", c.Op),
		attribute.String("machine", c.Machine), attribute.String("provider", c.Provider), attribute.Int64("attempt", c.Attempt)))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
