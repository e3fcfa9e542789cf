package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// mayRelease checks what a voluntary reclaim waits for beside the budget: a drain that was given up, and the time for which
// the machine was not needed (SHARD-17.11, 19.10).
func (c *guards) mayRelease(d *decision, cl *cluster, pass *dispatchPass) blockedReason {
	if b := c.drains[d.machine]; b != nil && b.Backoff.Until > c.now {
		pass.wake(b.Backoff.Until)
		return blockedDrain
	}
	held := c.machines.contentsOf(d.machine, cl)
	switch {
	case cl.Retired:
		return notBlocked
	case held != nil && held.Protected > 0:
		return blockedProtected // a report that it is not so any more causes a cycle
	case d.action.Cause == engine.CauseMoved, d.action.Cause == engine.CauseNotJoined:
		return notBlocked
	}
	if at := d.planned + c.releaseDelay(d.machine, cl); at > c.now {
		pass.wake(at)
		return blockedRelease
	}
	return notBlocked
}

// releaseDelay is for how long a machine has to be in excess before it is reclaimed.
func (c *guards) releaseDelay(machine string, cl *cluster) int64 {
	if held := c.machines.contentsOf(machine, cl); held != nil && held.Pods <= 0 {
		return max(0, c.cfg.ReleaseDelayEmpty)
	}
	return max(0, c.cfg.ReleaseDelay)
}

