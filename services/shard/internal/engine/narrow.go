package engine

import (
	"math"
	"math/bits"
	"slices"
)

// Most clusters name few resources, and machines come in few supplies. With up to four dimensions, amounts that leave room to
// add, and a bit of one word for each shelf, a cover asks which shelves hold enough by looking up a word for each dimension.
// What it compares in walks is in registers, and what a processor would have to guess at each shelf is worked out instead.

// narrowDims is how many dimensions such a question has.
const narrowDims = 4

// narrowBits bounds the amounts: four shares of them can be added up.
const narrowBits = 60

// narrow is the question of a cover in four dimensions.
type narrow struct {
	fits  bool
	words bool // and the shelves of the market are bits of words
	dims  int
	unit  [narrowDims]int64
	shift [narrowDims]uint8
	may   uint64 // the shelves that the Need matches and that hold a unit
}

// ask takes over the question that prepare has put.
func (n *narrow) ask(c *coverer, top int) {
	if n.fits = len(c.input) <= narrowDims && top <= narrowBits; !n.fits {
		return
	}
	n.dims, n.unit, n.shift = len(c.input), four(c.unit), [narrowDims]uint8{}
	for a, j := range c.active {
		n.shift[j] = c.shift[a]
	}
}

// open finds the shelves of the market at hand that are for the Need. The market of a rack is made for one look at few shelves,
// which is not worth words.
func (n *narrow) open(c *coverer) {
	if n.words = n.fits && c.domain == nil && len(c.mk.shelves) <= 64; !n.words {
		return
	}
	n.may = c.mk.holding(&n.unit)
	if c.mask != nil {
		n.may &= c.mask[0]
	}
}

func four(v []int64) (x [narrowDims]int64) {
	copy(x[:], v)
	return x
}

// rungs says which shelves hold at least so much of one dimension.
type rungs struct {
	amounts []int64  // ascending, up to a power of two less one with the largest number
	shelves []uint64 // those that hold as much as that; one more for what none holds
}

// atLeast looks a want up without a guess.
func (l *rungs) atLeast(want int64) uint64 {
	at := 0
	for step := len(l.shelves) / 2; step > 0; step /= 2 {
		next := at + step
		if l.amounts[next-1] < want {
			at = next
		}
	}
	return l.shelves[at]
}

// holding is the shelves with a supply that covers want.
func (k *market) holding(want *[narrowDims]int64) uint64 {
	if len(k.rungs) == 0 {
		k.measureRungs()
	}
	all := ^uint64(0)
	for j := range k.rungs {
		all &= k.rungs[j].atLeast(want[j])
	}
	return all
}

func (k *market) measureRungs() {
	dims, n := len(k.f.dims), len(k.shelves)
	size := 1 << bits.Len(uint(n))
	amounts, shelves := make([]int64, dims*(size-1)), make([]uint64, dims*size)
	k.rungs = make([]rungs, dims)
	for j := range k.rungs {
		list := amounts[j*(size-1) : (j+1)*(size-1)]
		for s := range n {
			list[s] = k.sup[s*dims+j]
		}
		slices.Sort(list[:n])
		distinct := len(slices.Compact(list[:n]))
		width := 1 << bits.Len(uint(distinct))
		r := rungs{list[:width-1], shelves[j*size : j*size+width]}
		for i := range r.amounts {
			if i >= distinct {
				r.amounts[i] = math.MaxInt64
				continue
			}
			for s := range n {
				if k.sup[s*dims+j] >= r.amounts[i] {
					r.shelves[i] |= 1 << s
				}
			}
		}
		k.rungs[j] = r
	}
}

// shareOf is the share of a shelf's supply (13.2).
func (n *narrow) shareOf(k *market, s int32, rest *[narrowDims]int64) uint64 {
	at := int(s) * n.dims
	sup := k.sup[at : at+n.dims]
	share := uint64(0)
	for j := range sup {
		share += uint64(min(sup[j], rest[j&3])) << (n.shift[j&3] & 63)
	}
	return share
}

// dearer reports whether a÷x is more than b÷y.
func dearer(a int64, x uint64, b int64, y uint64) bool {
	ahi, alo := bits.Mul64(uint64(a), y)
	bhi, blo := bits.Mul64(uint64(b), x)
	_, borrow := bits.Sub64(blo, alo, 0)
	_, borrow = bits.Sub64(bhi, ahi, borrow)
	return borrow != 0
}

// bar is what a choice has to be as good as.
type bar struct {
	set   bool
	cost  int64
	share uint64
}

func barOf(limit *chosen) (b bar) {
	if limit != nil {
		b.raise(limit)
	}
	return b
}

