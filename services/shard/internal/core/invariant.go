package core

// checkCheap asserts the invariants that cost little enough for production (SHARD-4.10).
func (c *Core) checkCheap() {
	for _, k := range allKinds {
		if c.lanes.used[k] < 0 || c.ops.open[k] < 0 {
			panic("core: more slots given back than taken: " + k.String())
		}
	}
	for _, p := range c.providers {
		if p.inflight < 0 || p.gets < 0 {
			panic("core: more calls ended than began at " + p.name)
		}
	}
}
