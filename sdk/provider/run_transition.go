package provider

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// work is one accepted transition: what runs in the background.
type work struct {
	kind     Kind
	machine  string
	id       string // operation id
	cluster  string
	blob     []byte // lives as long as the work (PROV-8.8)
	grace    time.Duration
	limit    time.Duration
	accepted time.Time
	link     trace.SpanContext
	patience *time.Timer // ends the wait in the queue
}

func (p *Provider) workOf(r *lifecycle.Record) *work {
	k := r.Doing
	grace := time.Duration(r.GraceSeconds) * time.Second
	return &work{
		kind: k, machine: r.ID, id: r.Operation(k), cluster: r.Cluster, grace: grace,
		limit: p.set.timeouts.limit(k, grace), accepted: r.AcceptedAt,
	}
}

// start runs w, or lets it wait for room.
func (p *Provider) start(w *work) {
	w.patience = time.AfterFunc(2*w.limit, func() {
		if p.queue.remove(w) {
			p.blobs.give(len(w.blob))
			p.fail(w, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT,
				fmt.Sprintf("the transition waited %s in the queue and was not started; the substrate was not changed", 2*w.limit), "timeout")
		}
	})
	if p.queue.push(w) {
		p.launch(w)
	}
}

func (p *Provider) launch(w *work) {
	w.patience.Stop()
	p.workers.Go(func() {
		p.run(w)
		p.blobs.give(len(w.blob))
		for _, next := range p.queue.done(w.kind) {
			p.launch(next)
		}
	})
}

// run carries out one transition. When the time limit passes, the machine is failed even if the backend has not returned (PROV-11.1).
// A later result is dropped (PROV-11.3).
func (p *Provider) run(w *work) {
	if p.work.Err() != nil {
		return // stopping: cut off before it began, recovery says so
	}
	ctx, cancel := context.WithTimeoutCause(p.work, w.limit, errLimit)
	defer cancel()
	ctx, span := p.tracer.Start(ctx, "bigfleet.transition/"+w.kind.Label(), trace.WithNewRoot(),
		trace.WithLinks(trace.Link{SpanContext: w.link}),
		trace.WithAttributes(attribute.String("bigfleet.operation_id", w.id), attribute.String("bigfleet.machine_id", w.machine)))
	defer span.End()
	var last lastError
	ctx = context.WithValue(p.callers.in(ctx), causeKey{}, &last)
	p.metrics.inFlight.WithLabelValues(w.kind.Label()).Inc()
	defer p.metrics.inFlight.WithLabelValues(w.kind.Label()).Dec()

	stop := context.AfterFunc(ctx, func() {
		if context.Cause(ctx) == errLimit {
			p.timeout(w, last.get())
		}
	})
	defer stop()
	result, err := p.attempts(ctx, w, &last)
	switch {
	case err == nil && context.Cause(ctx) == errLimit:
		// It came back because the limit ended its context, and says that it worked: too late (PROV-11.3).
		p.timeout(w, last.get())
		p.late(w, result)
	case err == nil:
		p.settle(w, result)
	case errors.Is(context.Cause(ctx), errStopping):
		// Cut off by the stop: the record stays in flight and the next start judges it (PROV-12.5).
	case context.Cause(ctx) == errLimit:
		p.timeout(w, last.get())
	default:
		span.SetStatus(codes.Error, "failed")
		class, _ := ClassOf(err)
		p.fail(w, failureOf(class), err.Error(), "failed")
	}
}

var errLimit = errors.New("the transition exceeded its time limit")

// attempts repeats transient errors with exponential backoff and full jitter until the context ends (PROV-19.2).
func (p *Provider) attempts(ctx context.Context, w *work, last *lastError) (lifecycle.Result, error) {
	for attempt, pause := 1, retryBase; ; attempt, pause = attempt+1, min(2*pause, retryMax) {
		result, err := p.perform(ctx, w, last)
		class, after := ClassOf(err)
		if err == nil || class != ClassTransient {
			return result, err
		}
		last.set(err)
		p.callers.get(w.kind.Label()).report(p.log.With("machine", w.machine), attempt, err)
		if after == 0 {
			after = rand.N(pause)
		}
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case <-time.After(after):
		}
	}
}