// raise makes something the bar if it is better by share.
func (b *bar) raise(x *chosen) {
	if !b.set || dearer(b.cost, b.share, x.cost, x.share) {
		*b = bar{true, x.cost, x.share}
	}
}

func (b *bar) below(cost int64, share uint64) bool {
	return b.set && dearer(cost, share, b.cost, b.share)
}

// chooseNarrow is choose in an order by cost per unclipped share.
func (c *coverer) chooseNarrow(order *ranking, limit *chosen) chosen {
	best, b := chosen{group: -1}, barOf(limit)
	rest := four(c.rest)
	for i := 0; i < len(order.list); {
		o := &order.list[i]
		if b.below(o.cost, o.share) {
			break
		}
		if c.narrow.may>>o.shelf&1 == 0 || !c.weighShelf(order, i, &rest, &best, &b) {
			i++
		}
	}
	return best
}

// weighShelf puts what is left of a shelf in place of the best so far if it is better. It reports whether the shelf had to
// move back: another one is in its place.
func (c *coverer) weighShelf(order *ranking, i int, rest *[narrowDims]int64, best *chosen, b *bar) (moved bool) {
	o := &order.list[i]
	share := c.narrow.shareOf(c.mk, o.shelf, rest)
	// What is left of the shelf costs at least o.cost, and may have a smaller share in whole units: most are passed over without
	// a look at them.
	if share == 0 || b.below(o.cost, share) {
		return false
	}
	g, exact := c.frontAt(o)
	if g >= 0 {
		if c.whole {
			share = c.share(c.amount(o.shelf))
		}
		cost := c.mk.cost(o, g)
		if share > 0 && (best.group < 0 || c.better(g, cost, share, best.group, best.cost, best.share)) {
			*best = chosen{g, cost, share}
			b.raise(best)
		}
	}
	return !exact && order.settle(i, c.mk, c.pool)
}

// lookNarrow is look where one machine may do. What covers the rest is found first: it has the largest share there is, so
// that of the others only those that are cheaper by share are of interest.
func (c *coverer) lookNarrow(list *ranking, limit *chosen, dearest int64) (best chosen, end int32) {
	best, b := chosen{group: -1}, barOf(limit)
	rest := four(c.rest)
	covers := c.narrow.may & c.mk.holding(&rest)
	others := c.narrow.may
	if end = c.cheapestOf(list, covers, &rest, dearest); end >= 0 {
		all := uint64(0)
		for j, r := range rest {
			all += uint64(r) << c.narrow.shift[j]
		}
		best = chosen{end, c.mk.group(end).cost, all}
		b.raise(&best)
		dearest = best.cost
		others &^= covers // nothing with the whole share is before end
	}
	for i := 0; i < len(list.list); {
		o := &list.list[i]
		if o.cost > dearest {
			break
		}
		if others>>o.shelf&1 == 0 || !c.weighShelf(list, i, &rest, &best, &b) {
			i++
		}
	}
	return best, end
}

// cheapestOver is the cheapest group, of those that cost at most dearest, with a supply that covers want, or -1.
func (c *coverer) cheapestOver(list *ranking, want [narrowDims]int64, dearest int64) int32 {
	return c.cheapestOf(list, c.narrow.may&c.mk.holding(&want), &want, dearest)
}

// cheapestOf is the same among the shelves that hold want.
func (c *coverer) cheapestOf(list *ranking, among uint64, want *[narrowDims]int64, dearest int64) int32 {
	found := int32(-1)
	if among == 0 {
		return -1
	}
	for i := 0; i < len(list.list); {
		o := &list.list[i]
		if o.cost > dearest {
			break
		}
		if among>>o.shelf&1 == 0 || c.whole && !coversAll(c.amount(o.shelf), want[:len(c.unit)]) {
			i++
			continue
		}
		g, exact := c.frontAt(o)
		if g >= 0 {
			if k := c.mk.cost(o, g); found < 0 && k <= dearest || k < dearest || k == dearest && c.first(g) < c.first(found) {
				found, dearest = g, k
			}
		}
		if exact || !list.settle(i, c.mk, c.pool) {
			i++
		}
	}
	return found
}

// frontAt is front for a shelf at its place in an order. exact says that the place is about that group, as it mostly is.
func (c *coverer) frontAt(o *ranked) (g int32, exact bool) {
	if o.pile >= 0 && c.domain == nil && len(c.avoid) == 0 && c.stock.whole(o.pile, o.slots) && c.stock.piled[c.pool][o.pile] > c.used[o.group] {
		return o.group, true
	}
	return c.front(o.shelf), false
}

// cost is that of a group of the shelf at a place.
func (k *market) cost(o *ranked, g int32) int64 {
	if g == o.group {
		return o.cost
	}
	return k.group(g).cost
}
