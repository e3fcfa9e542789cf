package provider

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/server"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
)

// machines answers the calls of CapacityProvider.
type machines struct{ p *Provider }

func (m machines) Mutate(ctx context.Context, q lifecycle.Request, blob []byte) (*bigfleetv1alpha1.TransitionAck, error) {
	return m.p.mutate(ctx, q, blob)
}

func (m machines) Get(_ context.Context, ref *bigfleetv1alpha1.MachineRef) (*bigfleetv1alpha1.Machine, error) {
	return m.p.get(ref)
}

func (m machines) List(ctx context.Context, f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, error) {
	return m.p.list(ctx, f)
}

// mutate carries one mutation through the checks of PROV-4.1, in their order. Identity (first half of step 0) was checked
// in front of it. Once it holds the slot it ignores the caller's context, because accepted work continues (PROV-1.5).
func (p *Provider) mutate(ctx context.Context, q lifecycle.Request, blob []byte) (*bigfleetv1alpha1.TransitionAck, error) {
	if err := p.Serving(); err != nil {
		return nil, server.Error(connect.CodeUnavailable, "nothing was started: "+err.Error(), retryHint(time.Second))
	}
	if why := lifecycle.Precheck(q, p.rules); why != 0 {
		return nil, server.Refusal(lifecycle.Decision{Reason: why}, q, nil, nil, p.rules)
	}
	if len(q.MachineID) > MachineIDBytesMax { // no such machine can exist, and it is too long for a mark (PROV-6.16)
		return nil, server.Refusal(lifecycle.Decision{Reason: lifecycle.UnknownMachine}, q, nil, nil, p.rules)
	}
	q.GraceSeconds = min(q.GraceSeconds, int64(GraceMax/time.Second))

	p.claims.mu.RLock()
	defer p.claims.mu.RUnlock()
	if claimed, yes := p.claims.outdated(q); yes {
		p.countRefusal(lifecycle.Stale, q.Kind)
		return nil, server.Outdated(q, claimed)
	}
	slot := p.inventory.Acquire(q.MachineID)
	defer p.inventory.Release(slot)
	record, mark := slot.Record(), slot.Mark(q.ShardID)
	d := lifecycle.Decide(record, mark, q, p.rules)

	change := inventory.Change{Slot: slot}
	if d.MarkMoves {
		change.Mark = &inventory.MarkMove{Shard: q.ShardID, Token: q.Token}
	}
	var refused error
	var w *work
	switch d.Outcome {
	case lifecycle.Refuse:
		refused = server.Refusal(d, q, record, mark, p.rules)
		p.countRefusal(d.Reason, q.Kind)
	case lifecycle.Repeat:
		p.metrics.repeats.WithLabelValues(q.Kind.String()).Inc()
	case lifecycle.Start:
		if refused = p.admit(q, record); refused != nil {
			break
		}
		if n := len(q.Cluster) + lifecycle.MetadataBytes(q.Metadata); q.Kind == Configure && p.inventory.BindingBytes()+n > p.set.bindingsBytes {
			refused = server.Error(connect.CodeResourceExhausted, fmt.Sprintf("the metadata of all machines may have %d MiB; nothing was started: send less with each, or drain machines",
				p.set.bindingsBytes>>20), retryHint(5*time.Second))
			break
		}
		id, err := p.mint(q.Kind)
		if err != nil {
			refused = server.Error(connect.CodeInternal, "cannot draw an operation id: "+err.Error())
			break
		}
		if !p.blobs.take(len(blob)) {
			refused = server.Error(connect.CodeResourceExhausted,
				fmt.Sprintf("the boot data of running and queued transitions has %d MiB; nothing was started, retry later", blobsBytesMax>>20), retryHint(5*time.Second))
			break
		}
		change.Record = lifecycle.Accept(record, q, id, time.Now())
		w = p.workOf(change.Record)
		w.blob, w.link = blob, trace.SpanContextFromContext(ctx)
	}
	if err := p.keep(change); err != nil {
		if w != nil {
			p.blobs.give(len(w.blob))
		}
		return nil, server.Error(connect.CodeUnavailable, "nothing was started: "+err.Error(), retryHint(time.Second))
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
func (p *Provider) keep(c inventory.Change) error {
	if c.Record == nil && c.Mark == nil {
		return nil
	}
	return p.inventory.Commit(c)
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
		return server.Error(connect.CodeResourceExhausted, fmt.Sprintf("%d transitions are already queued; nothing was started, retry later", p.set.queue), retryHint(5*time.Second))
	}
	if q.Kind == Create {
		if call, open := p.callers.refusing(); open {
			return server.Error(connect.CodeResourceExhausted,
				fmt.Sprintf("the substrate rejects %s repeatedly; nothing was started, retry later", call), retryHint(breakerProbe))
		}
	}
	if q.Kind == Configure && p.set.readiness.mode == "nodes" {
		if err := p.set.readiness.nodes.Known(q.Cluster); err != nil {
			return server.Error(connect.CodeInvalidArgument, err.Error())
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
		return server.Error(connect.CodeInvalidArgument, err.Error())
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
func (p *Provider) get(ref *bigfleetv1alpha1.MachineRef) (*bigfleetv1alpha1.Machine, error) {
	if p.phase.Load() == starting {
		return nil, server.Error(connect.CodeUnavailable, p.unread().Error(), retryHint(time.Second))
	}
	if err := lifecycle.CheckRef(ref); err != nil {
		return nil, server.Error(connect.CodeInvalidArgument, err.Error())
	}
	id := ref.GetId()
	row := p.inventory.Get(id)
	if row == nil {
		return nil, server.Error(connect.CodeNotFound, fmt.Sprintf("there is no machine %.128q; List shows the machines", id))
	}
	return row.Record.Machine(), nil
}

// list answers List. The rows travel as already encoded bytes, see server.codecs.
func (p *Provider) list(ctx context.Context, f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, error) {
	if p.phase.Load() == starting {
		return nil, server.Error(connect.CodeUnavailable, p.unread().Error(), retryHint(time.Second))
	}
	page := p.inventory.List(inventory.Filter{States: f.GetStates(), Max: int(f.GetMaxResults()), Since: f.GetSinceRevision()})
	scope := "full"
	if page.Delta {
		scope = "delta"
	}
	if page.Reset != "" {
		p.metrics.cursorResets.WithLabelValues(page.Reset).Inc()
	}
	size := page.Bytes()
	if size > ResponseBytesMax-1<<20 { // the rest of the answer is small
		return nil, server.Error(connect.CodeResourceExhausted,
			fmt.Sprintf("the answer would have %d MiB, and at most %d can be sent; use max_results, and send the revision with the next call", size>>20, ResponseBytesMax>>20))
	}
	p.metrics.listRows.WithLabelValues(scope).Add(float64(len(page.Rows)))
	answer := &bigfleetv1alpha1.MachineList{
		Revision: page.Cursor, Complete: page.Complete, More: page.More, RemovedIds: page.Removed,
	}
	answer.ProtoReflect().SetUnknown(page.AppendWire(server.Buffer(ctx, size+proto.Size(answer))))
	return answer, nil
}