// pausedFor reports whether a pause covers an action.
func (c *guards) pausedFor(k Kind, cluster, provider string) bool {
	if c.cfg.Paused || c.coord.frozen() {
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

// allHeld reports whether an order keeps every action from starting.
func (c *guards) allHeld() bool {
	return c.cfg.Paused || c.coord.frozen() || c.cfg.DryRun || c.ctl.DryRun ||
		slices.ContainsFunc(c.ctl.Pauses, func(p Pause) bool { return len(p.Kinds) == 0 && p.Cluster == "" && p.Provider == "" })
}

// pauseText names the pauses that cover acquisitions of a cluster: what, by whom and why.
func (c *guards) pauseText(cluster string) string {
	switch {
	case c.cfg.Paused:
		return "the shard was started with --actuation-paused"
	case c.coord.Decommissioned:
		return "the coordinator removed this shard from the fleet"
	case c.coord.Disputed:
		return "the coordinator has seen a higher epoch of this shard: another process runs under its id"
	}
	text := ""
	for i := range c.ctl.Pauses {
		p := &c.ctl.Pauses[i]
		if p.Cluster != "" && p.Cluster != cluster || len(p.Kinds) > 0 && !slices.Contains(p.Kinds, KindProvision) && !slices.Contains(p.Kinds, KindBootstrap) {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("paused by %s since %s", p.Actor, clockText(p.Created))
		if p.Provider != "" {
			text += " at provider " + p.Provider
		}
		if p.Reason != "" {
			text += ": " + strings.TrimSuffix(p.Reason, ".")
		}
	}
	return text
}

// blocks reports whether a pause or dry run stops an action (SHARD-19.5 to 19.7).
func (c *guards) blocks(k Kind, cluster, provider string) blockedReason {
	switch {
	case c.pausedFor(k, cluster, provider):
		return blockedPaused
	case c.cfg.DryRun || c.ctl.DryRun:
		return blockedDryRun
	}
	return notBlocked
}

// suppress counts a decision that a pause or dry run stops, once: when it first appears in a plan (SHARD-19.7).
func (c *guards) suppress(d *decision) {
	key := planKey{d.machine, d.action.Kind}
	if c.cycle.held[key] {
		return
	}
	c.cycle.held[key] = true
	c.spell(d)
	t, m := RecordSuppressed, MetricSuppressed
	if d.blocked == blockedDryRun {
		t, m = RecordDryRun, MetricDryRun
	}
	c.sample(m, d.action.Kind.String(), 1)
	c.record(c.recordOfDecision(t, d))
}

// budget reports whether both reclaim buckets have a token, and otherwise when (SHARD-19.3). Wall-clock rate and not a cap
// per cycle, because the roll-ups of all clusters drive cycles.
func (c *guards) budget(cl *cluster) (readyAt int64, ok bool) {
	if c.cfg.ReclaimCapOff {
		return 0, true
	}
	c.refill(cl)
	if cl.Reclaim.has() && c.reclaim.has() {
		return 0, true
	}
	w := c.cfg.ReclaimCapWindow
	return max(cl.Reclaim.readyAt(w), c.reclaim.readyAt(w), c.now+1), false
}

func (c *guards) refill(cl *cluster) {
	w := c.cfg.ReclaimCapWindow
	c.reclaim.refill(c.now, reclaimCapacity(c.world.Inventory.Count(inventory.Configured), c.cfg.ReclaimCapPerMille), w)
	if cl != nil {
		cl.Reclaim.refill(c.now, reclaimCapacity(cl.configured(), c.cfg.ReclaimCapPerMille), w)
	}
}

// spend takes one token from both buckets. A cancelled reclaim gives none back.
func (c *guards) spend(cl *cluster) {
	c.reclaim.take()
	cl.Reclaim.take()
}

// noteCapped counts decisions that had to wait for the budget, each once.
func (c *guards) noteCapped(pass *dispatchPass) {
	waiting := map[string]bool{}
	for i := range c.cycle.waiting[KindReclaim] {
		d := &c.cycle.waiting[KindReclaim][i]
		if d.blocked != blockedBudget {
			continue
		}
		waiting[d.machine] = true
		if !c.capped[d.machine] {
			c.sample(MetricReclaimsCapped, "", 1)
		}
	}
	c.capped = waiting
}

func (c *guards) started(k Kind) {}

// bought takes a token of --provision-rate.
func (c *guards) bought() {
	if c.cfg.ProvisionRate > 0 {
		c.creates.take()
	}
}

// mayBuy checks the spend brake and the pause after relabelled machines (SHARD-19.9, COORD-9.9d).
func (c *guards) mayBuy(i inventory.Index, pass *dispatchPass) blockedReason {
	if n := c.cfg.ProvisionRate; n > 0 {
		c.creates.refill(c.now, n, Minute)
		if !c.creates.has() {
			pass.wake(c.creates.readyAt(Minute))
			return blockedRate
		}
	}
	if c.ownership.quotaUsedUp(i) {
		return blockedQuota
	}
	if len(c.coord.relabels) > 0 {
		m := c.world.Inventory.Machine(i)
		if until := c.coord.relabels[m.InstanceType+"/"+m.Zone]; until > c.now {
			pass.wake(until)
			return blockedBackoff
		}
	}
	return notBlocked
}

// backoffUntil is the time before which a command is not tried on a machine. One that could not be configured is not bought again before
// it may be configured again: it would be paid for only to wait (SHARD-14.9).
func (c *guards) backoffUntil(machine string, rpc RPC) int64 {
	b := c.backoffs[machine]
	switch {
	case b == nil:
		return 0
	case rpc == RPCCreate:
		return max(b[RPCCreate].Until, b[RPCConfigure].Until)
	}
	return b[rpc].Until
}

func (c *guards) forgetMachine(id string) {
	delete(c.backoffs, id)
	delete(c.capped, id)
	delete(c.drains, id)
}

// backoffFail starts or lengthens the pause of (machine, command) and shows it to the engine (SHARD-14.9).
func (c *guards) backoffFail(o *operation, ramp ramp) {
	if c.backoffs == nil {
		c.backoffs = map[string]*[rpcs]backoff{}
	}
	b := c.backoffs[o.Machine]
	if b == nil {
		b = &[rpcs]backoff{}
		c.backoffs[o.Machine] = b
	}
	b[o.rpc()].fail(ramp, c.now, o.Machine+"/"+o.rpc().String())
	c.timers.add(b[o.rpc()].Until, timerDispatch, "")
	if i, ok := c.world.Inventory.Find(o.Machine); ok {
		c.mark(i)
	}
}

// backoffCleared ends the failures of a command on a machine: it has had its effect.
func (c *guards) backoffCleared(o *operation) { c.setBackoff(o, backoff{}) }

// commandTaken forgets the calls that did not reach the machine. The command may still fail on the way, as it may have before.
func (c *guards) commandTaken(o *operation) {
	if b := c.backoffs[o.Machine]; b != nil {
		x := b[o.rpc()]
		if x.Fails = x.Refused; x.Fails == 0 {
			x = backoff{}
		}
		c.setBackoff(o, x)
	}
}

func (c *guards) setBackoff(o *operation, x backoff) {
	if b := c.backoffs[o.Machine]; b != nil {
		if b[o.rpc()] = x; *b == ([rpcs]backoff{}) {
			delete(c.backoffs, o.Machine)
		}
	}
}

// mark withholds a machine from acquisition while the command that would acquire it is in backoff.
func (c *guards) mark(i inventory.Index) {
	inv, until := c.world.Inventory, int64(0)
	switch inv.State(i) {
	case inventory.Speculative, inventory.Creating, inventory.Failed:
		until = c.backoffUntil(inv.ID(i), RPCCreate)
	case inventory.Idle, inventory.Configuring:
		until = c.backoffUntil(inv.ID(i), RPCConfigure)
	}
	if until > c.now {
		inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldBackoff, Until: until})
	} else {
		inv.Lift(i, inventory.WithheldBackoff, "")
	}
}

// stateChanged keeps the marks of a machine right after a change of state. The host that a person drained is gone with its slot free again.
func (c *guards) stateChanged(i inventory.Index, s inventory.State) {
	if s == inventory.Speculative {
		c.world.Inventory.Lift(i, inventory.WithheldDrained, "")
	}
	if c.backoffs[c.world.Inventory.ID(i)] != nil || len(c.world.Inventory.Withheld(i)) > 0 {
		c.mark(i)
	}
	c.pools.stateChanged(i, s)
}

// startPauses arms the expiry of the pauses that a restart brought back.
func (c *guards) startPauses() {
	c.ctl.Pauses = slices.Clone(c.ctl.Pauses)
	for i := range c.ctl.Pauses {
		if p := &c.ctl.Pauses[i]; p.TTL > 0 {
			p.Ends = c.now + p.TTL
			c.timers.add(p.Ends, timerPause, p.ID)
		}
	}
}

// pauseExpired lifts a pause whose time is over. A pause that was set again keeps its own deadline.
func (c *guards) pauseExpired(t timer) {
	id := t.Subject
	if i := slices.IndexFunc(c.ctl.Pauses, func(p Pause) bool { return p.ID == id }); i < 0 || c.ctl.Pauses[i].Ends != t.At {
		return
	}
	if p, ok := c.liftPause(id); ok {
		c.emit(Persist{Bucket: BucketPauses, Key: id})
		c.record(Record{Type: RecordAdmin, Actor: p.Actor, Detail: "pause " + id + " expired: " + p.Reason})
	}
}

// liftPause takes a pause away.
func (c *guards) liftPause(id string) (Pause, bool) {
	i := slices.IndexFunc(c.ctl.Pauses, func(p Pause) bool { return p.ID == id })
	if i < 0 {
		return Pause{}, false
	}
	p := c.ctl.Pauses[i]
	c.ctl.Pauses = slices.Delete(slices.Clone(c.ctl.Pauses), i, i+1)
	c.cycle.Redispatch = true
	c.trigger(triggerAdmin)
	return p, true
}

// setPause adds or replaces a pause.
func (c *guards) setPause(p Pause) {
	p.Ends = 0
	if p.TTL > 0 {
		p.Ends = c.now + p.TTL
		c.timers.add(p.Ends, timerPause, p.ID)
	}
	list := slices.DeleteFunc(slices.Clone(c.ctl.Pauses), func(q Pause) bool { return q.ID == p.ID })
	list = append(list, p)
	slices.SortFunc(list, func(a, b Pause) int { return strings.Compare(a.ID, b.ID) })
	c.ctl.Pauses = list
	c.trigger(triggerAdmin)
}
