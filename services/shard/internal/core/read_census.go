package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

const withheldReasons = inventory.WithheldReasons

// WithheldReasons names the reasons of Census.Withheld, by position; that of 0 is empty.
func WithheldReasons() []string {
	out := make([]string, withheldReasons)
	for r := range out {
		out[r] = withheldText(inventory.WithheldReason(r))
	}
	return out
}

// Count adds at most n machines from a position on and returns the position to continue from, or -1 at the end. The first
// position is 0.
func (c *reader) Count(s *Census, from, n int) (next int) {
	if s.Machines == nil {
		s.Machines, s.Spend, s.Clusters = map[CensusKey]int{}, map[CensusKey]int64{}, map[string]int64{}
	}
	inv := c.world.Inventory
	end := min(from+n, inv.Bound())
	for i := from; i < end; i++ {
		if at := inventory.Index(i); inv.Live(at) && !inv.Foreign(at) {
			c.countMachine(s, at, inv.Row(at))
		}
	}
	if end == inv.Bound() {
		return -1
	}
	return end
}

// CostPerHour is what the owned machines that exist cost, in millionths of a dollar.
func (c *reader) CostPerHour() int64 { return c.world.Inventory.Billed() }

func (c *reader) countMachine(s *Census, i inventory.Index, r *inventory.Row) {
	inv, state := c.world.Inventory, r.State()
	key := CensusKey{State: state, Capacity: inv.CapacityType(i)}
	if inv.Exists(i) {
		s.Spend[key] += inv.Price(i)
		cluster := inv.Cluster(i)
		if p, ok := inv.Promise(i); ok && cluster == "" {
			cluster = p.Cluster
		}
		s.Clusters[cluster] += inv.Price(i)
	}
	switch {
	case r.Promised() && state != inventory.Draining:
		p, _ := inv.Promise(i)
		key.Bucket = demand.BucketOf(p.For.Interruption)
	case r.Attribution != 0:
		key.Bucket = demand.BucketOf(inv.AttributionRow(r.Attribution).Interruption)
	}
	s.Machines[key]++
	if inv.Stuck(i) {
		s.Stuck[state]++
	}
	if state == inventory.Failed {
		if inv.Cluster(i) != "" {
			s.Failed[1]++
		} else {
			s.Failed[0]++
		}
	}
	if some, all := r.Marked(); some || all {
		for _, w := range inv.Withheld(i) {
			s.Withheld[w.Reason]++
		}
	}
	if state == inventory.Configured && r.Readiness() != inventory.ReadyOnce && c.unjoined(i) {
		s.Unjoined++
	}
}

// unjoined reports whether a Configured machine has had no ready node for too long in a cluster that reports nodes
// (SHARD-18.7).
func (c *reader) unjoined(i inventory.Index) bool {
	cl := c.clusters.get(c.world.Inventory.Cluster(i))
	return cl != nil && cl.Reporting && c.now-c.world.Inventory.Since(i) >= unjoinedAfter
}

// InventoryVersion grows with every change of the inventory.
func (c *reader) InventoryVersion() uint64 { return c.world.Inventory.Version() }
