package planner

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// domainSums is what each domain has free for gangs that can use the same supplies, added up in their frame. So a gang
// costs domains and not machines. The domains are the leaves of a tree, whose nodes know bounds of what those below them have: a gang of whatever size
// looks at few of them (ENG-21.9).
type domainSums struct {
	c     *domainCounts
	f     *match.Projection
	fit   []uint32 // the supplies,
	sup   []int64  // and what a machine of each has, in the frame
	epoch uint64   // of the log of c
	read  int      // how far
	fresh []int    // by domain: changes that are noted before this position are added up
	order []int32  // by leaf: its domain
	leaf  []int32  // by domain: its node
	box   []int64  // by node: what is Idle at the most, what is there at the most and at the least
	count []int32  // by node: the most machines; 0: there is nothing
	rank  []int32  // by node: the smallest value
	looks int      // how many nodes gangs looked at
}

// sumsMax bounds the dimensions of all domains in all sums of a key, of about a hundred bytes each; kindsMax is how many kinds of gangs are remembered per key.
const sumsMax, kindsMax = 1 << 19, 1024

// sumsFor returns the sums for a gang.
func (ts *topologies) sumsFor(cl *clusterState, w *needState, t *topState, c *domainCounts) *domainSums {
	c.key = binary.LittleEndian.AppendUint32(c.key[:0], uint32(cl.f.Number))
	agg, unit := cl.aggregate(w), cl.unit(w)
	if w.bits&wMany != 0 { // what a machine contributes depends on the unit, so the unit is in the key
		c.key = append(c.key, 0) // which is no supply
		for _, u := range unit {
			c.key = binary.LittleEndian.AppendUint64(c.key, uint64(u))
		}
		c.key = binary.LittleEndian.AppendUint32(c.key, uint32(cl.perHost(w)))
	}
	base := len(c.key)
	for n := 1; n < c.supplies; n++ {
		if class, ok := ts.cat.Example(uint32(n)); ok {
			if sup := cl.f.Supply(class); match.Covers(sup, unit) && match.Touches(sup, agg) {
				c.key = binary.AppendUvarint(c.key, uint64(n))
			}
		}
	}
	s := c.sums[string(c.key)]
	if s == nil {
		if t.sums += len(c.known) * len(cl.f.Dims); t.sums > sumsMax {
			t.forgetSums()
		}
		s = &domainSums{c: c, f: cl.f}
		for list := c.key[base:]; len(list) > 0; {
			n, size := binary.Uvarint(list)
			list = list[size:]
			class, _ := ts.cat.Example(uint32(n))
			s.fit = append(s.fit, uint32(n))
			s.sup = append(s.sup, cl.amount(w, class)...)
		}
		c.sums[string(c.key)] = s
	}
	return s
}

// sync brings the sums of the domains up to date that changed.
func (s *domainSums) sync(t *topState) {
	c := s.c
	if s.epoch != c.epoch || len(s.leaf) != len(c.known) {
		s.epoch, s.read = c.epoch, len(c.log)
		if t.sorted != t.Plan {
			t.sorted, t.order = t.Plan, t.byRank
			s.fill(t)
			t.order = slices.Clone(t.order)
			of := max(0, slices.IndexFunc(s.sup, func(x int64) bool { return x > 0 })) % max(1, len(s.f.Dims)) // a dimension
			slices.SortStableFunc(t.order, func(a, b int32) int { return cmp.Compare(s.at(s.leaf[a], 1, 1)[of], s.at(s.leaf[b], 1, 1)[of]) })
		}
		s.fill(t)
	}
	for ; s.read < len(c.log); s.read++ {
		if d := c.log[s.read]; s.fresh[d] <= s.read {
			s.add(d)
			s.fresh[d] = len(c.log)
			for node := s.leaf[d] / 2; node > 0; node /= 2 {
				s.join(node)
			}
		}
	}
}

// fill makes the tree.
func (s *domainSums) fill(t *topState) {
	size := 1 << bits.Len(uint(max(len(t.order), 1)-1))
	s.order, s.fresh, s.leaf = t.order, make([]int, len(t.order)), make([]int32, len(t.order))
	s.box, s.count, s.rank = make([]int64, 2*size*3*len(s.f.Dims)), make([]int32, 2*size), make([]int32, 2*size)
	for i, d := range s.order {
		s.leaf[d], s.rank[size+i] = int32(size+i), t.rank[d]
		s.add(d)
	}
	for node := int32(size) - 1; node > 0; node-- {
		s.join(node)
	}
}

// add adds up one domain.
func (s *domainSums) add(d int32) {
	leaf := s.leaf[d]
	idle, total := s.at(leaf, 0, 1), s.at(leaf, 1, 1)
	clear(idle)
	clear(total)
	s.count[leaf] = 0
	k := len(s.f.Dims)
	row := int(d) * s.c.supplies
	for i, n := range s.fit {
		a, b := s.c.n[inventory.IdlePool][row+int(n)], s.c.n[inventory.SpeculativePool][row+int(n)]
		if a == 0 && b == 0 {
			continue
		}
		s.count[leaf] += a + b
		for j, x := range s.sup[i*k : (i+1)*k] {
			if a > 0 {
				idle[j] = resource.AddSat(idle[j], resource.MulSat(x, int64(a)))
			}
			total[j] = resource.AddSat(total[j], resource.MulSat(x, int64(b)))
		}
	}
	match.Add(total, idle)
	copy(s.at(leaf, 2, 1), total)
}

