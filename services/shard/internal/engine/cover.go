package engine

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// coverer carries out the cover rule (ENG-13.1 to 13.7). It works with counts per group; which machines these are is
// found when the answer is applied: always those with the smallest ids, so a count says it all.
type coverer struct {
	stock *stock

	// The question.
	mk       *market
	mask     []uint64 // the shelves of mk that the Need matches, or nil for all
	pool     inventory.Pool
	domain   *inventory.Domain // of a market of one domain, else nil
	left     *topState         // what is taken of it
	domainAt int32
	byClass  bool              // the lists of classes are those of the domain
	avoid    []slot            // free machines that this cluster must not take, by class
	spare    []inventory.Index // these machines
	unit     []int64
	input    []int64 // the residual at the start

	// The work.
	rest   []int64
	need   []int64 // what one machine must have
	active []int   // dimensions that are positive in input
	shift  []uint8 // of the weight of each of them
	used   []int32 // by group: tentatively taken
	seq    []pick  // bulk steps in order
	ends   []ending
	list   []pick // the answer
	best   []pick
	sum    []sum128 // by active dimension: supply of list, less input
	total  sum128
	ids    []orderedPick
	walks  []walker
}

// pick is n machines of a group.
type pick struct{ group, n int32 }

// ending is a finish of 13.4: what the first at bulk steps took, and one machine of a group.
type ending struct {
	at    int
	group int32
}

// available is how many machines of a group are free and not yet taken by this cover.
func (c *coverer) available(sh *shelf, gr *group, g int32) int32 {
	n := -c.used[g]
	for i := gr.from; i < gr.to; i++ {
		s := &sh.slots[i]
		if c.domain != nil {
			n += s.n
		} else {
			n += c.stock.free[c.pool][s.class]
		}
		for _, a := range c.avoid {
			if a.class == s.class {
				n -= a.n
			}
		}
	}
	return n
}

// front returns the cheapest group of a shelf with something left, or -1.
func (c *coverer) front(s int32) int32 {
	sh, base := c.mk.shelves[s], c.mk.base[s]
	if sh.gen != c.stock.gen {
		sh.gen, sh.head = c.stock.gen, [2]int32{}
	}
	head := &sh.head[c.pool]
	for g := *head; int(g) < len(sh.groups); g++ {
		if c.available(sh, &sh.groups[g], base+g) > 0 {
			return base + g
		}
		if g == *head && c.domain == nil && c.used[base+g] == 0 && len(c.avoid) == 0 {
			*head++ // free machines only become fewer while Needs take turns
		}
	}
	return -1
}

// cover answers for the residual input. The answer is in list: groups and counts, in no order. It reports whether the
// input is covered; if not, everything that contributes is in the answer (13.7).
func (c *coverer) cover() bool {
	c.prepare()
	order := c.order()
	for {
		best, end := c.look(order, nil, math.MaxInt64)
		g := best.group
		if g < 0 {
			break
		}
		if end >= 0 {
			c.ends = append(c.ends, ending{len(c.seq), end})
		}
		sup := c.mk.supplyOf(g)
		q := c.bulk(g, sup)
		c.used[g] += q
		c.seq = append(c.seq, pick{g, q})
		left := false
		for _, j := range c.active {
			hi, lo := bits.Mul64(uint64(sup[j]), uint64(q))
			if hi != 0 || lo >= uint64(c.rest[j]) {
				c.rest[j] = 0
			} else {
				c.rest[j] -= int64(lo)
				left = true
			}
		}
		if !left {
			break
		}
	}
	covered := zero(c.rest)
	if !covered {
		c.list = c.merge(c.list[:0], len(c.seq), -1)
	} else {
		c.settle()
		c.swap()
	}
	for _, p := range c.seq {
		c.used[p.group] = 0
	}
	for _, p := range c.list {
		c.used[p.group] = 0
	}
	return covered
}

func (c *coverer) prepare() {
	c.fitUsed()
	c.seq, c.ends, c.list = c.seq[:0], c.ends[:0], c.list[:0]
	c.rest = append(c.rest[:0], c.input...)
	c.active, c.shift = c.active[:0], c.shift[:0]
	top := 0
	for j, x := range c.input {
		if x > 0 {
			c.active = append(c.active, j)
			top = max(top, bits.Len64(uint64(x)))
		}
	}
	for _, j := range c.active {
		c.shift = append(c.shift, uint8(top-bits.Len64(uint64(c.input[j]))))
	}
}

