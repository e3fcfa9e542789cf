package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// cordoned is the reason of a node that somebody cordoned, as on the wire.
const cordoned = 1

// byPerson reports whether a person took the machine out on purpose: the operator reports the reason that was given.
func (o *OutOfService) byPerson() bool { return o.Reason == cordoned && o.Detail != "" }

// String says why the node takes no Pods: "cordoned since 14:02 UTC", "cordoned since 14:02 UTC: disk errors, by alice".
func (o *OutOfService) String() string {
	why := "accepts no Pods"
	switch o.Reason {
	case cordoned:
		why = "cordoned"
	case 2:
		why = "tainted with " + o.Detail
	case 3:
		why = "not Ready"
	}
	if o.Since > 0 {
		why += " since " + clockText(o.Since)
	}
	if o.byPerson() {
		why += ": " + o.Detail
	}
	return why
}

// setOutOfService replaces what a cluster says of nodes that take no Pods. Such a machine is not supply for the Pods that
// are elsewhere (SHARD-18.9).
func (c *draining) setOutOfService(cl *cluster, list []OutOfService) {
	inv := c.world.Inventory
	before := cl.out
	cl.out = nil
	for _, o := range list {
		i, known := inv.Find(o.Machine)
		if !known || inv.Cluster(i) != cl.Name || inv.Foreign(i) || !boundState(inv.State(i)) {
			continue // a cluster may speak of its own machines only
		}
		if cl.out == nil {
			cl.out = make(map[string]OutOfService, len(list))
		}
		cl.out[o.Machine] = o
		if inv.SetOutOfService(i, true) {
			c.trigger(triggerNode)
		}
	}
	for _, id := range sortedKeys(before) {
		if _, still := cl.out[id]; still {
			continue
		}
		if i, known := inv.Find(id); known && inv.SetOutOfService(i, false) {
			c.trigger(triggerNode)
		}
	}
}

// planOutOfService adds the reclaims of machines that take no Pods and hold none any more. The plan does not see them.
func (c *draining) planOutOfService(planned map[planKey]int64, wanted map[string]bool) {
	inv := c.world.Inventory
	left := c.keptOutLeft()
	for _, cl := range c.clusters.ordered {
		for _, id := range sortedKeys(cl.out) {
			i, known := inv.Find(id)
			key := planKey{id, KindReclaim}
			if _, already := planned[key]; already || !known || cl.out[id].Pods > 0 || !cl.GateOpen || inv.State(i) != inventory.Configured || inv.Cluster(i) != cl.Name {
				continue
			}
			at, old := c.cycle.planned[key]
			if !old {
				at = c.now
			}
			planned[key], wanted[id] = at, true
			cause := engine.CauseExcess
			if out := cl.out[id]; out.byPerson() && left > 0 {
				cause, left = engine.CauseDrained, left-1
			}
			a := engine.Action{Kind: KindReclaim, Machine: i, Need: engine.NoNeed, Drain: -1, Cause: cause}
			c.cycle.waiting[KindReclaim] = append(c.cycle.waiting[KindReclaim], decision{action: a, index: i, machine: id, cycle: c.cycle.N, planned: at,
				evict: &eviction{Evictee: planner.Evictee{Machine: i, Grace: c.policy.ReclaimGrace}}})
		}
	}
}

// keptOutLeft is how many more machines may be kept out for persons: an owner of one cluster, who may cordon its Nodes, takes no more from the others.
// A machine above it is released like any other, so that nothing says that it is kept out.
func (c *draining) keptOutLeft() int {
	inv := c.world.Inventory
	left := max(8, (inv.Count(inventory.Idle)+inv.Count(inventory.Configured))/20) - inv.Marked(inventory.WithheldDrained)
	for _, o := range c.ops.list {
		if !o.Deleted && o.Cause == engine.CauseDrained && !inv.WithheldFor(o.Index, inventory.WithheldDrained) {
			left--
		}
	}
	return left
}

// hides says why a roll-up that takes machines out of service looks like an accident, or "": half of a cluster at once.
func (c *draining) hides(cl *cluster, list []OutOfService) string {
	fresh := 0
	for i := range list {
		if _, known := cl.out[list[i].Machine]; !known {
			fresh++
		}
	}
	if n := cl.bound(); n >= guardRows && fresh*2 > n {
		return fmt.Sprintf("%d of %d machines stopped accepting Pods at the same time", fresh, n)
	}
	return ""
}
