package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"

// roll adds the effects of a step to the rolling hash. What readers see, samples and alarms follow from the rest.
func (c *Core) roll() {
	c.steps++
	c.rolling = c.rolling.i64(c.now)
	c.rollEffects()
}

// rollEffects adds those effects of a step that were not added yet.
func (c *Core) rollEffects() {
	h := c.rolling
	for _, e := range c.eff[c.rolled:] {
		switch e.(type) {
		case *Publish, Sample, AdminAnswer, CheckpointTaken, *ComparePlan, WakeAt:
			continue
		default:
			h = h.byte(byte(e.effect())).bytes(codec.Marshal(e))
		}
	}
	c.rolling, c.rolled = h, len(c.eff)
}

// Digest is a 64-bit hash of everything the core has decided since it started, and of the counters of its state. It is
// recorded every so many events, and a replay must give the same (SHARD-4.9). It costs the same whatever the size of the
// fleet; StateDigest looks at the whole state.
func (c *Core) Digest() uint64 {
	return c.rolling.i64(c.steps).i64(c.commands.opCount).i64(c.mutations).i64(c.records).i64(c.cycle.N).i64(c.timers.seq).
		i64(int64(c.world.Inventory.Len())).i64(int64(c.world.Demand.Rows())).i64(int64(len(c.ops.byID))).sum()
}

// StateDigest is a hash of the canonical state, for tests, simulation and checkpoints.
func (c *Core) StateDigest() uint64 { return newHash().bytes(codec.Marshal(c.live().Snapshot())).sum() }

// Steps is how many events the core has applied.
func (c *Core) Steps() int64 { return c.steps }
