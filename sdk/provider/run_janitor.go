package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// janitor ends Failed records and hosts without a record (PROV-18). Failed itself never changes state: the record is
// removed and the slot is offered under a new id.
type janitor struct {
	mu        sync.Mutex
	busy      map[string]bool // machines being retired
	stray     map[string]*orphan
	stockouts stockouts
}

type orphan struct {
	ref, machine, operation string
	since                   time.Time
	rounds                  int
	busy                    bool
}

// orphan notes a host that came too late.
func (j *janitor) orphan(ref, machine, operation string, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stray == nil {
		j.stray = map[string]*orphan{}
	}
	if j.stray[ref] == nil {
		j.stray[ref] = &orphan{ref: ref, machine: machine, operation: operation, since: now}
	}
}

// seen takes the orphans of a complete round over. One that was not seen is no orphan any more.
func (j *janitor) seen(hosts []Host, now time.Time) {
	for _, h := range hosts {
		j.orphan(h.Ref, h.MachineID, h.OperationID, now)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	there := map[string]bool{}
	for _, h := range hosts {
		there[h.Ref] = true
		j.stray[h.Ref].rounds++
	}
	for ref, o := range j.stray {
		if !there[ref] && !o.busy {
			delete(j.stray, ref)
		}
	}
}

func (j *janitor) orphans() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.stray)
}

func (j *janitor) claim(machine string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.busy == nil {
		j.busy = map[string]bool{}
	}
	if j.busy[machine] {
		return false
	}
	j.busy[machine] = true
	return true
}

func (j *janitor) free(machine string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.busy, machine)
}

// sweepLoop runs the janitor and forgets what is too old.
func (p *Provider) sweepLoop(ctx context.Context) {
	every := sweepInterval
	for _, d := range []time.Duration{p.set.retention.Failed, p.set.retention.Lost, p.set.retention.Stockout, p.set.retention.Orphan} {
		every = min(every, max(d/4, 10*time.Millisecond))
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	swept := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if p.set.janitor && p.inventory.WriteError() == nil {
				p.tidy(now)
			}
			if now.Sub(swept) < sweepInterval {
				continue
			}
			swept = now
			age := inventory.Age{UnknownMark: UnknownMarkTTL, SilentShard: SilentShardTTL, Tombstone: p.set.tombstoneTTL}
			if err := p.inventory.Sweep(age); err != nil {
				p.log.Error("old marks and tombstones could not be deleted", "err", err)
			}
		}
	}
}

// tidy starts what is due.
func (p *Provider) tidy(now time.Time) {
	failed := p.inventory.List(inventory.Filter{States: []State{lifecycle.Failed}})
	for _, row := range failed.Rows {
		r := row.Record
		teardown, due := p.due(r, now)
		if !due || !p.janitor.claim(r.ID) {
			continue
		}
		p.workers.Go(func() {
			defer p.janitor.free(r.ID)
			if _, resets := p.backend.(Resetter); teardown && r.Doing == Configure && !r.Lost && !resets && !p.nodeAbsent(r) {
				return
			}
			if _, err := p.retire(p.work, r.ID, teardown, false); err != nil && p.work.Err() == nil {
				p.log.Warn("a failed machine could not be retired; the provider retries", "machine", r.ID, "err", err)
			}
		})
	}
	p.tearOrphans(now)
}

// due says whether a Failed record may be ended by itself now, and whether something may be left at the substrate
// (PROV-18.2 to 18.4).
func (p *Provider) due(r *lifecycle.Record, now time.Time) (teardown, due bool) {
	age := now.Sub(r.ChangedAt)
	switch {
	case r.Failure == bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_CAPACITY && r.Doing == Create && !r.Lost:
		return false, p.janitor.stockouts.over(r.ID, r.Origin.Offering, r.ChangedAt, p.set.retention.Stockout, now)
	case !p.rules.DeleteSupported && !is[Resetter](p.backend):
		return false, false // PROV-18.6
	case r.Lost:
		return true, age >= p.set.retention.Lost
	case r.Doing == Configure && is[Resetter](p.backend):
		return true, age >= p.set.retention.Failed // it looks for workloads itself
	case r.Doing == Create || r.Doing == Delete:
		return true, age >= p.set.retention.Failed
	case r.Doing == Configure && p.set.readiness.mode == "nodes":
		return true, age >= p.set.retention.Failed
	}
	return false, false // workloads may run there: RetireMachine
}

// nodeAbsent asks the readiness source whether the cluster has no such node. Not knowing is "no".
func (p *Provider) nodeAbsent(r *lifecycle.Record) bool {
	ctx, cancel := context.WithTimeout(p.work, 30*time.Second)
	defer cancel()
	m := machineOf(r)
	exists, err := p.set.readiness.nodes.Exists(ctx, nodeOf(m, r.Cluster))
	if err != nil || exists {
		if p.rejected.news("retire"+r.ID, fmt.Sprint(exists, err)) {
			p.log.Warn("a machine whose Configure failed is kept, because its node exists or its cluster does not answer; RetireMachine removes it",
				"machine", r.ID, "cluster", r.Cluster, "node_exists", exists, "err", err)
		}
		return false
	}
	return true
}

var errNotFailed = errors.New("the machine is not Failed")

