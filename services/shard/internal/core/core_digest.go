package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

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
			e, rules := withoutRules(e)
			if h = h.byte(byte(e.effect())).bytes(codec.Marshal(e)); rules > 0 {
				h = h.i64(rules)
			}
		}
	}
	c.rolling, c.rolled = h, len(c.eff)
}

// withoutRules is an effect without the requirements of its row, and how many values those have. They are the row's, which the demand has, and may be megabytes: each of
// fifty boot requests for such a row took 40 ms to hash.
func withoutRules(e Effect) (out Effect, values int64) {
	var rules []demand.Requirement
	switch x := e.(type) {
	case PullBootstrap:
		rules, x.Requirements = x.Requirements, nil
		e = x
	case SendHint:
		rules, x.Requirements = x.Requirements, nil
		e = x
	}
	for _, r := range rules {
		values += 1 + int64(len(r.Values))
	}
	return e, values
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