// at is some vectors of a node.
func (s *domainSums) at(node int32, from, n int) []int64 {
	k := len(s.f.Dims)
	return s.box[(3*int(node)+from)*k:][:n*k]
}

// join makes a node of those below it that have something.
func (s *domainSums) join(node int32) {
	a, b := 2*node, 2*node+1
	if s.count[a] == 0 {
		a = b
	}
	if s.count[b] == 0 {
		b = a
	}
	s.count[node], s.rank[node] = max(s.count[a], s.count[b]), min(s.rank[a], s.rank[b])
	one, other, both := s.at(a, 0, 3), s.at(b, 0, 3), s.at(node, 0, 3)
	for j, x := range one {
		if both[j] = max(x, other[j]); j >= 2*len(s.f.Dims) {
			both[j] = min(x, other[j])
		}
	}
}

// gangKind is gangs that match the same classes and have the same unit and limit per host, whatever they ask for.
type gangKind struct {
	asked int // how often they looked at each domain
	s     *domainSums
}

// scansMost is how many gangs of a kind look at each domain before it has sums, which cost as much as some of them.
const scansMost = 16

// domainPlace is the keys of 10.6 for a domain where nothing is creditable, in the form that compares fastest: satisfiable,
// and then by what is Idle, or else by what is there at all; the least over-commitment; more machines; the smaller value.
type domainPlace struct {
	first uint64
	over  cover.Sum
	last  uint64
}

const satisfiableBit = 1 << 63

func (a *domainPlace) better(b *domainPlace) bool {
	switch {
	case a.first != b.first:
		return a.first > b.first
	case a.over.Hi != b.over.Hi:
		return a.over.Hi < b.over.Hi
	case a.over.Lo != b.over.Lo:
		return a.over.Lo < b.over.Lo
	}
	return a.last > b.last
}

// best returns the best domain for a gang where nothing is creditable, outside of skip, or -1, and whether it could hold the gang. A kind of which
// many gangs ask has sums.
func (ts *topologies) best(cl *clusterState, w *needState, t *topState, skip []int32) (at int32, satisfiable bool) {
	if v := ts.w.Inventory.ClassVersion(); t.classes != v {
		t.classes = v
		t.forget()
	}
	t.rankDomains(ts.plan)
	t.key = appendKind(t.key[:0], cl, w, ts.cat.SetOf(cl.matcher(w)))
	for _, x := range cl.aggregate(w) { // what touches it counts
		t.key = append(t.key, byte(min(x, 1)))
	}
	g := t.kinds[string(t.key)]
	if g == nil {
		if len(t.kinds) > kindsMax {
			clear(t.kinds)
		}
		g = &gangKind{}
		t.kinds[string(t.key)] = g
	}
	if g.asked++; g.asked <= scansMost && !ts.off.atOnce {
		return ts.scan(cl, w, t, skip)
	}
	if c := ts.countsOf(t, cl.matcher(w)); g.s == nil || g.s.c != c || g.s.f != cl.f {
		g.s = ts.sumsFor(cl, w, t, c)
	}
	g.s.sync(t)
	q := domainQuery{s: g.s, agg: cl.aggregate(w), skip: skip, at: -1}
	q.below(1, q.bound(1))
	return q.at, q.best.first >= satisfiableBit
}

// appendKind spells what gangs of a kind have in common.
func appendKind(key []byte, cl *clusterState, w *needState, matcher uint32) []byte {
	for _, x := range [...]uint32{matcher, uint32(cl.f.Number), uint32(w.key), uint32(cl.perHost(w)), uint32(w.bits & wMany)} {
		key = binary.LittleEndian.AppendUint32(key, x)
	}
	for _, x := range cl.unit(w) {
		key = binary.LittleEndian.AppendUint64(key, uint64(x))
	}
	return key
}

// placeOf computes the keys of a domain, or a bound of those of some: what is there at the most, at the least, and the smallest value.
func placeOf(idle, total, least, agg []int64, n, rank int32) (x domainPlace) {
	if match.Covers(total, agg) {
		x.first, x.over = satisfiableBit|uint64(CappedScore(idle, agg)), uncappedScore(least, agg)
	} else {
		x.first = uint64(CappedScore(total, agg))
	}
	x.last = uint64(n)<<32 | uint64(^uint32(rank))
	return x
}

// domainQuery looks for the best domain for a gang.
type domainQuery struct {
	s    *domainSums
	agg  []int64
	skip []int32 // domains that do not count
	at   int32   // the best one so far, or -1
	best domainPlace
}

// bound is what no domain below a node is better than. A leaf is as good as that.
func (q *domainQuery) bound(node int32) domainPlace {
	s := q.s
	s.looks++
	return placeOf(s.at(node, 0, 1), s.at(node, 1, 1), s.at(node, 2, 1), q.agg, s.count[node], s.rank[node])
}

// below looks at the domains below a node.
func (q *domainQuery) below(node int32, bound domainPlace) {
	size := int32(len(q.s.count) / 2)
	switch {
	case q.s.count[node] == 0 || q.at >= 0 && !bound.better(&q.best):
	case node < size:
		a, b := 2*node, 2*node+1
		first, second := q.bound(a), q.bound(b)
		if second.better(&first) {
			a, b, first, second = b, a, second, first
		}
		q.below(a, first)
		q.below(b, second)
	case !slices.Contains(q.skip, q.s.order[node-size]):
		q.at, q.best = q.s.order[node-size], bound
	}
}
