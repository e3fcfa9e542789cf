package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// topState is what the plan at work has taken per domain of a topology key, and what is remembered about the domains.
type topState struct {
	top     *inventory.Topology
	byClass bool         // every class has one value: what is left of it is what is left in its domain
	taken   [2][][]int32 // by domain, by position in Cells; nil where nothing is taken
	touched []int32      // domains something was taken from, perhaps more than once
	counts  []*domainCounts
}

func (p *planning) beginTopologies() {
	old := p.tops
	p.tops = nil
	str := p.w.Space.Strings
	for _, key := range p.w.Demand.TopologyKeys() {
		id, _ := str.Find(key)
		top := p.w.Inventory.TopologyOf(id)
		at := slices.IndexFunc(old, func(t *topState) bool { return t.top == top })
		if at < 0 {
			p.tops = append(p.tops, &topState{top: top, byClass: top.ByClass()})
			continue
		}
		old[at].reset()
		p.tops = append(p.tops, old[at])
	}
}

// reset forgets what the plan before took.
func (t *topState) reset() {
	for _, d := range t.touched {
		for k := range t.taken {
			if int(d) < len(t.taken[k]) {
				t.taken[k][d] = nil
			}
		}
		for _, c := range t.counts {
			c.forget(d)
		}
	}
	t.touched = t.touched[:0]
}

func (p *planning) topology(key symbol.ID) *topState {
	for _, t := range p.tops {
		if t.top.Key == key {
			return t
		}
	}
	return nil
}

// left is how many machines of a cell the plan has left.
func (p *planning) left(t *topState, d int, k inventory.Pool, cell int) int32 {
	c := t.top.Domains[d].Cells[k][cell]
	if t.byClass {
		return p.stock.free[k][c.Class]
	}
	if d >= len(t.taken[k]) || t.taken[k][d] == nil {
		return c.N
	}
	return c.N - t.taken[k][d][cell]
}

// countTaken keeps the topologies right when a free machine is taken (by 1) or given back (by -1).
func (p *planning) countTaken(i inventory.Index, class uint32, k inventory.Pool, by int32) {
	for _, t := range p.tops {
		if t.byClass && len(t.counts) == 0 {
			continue
		}
		v, has := p.w.Inventory.Value(i, t.top.Key)
		if !has {
			continue
		}
		d, ok := t.top.Domain(v)
		if !ok {
			continue
		}
		if n := len(t.touched); n == 0 || t.touched[n-1] != d {
			t.touched = append(t.touched, d)
		}
		for _, c := range t.counts {
			if c.plan != p.plans {
				c.forget(d) // it is counted anew when it is looked at
			} else if c.m.has(class) {
				c.n[k][int(d)*c.supplies+int(p.cat.supply[class])] -= by
				c.seq[d]++
			}
		}
		if !t.byClass {
			t.take(class, d, k, by)
		}
	}
}

func (t *topState) take(class uint32, d int32, k inventory.Pool, by int32) {
	if n := len(t.top.Domains); len(t.taken[k]) < n {
		t.taken[k] = append(t.taken[k], make([][]int32, n-len(t.taken[k]))...)
	}
	cells := t.top.Domains[d].Cells[k]
	if t.taken[k][d] == nil {
		t.taken[k][d] = make([]int32, len(cells))
	}
	at, _ := slices.BinarySearchFunc(cells, class, func(c inventory.Cell, class uint32) int { return int(c.Class) - int(class) })
	t.taken[k][d][at] += by
}

// domainCounts is what each domain has free for one matcher, by supply. It is kept from plan to plan; what a plan takes
// is taken off as it goes.
type domainCounts struct {
	m        *matcher
	classes  uint64   // version of the classes it is about
	plan     uint64   // the last plan that brought it up to date
	supplies int      // length of a row
	since    uint64   // number of the next change of the topology
	known    []bool   // by domain: it is counted
	seq      []uint32 // by domain: grows with every change
	n        [2][]int32
	sums     map[string]*domainSums
	key      []byte
}

// countsOf returns the counts of a matcher, up to date.
func (p *planning) countsOf(t *topState, m *matcher) *domainCounts {
	at := slices.IndexFunc(t.counts, func(c *domainCounts) bool { return c.m == m })
	if at < 0 {
		if len(t.counts) == countsMax {
			t.counts = t.counts[:0]
		}
		t.counts = append(t.counts, &domainCounts{m: m})
		at = len(t.counts) - 1
	}
	c := t.counts[at]
	if c.plan != p.plans {
		c.plan = p.plans
		c.sync(p, t)
	}
	return c
}

// countsMax bounds how many matchers of gangs are remembered per key; then all are counted anew.
const countsMax = 64

func (c *domainCounts) sync(p *planning, t *topState) {
	if v := p.w.Inventory.ClassVersion(); c.classes != v || c.sums == nil {
		*c = domainCounts{m: c.m, classes: v, plan: c.plan, supplies: p.cat.supplyLen(), sums: map[string]*domainSums{}}
	}
	changes, next, ok := t.top.Changes(c.since)
	if c.since = next; !ok {
		clear(c.known)
	}
	for _, x := range changes {
		if int(x.Domain) < len(c.known) && c.known[x.Domain] && c.m.has(x.Class) {
			c.n[x.Pool][int(x.Domain)*c.supplies+int(p.cat.supply[x.Class])] += int32(x.By)
			c.seq[x.Domain]++
		}
	}
	if n := len(t.top.Domains); len(c.known) < n {
		more := n - len(c.known)
		c.known, c.seq = append(c.known, make([]bool, more)...), append(c.seq, make([]uint32, more)...)
		for k := range c.n {
			c.n[k] = append(c.n[k], make([]int32, more*c.supplies)...)
		}
	}
	for d, known := range c.known {
		if known {
			continue
		}
		c.known[d] = true
		c.seq[d]++
		for k := range c.n {
			row := c.n[k][d*c.supplies : (d+1)*c.supplies]
			clear(row)
			for i, cell := range t.top.Domains[d].Cells[k] {
				if c.m.has(cell.Class) {
					row[p.cat.supply[cell.Class]] += p.left(t, d, inventory.Pool(k), i)
				}
			}
		}
	}
}

// forget makes the next sync count a domain anew.
func (c *domainCounts) forget(d int32) {
	if int(d) < len(c.known) {
		c.known[d] = false
	}
}
