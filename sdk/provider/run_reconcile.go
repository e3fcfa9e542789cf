package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// Names of stored settings.
const (
	settingPaused     = "paused"
	settingReconciled = "reconciled" // set after the first complete round of this store
	settingAdopted    = "adopted/"   // followed by a store id that was taken over
)

// firstRound learns the inventory. A store that has been reconciled before knows it already; a new one must see every
// host once, because hosts of a lost store look like nothing else (PROV-17.7).
func (p *Provider) firstRound(ctx context.Context) error {
	if p.set.adopt != "" && p.inventory.Setting(settingAdopted+p.set.adopt) == nil {
		if err := p.inventory.SetSetting(settingAdopted+p.set.adopt, []byte{1}); err != nil {
			return err
		}
	} else if p.inventory.Setting(settingReconciled) != nil {
		p.ask()
		return nil
	}
	for pause := retryBase; ; pause = min(2*pause, retryMax) {
		err := p.round(ctx)
		if err == nil {
			return p.inventory.SetSetting(settingReconciled, []byte{1})
		}
		if p.inventory.WriteError() != nil {
			return err
		}
		p.obstacle.Store(&err) // callers read it in the answer
		p.endStartup()
		p.log.Error("not ready: the inventory is not known yet", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ask requests a round soon.
func (p *Provider) ask() {
	select {
	case p.rounds <- struct{}{}:
	default:
	}
}

// restMax bounds the rest after a round.
const restMax = time.Second

func (p *Provider) reconcileLoop(ctx context.Context) {
	ticker := time.NewTicker(p.set.reconcile)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.rounds:
		}
		began := time.Now()
		if err := p.round(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("reconcile failed; nothing was changed by it", "err", err)
		}
		// Hints come in bursts, and a round costs as much as the inventory is large: rounds take at most half of the time.
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(time.Since(began), restMax)):
		}
	}
}

// round describes and merges once. A Describe that fails or is cut changes nothing (PROV-17.3).
func (p *Provider) round(ctx context.Context) error {
	began := time.Now()
	v := p.newView(began)
	err := p.describe(ctx, v)
	if err == nil {
		err = p.merge(v)
	}
	p.metrics.reconciles.WithLabelValues(outcome(err)).Inc()
	p.metrics.reconcileTook.Observe(time.Since(began).Seconds())
	if err == nil {
		p.metrics.reconcileAt.SetToCurrentTime()
	}
	return err
}

func (p *Provider) describe(ctx context.Context, v *view) (err error) {
	ctx, cancel := context.WithTimeout(p.callers.in(ctx), p.set.describe)
	defer cancel()
	defer func() {
		if x := recover(); x != nil {
			p.panicked(x, "call", "Describe")
			err = errors.New("the backend failed (panic) in Describe")
		}
	}()
	if err := p.backend.Describe(ctx, v.found); err != nil {
		return fmt.Errorf("describe the hosts: %w", err)
	}
	return ctx.Err()
}

// view is the result of one round of Describe.
type view struct {
	p       *Provider
	began   time.Time
	store   string
	adopted map[string]bool
	seen    map[string]bool   // machine ids whose host is there
	owned   map[string]string // host ref -> machine id of machines without an offering
	hosts   int
	foreign []string        // refs of hosts that another store made
	stores  map[string]bool // the ids of those stores
	orphans []Host
	newcome []Host // owned hosts without a machine, and hosts to take over
	refresh map[string]*Attributes
}

func (p *Provider) newView(began time.Time) *view {
	v := &view{
		p: p, began: began, store: p.storeID(), adopted: map[string]bool{}, owned: make(map[string]string, p.owned),
		seen: make(map[string]bool, p.inventory.Machines()), refresh: map[string]*Attributes{}, stores: map[string]bool{},
	}
	for row := range p.inventory.All() {
		if r := row.Record; r.Origin.Offering == "" && r.Host.Present() {
			v.owned[r.Host.Ref] = r.ID
		}
	}
	p.owned = len(v.owned)
	return v
}

