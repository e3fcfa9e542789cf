package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// stuckAfter is how long a machine may stay in its state before somebody should look, or 0 (SHARD-14.14).
func (c *machines) stuckAfter(i inventory.Index) int64 {
	switch c.world.Inventory.State(i) {
	case inventory.Creating:
		return c.cfg.CreatingStuckAfter
	case inventory.Configuring:
		return c.cfg.ConfiguringStuckAfter
	case inventory.Draining:
		grace := c.policy.ReclaimGrace * Second
		if o := c.ops.byMachine[c.world.Inventory.ID(i)]; o != nil && o.drains() {
			grace = o.Grace * Second
		}
		return grace + drainStuckExtra
	case inventory.Deleting:
		return deletingStuck
	}
	return 0
}

// watch marks a machine that takes too long and asks about it every minute. A stuck promise must not hide unmet demand
// forever, so it stops counting as supply; when it arrives it is ordinary supply.
func (c *machines) watch(id string) {
	inv := c.world.Inventory
	i, ok := inv.Find(id)
	if !ok {
		return
	}
	limit := c.stuckAfter(i)
	if limit == 0 {
		return
	}
	if late := inv.Since(i) + limit; c.now < late {
		c.timers.add(late, timerStuck, id)
		return
	}
	m := inv.Machine(i)
	if !inv.Stuck(i) {
		c.record(Record{Type: RecordMachineStuck, Machine: id, Provider: m.Provider, Cluster: m.Cluster, From: m.State,
			Detail: fmt.Sprintf("%s for %d s", m.State, (c.now-inv.Since(i))/Second)})
	}
	if m.State == inventory.Creating || m.State == inventory.Configuring || m.State == inventory.Draining {
		inv.SetStuck(i, true)
		c.trigger(triggerExpiry)
	}
	if !c.frozen() {
		c.reconciler.want(m.Provider, id, getForStuck)
	}
	c.timers.add(c.now+stuckAskEvery, timerStuck, id)
}
