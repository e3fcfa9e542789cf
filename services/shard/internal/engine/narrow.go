package engine

// Most clusters name few resources. With up to four, and amounts that leave room to add, the walks by cost of a cover read
// one flat table and keep what they compare with in registers.

// narrowDims is how many dimensions such a table has.
const narrowDims = 4

// narrowBits bounds the amounts: four shares of them can be added up.
const narrowBits = 60

// narrow is the question of a cover in four dimensions.
type narrow struct {
	fits  bool
	unit  [narrowDims]int64
	shift [narrowDims]uint8
}

// ask takes over the question that prepare has put.
func (n *narrow) ask(c *coverer, top int) {
	if n.fits = len(c.input) <= narrowDims && top <= narrowBits; !n.fits {
		return
	}
	n.unit, n.shift = four(c.unit), [narrowDims]uint8{}
	for a, j := range c.active {
		n.shift[j] = c.shift[a]
	}
}

func four(v []int64) (x [narrowDims]int64) {
	copy(x[:], v)
	return x
}

// lookNarrow is look where one machine may do. What covers the rest is found first: it has the largest share there is, so
// that of the others only those that are cheaper by share are of interest.
func (c *coverer) lookNarrow(list *ranking, limit *chosen, dearest int64) (best chosen, end int32) {
	best = chosen{group: -1}
	rest, unit, shift := four(c.rest), c.narrow.unit, c.narrow.shift
	both, all := rest, uint64(0)
	for j, u := range unit {
		both[j] = max(rest[j], u)
		all += uint64(rest[j]) << shift[j]
	}
	if end = c.cheapestOver(list, both, dearest); end >= 0 {
		best = chosen{end, c.mk.group(end).cost, all}
		dearest = best.cost
		if limit == nil || compareRatio(best.cost, best.share, limit.cost, limit.share) < 0 {
			limit = &best
		}
	}
	for i := 0; i < len(list.list); {
		o, sup := &list.list[i], &list.sup[i]
		if o.cost > dearest {
			break
		}
		share := uint64(min(sup[0], rest[0]))<<shift[0] + uint64(min(sup[1], rest[1]))<<shift[1] +
			uint64(min(sup[2], rest[2]))<<shift[2] + uint64(min(sup[3], rest[3]))<<shift[3]
		// The share may be less in whole units, and what is left of the shelf may cost more: most are passed over without a
		// look at them. Nothing with the whole share is before end.
		if share == 0 || share == all && end >= 0 || limit != nil && compareRatio(o.cost, share, limit.cost, limit.share) > 0 ||
			sup[0] < unit[0] || sup[1] < unit[1] || sup[2] < unit[2] || sup[3] < unit[3] || !c.opens(o.shelf) {
			i++
			continue
		}
		if c.consider(o.shelf, c.amount(o.shelf), &best); best.group >= 0 {
			if limit == nil || limit == &best || compareRatio(best.cost, best.share, limit.cost, limit.share) < 0 {
				limit = &best
			}
		}
		if !list.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return best, end
}

// cheapestOver is the cheapest group, of those that cost at most dearest, with a supply that covers want, or -1.
func (c *coverer) cheapestOver(list *ranking, want [narrowDims]int64, dearest int64) int32 {
	found := int32(-1)
	for i := 0; i < len(list.list); {
		sup := &list.sup[i]
		if list.list[i].cost > dearest {
			break
		}
		if sup[0] < want[0] || sup[1] < want[1] || sup[2] < want[2] || sup[3] < want[3] || !c.opens(list.list[i].shelf) ||
			c.whole && !coversAll(c.amount(list.list[i].shelf), want[:len(c.unit)]) {
			i++
			continue
		}
		if g := c.front(list.list[i].shelf); g >= 0 {
			if k := c.mk.group(g).cost; found < 0 && k <= dearest || k < dearest || k == dearest && c.first(g) < c.first(found) {
				found, dearest = g, k
			}
		}
		if !list.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return found
}