// found sorts one host into the view. It changes no machine, because the round may still fail.
func (v *view) found(h Host) error {
	if h.Ref == "" {
		return errors.New("a described host has no Ref")
	}
	v.hosts++
	if h.StoreID != "" && h.StoreID != v.store && !v.isAdopted(h.StoreID) {
		v.foreign, v.stores[h.StoreID] = append(v.foreign, h.Ref), true
		return nil
	}
	id := h.MachineID
	if id == "" {
		if id = v.owned[h.Ref]; id == "" {
			v.newcome = append(v.newcome, h)
			return nil
		}
	}
	r := recordOf(v.p.inventory.Get(id))
	switch {
	case r != nil && r.Host.Present() && r.Host.Ref == h.Ref:
		if v.seen[id] {
			v.p.reject("duplicate", id, fmt.Errorf("host %s was described twice", h.Ref))
			return nil
		}
		v.seen[id] = true
		v.compare(r, h)
	case r != nil && lifecycle.InFlight(r.State) != 0 || r != nil && r.State == lifecycle.Failed && !r.Host.Present():
		// A Create or Delete that runs explains the host; a failed one is the janitor's, who finds it by the machine id.
		v.seen[id] = true
	case h.StoreID != "" && h.StoreID != v.store, r == nil && h.MachineID != "" && h.StoreID == "" && h.OperationID == "":
		v.newcome = append(v.newcome, h)
	default:
		v.orphans = append(v.orphans, h)
	}
	return nil
}

func (v *view) isAdopted(id string) bool {
	known, ok := v.adopted[id]
	if !ok {
		known = v.p.inventory.Setting(settingAdopted+id) != nil
		v.adopted[id] = known
	}
	return known
}

// compare notes what the host says about itself, when it differs (PROV-17.2, 17.9).
func (v *view) compare(r *lifecycle.Record, h Host) {
	if lifecycle.InFlight(r.State) != 0 {
		return
	}
	if now := r.Shape.Attributes(); h.Attributes != nil && !equalAttributes(*estimated(h.Attributes, now.DrainEstimate), now) {
		v.refresh[r.ID] = h.Attributes
	}
	if _, binds := v.p.backend.(Binder); binds && h.Binding != nil && h.Binding.Cluster != r.Cluster && r.State != lifecycle.Failed {
		v.p.metrics.drift.Inc()
		if v.p.rejected.news("drift"+r.ID, h.Binding.Cluster) {
			v.p.log.Warn("the marks on a host name another cluster than the store; the store is believed", "machine", r.ID,
				"cluster", r.Cluster, "marks", h.Binding.Cluster)
		}
	}
}

// merge carries a complete round into the store.
func (p *Provider) merge(v *view) error {
	if len(v.foreign) > 0 {
		slices.Sort(v.foreign)
		message := fmt.Errorf("%d hosts carry this provider's name and the id of another store: %s; a second process runs under this name, "+
			"or the store was lost: then start with --adopt-store %s", len(v.foreign), strings.Join(v.foreign[:min(10, len(v.foreign))], ", "),
			strings.Join(slices.Sorted(maps.Keys(v.stores)), " or "))
		if p.inventory.Setting(settingReconciled) == nil {
			return message
		}
		if p.rejected.news("foreign", message.Error()) {
			p.log.Error("foreign hosts", "err", message)
		}
	}
	batch := p.newBatch()
	for id, seen := range v.refresh {
		if err := batch.change(id, func(now *lifecycle.Record) (*lifecycle.Record, bool) { return p.refreshed(now, seen), false }); err != nil {
			return err
		}
	}
	for _, h := range v.newcome {
		if err := p.welcome(batch, h); err != nil {
			return err
		}
	}
	if err := batch.flush(); err != nil {
		return err
	}
	p.janitor.seen(v.orphans, time.Now())
	return p.lose(v)
}

