package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

func (c *needLedger) init() {
	c.unmet, c.lost, c.shortfalls = map[string]*shortRows{}, map[string]int64{}, map[string]*shortfall{}
}

// advance prepares the ledgers for a plan.
func (c *needLedger) advance() {
	c.pools.wakePools()
	for _, name := range c.sharing.Recount(c.world, c.now) {
		c.publishHeadroom(name)
	}
}

// publishHeadroom gives the engine the headroom of a cluster's rows and keeps it for a restart. It reports whether it changed.
func (c *needLedger) publishHeadroom(name string) bool {
	keep := Persist{Bucket: BucketRoom, Key: name}
	if rows := c.sharing.Kept(name); len(rows) > 0 {
		keep.Value = codec.Marshal(KeptRoom{Cluster: name, Rows: rows})
	}
	c.emit(keep)
	room := c.world.Demand.SetHeadroom(name, func(n *demand.Need) int64 { return c.sharing.Headroom(name, n.RowKey()) })
	own := c.world.Demand.SetOwn(name, func(n *demand.Need) int64 { return c.sharing.Own(name, n.RowKey()) })
	return room || own
}

// learn takes what a cluster has learnt of its Nodes, and reports whether that is new.
func (c *needLedger) learn(name string, rooms []demand.Room) bool {
	var last *engine.Block
	if r := c.cycle.result; r != nil {
		last, _ = r.Block(name)
	}
	learnt, changed := c.sharing.Learn(c.world, last, func() bool { return c.world.Demand.SetRooms(name, rooms) })
	if changed {
		c.publishHeadroom(name)
	}
	return learnt
}

// plan feeds the ledgers from a new plan (SHARD-6.7).
func (c *needLedger) plan(r *engine.Result) {
	levels, room := c.sharing.Observe(c.world, r, c.policy)
	for _, name := range levels {
		c.clusters.ensure(name).facts = true
		c.trigger(triggerNode)
	}
	for _, name := range room {
		if c.publishHeadroom(name) {
			c.trigger(triggerNode)
		}
	}
	c.markUnplaced()
	c.observeVictims(r)
	c.listing = &listing{r: r, at: c.now, nominal: c.nominal(c.now), unmet: make(map[string]*shortRows, len(c.unmet))}
	if max(len(r.Short), c.rowsToList(r)) <= demand.PartRows {
		c.listShort()
		return
	}
	c.timers.add(c.now+1, timerListShort, "")
}

// markUnplaced marks for the engine which rows the scheduler cannot place although they are covered; their verdicts say so
// (ENG-11.14).
func (c *needLedger) markUnplaced() {
	names := c.sharing.ClustersStuck()
	for _, d := range c.world.Demand.Clusters() {
		if d.Unplaced != nil {
			names = append(names, d.Name)
		}
	}
	slices.Sort(names)
	c.unplaced = 0
	for _, name := range slices.Compact(names) {
		c.world.Demand.SetUnplaced(name, func(n *demand.Need) bool {
			is := c.sharing.Unplaced(name, n.RowKey(), c.now, c.policy)
			if is {
				c.unplaced++
			}
			return is
		})
	}
}

// leftShortAt is the event that left a need short: its arrival, the change of its demand, or the loss of a machine
// (SHARD-27.2).
func (c *needLedger) leftShortAt(name string, n *demand.Need) int64 {
	at := n.Arrival
	cl := c.clusters.get(name)
	if cl != nil && cl.Disposition == DispositionAccepted && cl.DispAt > at {
		at = cl.DispAt
	}
	if lost := c.lost[name]; lost > at {
		at = lost
	}
	return at
}

func (c *needLedger) lostMachine(name string) { c.lost[name] = c.now }
