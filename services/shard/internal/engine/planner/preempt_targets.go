package planner

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// targets is machines that section 15 may drain, in groups of one class and one effective priority. A
// preemptor that can use none of the groups is refused without a walk. The machines of a group, or of a domain, are sorted
// at the first request for them. The order is the same for every preemptor: its own priority adds the same to every score.
// While preemptors have their allocations the machines only become fewer, so a group that is used up is not read again.
type targets struct {
	*plan
	workers  *workers
	clusters *clusters
	tops     *topologies

	built    bool
	claimed  bool // victims, which a Need claims. Otherwise they are excess
	list     []target
	spare    []target       // scratch
	seen     []target       // scratch: what a cluster has, cluster after cluster
	groups   []targetGroup  // by effective priority, ascending
	chains   []targetChain  // by topology key
	ofClass  []int32        // scratch: 1 plus the group of a class that was made last
	heads    []int32        // scratch: positions, one of each group that suits
	lowestBy []lowestTarget // by id of the matcher
}

// target is one machine.
type target struct {
	base   int64 // score without the preemptor's priority, higher is better; known once it is in order
	cl, at int32 // position in states, and there
	order  uint32
	group  int32
	rank   uint8 // of a victim: what its node holds
}

// targetGroup is machines of one class and effective priority: a run of list.
type targetGroup struct {
	effective int64
	price     int64
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
	list   []target // domain after domain
	from   []int32  // by domain, and the end
	sorted []bool   // by domain
}

func (x *targets) begin(claimed bool) {
	x.built, x.claimed = false, claimed
	x.list, x.groups = x.list[:0], x.groups[:0]
	clear(x.chains)
	x.chains = x.chains[:0]
}

