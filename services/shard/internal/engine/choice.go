package engine

import (
	"math"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// order is the order of the shelves for the question at hand, or nil. Where machines are left out for one cluster, or the
// market is of one domain, what is left of a shelf is no matter of the pools, and the shelves are looked at one by one.
func (c *coverer) order() *ranking {
	if c.domain != nil {
		return nil
	}
	return c.mk.order(c.active, c.shift, c.pool, c.stock.gen)
}

// choose is the choice of 13.3; its group is -1 if there is none, or none that is as good as limit where that is given.
func (c *coverer) choose(order *ranking, limit *chosen) chosen {
	best := chosen{group: -1}
	if order != nil && c.narrow.words {
		return c.chooseNarrow(order, limit)
	}
	if order == nil {
		for s := range c.mk.shelves {
			if c.opens(int32(s)) {
				c.consider(int32(s), c.amount(int32(s)), &best)
			}
		}
		return best
	}
	for i := 0; i < len(order.list); {
		o := &order.list[i]
		if limit != nil && compareRatio(o.cost, o.share, limit.cost, limit.share) > 0 {
			break
		}
		sup := c.amount(o.shelf)
		// What is left of the shelf costs at least o.cost: most shelves are passed over without a look at them.
		if !c.opens(o.shelf) || limit != nil && compareRatio(o.cost, c.share(sup), limit.cost, limit.share) > 0 {
			i++
			continue
		}
		if c.consider(o.shelf, sup, &best); best.group >= 0 {
			limit = &best
		}
		if !order.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return best
}

// opens reports whether a shelf of the market is among those of the Need.
func (c *coverer) opens(s int32) bool { return c.mask == nil || c.mask[s/64]&(1<<(s%64)) != 0 }

// share is how much of the rest a supply covers, weighted (13.2).
func (c *coverer) share(sup []int64) uint64 {
	share := uint64(0)
	for a, j := range c.active {
		share = addShare(share, min(sup[j], c.rest[j]), c.shift[a])
	}
	return share
}

// cheapest is the shelves by cost of what is left of them. Those of one domain are all looked at.
func (c *coverer) cheapest() *ranking {
	r := &c.mk.cheap[c.pool]
	if r.gen != c.stock.gen || c.domain != nil {
		r.start(c.mk, c.stock.gen)
	}
	return r
}

// chosen is a group with its cost and its share of the residual.
type chosen struct {
	group int32
	cost  int64
	share uint64
}

// consider puts the front of a shelf in place of what was best so far if it is better.
func (c *coverer) consider(s int32, sup []int64, best *chosen) {
	share := c.share(sup)
	if share == 0 || !coversAll(sup, c.unit) {
		return
	}
	g := c.front(s)
	if g < 0 {
		return
	}
	cost := c.mk.group(g).cost
	if best.group < 0 || c.better(g, cost, share, best.group, best.cost, best.share) {
		*best = chosen{g, cost, share}
	}
}

// look is the choice of 13.3 and the finisher of 13.4: the cheapest single machine that covers all of the rest. Of those
// that are worse than limit and dearer than dearest nothing needs to be known.
func (c *coverer) look(order *ranking, limit *chosen, dearest int64) (best chosen, end int32) {
	for _, j := range c.active {
		if c.rest[j] > c.mk.most[j] {
			return c.choose(order, limit), -1
		}
	}
	// One machine may do. It has the largest share there is, so that nothing dearer than it can be the better choice: a
	// walk by cost ends there.
	list := c.cheapest()
	if c.narrow.words {
		return c.lookNarrow(list, limit, dearest)
	}
	best, end = chosen{group: -1}, -1
	for i := 0; i < len(list.list); {
		s, least := list.list[i].shelf, list.list[i].cost
		if least > dearest {
			break
		}
		sup := c.amount(s)
		share, covers := c.part(sup)
		if share == 0 || !covers && limit != nil && compareRatio(least, share, limit.cost, limit.share) > 0 ||
			!coversAll(sup, c.unit) || !c.opens(s) {
			i++
			continue
		}
		if g := c.front(s); g >= 0 {
			cost := c.mk.group(g).cost
			if best.group < 0 || c.better(g, cost, share, best.group, best.cost, best.share) {
				best = chosen{g, cost, share}
				limit = &best
			}
			if covers && (end < 0 && cost <= dearest || cost < dearest || cost == dearest && c.first(g) < c.first(end)) {
				end, dearest = g, cost
			}
		}
		if !list.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return best, end
}

// part is the share of a supply, and whether it covers all of the rest.
func (c *coverer) part(sup []int64) (share uint64, covers bool) {
	covers = true
	for a, j := range c.active {
		x := sup[j]
		if r := c.rest[j]; x >= r {
			x = r
		} else {
			covers = false
		}
		share = addShare(share, x, c.shift[a])
	}
	return share, covers
}

// cheapestWith is the cheapest group, of those that cost at most limit, with a supply that covers need, or -1.
func (c *coverer) cheapestWith(limit int64) int32 {
	found, cost := int32(-1), limit
	order := c.cheapest()
	if c.narrow.words {
		return c.cheapestOver(order, four(c.need), limit)
	}
	for i := 0; i < len(order.list); {
		s, least := order.list[i].shelf, order.list[i].cost
		if least > cost {
			break
		}
		if !coversAll(c.amount(s), c.need) || !c.opens(s) {
			i++
			continue
		}
		if g := c.front(s); g >= 0 {
			if k := c.mk.group(g).cost; found < 0 && k <= cost || k < cost || k == cost && c.first(g) < c.first(found) {
				found, cost = g, k
			}
		}
		if !order.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return found
}

// better compares two groups by cost per share, and breaks ties as 13.3 says.
func (c *coverer) better(g int32, cost int64, share uint64, h int32, hCost int64, hShare uint64) bool {
	switch d := compareRatio(cost, share, hCost, hShare); {
	case d != 0:
		return d < 0
	case share != hShare:
		return share > hShare
	case cost != hCost:
		return cost < hCost
	}
	return c.first(g) < c.first(h)
}

// first is the order of the first machine of a group that this cover has not taken.
func (c *coverer) first(g int32) uint32 {
	c.tied = true
	n := c.used[g]
	if n == 0 && c.plainLists() {
		gr := c.mk.group(g)
		h, _ := c.stock.least(c.mk.shelves[c.mk.of[g]].slots[gr.from:gr.to], c.pool)
		return h.order
	}
	order := uint32(math.MaxUint32)
	c.machines(g, func(_ inventory.Index, at uint32) bool {
		if n == 0 {
			order = at
			return false
		}
		n--
		return true
	})
	return order
}

// bulk is how many machines of a group one step takes.
func (c *coverer) bulk(g int32, sup []int64) int32 {
	q := int64(math.MaxInt64)
	for _, j := range c.active {
		if r := c.rest[j]; r > 0 && sup[j] > 0 {
			q = min(q, r/sup[j])
		}
	}
	return int32(min(max(q, 1), int64(c.available(c.mk.shelves[c.mk.of[g]], c.mk.group(g), g))))
}
