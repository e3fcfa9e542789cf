package engine

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// targets is machines that section 15 may drain, in groups of one class and one effective priority. Who can use none of the
// groups is refused without a walk; the machines of a group, or of a domain, are put in order when somebody first wants
// them. The order does not depend on who asks: the preemptor's own priority adds the same to every score. While preemptors
// have their turns the machines only become fewer, so what was found used up is never looked at again.
type targets struct {
	built   bool
	claimed bool // they serve somebody: victims. Otherwise they are excess
	list    []target
	spare   []target      // scratch
	groups  []targetGroup // by effective priority, ascending
	chains  []targetChain // by topology key
	ofClass []int32       // scratch: 1 plus the group of a class that was made last
	heads   []int32       // scratch: a heap of positions, one of each group that suits
	number  int           // which memory of matchers it uses
}

// target is one machine.
type target struct {
	base   int64 // score without the preemptor's priority, higher is better; known once it is in order
	cl, at int32 // position in states, and there
	order  uint32
	group  int32
}

// targetGroup is machines of one class and effective priority: a run of list.
type targetGroup struct {
	effective int64
	class     uint32
	number    int32 // scratch: before they were sorted
	same      int32 // scratch: the group of the same class made before it
	n         int32
	head, end int32
	sorted    bool
}

// targetChain is the machines of each domain of a key.
type targetChain struct {
	key    symbol.ID
	at     []int32 // positions in list, domain after domain
	from   []int32 // by domain, and the end
	sorted []bool  // by domain
}

func (x *targets) begin(claimed bool) {
	x.built, x.claimed, x.number = false, claimed, 0
	if claimed {
		x.number = 1
	}
	x.list, x.groups, x.chains = x.list[:0], x.groups[:0], x.chains[:0]
}

// add puts a machine in; arrange is called after the last one.
func (x *targets) add(p *planning, cl *clusterState, at int32, effective int64) {
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
		x.groups = append(x.groups, targetGroup{effective: effective, class: l.class, number: g, same: x.ofClass[l.class] - 1})
		x.ofClass[l.class] = g + 1
	}
	x.groups[g].n++
	x.list = append(x.list, target{cl: cl.at, at: at, order: l.order, group: g})
}

// arrange makes a run of each group.
func (x *targets) arrange() {
	x.built = true
	slices.SortFunc(x.groups, func(a, b targetGroup) int {
		return cmp.Or(cmp.Compare(a.effective, b.effective), cmp.Compare(a.class, b.class))
	})
	place := make([]int32, len(x.groups)) // by number before
	from := int32(0)
	for i := range x.groups {
		g := &x.groups[i]
		x.ofClass[g.class] = 0
		place[g.number] = int32(i)
		g.head, g.end = from, from
		from += g.n
	}
	x.spare = slices.Grow(x.spare[:0], len(x.list))[:len(x.list)]
	for _, t := range x.list {
		t.group = place[t.group]
		g := &x.groups[t.group]
		x.spare[g.end] = t
		g.end++
	}
	x.list, x.spare = x.spare, x.list
}

// score computes the part of a machine's score that is its own.
func (x *targets) score(p *planning, t *target) {
	l := &p.states[t.cl].loc[t.at]
	if !x.claimed {
		t.base = -l.price
		return
	}
	terms := p.scoreTerms(p.stampOf(l), -x.groups[t.group].effective)
	t.base = terms.Sum()
}

func compareTargets(a, b *target) int {
	return cmp.Or(cmp.Compare(b.base, a.base), cmp.Compare(a.order, b.order))
}

// first returns the position of the best machine of a group that can still be had, or -1.
func (x *targets) first(p *planning, g *targetGroup) int32 {
	if !g.sorted {
		g.sorted = true
		run := x.list[g.head:g.end]
		for i := range run {
			x.score(p, &run[i])
		}
		slices.SortFunc(run, func(a, b target) int { return compareTargets(&a, &b) })
	}
	for g.head < g.end && !x.there(p, &x.list[g.head]) {
		g.head++
	}
	if g.head == g.end {
		return -1
	}
	return g.head
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
	if zero(h.rest) || len(x.list) == 0 || x.lowest(h.p, h.cl.matcher(h.w)) >= below {
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
		if h.cl.fits(h.w, g.class) {
			if at := x.first(h.p, g); at >= 0 {
				x.push(at)
			}
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
		if at++; at == g.end {
			at = -1
		}
		x.replace(at)
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
	list := c.at[c.from[d]:c.from[d+1]]
	if !c.sorted[d] {
		c.sorted[d] = true
		for _, at := range list {
			x.score(h.p, &x.list[at])
		}
		slices.SortFunc(list, func(a, b int32) int { return compareTargets(&x.list[a], &x.list[b]) })
	}
	var out []victim
	for _, at := range list {
		if zero(h.rest) {
			break
		}
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

// chain returns the machines by domain of a key. Groups are put in order first, so that positions stay what they are.
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
	for i := range x.groups {
		x.first(p, &x.groups[i])
	}
	n := len(t.top.Domains)
	c := targetChain{key: key, at: make([]int32, len(x.list)), from: make([]int32, n+2), sorted: make([]bool, n)}
	domains := make([]int32, len(x.list))
	for i := range x.list {
		y := &x.list[i]
		domains[i] = -1
		if v, has := p.w.Inventory.Value(p.states[y.cl].loc[y.at].idx, key); has {
			if d, known := t.top.Domain(v); known {
				domains[i] = d
				c.from[d+2]++
			}
		}
	}
	for d := range n {
		c.from[d+2] += c.from[d+1]
	}
	for i, d := range domains {
		if d >= 0 {
			c.at[c.from[d+1]] = int32(i)
			c.from[d+1]++
		}
	}
	x.chains = append(x.chains, c)
	return &x.chains[len(x.chains)-1], true
}

func (x *targets) push(at int32) {
	h := append(x.heads, at)
	for c := len(h) - 1; c > 0; {
		up := (c - 1) / 2
		if compareTargets(&x.list[h[up]], &x.list[h[c]]) <= 0 {
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
		if c+1 < len(h) && compareTargets(&x.list[h[c+1]], &x.list[h[c]]) < 0 {
			c++
		}
		if compareTargets(&x.list[at], &x.list[h[c]]) <= 0 {
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
				x.add(p, cl, int32(at), math.MinInt64)
			}
		}
	}
	x.arrange()
}

// listVictims lists every claimed, owned Configured machine of heard clusters by score (15.6, 15.9).
func (x *targets) listVictims(p *planning) {
	for _, cl := range p.states {
		if !cl.d.Facts.Heard {
			continue
		}
		for _, at := range cl.bound {
			l := &cl.loc[at]
			if l.state != inventory.Configured || l.claim < 0 || l.bits&(lGone|lForeign) != 0 {
				continue
			}
			x.add(p, cl, at, cl.effective(p, l))
		}
	}
	x.arrange()
}