// retire makes sure that nothing is left at the substrate, removes the record and offers the slot under a new id.
// force says that an operator wants it.
func (p *Provider) retire(ctx context.Context, id string, teardown, force bool) (replacement string, err error) {
	row := p.inventory.Get(id)
	if row == nil || row.Record.State != lifecycle.Failed {
		return "", errNotFailed
	}
	defer func() { p.metrics.janitor.WithLabelValues("retire", outcome(err)).Inc() }()
	d, deletes := p.backend.(Deleter)
	if resetter, ok := p.backend.(Resetter); ok && teardown && !deletes {
		if err := p.reset(ctx, resetter, machineOf(row.Record), force); err != nil {
			return "", fmt.Errorf("reset the host: %w", err)
		}
	} else if teardown && deletes {
		if err := p.teardown(ctx, d, machineOf(row.Record), "retire"); err != nil {
			return "", fmt.Errorf("tear down what is left: %w", err)
		}
	}
	slot := p.inventory.Acquire(id)
	defer p.inventory.Release(slot)
	r := slot.Record()
	if r == nil || r.State != lifecycle.Failed {
		return "", errNotFailed
	}
	p.janitor.stockouts.forget(id)
	changes := []inventory.Change{{Slot: slot, Remove: true}}
	next, err := p.successor(r, deletes)
	if err != nil {
		return "", err
	}
	if next != nil {
		successor := p.inventory.Acquire(next.ID)
		defer p.inventory.Release(successor)
		if successor.Record() == nil {
			changes = append(changes, inventory.Change{Slot: successor, Record: next})
		}
		replacement = next.ID
	}
	if err := p.inventory.Commit(changes...); err != nil {
		return "", err
	}
	p.log.Info("failed machine retired", "machine", id, "replacement", replacement)
	return replacement, nil
}

// successor is the record that takes the place of a Failed one: the slot in its next generation; without Deleter the host
// itself, cleaned by an operator (PROV-18.6); nothing for an owned host that Describe will show again.
func (p *Provider) successor(r *lifecycle.Record, deletes bool) (*lifecycle.Record, error) {
	now := time.Now()
	at := r.Origin
	owned := at.Offering == ""
	if owned {
		at = lifecycle.Origin{Offering: ownedOrigin + r.Host.Ref}
	}
	at.Generation = max(p.generation(at), r.Origin.Generation) + 1
	if err := p.setGeneration(at); err != nil {
		return nil, err
	}
	keepHost := !deletes && r.Host.Present() && !r.Lost
	switch {
	case owned && keepHost:
		return lifecycle.NewOwned(ownedID(p.name, r.Host.Ref, at.Generation), lifecycle.Origin{}, r.Host, r.Shape, "", nil, now), nil
	case owned:
		return nil, nil
	case keepHost:
		return lifecycle.NewOwned(machineID(p.name, at.Offering, at.Index, at.Generation), at, r.Host, r.Shape, "", nil, now), nil
	case !p.offers.has(at):
		return nil, nil
	}
	return lifecycle.NewSlot(machineID(p.name, at.Offering, at.Index, at.Generation), at, p.offers.shape(at.Offering), now), nil
}

func (p *Provider) teardown(ctx context.Context, d Deleter, m Machine, why string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v, "machine", m.ID)
			err = errors.New("the backend failed (panic)")
		}
	}()
	ctx, cancel := context.WithTimeout(p.callers.in(ctx), p.set.timeouts.Delete)
	defer cancel()
	id, err := p.mint(Delete)
	if err != nil {
		return err
	}
	p.log.Info("tear down", "machine", m.ID, "host", m.HostRef, "operation", id, "why", why)
	return d.Delete(ctx, DeleteOp{ID: id, Machine: m, StoreID: p.storeID()})
}

// reset makes the host of a failed machine usable again.
func (p *Provider) reset(ctx context.Context, resetter Resetter, m Machine, force bool) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked(v, "machine", m.ID)
			err = errors.New("the backend failed (panic)")
		}
	}()
	ctx, cancel := context.WithTimeout(p.callers.in(ctx), p.set.timeouts.limit(Drain, 0))
	defer cancel()
	id, err := p.mint(Drain)
	if err != nil {
		return err
	}
	p.log.Info("reset a failed machine", "machine", m.ID, "host", m.HostRef, "operation", id, "force", force)
	for {
		err := resetter.Reset(ctx, ResetOp{ID: id, Machine: m, StoreID: p.storeID(), Force: force})
		class, after := ClassOf(err)
		if err == nil || class != ClassTransient {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(max(after, retryBase)):
		}
	}
}

// tearOrphans ends hosts that no live record has, after two rounds and OrphanAge, never while losses are held
// (PROV-18.5).
func (p *Provider) tearOrphans(now time.Time) {
	d, deletes := p.backend.(Deleter)
	if !deletes || len(p.losses.holding()) > 0 {
		return
	}
	p.janitor.mu.Lock()
	defer p.janitor.mu.Unlock()
	for _, o := range p.janitor.stray {
		if o.busy || o.rounds < 2 || now.Sub(o.since) < p.set.retention.Orphan {
			continue
		}
		o.busy = true
		p.workers.Go(func() {
			err := p.teardown(p.work, d, Machine{ID: o.machine, HostRef: o.ref}, "orphan")
			p.metrics.janitor.WithLabelValues("orphan", outcome(err)).Inc()
			p.janitor.mu.Lock()
			defer p.janitor.mu.Unlock()
			if err == nil {
				delete(p.janitor.stray, o.ref)
				return
			}
			o.busy = false
			p.log.Warn("an orphaned host could not be torn down; the provider retries", "machine", o.machine, "host", o.ref, "err", err)
		})
	}
}
