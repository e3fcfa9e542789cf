package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func (c *poolSet) init() { c.byKey = map[string]*pool{} }

// poolFailed withholds a pool after a Create of it was refused or failed, first for 30 s and then longer.
func (c *poolSet) poolFailed(o *operation) {
	i, ok := c.world.Inventory.Find(o.Machine)
	if !ok {
		return
	}
	m := c.world.Inventory.Machine(i)
	key := PoolKey(m.Provider, m.InstanceType, m.Zone, m.CapacityType)
	p := c.byKey[key]
	if p == nil {
		p = &pool{Key: key, Provider: m.Provider, Type: m.InstanceType, Zone: m.Zone, Class: m.CapacityType}
		c.byKey[key] = p
		at, _ := slices.BinarySearchFunc(c.order, key, func(p *pool, k string) int { return strings.Compare(p.Key, k) })
		c.order = slices.Insert(c.order, at, p)
	}
	p.Backoff.fail(rampPool, c.now, key)
	p.Probe = ""
	c.timers.add(p.Backoff.Until, timerDispatch, "")
	c.record(Record{Type: RecordBackoffChanged, Provider: m.Provider, Detail: fmt.Sprintf("pool %s is out of stock (attempt %d)", key, p.Backoff.Fails)})
	c.markPool(p)
}

// markPool shows the pool's machines to the engine as withheld; after the pause all but one probe.
func (c *poolSet) markPool(p *pool) {
	for _, i := range c.inPool(p) {
		if c.world.Inventory.State(i) == inventory.Speculative {
			c.markPooled(p, i)
		}
	}
	c.trigger(triggerExpiry)
}

func (c *poolSet) markPooled(p *pool, i inventory.Index) {
	inv := c.world.Inventory
	if p.Backoff.Until <= c.now && (p.Probe == "" || p.Probe == inv.ID(i)) {
		p.Probe = inv.ID(i)
		inv.Lift(i, inventory.WithheldStockOut, "")
		return
	}
	inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldStockOut})
}

// inPool lists the machines of a pool by id. Each class is looked at once, each machine only for its class.
func (c *poolSet) inPool(p *pool) []inventory.Index {
	inv := c.world.Inventory
	verdict := make([]uint8, inv.Classes()) // 0: not looked at
	var out []inventory.Index
	for k := range inv.Bound() {
		i := inventory.Index(k)
		if !inv.Live(i) {
			continue
		}
		class := inv.Row(i).Class
		if verdict[class] == 0 {
			verdict[class] = 1
			if m := inv.Machine(i); p.holds(&m) {
				verdict[class] = 2
			}
		}
		if verdict[class] == 2 {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b inventory.Index) int { return cmp.Compare(inv.Row(a).Order, inv.Row(b).Order) })
	return out
}

// wakePools lets one probe through for each pool whose pause is over.
func (c *poolSet) wakePools() {
	for _, p := range c.order {
		if p.Probe == "" && p.Backoff.Until <= c.now {
			c.markPool(p)
		}
	}
}

// clearPool ends the memory of a pool.
func (c *poolSet) clearPool(key string) bool {
	p := c.byKey[key]
	if p == nil {
		return false
	}
	delete(c.byKey, key)
	c.order = slices.DeleteFunc(c.order, func(x *pool) bool { return x == p })
	for _, i := range c.inPool(p) {
		c.world.Inventory.Lift(i, inventory.WithheldStockOut, "")
	}
	c.record(Record{Type: RecordBackoffChanged, Provider: p.Provider, Detail: "pool " + key + " is in stock again"})
	c.trigger(triggerExpiry)
	return true
}

// created ends the memory of the pool of a slot that became a host.
func (c *poolSet) created(m inventory.Machine) {
	if len(c.order) > 0 {
		c.clearPool(PoolKey(m.Provider, m.InstanceType, m.Zone, m.CapacityType))
	}
}

// removed lets another machine be the probe.
func (c *poolSet) removed(id string) {
	for _, p := range c.order {
		if p.Probe == id {
			p.Probe = ""
		}
	}
}

// stateChanged follows a machine into and out of a pool: only slots are withheld.
func (c *poolSet) stateChanged(i inventory.Index, to inventory.State) {
	if len(c.order) == 0 {
		return
	}
	inv := c.world.Inventory
	m := inv.Machine(i)
	p := c.byKey[PoolKey(m.Provider, m.InstanceType, m.Zone, m.CapacityType)]
	if p == nil {
		return
	}
	switch to {
	case inventory.Speculative:
		c.markPooled(p, i)
	default:
		inv.Lift(i, inventory.WithheldStockOut, "")
	}
}