// refreshed is the machine with what its host says now, nil when that changes nothing or breaks a rule.
func (p *Provider) refreshed(r *lifecycle.Record, seen *Attributes) *lifecycle.Record {
	if r == nil || lifecycle.InFlight(r.State) != 0 || r.State == lifecycle.Failed || r.State == lifecycle.Speculative {
		return nil
	}
	shape, err := p.refined(r.Shape, seen)
	if err != nil {
		p.reject("describe", r.ID, err)
		return nil
	}
	if shape == r.Shape {
		return nil
	}
	return lifecycle.Refresh(r, shape)
}

// welcome adds a machine for an owned host that was unknown, or for a host of a store that is taken over.
func (p *Provider) welcome(b *batch, h Host) error {
	id := h.MachineID
	if id == "" {
		at := lifecycle.Origin{Offering: ownedOrigin + h.Ref}
		id = ownedID(p.name, h.Ref, p.generation(at))
	}
	cluster, metadata := "", map[string]string(nil)
	if h.Binding != nil {
		cluster, metadata = h.Binding.Cluster, h.Binding.Metadata
	}
	if h.StoreID != "" {
		p.log.Info("host taken over", "machine", id, "host", h.Ref, "cluster", cluster, "store_id", h.StoreID)
		if cluster != "" && metadata == nil {
			p.reject("metadata_lost", id, errors.New("the binding's metadata is not on the host and cannot be restored"))
		}
	}
	host := lifecycle.Host{Provider: p.name, Ref: h.Ref}
	if r := recordOf(p.inventory.Get(id)); r != nil {
		return b.change(id, func(now *lifecycle.Record) (*lifecycle.Record, bool) {
			if now == nil || now.State != lifecycle.Speculative {
				return nil, false
			}
			shape, err := p.refined(now.Shape, h.Attributes)
			if err != nil {
				p.reject("describe", id, err)
			}
			return lifecycle.Adopt(now, host, shape, cluster, metadata, b.now), false
		})
	}
	if h.Attributes == nil {
		p.reject("describe", id, fmt.Errorf("host %s is unknown and has no description", h.Ref))
		return nil
	}
	shape, err := lifecycle.NewShape(cloneAttributes(*h.Attributes))
	if err != nil {
		p.reject("describe", id, err)
		return nil
	}
	return b.add(lifecycle.NewOwned(id, lifecycle.Origin{}, host, p.offers.intern(shape), cluster, metadata, b.now))
}

// ownedOrigin begins the key under which the generation of an owned host is stored.
const ownedOrigin = "host:"

// notifyLoop listens to the backend's news.
func (p *Provider) notifyLoop(ctx context.Context, n Notifier) {
	for ctx.Err() == nil {
		if err := n.Notify(p.callers.in(ctx), p.notice); err != nil && ctx.Err() == nil {
			p.log.Error("the backend's notices ended; they are requested again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (p *Provider) notice(n Notice) {
	if n.InterruptionProbability > 0 {
		p.interruption(n)
	}
	if n.Gone {
		p.losses.hint(n.MachineID)
	}
	if n.Gone || n.Changed {
		p.ask()
	}
}

func (p *Provider) interruption(n Notice) {
	slot := p.inventory.Acquire(n.MachineID)
	defer p.inventory.Release(slot)
	r := slot.Record()
	if r == nil || !r.Host.Present() {
		return
	}
	a := cloneAttributes(r.Shape.Attributes())
	if a.InterruptionProbability == n.InterruptionProbability {
		return
	}
	a.InterruptionProbability = n.InterruptionProbability
	shape, err := lifecycle.NewShape(a)
	if err != nil {
		p.reject("notice", r.ID, err)
		return
	}
	if n.InterruptionProbability == 1 {
		p.metrics.interruptions.WithLabelValues(a.InstanceType, a.Zone).Inc()
		p.log.Info("interruption notice", "machine", r.ID, "cluster", r.Cluster)
	}
	if err := p.inventory.Commit(inventory.Change{Slot: slot, Record: lifecycle.Refresh(r, p.offers.intern(shape))}); err != nil {
		p.log.Error("an interruption notice could not be stored", "machine", r.ID, "err", err)
	}
}
