package keeper

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Close ends a Keeper whether or not it ever ran: a replica that never led has a queue too.
func (k *Keeper) Close() { k.queue.ShutDown() }

// Run reconciles everything that is known, then what changes, until ctx ends. Handlers may feed the Keeper before Run: nothing
// is written until then.
func (k *Keeper) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, k.queue.ShutDown)()
	k.mu.Lock()
	k.running = true
	k.mu.Unlock()
	begin(&k.lastTurn)
	defer k.lastTurn.Store(0)
	k.EnqueueAll()
	var workers sync.WaitGroup
	for i := range k.reconciling {
		workers.Go(func() { k.work(ctx, &k.reconciling[i]) })
	}
	turn, resync := time.NewTicker(turnEvery), time.NewTicker(resyncEvery)
	defer turn.Stop()
	defer resync.Stop()
	for {
		select {
		case <-ctx.Done():
			workers.Wait()
			return nil
		case <-turn.C:
			k.turnOver()
		case <-resync.C:
			k.resyncAll()
		}
	}
}

// turnOver shows that Run lives and that the lock is free.
func (k *Keeper) turnOver() {
	k.mu.Lock()
	defer k.mu.Unlock()
	begin(&k.lastTurn)
}

func (k *Keeper) work(ctx context.Context, began *atomic.Int64) {
	for {
		uid, stopping := k.queue.Get()
		if stopping {
			return
		}
		begin(began)
		k.handle(ctx, uid)
		began.Store(0)
		k.queue.Done(uid)
	}
}

func begin(what *atomic.Int64) { what.Store(time.Now().UnixNano()) }

// Alive is nil unless Run or one of its workers stands still. It does not depend on the API server: a look ends after lookMax
// whether or not that answers, so only a lock that is not given back takes longer, and only a restart helps then (OP-15.25).
func (k *Keeper) Alive() error {
	stands := func(began *atomic.Int64, limit time.Duration) (time.Duration, bool) {
		at := began.Load()
		still := time.Since(time.Unix(0, at))
		return still.Round(time.Second), at != 0 && still > limit+stuckAfter
	}
	if still, stuck := stands(&k.lastTurn, turnEvery); stuck {
		return fmt.Errorf("the controller has not reconciled any Pod for %s", still)
	}
	for i := range k.reconciling {
		if still, stuck := stands(&k.reconciling[i], reconcileMax); stuck {
			return fmt.Errorf("one reconcile has been running for %s", still)
		}
	}
	return nil
}

func (k *Keeper) handle(ctx context.Context, uid types.UID) {
	bounded, cancel := context.WithTimeout(ctx, reconcileMax)
	outcome, err := k.reconcile(bounded, uid)
	cancel()
	if ctx.Err() != nil {
		return
	}
	k.Reconciles.WithLabelValues(outcome).Inc()
	k.mu.Lock()
	if k.resync[uid] {
		delete(k.resync, uid)
		if err == nil && (outcome == OutcomeCreated || outcome == OutcomeUpdated || outcome == OutcomeDeleted) {
			k.Repairs.Inc()
		}
	}
	k.mu.Unlock()
	if err != nil {
		k.Log.Warn("a CapacityRequest could not be updated", "pod_uid", uid, "err", err)
		k.queue.AddRateLimited(uid)
		return
	}
	k.queue.Forget(uid)
}