// fitUsed makes room to count what is taken of each group.
func (c *coverer) fitUsed() {
	if n := len(c.mk.of); n > len(c.used) {
		c.used = append(c.used, make([]int32, n-len(c.used))...)
	}
}

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
	if order == nil {
		for s := range c.mk.shelves {
			if c.opens(int32(s)) {
				c.consider(int32(s), c.mk.supply(int32(s)), &best)
			}
		}
		return best
	}
	for i := 0; i < len(order.list); {
		o := &order.list[i]
		if limit != nil && compareRatio(o.cost, o.share, limit.cost, limit.share) > 0 {
			break
		}
		sup := c.mk.supply(o.shelf)
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
	best, end = chosen{group: -1}, -1
	list := c.cheapest()
	for i := 0; i < len(list.list); {
		s, least := list.list[i].shelf, list.list[i].cost
		if least > dearest {
			break
		}
		sup := c.mk.supply(s)
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
	for i := 0; i < len(order.list); {
		s, least := order.list[i].shelf, order.list[i].cost
		if least > cost {
			break
		}
		if !coversAll(c.mk.supply(s), c.need) || !c.opens(s) {
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
func (c *coverer) bulk(g int32, sup []int64) int32 {
	q := int64(math.MaxInt64)
	for _, j := range c.active {
		if r := c.rest[j]; r > 0 && sup[j] > 0 {
			q = min(q, r/sup[j])
		}
	}
	return int32(min(max(q, 1), int64(c.available(c.mk.shelves[c.mk.of[g]], c.mk.group(g), g))))
}

// merge adds up the first n bulk steps and one machine of end by group.
func (c *coverer) merge(into []pick, n int, end int32) []pick {
	add := func(p pick) {
		for i := range into {
			if into[i].group == p.group {
				into[i].n += p.n
				return
			}
		}
		into = append(into, p)
	}
	for _, p := range c.seq[:n] {
		add(p)
	}
	if end >= 0 {
		add(pick{end, 1})
	}
	return into
}

// settle drops what is not needed from every complete candidate and keeps the best one (13.5).
func (c *coverer) settle() {
	c.best = c.best[:0]
	var bestTotal sum128
	bestCount := int64(0)
	for e := 0; e <= len(c.ends); e++ {
		at, end := len(c.seq), int32(-1)
		if e < len(c.ends) {
			at, end = c.ends[e].at, c.ends[e].group
		}
		c.list = c.merge(c.list[:0], at, end)
		c.drop()
		n := int64(0)
		for _, p := range c.list {
			n += int64(p.n)
		}
		if d := c.total.compare(bestTotal); e == 0 || d < 0 || d == 0 && n < bestCount {
			c.best = append(c.best[:0], c.list...)
			bestTotal, bestCount = c.total, n
		}
	}
	c.list = append(c.list[:0], c.best...)
}

// drop removes machines from list, dearest first, whose removal leaves the input covered. It leaves sum and total right.
func (c *coverer) drop() {
	c.measure()
	slices.SortFunc(c.list, func(a, b pick) int { return cmp.Compare(c.mk.group(b.group).cost, c.mk.group(a.group).cost) })
	for from := 0; from < len(c.list); {
		to := from + 1
		for to < len(c.list) && c.mk.group(c.list[to].group).cost == c.mk.group(c.list[from].group).cost {
			to++
		}
		if to == from+1 {
			c.remove(&c.list[from], c.removable(c.list[from]))
		} else {
			c.dropTied(from, to)
		}
		from = to
	}
	c.list = slices.DeleteFunc(c.list, func(p pick) bool { return p.n == 0 })
}

// orderedPick is one machine of the list, by the order of its id.
type orderedPick struct {
	order uint32
	at    int
}

// dropTied is drop for groups of equal cost: their machines go one by one, larger id first.
func (c *coverer) dropTied(from, to int) {
	c.ids = c.ids[:0]
	for at := from; at < to; at++ {
		n := c.list[at].n
		c.machines(c.list[at].group, func(_ inventory.Index, order uint32) bool {
			c.ids = append(c.ids, orderedPick{order, at})
			n--
			return n > 0
		})
	}
	slices.SortFunc(c.ids, func(a, b orderedPick) int { return cmp.Compare(b.order, a.order) })
	for _, x := range c.ids {
		if p := &c.list[x.at]; c.removable(*p) > 0 {
			c.remove(p, 1)
		}
	}
}

// measure computes the surplus over the input and the cost of list.
func (c *coverer) measure() {
	c.sum = c.sum[:0]
	for range c.active {
		c.sum = append(c.sum, sum128{})
	}
	c.total = sum128{}
	for _, p := range c.list {
		sup := c.mk.supplyOf(p.group)
		for a, j := range c.active {
			c.sum[a].add(uint64(sup[j]), uint64(p.n))
		}
		c.total.add(uint64(c.mk.group(p.group).cost), uint64(p.n))
	}
	for a, j := range c.active {
		c.sum[a].sub(uint64(c.input[j]), 1)
	}
}

// removable is how many machines of a pick the surplus allows to remove.
func (c *coverer) removable(p pick) int32 {
	n := uint64(p.n)
	sup := c.mk.supplyOf(p.group)
	for a, j := range c.active {
		if sup[j] > 0 {
			n = min(n, c.sum[a].div(uint64(sup[j])))
		}
	}
	return int32(n)
}

func (c *coverer) remove(p *pick, n int32) {
	if n == 0 {
		return
	}
	sup := c.mk.supplyOf(p.group)
	for a, j := range c.active {
		c.sum[a].sub(uint64(sup[j]), uint64(n))
	}
	c.total.sub(uint64(c.mk.group(p.group).cost), uint64(n))
	p.n -= n
}

// swap is 13.6: as long as there is a cheaper machine in whose place a taken one can go.
func (c *coverer) swap() {
	for _, p := range c.seq {
		c.used[p.group] = 0
	}
	for _, p := range c.list {
		c.used[p.group] = p.n
	}
	for range 8 {
		c.drop() // sorts by cost, dearest first, and measures
		out, in := c.exchangeable()
		if out < 0 {
			return
		}
		for _, p := range c.list {
			c.used[p.group] = 0
		}
		c.list[out].n--
		c.list = slices.DeleteFunc(append(c.list, pick{in, 1}), func(p pick) bool { return p.n == 0 })
		c.list = mergeTwins(c.list)
		c.drop()
		for _, p := range c.list {
			c.used[p.group] = p.n
		}
	}
}

func mergeTwins(list []pick) []pick {
	last := list[len(list)-1]
	for i := range list[:len(list)-1] {
		if list[i].group == last.group {
			list[i].n += last.n
			return list[:len(list)-1]
		}
	}
	return list
}

// exchangeable finds the dearest taken machine that a cheaper free one can stand in for, and the cheapest such.
func (c *coverer) exchangeable() (out int, in int32) {
	tied := false
	for at := range c.list {
		if at > 0 && c.mk.group(c.list[at].group).cost == c.mk.group(c.list[at-1].group).cost {
			tied = true
		}
	}
	if tied {
		c.sortByLast()
	}
	for at, p := range c.list {
		if in := c.standIn(p.group); in >= 0 {
			return at, in
		}
	}
	return -1, -1
}

// sortByLast sorts the list by cost, dearest first, and groups of equal cost by their last machine, larger id first.
func (c *coverer) sortByLast() {
	c.ids = c.ids[:0]
	for at, p := range c.list {
		n, last := p.n, uint32(0)
		c.machines(p.group, func(_ inventory.Index, order uint32) bool {
			last = order
			n--
			return n > 0
		})
		c.ids = append(c.ids, orderedPick{last, at})
	}
	old := slices.Clone(c.list)
	slices.SortStableFunc(c.ids, func(a, b orderedPick) int {
		return cmp.Or(cmp.Compare(c.mk.group(old[b.at].group).cost, c.mk.group(old[a.at].group).cost), cmp.Compare(b.order, a.order))
	})
	for i, x := range c.ids {
		c.list[i] = old[x.at]
	}
}

// standIn returns the cheapest free group, cheaper than g, with which the input stays covered without one of g, or -1.
// Such a group contributes: what it has to have is more than nothing, as one of g could be dropped otherwise.
func (c *coverer) standIn(g int32) int32 {
	cost, sup := c.mk.group(g).cost, c.mk.supplyOf(g)
	if cost == 0 {
		return -1
	}
	c.need = append(c.need[:0], c.unit...)
	for a, j := range c.active {
		if !c.sum[a].atLeast(uint64(sup[j])) {
			c.need[j] = max(c.need[j], sup[j]-int64(c.sum[a].lo))
		}
	}
	return c.cheapestWith(cost - 1)
}

// sum128 is a sum or difference of products that never overflows and is never negative.
type sum128 struct{ hi, lo uint64 }

func (s *sum128) add(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

func (s *sum128) sub(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, lo, 0)
	s.hi -= hi + borrow
}

func (s sum128) compare(t sum128) int {
	return cmp.Or(cmp.Compare(s.hi, t.hi), cmp.Compare(s.lo, t.lo))
}

func (s sum128) atLeast(x uint64) bool { return s.hi > 0 || s.lo >= x }

// div is s ÷ d, at most the largest uint64.
func (s sum128) div(d uint64) uint64 {
	if s.hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(s.hi, s.lo, d)
	return q
}
