package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// targets is machines that section 15 may drain, best first. The order does not depend on who asks: the preemptor's own
// priority adds the same to every score. While preemptors have their turns the machines only become fewer, so what was
// found used up is never looked at again, and who can use none of the kinds there are is refused without a walk.
type targets struct {
	built   bool
	claimed bool // they serve somebody: victims. Otherwise they are excess
	list    []target
	groups  []targetGroup // by effective priority, ascending
	chains  []targetChain // by topology key
	ofClass []int32       // scratch: 1 plus the group of a class that was made last
	heads   []int32       // scratch: a heap of positions, one of each group that suits
	number  int           // which memory of matchers it uses
}

// target is one machine.
type target struct {
	base   int64 // score without the preemptor's priority, higher is better
	cl, at int32 // position in states, and there
	order  uint32
	group  int32
	next   int32 // of its group, or -1
}

// targetGroup is machines of one class and effective priority.
type targetGroup struct {
	effective  int64
	class      uint32
	head, tail int32
	same       int32 // scratch: the group of the same class made before it
}

// targetChain is the machines of each domain of a key, in order.
type targetChain struct {
	key  symbol.ID
	head []int32 // by domain
	next []int32 // by position in list
}

func (x *targets) begin(claimed bool) {
	x.built, x.claimed, x.number = false, claimed, 0
	if claimed {
		x.number = 1
	}
	x.list, x.groups, x.chains = x.list[:0], x.groups[:0], x.chains[:0]
}

// add puts a machine in; sort is called after the last one.
func (x *targets) add(p *planning, cl *clusterState, at int32, base, effective int64) {
	l := &cl.loc[at]
	if n := p.w.Inventory.Classes(); len(x.ofClass) < n {
		x.ofClass = append(x.ofClass, make([]int32, n-len(x.ofClass))...)
	}
	g := x.ofClass[l.class] - 1
	for g >= 0 && x.groups[g].effective != effective {
		g = x.groups[g].same
	}
	if g < 0 {
		g = int32(len(x.groups))
		x.groups = append(x.groups, targetGroup{effective: effective, class: l.class, same: x.ofClass[l.class] - 1})
		x.ofClass[l.class] = g + 1
	}
	x.list = append(x.list, target{base: base, cl: cl.at, at: at, order: l.order, group: g})
}

func (x *targets) sort() {
	slices.SortFunc(x.list, func(a, b target) int { return cmp.Or(cmp.Compare(b.base, a.base), cmp.Compare(a.order, b.order)) })
	for i := range x.groups {
		x.ofClass[x.groups[i].class] = 0
		x.groups[i].head, x.groups[i].tail = -1, -1
	}
	for i := range x.list {
		t := &x.list[i]
		g := &x.groups[t.group]
		if t.next = -1; g.head < 0 {
			g.head = int32(i)
		} else {
			x.list[g.tail].next = int32(i)
		}
		g.tail = int32(i)
	}
	slices.SortFunc(x.groups, func(a, b targetGroup) int {
		return cmp.Or(cmp.Compare(a.effective, b.effective), cmp.Compare(a.class, b.class))
	})
	for i := range x.groups { // groups have other numbers now
		for at := x.groups[i].head; at >= 0; at = x.list[at].next {
			x.list[at].group = int32(i)
		}
	}
	x.built = true
}

// there reports whether a machine can still be had.
func (x *targets) there(p *planning, t *target) bool {
	l := &p.states[t.cl].loc[t.at]
	return l.bits&lGone == 0 && l.claim >= 0 == x.claimed
}

// lowest is the lowest effective priority among the classes that match (ENG-15.15).
func (x *targets) lowest(p *planning, m *matcher) int64 {
	if m.preyPlan != p.plans {
		m.preyPlan, m.preyKnown = p.plans, [2]bool{}
	}
	if !m.preyKnown[x.number] {
		m.preyKnown[x.number], m.prey[x.number] = true, math.MaxInt64
		for i := range x.groups {
			if m.has(x.groups[i].class) {
				m.prey[x.number] = x.groups[i].effective
				break
			}
		}
	}
	return m.prey[x.number]
}

// choose puts machines with an effective priority below the given one against the wish, best first, until it is fulfilled,
// and lists those that it takes.
func (x *targets) choose(h *wish, below int64) []victim {
	if zero(h.rest) || len(x.list) == 0 || x.lowest(h.p, h.w.m) >= below {
		return nil
	}
	if h.w.bits&wSame != 0 {
		return x.chooseInDomain(h, below)
	}
	x.heads = x.heads[:0]
	for i := range x.groups {
		g := &x.groups[i]
		if g.effective >= below {
			break
		}
		for g.head >= 0 && !x.there(h.p, &x.list[g.head]) {
			g.head = x.list[g.head].next
		}
		if g.head >= 0 && h.cl.fits(h.w, g.class) {
			x.push(g.head)
		}
	}
	var out []victim
	for len(x.heads) > 0 && !zero(h.rest) {
		at := x.heads[0]
		t := &x.list[at]
		g := &x.groups[t.group]
		if !touches(h.cl.f.of(g.class), h.rest) {
			x.replace(-1) // nothing of this kind is of use any more
			continue
		}
		if v, ok := x.take(h, t); ok {
			out = append(out, v)
		}
		x.replace(t.next)
	}
	return out
}

