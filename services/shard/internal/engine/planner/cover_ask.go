package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ask sets everything of a Need's question but where: it lacks rest.
func (c *coverer) ask(free *freePool, cl *clusterState, w *needState, k inventory.Pool, rest []int64) {
	c.free, c.pool, c.domain, c.mask = free, k, nil, nil
	c.avoidFor(cl, k, nil)
	c.unit = append(c.unit[:0], cl.unit(w)...)
	c.input = append(c.input[:0], rest...)
	c.whole, c.perHost = w.bits&wMany != 0 && !slices.Equal(c.unit, c.input), cl.perHost(w)
}

// everywhere lets the cover choose from all domains.
func (c *coverer) everywhere(cl *clusterState, w *needState) {
	c.mk, c.mask = cl.cat.indexFor(cl.matcher(w), cl.f, w.bucket)
}

// avoidFor collects the free machines that the cluster must not take. only restricts them, for instance to a domain; nil means all.
func (c *coverer) avoidFor(cl *clusterState, k inventory.Pool, only func(i inventory.Index) bool) {
	c.avoid, c.spare = c.avoid[:0], c.spare[:0]
	for _, i := range c.free.inv.Avoided(cl.d.ID) {
		r := c.free.inv.Row(i)
		if (k == inventory.IdlePool) != (r.Seen() == inventory.Idle) || c.free.isTaken(i) || only != nil && !only(i) {
			continue
		}
		c.spare = append(c.spare, i)
		at := slices.IndexFunc(c.avoid, func(s slot) bool { return s.class == r.Class })
		if at < 0 {
			at = len(c.avoid)
			c.avoid = append(c.avoid, slot{class: r.Class})
		}
		c.avoid[at].n++
	}
}
