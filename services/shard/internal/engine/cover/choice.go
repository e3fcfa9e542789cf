package cover

import (
	"cmp"
	"math"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// chosen is a group with its cost and its share of the residual.
type chosen struct {
	group int32
	cost  int64
	share uint64
	tied  bool // with another one: the smaller id decided
}

// look is the choice of 13.3, and the finisher of 13.4: the cheapest single machine that covers all of the rest. A group is -1 if there is none.
func (c *Search) look() (best, end chosen) {
	best, end = chosen{group: -1}, chosen{group: -1}
	for _, s := range c.mk.byCost {
		if end.group >= 0 && c.mk.costs[s] > end.cost {
			break // end has the largest share there is
		}
		sup := c.amount(s)
		share, covers := c.part(sup)
		least := c.mk.costs[s]
		mayBest := best.group < 0 || compareRatio(least, share, best.cost, best.share) <= 0
		mayEnd := covers && (end.group < 0 || least <= end.cost)
		if share == 0 || !mayBest && !mayEnd || !match.Covers(sup, c.unit) {
			continue
		}
		g := c.front(s)
		if g < 0 {
			continue
		}
		x := chosen{group: g, cost: c.mk.tier(g).cost, share: share}
		best = c.better(x, best, compareChoice)
		if covers {
			end = c.better(x, end, compareCost)
		}
	}
	return best, end
}

// better is x or, if it is as good or better, best. Between equals the smaller id decides.
func (c *Search) better(x, best chosen, compare func(x, y chosen) int) chosen {
	if best.group < 0 {
		return x
	}
	switch d := compare(x, best); {
	case d < 0:
		return x
	case d == 0:
		if c.first(x.group) < c.first(best.group) {
			best = x
		}
		best.tied = true
	}
	return best
}

// compareChoice compares by cost per share, and then as 13.3 says.
func compareChoice(x, y chosen) int {
	return cmp.Or(compareRatio(x.cost, x.share, y.cost, y.share), cmp.Compare(y.share, x.share), cmp.Compare(x.cost, y.cost))
}

func compareCost(x, y chosen) int { return cmp.Compare(x.cost, y.cost) }

// part is the share of a supply (ENG-13.2), and whether it covers all of the rest.
func (c *Search) part(sup []int64) (share uint64, covers bool) {
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
func (c *Search) cheapestWith(limit int64) int32 {
	found, cost := int32(-1), limit
	for _, s := range c.mk.byCost {
		if c.mk.costs[s] > cost {
			break
		}
		if !match.Covers(c.amount(s), c.need) {
			continue
		}
		if g := c.front(s); g >= 0 {
			if k := c.mk.tier(g).cost; found < 0 && k <= cost || k < cost || k == cost && c.first(g) < c.first(found) {
				found, cost = g, k
			}
		}
	}
	return found
}

// first is the order of the first machine of a group that this cover has not taken.
func (c *Search) first(g int32) uint32 {
	n := c.used[g]
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
func (c *Search) bulk(g int32, sup []int64) int32 {
	q := int64(math.MaxInt64)
	for _, j := range c.active {
		if r := c.rest[j]; r > 0 && sup[j] > 0 {
			q = min(q, r/sup[j])
		}
	}
	return int32(min(max(q, 1), int64(c.available(&c.mk.groups[c.mk.of[g]], c.mk.tier(g), g))))
}