// take puts one machine against the wish.
func (x *targets) take(h *wish, t *target) (victim, bool) {
	g, cl := &x.groups[t.group], h.p.states[t.cl]
	l := &cl.loc[t.at]
	if cl == h.cl || !x.there(h.p, t) || h.p.w.Inventory.WithheldFrom(l.idx, h.cl.d.Name) || !h.takes(l.idx, g.class) {
		return victim{}, false
	}
	return victim{effective: g.effective, cl: t.cl, at: t.at, class: g.class}, true
}

func (x *targets) chooseInDomain(h *wish, below int64) []victim {
	c, ok := x.chain(h.p, h.w.key)
	if !ok {
		return nil
	}
	d, ok := h.p.topology(h.w.key).top.Domain(h.w.domain)
	if !ok {
		return nil
	}
	for c.head[d] >= 0 && !x.there(h.p, &x.list[c.head[d]]) {
		c.head[d] = c.next[c.head[d]]
	}
	var out []victim
	for at := c.head[d]; at >= 0 && !zero(h.rest); at = c.next[at] {
		t := &x.list[at]
		if g := &x.groups[t.group]; g.effective >= below || !h.cl.fits(h.w, g.class) {
			continue
		}
		if v, ok := x.take(h, t); ok {
			out = append(out, v)
		}
	}
	return out
}

// chain returns the machines by domain of a key.
func (x *targets) chain(p *planning, key symbol.ID) (*targetChain, bool) {
	for i := range x.chains {
		if x.chains[i].key == key {
			return &x.chains[i], true
		}
	}
	t := p.topology(key)
	if t == nil {
		return nil, false
	}
	c := targetChain{key: key, head: make([]int32, len(t.top.Domains)), next: make([]int32, len(x.list))}
	for d := range c.head {
		c.head[d] = -1
	}
	for at := len(x.list) - 1; at >= 0; at-- {
		y := &x.list[at]
		if v, has := p.w.Inventory.Value(p.states[y.cl].loc[y.at].idx, key); has {
			if d, known := t.top.Domain(v); known {
				c.next[at], c.head[d] = c.head[d], int32(at)
			}
		}
	}
	x.chains = append(x.chains, c)
	return &x.chains[len(x.chains)-1], true
}

func (x *targets) push(at int32) {
	h := append(x.heads, at)
	for c := len(h) - 1; c > 0; {
		up := (c - 1) / 2
		if h[up] <= h[c] {
			break
		}
		h[up], h[c] = h[c], h[up]
		c = up
	}
	x.heads = h
}

// replace puts another position in the place of the least one, or none if it is -1.
func (x *targets) replace(at int32) {
	h := x.heads
	if at < 0 {
		at = h[len(h)-1]
		h = h[:len(h)-1]
		x.heads = h
		if len(h) == 0 {
			return
		}
	}
	up := 0
	for {
		c := 2*up + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if at <= h[c] {
			break
		}
		h[up] = h[c]
		up = c
	}
	h[up] = at
}

// listExcess lists the Configured machines of heard clusters that nobody claims, by price (15.5).
func (x *targets) listExcess(p *planning) {
	inv := p.w.Inventory
	for _, cl := range p.withExcess() {
		for at := range cl.loc[:cl.members] {
			l := &cl.loc[at]
			if l.state == inventory.Configured && l.claim < 0 && l.bits&lGone == 0 && !inv.Row(l.idx).Foreign() {
				x.add(p, cl, int32(at), -l.price, math.MinInt64)
			}
		}
	}
	x.sort()
}

// listVictims lists every claimed, owned Configured machine of heard clusters by score (15.6, 15.9).
func (x *targets) listVictims(p *planning) {
	inv := p.w.Inventory
	for _, cl := range p.states {
		if !cl.d.Facts.Heard {
			continue
		}
		for _, at := range cl.bound {
			l := &cl.loc[at]
			if l.state != inventory.Configured || l.claim < 0 || l.bits&lGone != 0 || inv.Row(l.idx).Foreign() {
				continue
			}
			e := cl.effective(p, l)
			t := p.scoreTerms(l, -e)
			x.add(p, cl, at, t.Sum(), e)
		}
	}
	x.sort()
}
