package core

import (
	"slices"
)

// adminClear clears the pauses of a cluster, need, pool or provider.
func (c *orders) adminClear(e AdminAsked) {
	n := 0
	switch {
	case e.Pool != "":
		if c.pools.byKey[e.Pool] == nil {
			c.answer(e, CodeNotFound, "no such pool is out of stock", nil)
			return
		}
		n = 1
		if !e.Check {
			c.pools.clearPool(e.Pool)
		}
	case e.Provider != "":
		i := slices.IndexFunc(c.providers, func(p *provider) bool { return p.Name == e.Provider })
		if i < 0 {
			c.answer(e, CodeNotFound, "no such provider", nil)
			return
		}
		n = c.clearProvider(c.providers[i], e.Check)
	default:
		cl := c.clusters.get(e.Cluster)
		if cl == nil {
			c.answer(e, CodeNotFound, "no such cluster", nil)
			return
		}
		n = c.clearCluster(cl, e)
	}
	if !e.Check {
		c.cycle.Redispatch = true
		c.trigger(triggerAdmin)
	}
	c.answer(e, CodeOK, "", n)
}

func (c *orders) clearProvider(p *provider, check bool) (n int) {
	if p.Breaker.Open {
		n++
	}
	for _, id := range sortedKeys(c.guards.backoffs) {
		i, ok := c.world.Inventory.Find(id)
		if !ok || c.world.Inventory.Provider(i) != p.Name {
			continue
		}
		n++
		if !check {
			delete(c.guards.backoffs, id)
			c.guards.mark(i)
		}
	}
	if !check {
		p.Breaker = breaker{}
	}
	return n
}

func (c *orders) clearCluster(cl *cluster, e AdminAsked) (n int) {
	for _, fp := range sortedKeys(cl.blobs) {
		if e.Row.Fingerprint != "" && fp != e.Row.Fingerprint {
			continue
		}
		n++
		if !e.Check {
			delete(cl.blobs, fp)
			delete(cl.failed, fp)
		}
	}
	if e.Row.Fingerprint == "" && cl.Timeouts.Fails > 0 {
		n++
		if !e.Check {
			cl.Timeouts, cl.OneProbe = backoff{}, false
		}
	}
	cl.holds = true
	cl.changed()
	return n
}
