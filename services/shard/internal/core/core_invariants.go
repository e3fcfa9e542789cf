package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// checkCheap asserts the invariants that cost little enough for production (SHARD-4.10).
func (c *dispatcher) checkCheap() {
	if why := c.cheap(); why != "" {
		panic("core: broken invariant: " + why)
	}
}

func (c *dispatcher) cheap() string {
	for _, k := range allKinds {
		if c.classes.used[k] < 0 || c.classes.used[k] > c.classes.size[k] || c.ops.open[k] < 0 {
			return fmt.Sprintf("concurrency class %s holds %d of %d", k, c.classes.used[k], c.classes.size[k])
		}
	}
	for _, p := range c.providers {
		if p.Inflight < 0 || p.Gets < 0 || p.Gets > getConcurrency || p.machines < 0 {
			return fmt.Sprintf("provider %s has %d commands, %d Gets, %d machines", p.Name, p.Inflight, p.Gets, p.machines)
		}
	}
	if len(c.ops.byID) != len(c.ops.byMachine) {
		return fmt.Sprintf("%d operations on %d machines", len(c.ops.byID), len(c.ops.byMachine))
	}
	return ""
}

// Broken names the first broken invariant of the whole state, or "". It looks at everything and is for tests and
// simulation (SHARD-4.10, 33.5).
func (c *Core) Broken() string {
	if why := c.dispatcher.cheap(); why != "" {
		return why
	}
	inv := c.world.Inventory
	counts := map[string][9]int{}
	machines, shown := map[string]int{}, map[string]int{}
	for i := range inv.All() {
		name := inv.Provider(i)
		machines[name]++
		if p := c.provider(name); p.list != nil && c.cols.at(i).listed == p.list.id {
			shown[name]++
		}
		if name := inv.Cluster(i); name != "" && !inv.Foreign(i) {
			n := counts[name]
			n[inv.State(i)]++
			counts[name] = n
		}
		if why := c.brokenMachine(i); why != "" {
			return inv.ID(i) + ": " + why
		}
	}
	for _, cl := range c.clusters.ordered {
		if counts[cl.Name] != cl.counts {
			return fmt.Sprintf("cluster %s counts %v, the inventory %v", cl.Name, cl.counts, counts[cl.Name])
		}
	}
	for _, p := range c.providers {
		if machines[p.Name] != p.machines {
			return fmt.Sprintf("provider %s counts %d machines, the inventory %d", p.Name, p.machines, machines[p.Name])
		}
		if p.list != nil && shown[p.Name] != p.list.shown {
			return fmt.Sprintf("the List of %s counts %d machines shown, the inventory %d", p.Name, p.list.shown, shown[p.Name])
		}
	}
	slots := [kinds]int64{}
	for _, o := range c.ops.ordered() {
		if why := c.brokenOperation(o); why != "" {
			return o.ID + ": " + why
		}
		if o.Slot {
			slots[o.Kind]++
		}
	}
	if slots != c.dispatcher.classes.used {
		return fmt.Sprintf("operations hold slots %v, concurrency classes count %v", slots, c.dispatcher.classes.used)
	}
	return ""
}

func (c *Core) brokenMachine(i inventory.Index) string {
	inv := c.world.Inventory
	m := inv.Machine(i)
	o := c.ops.byMachine[m.ID]
	switch {
	case boundState(m.State) && m.Cluster == "" && m.State != inventory.Configuring: // which the wire lets a provider say (machine.bound)
		return m.State.String() + " without a cluster"
	case !boundState(m.State) && m.State != inventory.Failed && m.Cluster != "":
		return m.State.String() + " with a cluster"
	case m.State == inventory.Failed && m.LastError == "":
		return "failed without a reason"
	}
	if s, ok := inv.Attribution(i); ok && m.State == inventory.Idle {
		return fmt.Sprintf("idle with the attribution of %s", s.Fingerprint)
	}
	if p, ok := inv.Promise(i); ok && m.State == inventory.Configured && (o == nil || !o.Committed) {
		return "promised to " + p.Cluster + " although no drain of it is certain"
	}
	if o != nil && o.Index != i {
		return "its operation is on another index"
	}
	return ""
}

func (c *Core) brokenOperation(o *operation) string {
	inv := c.world.Inventory
	i, ok := inv.Find(o.Machine)
	if !ok || i != o.Index {
		return "its machine is gone"
	}
	if (o.Phase == phaseSending) != o.Slot {
		return fmt.Sprintf("in phase %s with slot %v", o.Phase, o.Slot)
	}
	s := inv.State(i)
	switch o.Phase {
	case phasePulling:
		if s != inventory.Configuring {
			return "pulls for a machine that is " + s.String()
		}
	case phaseInstructing:
		if s != inventory.Configured {
			return "waits for the cordon of a machine that is " + s.String()
		}
	case phaseSending, phaseWaiting, phaseAsking:
		if s != o.rpc().middle() {
			return fmt.Sprintf("%s of a machine that is %s", o.rpc(), s)
		}
	}
	if o.Kind == KindReclaim && o.Phase != phaseInstructing && !o.Acked && !o.Alone && s == inventory.Draining {
		return "a voluntary drain without an ack"
	}
	return ""
}