// add puts a machine in; arrange is called after the last one.
func (x *targets) add(t target, class uint32, effective int64) {
	if n := x.w.Inventory.Classes(); len(x.ofClass) < n {
		x.ofClass = append(x.ofClass, make([]int32, n-len(x.ofClass))...)
	}
	g := x.ofClass[class] - 1
	for g >= 0 && x.groups[g].effective != effective {
		g = x.groups[g].same
	}
	if g < 0 {
		g = int32(len(x.groups))
		x.groups = append(x.groups, targetGroup{effective: effective, price: x.w.Inventory.Class(class).Price, class: class, number: g, same: x.ofClass[class] - 1})
		x.ofClass[class] = g + 1
	}
	x.groups[g].n++
	t.group = g
	x.list = append(x.list, t)
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
func (x *targets) score(t *target) {
	l := &x.clusters.states[t.cl].machines[t.at]
	if !x.claimed {
		t.base = -l.price
		return
	}
	terms := x.scoreTerms(l.idx, -x.groups[t.group].effective)
	t.base = terms.Sum()
}

// compare is the order of victims (ENG-15.9), and of excess, of which the score is the price.
func (x *targets) compare(a, b *target) int {
	return cmp.Or(cmp.Compare(b.base, a.base), cmp.Compare(a.rank, b.rank), cmp.Compare(x.groups[a.group].price, x.groups[b.group].price),
		cmp.Compare(a.order, b.order))
}

// first returns the position of the best machine of a group that can still be had, or -1.
func (x *targets) first(g *targetGroup) int32 {
	if !g.sorted {
		g.sorted = true
		run := x.list[g.head:g.end]
		for i := range run {
			x.score(&run[i])
		}
		slices.SortFunc(run, func(a, b target) int { return x.compare(&a, &b) })
	}
	for g.head < g.end && !x.there(&x.list[g.head]) {
		g.head++
	}
	if g.head == g.end {
		return -1
	}
	return g.head
}

// there reports whether a machine can still be had.
func (x *targets) there(t *target) bool {
	l := &x.clusters.states[t.cl].machines[t.at]
	return l.bits&lGone == 0 && l.claim >= 0 == x.claimed
}

// lowest is the lowest effective priority among the classes that match (ENG-15.15).
func (x *targets) lowest(m *match.Matcher) int64 {
	for int(m.ID) >= len(x.lowestBy) {
		x.lowestBy = append(x.lowestBy, lowestTarget{})
	}
	y := &x.lowestBy[m.ID]
	if y.plan != x.plans {
		*y = lowestTarget{x.plans, math.MaxInt64}
		for i := range x.groups {
			if m.Has(x.groups[i].class) {
				y.priority = x.groups[i].effective
				break
			}
		}
	}
	return y.priority
}

// lowestTarget is the lowest effective priority among the targets that a matcher matches, in one plan.
type lowestTarget struct {
	plan     uint64
	priority int64
}

// choose puts machines with an effective priority below the given one against the request, best first, until it is fulfilled,
// and lists those that it takes.
func (x *targets) choose(h *request, below int64) []victim {
	if match.IsZero(h.rest) || len(x.list) == 0 || x.lowest(h.cl.matcher(h.w)) >= below {
		return nil
	}
	if h.w.bits&wSame != 0 {
		return x.chooseInDomain(h, below)
	}
	heads := &targetHeap{targets: x, at: x.heads[:0]}
	for i := range x.groups {
		g := &x.groups[i]
		if g.effective >= below {
			break
		}
		if h.cl.fits(h.w, g.class) {
			if at := x.first(g); at >= 0 {
				heads.at = append(heads.at, at)
			}
		}
	}
	heap.Init(heads)
	var out []victim
	for len(heads.at) > 0 && !match.IsZero(h.rest) {
		at := heads.at[0]
		t := &x.list[at]
		g := &x.groups[t.group]
		if !match.Touches(h.cl.f.Supply(g.class), h.rest) {
			heap.Pop(heads) // nothing of this kind is of use any more
			continue
		}
		if v, ok := x.take(h, t); ok {
			out = append(out, v)
		}
		if at++; at == g.end {
			heap.Pop(heads)
			continue
		}
		heads.at[0] = at
		heap.Fix(heads, 0)
	}
	x.heads = heads.at
	return out
}

// take puts one machine against the request.
func (x *targets) take(h *request, t *target) (victim, bool) {
	g, cl := &x.groups[t.group], x.clusters.states[t.cl]
	l := &cl.machines[t.at]
	if cl == h.cl || !x.there(t) || x.w.Inventory.WithheldFrom(l.idx, h.cl.d.Name) || !h.takes(l.idx, g.class) {
		return victim{}, false
	}
	return victim{effective: g.effective, cl: t.cl, at: t.at, class: g.class}, true
}

func (x *targets) chooseInDomain(h *request, below int64) []victim {
	c, ok := x.chain(h.w.key)
	if !ok {
		return nil
	}
	d, ok := x.tops.of(h.w.key).Top.Domain(h.w.domain)
	if !ok {
		return nil
	}
	list := c.list[c.from[d]:c.from[d+1]]
	if !c.sorted[d] {
		c.sorted[d] = true
		for i := range list {
			x.score(&list[i])
		}
		slices.SortFunc(list, func(a, b target) int { return x.compare(&a, &b) })
	}
	var out []victim
	for i := range list {
		if match.IsZero(h.rest) {
			break
		}
		t := &list[i]
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
func (x *targets) chain(key symbol.ID) (*targetChain, bool) {
	for i := range x.chains {
		if x.chains[i].key == key {
			return &x.chains[i], true
		}
	}
	t := x.tops.of(key)
	if t == nil {
		return nil, false
	}
	n := len(t.Top.Domains)
	c := targetChain{key: key, list: make([]target, len(x.list)), from: make([]int32, n+2), sorted: make([]bool, n)}
	domains := make([]int32, len(x.list))
	for i := range x.list {
		y := &x.list[i]
		domains[i] = -1
		if v := x.clusters.states[y.cl].values(x.w.Inventory, key)[y.at]; v >= 0 {
			if d, known := t.Top.Domain(symbol.ID(v)); known {
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
			c.list[c.from[d+1]] = x.list[i]
			c.from[d+1]++
		}
	}
	x.chains = append(x.chains, c)
	return &x.chains[len(x.chains)-1], true
}

// targetHeap is positions in targets.list, the best machine first.
type targetHeap struct {
	*targets
	at []int32
}

func (h *targetHeap) Len() int           { return len(h.at) }
func (h *targetHeap) Less(i, j int) bool { return h.compare(&h.list[h.at[i]], &h.list[h.at[j]]) < 0 }
func (h *targetHeap) Swap(i, j int)      { h.at[i], h.at[j] = h.at[j], h.at[i] }
func (h *targetHeap) Push(x any)         { h.at = append(h.at, x.(int32)) }
func (h *targetHeap) Pop() any {
	last := len(h.at) - 1
	h.at = h.at[:last]
	return nil
}

// listExcess lists the unclaimed Configured machines of heard clusters, by price (ENG-15.5).
func (x *targets) listExcess() {
	inv := x.w.Inventory
	for _, cl := range x.clusters.withExcess() {
		for at := range cl.machines[:cl.members] {
			l := &cl.machines[at]
			if l.state == inventory.Configured && l.claim < 0 && l.bits&lGone == 0 && !inv.Row(l.idx).Foreign() {
				x.add(target{cl: cl.at, at: int32(at), order: l.order}, l.class, math.MinInt64)
			}
		}
	}
	x.arrange()
}

// listVictims lists every claimed, owned Configured machine of heard clusters by score (ENG-15.6, 15.9). Each worker reads what is in
// its clusters.
func (x *targets) listVictims() {
	n := 0
	for _, cl := range x.clusters.states {
		cl.victimsAt = n
		if cl.d.Facts.Heard {
			n += len(cl.bound)
		}
	}
	x.seen = slices.Grow(x.seen[:0], n)[:n]
	x.workers.each(x.clusters.states, func(cl *clusterState, _ *scratch) {
		if cl.d.Facts.Heard {
			x.listVictimsOf(cl, x.seen[cl.victimsAt:][:len(cl.bound)])
		}
	})
	x.list = slices.Grow(x.list, n)
	for i := range x.seen {
		if t := &x.seen[i]; t.group >= 0 {
			x.add(target{cl: t.cl, at: t.at, order: t.order, rank: t.rank}, uint32(t.group), t.base)
		}
	}
	x.arrange()
}

// listVictimsOf writes to list what is bound to the cluster, with its class in place of its group and its effective priority in place
// of its score; group is -1 if section 15 must not drain it.
func (x *targets) listVictimsOf(cl *clusterState, list []target) {
	for n, at := range cl.bound {
		l := &cl.machines[at]
		list[n].group = -1
		if l.state == inventory.Configured && l.claim >= 0 && l.bits&(lGone|lForeign) == 0 {
			list[n] = target{cl: cl.at, at: at, order: l.order, group: int32(l.class), base: x.effective(cl, l), rank: l.rank}
		}
	}
}
