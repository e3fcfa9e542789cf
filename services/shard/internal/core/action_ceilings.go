package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// mayGrow checks the ceilings of a cluster: how many machines it may have and what they may cost per hour, those included
// that are being made for it, and planned ones that go first (SHARD-19.11). One cluster cannot take the whole fleet, whatever priority it states.
func (c *guards) mayGrow(cl *cluster, i inventory.Index, planned int64) blockedReason {
	machines, spend := c.cfg.ClusterMachinesMax, c.cfg.ClusterSpendMax
	if cl == nil || machines == 0 && spend == 0 {
		return notBlocked
	}
	inv := c.world.Inventory
	n, cost := int64(cl.bound())+planned, inv.Price(i)*(planned+1)
	for _, o := range c.ops.list {
		if !o.Deleted && (o.Kind == KindProvision && o.Cluster == cl.Name || o.Kind == KindPreempt && o.PreemptorCluster == cl.Name) {
			n++
			cost += o.Price
		}
	}
	if machines > 0 && n >= machines {
		return blockedCeiling
	}
	if spend == 0 {
		return notBlocked
	}
	for _, k := range c.machines.machinesOf(cl) {
		if inv.Cluster(k) == cl.Name && boundState(inv.State(k)) {
			cost += inv.Price(k)
		}
	}
	if cost > spend {
		return blockedCeiling
	}
	return notBlocked
}

// mayPreempt checks what a preemption has beside the guards of every action: the ceilings of the cluster that it is for, and
// the rate of preemptions over the shard.
func (c *guards) mayPreempt(d *decision, pass *dispatchPass) blockedReason {
	if c.cfg.ClusterMachinesMax > 0 || c.cfg.ClusterSpendMax > 0 {
		r := c.cycle.result
		name, planned := r.View(c.world, d.action).PreemptorCluster, int64(0)
		for _, k := range [...]Kind{KindBootstrap, KindProvision} { // what is free goes before what serves others
			for j := range c.cycle.waiting[k] {
				if x := &c.cycle.waiting[k][j]; x.machine != "" {
					if _, of := r.Need(x.action.Need); of == name {
						planned++
					}
				}
			}
		}
		if h := c.mayGrow(c.clusters.get(name), d.index, planned); h != notBlocked {
			return h
		}
	}
	if n := c.cfg.PreemptRate; n > 0 {
		c.preempts.refill(c.now, n, Minute)
		if !c.preempts.has() {
			pass.wake(c.preempts.readyAt(Minute))
			return blockedPreemptRate
		}
	}
	return notBlocked
}

// ceilingText names the ceilings of a cluster.
func (c *guards) ceilingText(cluster string) string {
	text := "cluster " + cluster + " may have"
	if n := c.cfg.ClusterMachinesMax; n > 0 {
		text += fmt.Sprintf(" at most %d machines (--cluster-machines-max)", n)
	}
	if s := c.cfg.ClusterSpendMax; s > 0 {
		if c.cfg.ClusterMachinesMax > 0 {
			text += " and"
		}
		text += fmt.Sprintf(" machines for at most %d.%02d dollars per hour (--cluster-spend-max)", s/1_000_000, s/10_000%100)
	}
	return text
}
