package engine

import (
	"math/bits"
	"slices"
)

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

// part is some machines of one group in a candidate.
type part struct {
	weighed
	group, n int32
}

// settleNarrow is settle, and leaves the parts of list and their surplus. It reports false if the numbers could be too large for it.
func (c *coverer) settleNarrow() bool {
	if !c.addSteps() {
		return false
	}
	input := four(c.input)
	best, bestAt, bestEnd := running{}, -1, -1 // bestAt is -1 where best is in bestParts
	for e := 0; e <= len(c.ends); e++ {
		at, end := len(c.seq), -1
		t := c.after[at]
		if e < len(c.ends) {
			at, end = c.ends[e].at, e
			t = c.after[at]
			t.add(c.finish[e].amount, c.finish[e].cost, 1)
		}
		surplus := t.over(&input)
		drops := false
		for i := range c.steps[:at] {
			drops = drops || c.steps[i].within(&surplus)
		}
		if drops {
			c.parts = c.gather(c.parts[:0], at, end)
			c.dropParts(&t, &surplus)
		}
		if e > 0 && (t.total > best.total || t.total == best.total && t.n >= best.n) {
			continue
		}
		if best, bestAt, bestEnd = t, at, end; drops {
			bestAt = -1
			c.bestParts = append(c.bestParts[:0], c.parts...)
		}
	}
	if bestAt >= 0 {
		c.bestParts = c.gather(c.bestParts[:0], bestAt, bestEnd)
	}
	c.parts, c.bestParts = c.bestParts, c.parts
	c.surplus = best.over(&input)
	c.listParts()
	return true
}

// gather lists what the first at bulk steps took and the machine that ends a candidate, if end is its position in ends.
func (c *coverer) gather(into []part, at, end int) []part {
	for i, p := range c.seq[:at] {
		into = putIn(into, part{c.steps[i], p.group, p.n})
	}
	if end >= 0 {
		into = putIn(into, part{c.finish[end], c.ends[end].group, 1})
	}
	return into
}

// putIn adds machines to parts, dearest first. They are few.
func putIn(list []part, x part) []part {
	for i := range list {
		if list[i].group == x.group {
			list[i].n += x.n
			return list
		}
	}
	list = append(list, x)
	i := len(list) - 1
	for ; i > 0 && list[i-1].cost < x.cost; i-- {
		list[i] = list[i-1]
	}
	list[i] = x
	return list
}

// listParts makes list what parts are.
func (c *coverer) listParts() {
	c.list = c.list[:0]
	for i := range c.parts {
		c.list = append(c.list, pick{c.parts[i].group, c.parts[i].n})
	}
}

// alike reports whether two groups of parts cost the same: then ids decide.
func alike(list []part) bool {
	for i := 1; i < len(list); i++ {
		if list[i].cost == list[i-1].cost {
			return true
		}
	}
	return false
}

// dropParts is drop for parts.
func (c *coverer) dropParts(t *running, surplus *[narrowDims]int64) {
	if alike(c.parts) {
		c.listParts()
		c.drop()
		*t = running{}
		c.parts = c.parts[:0]
		for _, p := range c.list {
			x := c.weigh(p.group)
			t.add(x.amount, x.cost, int64(p.n))
			c.parts = append(c.parts, part{x, p.group, p.n})
		}
		input := four(c.input)
		*surplus = t.over(&input)
		return
	}
	left := c.parts[:0]
	for _, x := range c.parts {
		if x.within(surplus) {
			n := int64(x.n)
			for j, a := range x.amount {
				if a > 0 {
					n = min(n, surplus[j]/a)
				}
			}
			for j, a := range x.amount {
				surplus[j] -= a * n
			}
			t.add(x.amount, x.cost, -n)
			x.n -= int32(n)
		}
		if x.n > 0 {
			left = append(left, x)
		}
	}
	c.parts = left
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

// swapParts is swap for parts.
func (c *coverer) swapParts() {
	c.startSwaps()
	if !c.narrow.words {
		c.swap(swapsMax)
		return
	}
	order := c.cheapest()
	for left := swapsMax; left > 0; left-- {
		if alike(c.parts) {
			c.swap(left)
			return
		}
		out, in := c.swappable(order)
		if out < 0 {
			return
		}
		x := part{c.weigh(in), in, 1}
		if bits.Len64(x.size()) > runningBits-4 { // what swapsMax of them could make of a sum is too much
			c.swap(left)
			return
		}
		for i := range c.parts {
			c.used[c.parts[i].group] = 0
		}
		for j, a := range c.parts[out].amount {
			c.surplus[j] += x.amount[j] - a
		}
		if c.parts[out].n--; c.parts[out].n == 0 {
			c.parts = slices.Delete(c.parts, out, out+1)
		}
		c.parts = putIn(c.parts, x)
		var t running // of no interest: every swap makes it less
		c.dropParts(&t, &c.surplus)
		c.listParts()
		for i := range c.parts {
			c.used[c.parts[i].group] = c.parts[i].n
		}
	}
}

// swappable is exchangeable for parts.
func (c *coverer) swappable(order *ranking) (out int, in int32) {
	for at := range c.parts {
		x := &c.parts[at]
		if x.cost == 0 || len(order.list) == 0 || order.list[0].cost >= x.cost {
			continue
		}
		need := c.narrow.unit
		for j, a := range x.amount {
			need[j] = max(need[j], a-c.surplus[j])
		}
		if in := c.cheapestOver(order, need, x.cost-1); in >= 0 {
			return at, in
		}
	}
	return -1, -1
}
