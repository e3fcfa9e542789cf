package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// rails stand between a decision and its start. They may slow or stop actions; they never add, reorder or change one
// (SHARD-19.1).
type rails struct {
	reclaim  bucket // of the whole shard
	creates  bucket // of --provision-rate
	backoffs map[string]*[rpcs]backoff
	capped   map[string]bool // machines whose reclaim is known to wait for the budget
}

// pausedFor reports whether a pause covers an action.
func (r *rails) pausedFor(c *Core, k Kind, cluster, provider string) bool {
	if c.cfg.Paused || c.coord.decommissioned {
		return true
	}
	for i := range c.ctl.Pauses {
		p := &c.ctl.Pauses[i]
		if (len(p.Kinds) == 0 || slices.Contains(p.Kinds, k)) && (p.Cluster == "" || p.Cluster == cluster) &&
			(p.Provider == "" || p.Provider == provider) {
			return true
		}
	}
	return false
}

// stops tells whether a pause or dry run stops an action (SHARD-19.5 to 19.7).
func (r *rails) stops(c *Core, k Kind, cluster, provider string) hold {
	switch {
	case c.faults.IgnorePause:
		return heldNothing
	case r.pausedFor(c, k, cluster, provider):
		return heldPaused
	case c.cfg.DryRun || c.ctl.DryRun:
		return heldDryRun
	}
	return heldNothing
}

// suppress counts a decision that a pause or dry run stops, once: when it first appears in a plan (SHARD-19.7).
func (c *Core) suppress(d *decision) {
	key := planKey{d.machine, d.action.Kind}
	if c.cycle.held[key] {
		return
	}
	c.cycle.held[key] = true
	c.spell(d)
	t, m := RecordSuppressed, MetricSuppressed
	if d.why == heldDryRun {
		t, m = RecordDryRun, MetricDryRun
	}
	c.sample(m, d.action.Kind.String(), 1)
	c.record(c.recordOfDecision(t, d))
}

// budget tells whether both reclaim buckets have a token, and otherwise when (SHARD-19.3). Wall-clock rate and not a cap
// per cycle, because everybody's roll-ups drive cycles.
func (r *rails) budget(c *Core, cl *cluster) (readyAt int64, ok bool) {
	if c.cfg.ReclaimCapOff || c.faults.SkipReclaimBudget {
		return 0, true
	}
	r.refill(c, cl)
	if cl.reclaim.has() && r.reclaim.has() {
		return 0, true
	}
	w := c.cfg.ReclaimCapWindow
	return max(cl.reclaim.readyAt(w), r.reclaim.readyAt(w), c.now+1), false
}

func (r *rails) refill(c *Core, cl *cluster) {
	w := c.cfg.ReclaimCapWindow
	r.reclaim.refill(c.now, reclaimCapacity(c.world.Inventory.Count(inventory.Configured), c.cfg.ReclaimCapPerMille), w)
	if cl != nil {
		cl.reclaim.refill(c.now, reclaimCapacity(cl.configured(), c.cfg.ReclaimCapPerMille), w)
	}
}

// spend takes one token from both buckets. A cancelled reclaim gives none back.
func (r *rails) spend(cl *cluster) {
	r.reclaim.take()
	cl.reclaim.take()
}

// noteCapped counts decisions that had to wait for the budget, each once.
func (r *rails) noteCapped(c *Core, pass *dispatchPass) {
	waiting := map[string]bool{}
	for i := range c.cycle.waiting[KindReclaim] {
		d := &c.cycle.waiting[KindReclaim][i]
		if d.why != heldBudget {
			continue
		}
		waiting[d.machine] = true
		if !r.capped[d.machine] {
			c.sample(MetricReclaimsCapped, "", 1)
		}
	}
	r.capped = waiting
}

func (r *rails) started(k Kind) {}

// bought takes a token of --provision-rate.
func (r *rails) bought(c *Core) {
	if c.cfg.ProvisionRate > 0 {
		r.creates.take()
	}
}

// mayBuy checks the spend brake and the pause after relabelled machines (SHARD-19.9, COORD-9.9d).
func (c *Core) mayBuy(i inventory.Index, pass *dispatchPass) hold {
	if n := c.cfg.ProvisionRate; n > 0 {
		c.rails.creates.refill(c.now, n, Minute)
		if !c.rails.creates.has() {
			pass.wake(c.rails.creates.readyAt(Minute))
			return heldRate
		}
	}
	if c.quotaUsedUp(i) {
		return heldQuota
	}
	if len(c.coord.relabels) > 0 {
		m := c.world.Inventory.Machine(i)
		if until := c.coord.relabels[m.InstanceType+"/"+m.Zone]; until > c.now {
			pass.wake(until)
			return heldBackoff
		}
	}
	return heldNothing
}

