package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// dispatch sends what waits for a slot and starts decisions, in plan order inside each concurrency class, the concurrency classes in turn. One that
// is blocked does not block those behind it (SHARD-15.6).
func (c *dispatcher) dispatch() {
	s := &c.cycle
	if !s.Redispatch || !c.started {
		return
	}
	s.Redispatch = false
	c.sendReady()
	if s.result == nil || c.frozen() {
		return
	}
	pass := dispatchPass{}
	var next [kinds]int
	for progress := true; progress; {
		progress = false
		for _, k := range allKinds {
			if c.startNext(k, &next[k], &pass) {
				progress = true
			}
		}
	}
	for _, k := range allKinds {
		c.dropStarted(k)
	}
	c.afterDispatch(&pass)
}

// startNext starts the first decision of a concurrency class, from position *at on, that may start.
func (c *dispatcher) startNext(k Kind, at *int, pass *dispatchPass) bool {
	list := c.cycle.waiting[k]
	for ; *at < len(list); *at++ {
		if !c.classes.free(k) {
			*at = len(list)
			return false
		}
		d := &list[*at]
		if d.machine == "" {
			continue
		}
		switch d.blocked = c.mayStartIn(d, pass); d.blocked {
		case notBlocked:
			c.spell(d)
			c.startDecision(d)
			pass.began(k, d.view.Cluster, d.view.Row.Fingerprint)
			d.machine = "" // started
			*at++
			return true
		case blockedState:
			c.sample(MetricDeduped, "", 1)
			d.machine = ""
		case blockedPaused, blockedDryRun:
			c.guards.suppress(d)
		}
	}
	return false
}

// dropStarted takes started and outdated decisions out of a concurrency class.
func (c *dispatcher) dropStarted(k Kind) {
	list := c.cycle.waiting[k]
	for len(list) > 0 && list[0].machine == "" { // they start in order, and those behind stay where they are
		list[0] = decision{}
		list = list[1:]
	}
	kept := 0
	for i := range list {
		if list[i].machine == "" {
			continue
		}
		if kept < i {
			list[kept] = list[i]
		}
		kept++
	}
	clear(list[kept:])
	c.cycle.waiting[k] = list[:kept]
}

// afterDispatch counts what the guards held and arranges to look again when one lets go.
func (c *dispatcher) afterDispatch(pass *dispatchPass) {
	if pass.capped > 0 {
		c.guards.noteCapped(pass)
	}
	if pass.wakeAt > c.now {
		c.timers.add(pass.wakeAt, timerDispatch, "")
	}
}

// mayStart is mayStartIn outside a pass.
func (c *dispatcher) mayStart(d *decision) blockedReason {
	return c.mayStartIn(d, &dispatchPass{})
}

// mayStartIn tells what keeps a decision from starting now.
func (c *dispatcher) mayStartIn(d *decision, pass *dispatchPass) blockedReason {
	inv, k := c.world.Inventory, d.action.Kind
	if !inv.Live(d.index) || inv.State(d.index) != startOf(k) || inv.ID(d.index) != d.machine {
		return blockedState
	}
	if c.ops.byMachine[d.machine] != nil {
		return blockedBusy
	}
	if c.frozen() {
		return blockedFrozen
	}
	if inv.Foreign(d.index) {
		return blockedForeign
	}
	name := inv.Cluster(d.index)
	var need *demand.Need
	if k == KindBootstrap || k == KindProvision {
		need, name = c.cycle.result.Need(d.action.Need)
	}
	provider := inv.Provider(d.index)
	p := c.provider(provider)
	if h := c.guards.blocks(k, name, provider); h != notBlocked {
		return h
	}
	cl := c.clusters.get(name)
	if h := c.mayReach(k, cl, pass); h != notBlocked {
		return h
	}
	if h := c.mayActUnread(k, cl, need, pass); h != notBlocked {
		return h
	}
	if k == KindBootstrap {
		if until := cl.templateUntil(need.Form.Fingerprint); until > c.now {
			pass.wake(until)
			return blockedBackoff
		}
	}
	if k == KindProvision && cl.suspects(need.Form.Fingerprint) && c.tries(pass, name, need.Form.Fingerprint) {
		return blockedBackoff
	}
	if until := c.guards.backoffUntil(d.machine, firstRPC(k)); until > c.now {
		pass.wake(until)
		return blockedBackoff
	}
	if h := p.mayCall(c.shared, pass); h != notBlocked {
		return h
	}
	return c.passesGuards(d, cl, p, pass)
}