// perform is one attempt: the backend's call, the binding on the host, the readiness gate.
func (p *Provider) perform(ctx context.Context, w *work, last *lastError) (result lifecycle.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v, "machine", w.machine, "kind", w.kind.Label())
			err = errors.New("the backend failed (panic); the log of the provider has the details")
		}
	}()
	row := p.inventory.Get(w.machine)
	if row == nil || row.Record.Operation(w.kind) != w.id {
		return result, errors.New("the machine is no longer in this operation")
	}
	m := machineOf(row.Record)
	switch w.kind {
	case Create:
		return p.create(ctx, w, m, row.Record)
	case Configure:
		metadata := cloneMap(row.Record.Metadata)
		if err := p.backend.Configure(ctx, ConfigureOp{ID: w.id, Machine: m, Cluster: w.cluster, Metadata: metadata, Blob: w.blob}); err != nil {
			return result, err
		}
		if b, ok := p.backend.(Binder); ok {
			if err := b.Bind(ctx, m, Binding{Cluster: w.cluster, Metadata: metadata}); err != nil {
				return result, fmt.Errorf("write the binding on the host: %w", err)
			}
		}
		last.worked()
		return result, p.await(ctx, m)
	case Drain:
		if err := p.backend.Drain(ctx, DrainOp{ID: w.id, Machine: m, Cluster: w.cluster, Grace: w.grace}); err != nil {
			return result, err
		}
		if b, ok := p.backend.(Binder); ok {
			if err := b.Unbind(ctx, m); err != nil {
				return result, fmt.Errorf("clear the binding on the host: %w", err)
			}
		}
		return result, nil
	}
	// A slot looks like its offering again; what the host refined goes with the host.
	result.Shape = p.offers.shape(row.Record.Origin.Offering)
	return result, p.backend.(Deleter).Delete(ctx, DeleteOp{ID: w.id, Machine: m, StoreID: p.storeID()})
}

func (p *Provider) create(ctx context.Context, w *work, m Machine, r *lifecycle.Record) (result lifecycle.Result, err error) {
	host, err := p.backend.Create(ctx, CreateOp{ID: w.id, Machine: m, Provider: p.name, StoreID: p.storeID()})
	if err != nil {
		return result, err
	}
	result.Host = lifecycle.Host{Provider: p.name, Ref: host.Ref}
	if host.Ref == "" {
		return result, errors.New("the backend created a host without a name (Host.Ref is empty)")
	}
	if result.Shape, err = p.refined(r.Shape, host.Attributes); err != nil {
		// PROV-9.10: a bad observed record is never stored; the offering's own attributes stay in force.
		p.reject("create", w.machine, err)
		return result, nil
	}
	return result, nil
}

// refined returns the shape of a host that says more about itself than its offering did.
func (p *Provider) refined(now *lifecycle.Shape, seen *Attributes) (*lifecycle.Shape, error) {
	if seen == nil {
		return now, nil
	}
	whole := cloneAttributes(*estimated(seen, now.Attributes().DrainEstimate))
	nodeDefaults(&whole)
	seen = &whole
	if equalAttributes(*seen, now.Attributes()) {
		return now, nil
	}
	if err := sameDomain(now.Attributes(), *seen); err != nil {
		return now, err
	}
	shape, err := lifecycle.NewShape(cloneAttributes(*seen))
	if err != nil {
		return now, err
	}
	return p.offers.intern(shape), nil
}

// sameDomain keeps what ownership is decided on: type, zone, class and every label that the machine had (PROV-9.12).
func sameDomain(now, seen Attributes) error {
	if now.InstanceType != seen.InstanceType || now.Zone != seen.Zone || now.CapacityType != seen.CapacityType {
		return fmt.Errorf("the host says it is %s in %s (%s), the machine is %s in %s (%s)",
			seen.InstanceType, seen.Zone, seen.CapacityType, now.InstanceType, now.Zone, now.CapacityType)
	}
	for k, v := range now.Labels {
		if seen.Labels[k] != v {
			return fmt.Errorf("the host has %q for label %s, the machine has %q", seen.Labels[k], k, v)
		}
	}
	return nil
}

