package core

import (
	"math/bits"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// occupancyOf is the class of what a node holds, as the order in which machines are kept compares it (ENG-7.3). It changes
// seldom: classes are powers of four of the cost.
func occupancyOf(n *NodeContents) inventory.Occupancy {
	switch {
	case n == nil:
		return inventory.OccupancyUnknown
	case n.Protected > 0:
		return inventory.OccupancyProtected
	case n.Pods <= 0:
		return inventory.OccupancyEmpty
	}
	return inventory.OccupancyOf((bits.Len64(uint64(max(n.CostCents, 1))) - 1) / 2)
}

// occupied shows the engine what a node holds and which labels only the node has, and lets waiting releases be looked at again when
// that has changed (SHARD-18.8, 18.10).
func (c *machines) occupied(i inventory.Index, cl *cluster) {
	var held *NodeContents
	var labels []inventory.Label
	if n := cl.nodes[c.world.Inventory.ID(i)]; n != nil && n.contents != nil {
		held, labels = n.contents, n.contents.Labels
	}
	labelled := c.world.Inventory.SetNodeLabels(i, labels)
	if c.world.Inventory.SetOccupancy(i, occupancyOf(held)) || labelled {
		c.cycle.Redispatch = true
		c.trigger(triggerNode)
	}
}

// forgetContents drops what was said of nodes, for a session that does not say it.
func (c *machines) forgetContents(cl *cluster) {
	for _, id := range sortedKeys(cl.nodes) {
		if n := cl.nodes[id]; n.contents != nil {
			forgotten := *n
			forgotten.contents = nil
			cl.nodes[id] = &forgotten
			if i, ok := c.world.Inventory.Find(id); ok {
				c.occupied(i, cl)
			}
		}
	}
}

// contentsOf is what the node of a machine holds, or nil when that is not known.
func (c *machines) contentsOf(machine string, cl *cluster) *NodeContents {
	if n := cl.nodes[machine]; n != nil {
		return n.contents
	}
	return nil
}
