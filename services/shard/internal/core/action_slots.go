package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// takeSlot reserves what a command needs: a place in its concurrency class and at its provider.
func (c *dispatcher) takeSlot(o *operation) bool {
	p := c.provider(o.Provider)
	if o.Slot {
		return true
	}
	if !c.classes.free(o.Kind) || p.Inflight >= p.limit(c.now) {
		return false
	}
	o.Slot = true
	c.classes.used[o.Kind]++
	p.Inflight++
	return true
}

func (c *dispatcher) releaseSlot(o *operation) {
	if !o.Slot {
		return
	}
	o.Slot = false
	c.classes.used[o.Kind]--
	c.provider(o.Provider).Inflight--
	c.cycle.Redispatch = true
}

// clustersBusy counts pulls and Configures by cluster (SHARD-15.4).
func (c *dispatcher) clustersBusy() map[string]int64 {
	busy := map[string]int64{}
	for _, o := range c.ops.list {
		if !o.Deleted && o.Kind == KindBootstrap && (o.Phase == phasePulling || o.Phase == phaseReady || o.Phase == phaseSending) {
			busy[o.Cluster]++
		}
	}
	return busy
}

// tries reports whether a machine is being bought or configured for a need now.
func (c *dispatcher) tries(pass *dispatchPass, cluster, fingerprint string) bool {
	if pass.trying == nil {
		pass.trying = map[[2]string]bool{}
		for _, o := range c.ops.list {
			if !o.Deleted && (o.Kind == KindBootstrap || o.Kind == KindProvision) {
				pass.trying[[2]string{o.Cluster, o.Need.Fingerprint}] = true
			}
		}
	}
	return pass.trying[[2]string{cluster, fingerprint}]
}

// mayActUnread checks what may start while a provider was never listed, whose machines may serve the need already: nothing is preempted, and one
// machine at a time is acquired for each row, as long as its cluster says that the row's Pods find no Node (SHARD-6.6).
func (c *dispatcher) mayActUnread(k Kind, cl *cluster, need *demand.Need, pass *dispatchPass) blockedReason {
	switch {
	case c.allListed():
		return notBlocked
	case k == KindPreempt:
		return blockedUnread
	case k != KindBootstrap && k != KindProvision:
		return notBlocked
	case !cl.waitsUnplaced(need.RowID), c.tries(pass, cl.Name, need.Form.Fingerprint), c.joins(pass, cl, need.Form.Fingerprint):
		return blockedUnread
	}
	return notBlocked
}

// joins reports whether a machine was configured for a need whose Node is not ready yet, in a cluster that reports Nodes. Many decisions of a pass
// ask, so a cluster's machines are looked at once.
func (c *dispatcher) joins(pass *dispatchPass, cl *cluster, fingerprint string) bool {
	if !cl.Reporting {
		return false
	}
	joining, listed := pass.joining[cl.Name]
	if !listed {
		inv := c.world.Inventory
		joining = map[string]bool{}
		for _, i := range c.machines.machinesOf(cl) {
			if by, known := inv.Attribution(i); known && inv.State(i) == inventory.Configured && !inv.Readiness(i).WasReady() {
				joining[by.Fingerprint] = true
			}
		}
		if pass.joining == nil {
			pass.joining = map[string]map[string]bool{}
		}
		pass.joining[cl.Name] = joining
	}
	return joining[fingerprint]
}

// began counts what the pass has started.
func (p *dispatchPass) began(k Kind, cluster, fingerprint string) {
	if k == KindBootstrap && p.busy != nil {
		p.busy[cluster]++
	}
	if (k == KindBootstrap || k == KindProvision) && p.trying != nil {
		p.trying[[2]string{cluster, fingerprint}] = true
	}
}

func (c *dispatcher) clusterLimit(cl *cluster) int64 {
	if cl.OneProbe {
		return 1
	}
	return c.cfg.ExecutePerCluster
}