// settle makes the end of a transition durable and then visible. While the store is full it waits for room.
func (p *Provider) settle(w *work, result lifecycle.Result) {
	for full := true; full; {
		slot := p.inventory.Acquire(w.machine)
		if next, ok := lifecycle.Settle(slot.Record(), w.kind, w.id, result, time.Now()); ok {
			full = p.conclude(w, slot, next, "ok")
		} else {
			full = false
			p.late(w, result)
		}
		p.inventory.Release(slot)
		full = full && p.inventory.AwaitRoom(p.work) == nil
	}
}

// fail ends a transition as Failed.
func (p *Provider) fail(w *work, why lifecycle.Failure, text, outcome string) {
	for full := true; full; {
		slot := p.inventory.Acquire(w.machine)
		next, ok := lifecycle.Fail(slot.Record(), w.kind, w.id, why, text, time.Now())
		full = ok && p.conclude(w, slot, next, outcome)
		p.inventory.Release(slot)
		full = full && p.inventory.AwaitRoom(p.work) == nil
	}
}

func (p *Provider) timeout(w *work, last string) {
	why := bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT
	text := fmt.Sprintf("not finished within %s", w.limit)
	if w.kind == Configure && last == "" && p.set.readiness.mode != "none" {
		why = bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_NOT_READY
		text = fmt.Sprintf("the node was not Ready in cluster %q within %s", w.cluster, w.limit)
	}
	if last != "" {
		text += "; last answer of the substrate: " + last
	}
	p.fail(w, why, text, "timeout")
}

// conclude commits the end of a transition. The caller holds the slot. full says that there was no room for it.
func (p *Provider) conclude(w *work, slot *inventory.Slot, next *lifecycle.Record, outcome string) (full bool) {
	if err := p.inventory.Commit(inventory.Change{Slot: slot, Record: next}); errors.Is(err, store.ErrFull) {
		p.log.Warn("the result of a transition waits for space in the store", "machine", w.machine, "kind", w.kind.Label(), "operation", w.id, "err", err)
		return true
	} else if err != nil {
		p.log.Error("the result of a transition could not be stored; the next start will report it as interrupted",
			"machine", w.machine, "kind", w.kind.Label(), "operation", w.id, "err", err)
		return false
	}
	took := next.ChangedAt.Sub(w.accepted)
	p.metrics.transitions.WithLabelValues(w.kind.Label(), outcome).Inc()
	p.metrics.duration.WithLabelValues(w.kind.Label()).Observe(took.Seconds())
	p.histories.add(transition{machine: w.machine, kind: w.kind, id: w.id, result: next.State, began: w.accepted, ended: next.ChangedAt, cause: next.LastError})
	level := p.log.Info
	if next.State == lifecycle.Failed {
		level = p.log.Warn
	}
	level("settled", "kind", w.kind.Label(), "machine", w.machine, "operation", w.id, "outcome", outcome,
		"took", took.Round(time.Millisecond), "cluster", w.cluster, "err", next.LastError)
	switch {
	case next.State == lifecycle.Speculative:
		p.returned(slot, next)
	case w.kind == Create && next.State == lifecycle.Idle:
		p.janitor.stockouts.launched(next.Origin.Offering)
	}
	return false
}

// late drops the result of a transition that was failed before. Its host belongs to no machine; the janitor finds it by its marks.
func (p *Provider) late(w *work, result lifecycle.Result) {
	p.metrics.transitions.WithLabelValues(w.kind.Label(), "late").Inc()
	p.log.Warn("a transition ended after it had failed; its result is ignored", "kind", w.kind.Label(),
		"machine", w.machine, "operation", w.id, "host", result.Host.Ref)
	if result.Host.Present() {
		p.janitor.orphan(result.Host.Ref, w.machine, w.id, time.Now())
	}
}

// failureOf maps the class of an error to the failure of a record (PROV-11.10).
func failureOf(c Class) lifecycle.Failure {
	switch c {
	case ClassCapacity:
		return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY
	case ClassQuota:
		return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_QUOTA
	case ClassCredentials:
		return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CREDENTIALS
	case ClassBootstrap:
		return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_BOOTSTRAP
	case ClassNotReady:
		return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_NOT_READY
	}
	return bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_SUBSTRATE
}
