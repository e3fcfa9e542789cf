package engine

import "math/bits"

// A cover of few dimensions and usual amounts is finished without wide numbers: what the bulk steps have and cost is added up
// once, and a candidate of which nothing can be dropped needs no list of its own.

// running is what some machines have and cost.
type running struct {
	have  [narrowDims]int64 // in the active dimensions
	total int64
	n     int64
}

// runningBits bounds every such sum.
const runningBits = 62

func (t *running) add(amount [narrowDims]int64, cost, n int64) {
	for j, x := range amount {
		t.have[j] += x * n
	}
	t.total += cost * n
	t.n += n
}

// weighed is what one machine of a group has, in the active dimensions, and costs.
type weighed struct {
	amount [narrowDims]int64
	cost   int64
}

func (c *coverer) weigh(g int32) (x weighed) {
	sup := c.amountOf(g)
	for _, j := range c.active {
		x.amount[j] = sup[j]
	}
	x.cost = c.mk.group(g).cost
	return x
}

func (x *weighed) size() (bits uint64) {
	for _, a := range x.amount {
		bits |= uint64(a)
	}
	return bits | uint64(x.cost)
}

// within reports whether one machine can be dropped from a surplus.
func (x *weighed) within(surplus *[narrowDims]int64) bool {
	return x.amount[0] <= surplus[0] && x.amount[1] <= surplus[1] && x.amount[2] <= surplus[2] && x.amount[3] <= surplus[3]
}

// settleNarrow is settle, and leaves the surplus of list. It reports false if the numbers could be too large for it.
func (c *coverer) settleNarrow() bool {
	if !c.addSteps() {
		return false
	}
	input := four(c.input)
	best, bestAt, bestEnd := running{}, -1, int32(-1) // bestAt is -1 where best is a list of its own
	for e := 0; e <= len(c.ends); e++ {
		at, end := len(c.seq), int32(-1)
		t := c.after[at]
		if e < len(c.ends) {
			at, end = c.ends[e].at, c.ends[e].group
			t = c.after[at]
			t.add(c.finish[e].amount, c.finish[e].cost, 1)
		}
		surplus := t.over(&input)
		drops := false
		for i := range c.steps[:at] {
			drops = drops || c.steps[i].within(&surplus)
		}
		if drops {
			c.list = c.merge(c.list[:0], at, end)
			c.drop()
			t = c.runningList()
		}
		if e > 0 && (t.total > best.total || t.total == best.total && t.n >= best.n) {
			continue
		}
		if best, bestAt, bestEnd = t, at, end; drops {
			bestAt = -1
			c.best = append(c.best[:0], c.list...)
		}
	}
	if bestAt >= 0 {
		c.best = c.merge(c.best[:0], bestAt, bestEnd)
		c.sortDearest(c.best)
	}
	c.list = append(c.list[:0], c.best...)
	c.surplus = best.over(&input)
	return true
}

// over is what is had beyond the input.
func (t *running) over(input *[narrowDims]int64) (surplus [narrowDims]int64) {
	for j, x := range t.have {
		surplus[j] = x - input[j]
	}
	return surplus
}

// addSteps adds up the bulk steps one after the other.
func (c *coverer) addSteps() bool {
	if !c.narrow.fits {
		return false
	}
	c.steps, c.after, c.finish = c.steps[:0], append(c.after[:0], running{}), c.finish[:0]
	size, n := uint64(0), int64(1)
	for _, p := range c.seq {
		x := c.weigh(p.group)
		size |= x.size()
		n += int64(p.n)
		c.steps = append(c.steps, x)
	}
	for _, e := range c.ends {
		x := c.weigh(e.group)
		size |= x.size()
		c.finish = append(c.finish, x)
	}
	if bits.Len64(size)+bits.Len64(uint64(n)) > runningBits {
		return false
	}
	var t running
	for i, p := range c.seq {
		t.add(c.steps[i].amount, c.steps[i].cost, int64(p.n))
		c.after = append(c.after, t)
	}
	return true
}

// runningList is the running of list, which may be less than what it was made of.
func (c *coverer) runningList() (t running) {
	for _, p := range c.list {
		x := c.weigh(p.group)
		t.add(x.amount, x.cost, int64(p.n))
	}
	return t
}

// sortDearest sorts picks by cost, dearest first. They are few.
func (c *coverer) sortDearest(list []pick) {
	for i := 1; i < len(list); i++ {
		x, cost := list[i], c.mk.group(list[i].group).cost
		j := i
		for ; j > 0 && c.mk.group(list[j-1].group).cost < cost; j-- {
			list[j] = list[j-1]
		}
		list[j] = x
	}
}

// swaps reports whether there is anything for swap to do with the list that settleNarrow left.
func (c *coverer) swaps() bool {
	for _, p := range c.seq {
		c.used[p.group] = 0
	}
	for _, p := range c.list {
		c.used[p.group] = p.n
	}
	if !c.narrow.words {
		return true
	}
	order, unit := c.cheapest(), c.narrow.unit
	for _, p := range c.list {
		x := c.weigh(p.group)
		if x.cost == 0 || len(order.list) == 0 || order.list[0].cost >= x.cost {
			continue
		}
		need := unit
		for j, a := range x.amount {
			need[j] = max(need[j], a-c.surplus[j])
		}
		if c.cheapestOver(order, need, x.cost-1) >= 0 {
			return true
		}
	}
	return false
}
