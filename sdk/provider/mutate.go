package provider

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/roster"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
)

// mutate carries one mutation through the checks of PROV-4.1, in their order. Identity (first half of step 0) was checked
// in front of it. Once it holds the slot it does not look at the caller's context: what was accepted goes on (PROV-1.5).
func (p *Provider) mutate(ctx context.Context, q lifecycle.Request, blob []byte) (*bigfleetv1alpha1.TransitionAck, error) {
	if err := p.Serving(); err != nil {
		return nil, newError(connect.CodeUnavailable, "nothing was started: "+err.Error(), retryHint(time.Second))
	}
	if why := lifecycle.Precheck(q, p.rules); why != 0 {
		return nil, refusal(why, q, nil, nil)
	}
	if len(q.MachineID) > MachineIDBytesMax { // no such machine can exist, and it is too long for a mark (PROV-6.16)
		return nil, refusal(lifecycle.UnknownMachine, q, nil, nil)
	}
	q.GraceSeconds = min(q.GraceSeconds, int64(GraceMax/time.Second))

	slot := p.roster.Acquire(q.MachineID)
	defer p.roster.Release(slot)
	record, mark := slot.Record(), slot.Mark(q.ShardID)
	d := lifecycle.Decide(record, mark, q, p.rules)

	change := roster.Change{Slot: slot}
	if d.MarkMoves {
		change.Mark = &roster.MarkMove{Shard: q.ShardID, Token: q.Token}
	}
	var refused error
	var w *work
	switch d.Outcome {
	case lifecycle.Refuse:
		refused = refusal(d.Reason, q, record, mark)
		p.countRefusal(d.Reason, q.Kind)
	case lifecycle.Repeat:
		p.metrics.repeats.WithLabelValues(q.Kind.String()).Inc()
	case lifecycle.Start:
		if refused = p.admit(q, record); refused != nil {
			break
		}
		id, err := p.mint(q.Kind)
		if err != nil {
			refused = newError(connect.CodeInternal, "cannot draw an operation id: "+err.Error())
			break
		}
		change.Record = lifecycle.Accept(record, q, id, time.Now())
		w = p.workOf(change.Record)
		w.blob, w.link = blob, trace.SpanContextFromContext(ctx)
	}
	if err := p.keep(change); err != nil {
		return nil, newError(connect.CodeUnavailable, "nothing was started: "+err.Error(), retryHint(time.Second))
	}
	if refused != nil {
		return nil, refused
	}
	if w != nil {
		p.log.Info("accepted", "kind", q.Kind.Label(), "machine", q.MachineID, "operation", w.id, "shard", q.ShardID, "cluster", q.Cluster)
		p.start(w)
		record, d.OperationID = change.Record, w.id
	}
	return &bigfleetv1alpha1.TransitionAck{OperationId: d.OperationID, Machine: record.Machine()}, nil
}

// keep commits a change that has something in it.
func (p *Provider) keep(c roster.Change) error {
	if c.Record == nil && c.Mark == nil {
		return nil
	}
	return p.roster.Commit(c)
}

func (p *Provider) countRefusal(why lifecycle.Reason, k Kind) {
	switch why {
	case lifecycle.Stale:
		p.metrics.fenced.WithLabelValues(k.String()).Inc()
	case lifecycle.BoundElsewhere:
		p.metrics.conflicts.Inc()
	}
}

// admit is step 7: room in the queue, breakers, the readiness source's and the backend's quick checks.
func (p *Provider) admit(q lifecycle.Request, r *lifecycle.Record) error {
	if p.queue.full(q.Kind) {
		return newError(connect.CodeResourceExhausted, fmt.Sprintf("%d transitions wait already; nothing was started, try later", p.set.queue), retryHint(5*time.Second))
	}
	if q.Kind == Create {
		if call, open := p.callers.refusing(); open {
			return newError(connect.CodeResourceExhausted,
				fmt.Sprintf("the substrate keeps refusing %s; nothing was started, try later", call), retryHint(breakerProbe))
		}
	}
	if q.Kind == Configure && p.set.readiness.mode == "nodes" {
		if err := p.set.readiness.nodes.Known(q.Cluster); err != nil {
			return newError(connect.CodeInvalidArgument, err.Error())
		}
	}
	a, ok := p.backend.(Admitter)
	if !ok {
		return nil
	}
	begin := time.Now()
	err := a.Admit(q.Kind, machineOf(r), q.Cluster)
	if took := time.Since(begin); took > admitWarn {
		p.log.Warn("Admit is slow; it must not do I/O", "kind", q.Kind.Label(), "took", took)
	}
	if err != nil {
		return newError(connect.CodeInvalidArgument, err.Error())
	}
	return nil
}

// mint draws an operation id: the kind and 128 random bits (PROV-7.9).
func (p *Provider) mint(k Kind) (string, error) {
	var b [16]byte
	if _, err := io.ReadFull(p.set.random, b[:]); err != nil {
		return "", err
	}
	return k.Label() + "-" + hex.EncodeToString(b[:]), nil
}

func retryHint(after time.Duration) *bigfleetv1alpha1.RetryHint {
	return &bigfleetv1alpha1.RetryHint{AfterMillis: after.Milliseconds()}
}

// unread says that the inventory is not known yet (PROV-10.5), and why, once a description failed.
func (p *Provider) unread() error {
	if why := p.obstacle.Load(); why != nil {
		return fmt.Errorf("the inventory is not known yet: %w", *why)
	}
	return errors.New("the inventory is not known yet")
}

// get answers Get.
func (p *Provider) get(id string) (*bigfleetv1alpha1.Machine, error) {
	if p.phase.Load() == starting {
		return nil, newError(connect.CodeUnavailable, p.unread().Error(), retryHint(time.Second))
	}
	if id == "" {
		return nil, newError(connect.CodeInvalidArgument, "id is empty; name the machine")
	}
	row := p.roster.Get(id)
	if row == nil {
		return nil, newError(connect.CodeNotFound, fmt.Sprintf("no machine %.128q here; List shows what there is", id))
	}
	return row.Record.Machine(), nil
}

// list answers List. The rows travel as already encoded bytes, see listCodec.
func (p *Provider) list(ctx context.Context, f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, error) {
	if p.phase.Load() == starting {
		return nil, newError(connect.CodeUnavailable, p.unread().Error(), retryHint(time.Second))
	}
	page := p.roster.List(roster.Filter{States: f.GetStates(), Max: int(f.GetMaxResults()), Since: f.GetSinceRevision()})
	scope := "full"
	if page.Delta {
		scope = "delta"
	}
	if page.Reset != "" {
		p.metrics.cursorResets.WithLabelValues(page.Reset).Inc()
	}
	size := page.Bytes()
	if size > ResponseBytesMax-1<<20 { // the rest of the answer is small
		return nil, newError(connect.CodeResourceExhausted,
			fmt.Sprintf("the answer would have %d MiB, at most %d are sent; use max_results and feed revision back", size>>20, ResponseBytesMax>>20))
	}
	p.metrics.listRows.WithLabelValues(scope).Add(float64(len(page.Rows)))
	answer := &bigfleetv1alpha1.MachineList{
		Revision: page.Cursor, Complete: page.Complete, More: page.More, RemovedIds: page.Removed,
	}
	answer.ProtoReflect().SetUnknown(page.AppendWire(buffer(ctx, size+proto.Size(answer))))
	return answer, nil
}