// backoffUntil is the time before which a command is not tried on a machine.
func (r *rails) backoffUntil(machine string, rpc RPC) int64 {
	if b := r.backoffs[machine]; b != nil {
		return b[rpc].Until
	}
	return 0
}

func (r *rails) forgetMachine(id string) {
	delete(r.backoffs, id)
	delete(r.capped, id)
}

// backoffFail starts or lengthens the pause of (machine, command) and shows it to the engine (SHARD-14.9).
func (c *Core) backoffFail(o *operation, ramp ramp) {
	if c.rails.backoffs == nil {
		c.rails.backoffs = map[string]*[rpcs]backoff{}
	}
	b := c.rails.backoffs[o.Machine]
	if b == nil {
		b = &[rpcs]backoff{}
		c.rails.backoffs[o.Machine] = b
	}
	b[o.rpc()].fail(ramp, c.now, o.Machine+"/"+o.rpc().String())
	c.timers.add(b[o.rpc()].Until, timerDispatch, "")
	if i, ok := c.world.Inventory.Find(o.Machine); ok {
		c.rails.mark(c, i)
	}
}

func (c *Core) backoffCleared(o *operation) {
	if b := c.rails.backoffs[o.Machine]; b != nil {
		b[o.rpc()] = backoff{}
		if *b == ([rpcs]backoff{}) {
			delete(c.rails.backoffs, o.Machine)
		}
	}
}

// mark withholds a machine from acquisition while the command that would acquire it is in backoff.
func (r *rails) mark(c *Core, i inventory.Index) {
	inv := c.world.Inventory
	b := r.backoffs[inv.ID(i)]
	until := int64(0)
	if b != nil {
		switch s := inv.State(i); s {
		case inventory.Speculative, inventory.Creating:
			until = b[RPCCreate].Until
		case inventory.Idle, inventory.Configuring:
			until = b[RPCConfigure].Until
		case inventory.Failed:
			until = max(b[RPCCreate].Until, b[RPCConfigure].Until)
		}
	}
	if until > c.now {
		inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldBackoff, Until: until})
	} else {
		inv.Lift(i, inventory.WithheldBackoff, "")
	}
}

// stateChanged keeps the marks of a machine right after a change of state.
func (r *rails) stateChanged(c *Core, i inventory.Index, s inventory.State) {
	if r.backoffs[c.world.Inventory.ID(i)] != nil || len(c.world.Inventory.Withheld(i)) > 0 {
		r.mark(c, i)
	}
	c.pools.stateChanged(c, i, s)
}

// startPauses arms the expiry of the pauses that a restart brought back.
func (c *Core) startPauses() {
	for i := range c.ctl.Pauses {
		if p := &c.ctl.Pauses[i]; p.TTL > 0 {
			c.timers.add(c.now+p.TTL, timerPause, p.ID)
		}
	}
}

func (c *Core) pauseExpired(id string) {
	if p, ok := c.liftPause(id); ok {
		c.emit(Persist{Bucket: BucketPauses, Key: id})
		c.record(Record{Type: RecordAdmin, Actor: p.Actor, Detail: "pause " + id + " expired: " + p.Reason})
	}
}

// liftPause takes a pause away.
func (c *Core) liftPause(id string) (Pause, bool) {
	i := slices.IndexFunc(c.ctl.Pauses, func(p Pause) bool { return p.ID == id })
	if i < 0 {
		return Pause{}, false
	}
	p := c.ctl.Pauses[i]
	c.ctl.Pauses = slices.Delete(slices.Clone(c.ctl.Pauses), i, i+1)
	c.cycle.redispatch = true
	c.trigger(triggerAdmin)
	return p, true
}

// setPause adds or replaces a pause.
func (c *Core) setPause(p Pause) {
	list := slices.DeleteFunc(slices.Clone(c.ctl.Pauses), func(q Pause) bool { return q.ID == p.ID })
	list = append(list, p)
	slices.SortFunc(list, func(a, b Pause) int { return strings.Compare(a.ID, b.ID) })
	c.ctl.Pauses = list
	if p.TTL > 0 {
		c.timers.add(c.now+p.TTL, timerPause, p.ID)
	}
	c.trigger(triggerAdmin)
}
