package cover

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// merge adds up the first n bulk steps and one machine of end by group.
func (c *Search) merge(into []pick, n int, end int32) []pick {
	add := func(p pick) {
		for i := range into {
			if into[i].Group == p.Group {
				into[i].N += p.N
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

// settle drops what is not needed from every complete candidate and keeps the best one (ENG-13.5).
func (c *Search) settle() {
	c.best = c.best[:0]
	var bestTotal Sum
	bestCount := int64(0)
	for e := 0; e <= len(c.ends); e++ {
		at, end := len(c.seq), int32(-1)
		if e < len(c.ends) {
			at, end = c.ends[e].at, c.ends[e].group
		}
		c.Picks = c.merge(c.Picks[:0], at, end)
		c.drop()
		n := int64(0)
		for _, p := range c.Picks {
			n += int64(p.N)
		}
		if d := c.total.Compare(bestTotal); e == 0 || d < 0 || d == 0 && n < bestCount {
			c.best = append(c.best[:0], c.Picks...)
			bestTotal, bestCount = c.total, n
		}
	}
	c.Picks = append(c.Picks[:0], c.best...)
}

// drop removes machines from list, dearest first, whose removal leaves the input covered. It leaves sum and total right.
func (c *Search) drop() {
	c.measure()
	slices.SortFunc(c.Picks, func(a, b pick) int { return cmp.Compare(c.mk.tier(b.Group).cost, c.mk.tier(a.Group).cost) })
	for from := 0; from < len(c.Picks); {
		to := from + 1
		for to < len(c.Picks) && c.mk.tier(c.Picks[to].Group).cost == c.mk.tier(c.Picks[from].Group).cost {
			to++
		}
		if to == from+1 {
			c.remove(&c.Picks[from], c.removable(c.Picks[from]))
		} else {
			c.dropTied(from, to)
		}
		from = to
	}
	c.Picks = slices.DeleteFunc(c.Picks, func(p pick) bool { return p.N == 0 })
}

// orderedPick is one machine of the list, by the order of its id.
type orderedPick struct {
	order uint32
	at    int
}

// dropTied is drop for groups of equal cost: their machines go one by one, larger id first.
func (c *Search) dropTied(from, to int) {
	c.ids = c.ids[:0]
	for at := from; at < to; at++ {
		n := c.Picks[at].N
		c.machines(c.Picks[at].Group, func(_ inventory.Index, order uint32) bool {
			c.ids = append(c.ids, orderedPick{order, at})
			n--
			return n > 0
		})
	}
	slices.SortFunc(c.ids, func(a, b orderedPick) int { return cmp.Compare(b.order, a.order) })
	for _, x := range c.ids {
		if p := &c.Picks[x.at]; c.removable(*p) > 0 {
			c.remove(p, 1)
		}
	}
}

// measure computes the surplus over the input and the cost of list.
func (c *Search) measure() {
	c.sum = c.sum[:0]
	for range c.active {
		c.sum = append(c.sum, Sum{})
	}
	c.total = Sum{}
	for _, p := range c.Picks {
		sup := c.amountOf(p.Group)
		for a, j := range c.active {
			c.sum[a].Add(uint64(sup[j]), uint64(p.N))
		}
		c.total.Add(uint64(c.mk.tier(p.Group).cost), uint64(p.N))
	}
	for a, j := range c.active {
		c.sum[a].Sub(uint64(c.input[j]), 1)
	}
}

// removable is how many machines of a pick the surplus allows to remove.
func (c *Search) removable(p pick) int32 {
	n := uint64(p.N)
	sup := c.amountOf(p.Group)
	for a, j := range c.active {
		if sup[j] > 0 {
			n = min(n, c.sum[a].div(uint64(sup[j])))
		}
	}
	return int32(n)
}

func (c *Search) remove(p *pick, n int32) {
	if n == 0 {
		return
	}
	sup := c.amountOf(p.Group)
	for a, j := range c.active {
		c.sum[a].Sub(uint64(sup[j]), uint64(n))
	}
	c.total.Sub(uint64(c.mk.tier(p.Group).cost), uint64(n))
	p.N -= n
}

// swapsMax is how often 13.6 swaps.
const swapsMax = 8

// swap is 13.6: as long as there is a cheaper machine in whose place a taken one can go, at most swapsMax times.
func (c *Search) swap() {
	for _, p := range c.seq {
		c.used[p.Group] = 0
	}
	for _, p := range c.Picks {
		c.used[p.Group] = p.N
	}
	c.drop() // sorts by cost, dearest first, and measures
	for range swapsMax {
		out, in := c.exchangeable()
		if out < 0 {
			return
		}
		for _, p := range c.Picks {
			c.used[p.Group] = 0
		}
		c.Picks[out].N--
		c.Picks = slices.DeleteFunc(append(c.Picks, pick{in, 1}), func(p pick) bool { return p.N == 0 })
		c.Picks = mergeTwins(c.Picks)
		c.drop()
		for _, p := range c.Picks {
			c.used[p.Group] = p.N
		}
	}
}

func mergeTwins(list []pick) []pick {
	last := list[len(list)-1]
	for i := range list[:len(list)-1] {
		if list[i].Group == last.Group {
			list[i].N += last.N
			return list[:len(list)-1]
		}
	}
	return list
}

// exchangeable finds the dearest taken machine that a cheaper free one can stand in for, and the cheapest such.
func (c *Search) exchangeable() (out int, in int32) {
	tied := false
	for at := range c.Picks {
		if at > 0 && c.mk.tier(c.Picks[at].Group).cost == c.mk.tier(c.Picks[at-1].Group).cost {
			tied = true
		}
	}
	if tied {
		c.sortByLast()
	}
	for at, p := range c.Picks {
		if in := c.standIn(p.Group); in >= 0 {
			return at, in
		}
	}
	return -1, -1
}

// sortByLast sorts the list by cost, dearest first, and groups of equal cost by their last machine, larger id first.
func (c *Search) sortByLast() {
	c.ids = c.ids[:0]
	for at, p := range c.Picks {
		n, last := p.N, uint32(0)
		c.machines(p.Group, func(_ inventory.Index, order uint32) bool {
			last = order
			n--
			return n > 0
		})
		c.ids = append(c.ids, orderedPick{last, at})
	}
	old := slices.Clone(c.Picks)
	slices.SortStableFunc(c.ids, func(a, b orderedPick) int {
		return cmp.Or(cmp.Compare(c.mk.tier(old[b.at].Group).cost, c.mk.tier(old[a.at].Group).cost), cmp.Compare(b.order, a.order))
	})
	for i, x := range c.ids {
		c.Picks[i] = old[x.at]
	}
}

// standIn returns the cheapest free group, cheaper than g, with which the input stays covered without one of g, or -1.
// Such a group contributes: what it has to have is more than nothing, as one of g could be dropped otherwise.
func (c *Search) standIn(g int32) int32 {
	cost, sup := c.mk.tier(g).cost, c.amountOf(g)
	if cost == 0 {
		return -1
	}
	c.need = append(c.need[:0], c.unit...)
	for a, j := range c.active {
		if !c.sum[a].AtLeast(uint64(sup[j])) {
			c.need[j] = max(c.need[j], sup[j]-int64(c.sum[a].Lo))
		}
	}
	return c.cheapestWith(cost - 1)
}