// mayReach checks what an action needs of its cluster.
func (c *dispatcher) mayReach(k Kind, cl *cluster, pass *dispatchPass) blockedReason {
	switch k {
	case KindBootstrap, KindProvision:
		if cl == nil || !cl.connected() {
			return blockedSession
		}
		if k == KindBootstrap {
			if pass.busy == nil {
				pass.busy = c.clustersBusy()
			}
			if pass.busy[cl.Name] >= c.clusterLimit(cl) {
				return blockedCluster
			}
		}
	case KindReclaim:
		if cl == nil || !cl.GateOpen {
			return blockedGate
		}
		if cl.Retired {
			return notBlocked // its machines are drained by the provider alone (SHARD-12.6)
		}
		if !cl.connected() {
			return blockedSession
		}
		if !cl.Heard {
			return blockedReport
		}
	}
	return notBlocked
}

// passesGuards checks the volume guards; the ones that count come last, so that they count only what else could start.
func (c *dispatcher) passesGuards(d *decision, cl *cluster, p *provider, pass *dispatchPass) blockedReason {
	k := d.action.Kind
	if (k == KindReclaim || k == KindDelete) && c.now-p.ListedAt > staleInventory {
		return blockedStale
	}
	if k == KindBootstrap || k == KindProvision {
		if h := c.guards.mayGrow(cl, d.index, 0); h != notBlocked {
			return h
		}
	}
	if k == KindPreempt {
		if h := c.guards.mayPreempt(d, pass); h != notBlocked {
			return h
		}
	}
	if k == KindProvision {
		if h := c.guards.mayBuy(d.index, pass); h != notBlocked {
			return h
		}
	}
	if k == KindReclaim {
		if h := c.guards.mayRelease(d, cl, pass); h != notBlocked {
			return h
		}
		if at, ok := c.guards.budget(cl); !ok {
			pass.capped++
			pass.wake(at)
			return blockedBudget
		}
	}
	if n := c.cfg.MaxActionsPerCycle; n > 0 && c.cycle.Started >= n {
		if !c.cycle.Deferred {
			c.cycle.Deferred = true
			c.trigger(triggerExpiry)
		}
		if d.blocked != blockedMax {
			c.sample(MetricDeferred, "", 1)
		}
		return blockedMax
	}
	return notBlocked
}

// startDecision starts a decision that may start.
func (c *dispatcher) startDecision(d *decision) {
	c.cycle.Started++
	o := c.commands.open(d)
	inv := c.world.Inventory
	cl := c.clusters.get(o.Cluster)
	switch o.Kind {
	case KindBootstrap:
		c.machines.move(o.Index, inventory.Configuring, o.Cluster)
		inv.SetAttribution(o.Index, &o.Attribution)
		inv.SetPromise(o.Index, nil)
		inv.SetReadiness(o.Index, inventory.NoReport)
		inv.SetOccupancy(o.Index, inventory.OccupancyUnknown)
		inv.SetOutOfService(o.Index, false)
		c.machines.noteAcquired(o)
		c.bootstraps.pull(o)
	case KindProvision:
		c.machines.move(o.Index, inventory.Creating, "")
		inv.SetPromise(o.Index, d.promise)
		c.guards.bought()
		c.ownership.noteBought(o.Index)
		c.machines.noteAcquired(o)
		o.Phase = phaseReady
	case KindDelete:
		c.machines.move(o.Index, inventory.Deleting, "")
		o.Phase = phaseReady
	case KindReclaim:
		c.guards.spend(cl)
		if cl.Retired && !cl.connected() {
			o.Phase, o.Alone = phaseReady, true
			c.draining.commit(o)
		} else {
			c.draining.instruct(o, cl)
		}
	case KindPreempt:
		if c.cfg.PreemptRate > 0 {
			c.guards.preempts.take()
		}
		if cl != nil && cl.connected() {
			c.draining.instruct(o, cl)
		} else {
			c.draining.drainUnannounced(o)
		}
	}
	c.recovery.journalOp(o)
	if o.Phase == phaseReady {
		c.trySend(o)
	}
}

// sendReady sends the commands that were waiting for a slot, in the order of their operations.
func (c *dispatcher) sendReady() {
	ready := 0
	for _, o := range c.ops.list {
		if o.Phase == phaseReady && !o.Deleted {
			ready++
		}
	}
	if ready == 0 {
		return
	}
	for _, o := range c.ops.ordered() {
		if o.Phase == phaseReady {
			c.trySend(o)
		}
	}
}

// trySend sends an operation's command if a slot is free and nothing stops it.
func (c *dispatcher) trySend(o *operation) {
	if c.frozen() {
		return
	}
	if h := c.guards.blocks(o.Kind, o.Cluster, o.Provider); h != notBlocked {
		return // the pause's end looks again
	}
	p := c.provider(o.Provider)
	pass := dispatchPass{}
	if h := p.mayCall(c.shared, &pass); h != notBlocked {
		if pass.wakeAt > c.now {
			c.timers.add(pass.wakeAt, timerDispatch, "")
		}
		return
	}
	if !c.takeSlot(o) {
		return
	}
	switch o.rpc() {
	case RPCConfigure:
		c.bootstraps.sendConfigure(o)
	case RPCDrain:
		c.draining.sendDrain(o)
	default:
		c.commands.send(o)
	}
}
