package planner

import (
	"encoding/binary"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// domainSums is what each domain has free for gangs that can use the same supplies, added up in their frame. So a gang
// costs domains and not machines (ENG-21.9).
type domainSums struct {
	c     *domainCounts
	f     *match.Projection
	fit   []uint32 // the supplies,
	sup   []int64  // and what a machine of each has, in the frame
	epoch uint64   // of the log of c
	read  int      // how far
	idle  []int64  // by domain
	total []int64  // by domain: Idle and Speculative
	count []int32  // by domain: machines
	fresh []int    // by domain: changes that are noted before this position are added up
}

// sumsMax bounds how many sets of supplies are remembered per set of classes, kindsMax how many kinds of gangs per key.
const (
	sumsMax  = 256
	kindsMax = 1024
)

// sumsFor returns the sums for a gang.
func (ts *topologies) sumsFor(cl *clusterState, w *needState, c *domainCounts) *domainSums {
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
		if len(c.sums) > sumsMax {
			clear(c.sums)
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
func (s *domainSums) sync() {
	c := s.c
	if n, k := len(c.known), len(s.f.Dims); len(s.count) != n {
		s.count, s.idle, s.total, s.fresh = make([]int32, n), make([]int64, n*k), make([]int64, n*k), make([]int, n)
		s.epoch = c.epoch - 1 // so that all are looked at
	}
	if s.epoch != c.epoch {
		s.epoch, s.read = c.epoch, len(c.log)
		for d := range s.count {
			s.add(int32(d))
		}
		clear(s.fresh)
		return
	}
	for ; s.read < len(c.log); s.read++ {
		if d := c.log[s.read]; s.fresh[d] <= s.read {
			s.add(d)
			s.fresh[d] = len(c.log)
		}
	}
}

// add adds up one domain.
func (s *domainSums) add(d int32) {
	idle, total := s.of(d)
	clear(idle)
	clear(total)
	s.count[d] = 0
	k := len(s.f.Dims)
	row := int(d) * s.c.supplies
	for i, n := range s.fit {
		a, b := s.c.n[inventory.IdlePool][row+int(n)], s.c.n[inventory.SpeculativePool][row+int(n)]
		if a == 0 && b == 0 {
			continue
		}
		s.count[d] += a + b
		for j, x := range s.sup[i*k : (i+1)*k] {
			if a > 0 {
				idle[j] = resource.AddSat(idle[j], resource.MulSat(x, int64(a)))
			}
			total[j] = resource.AddSat(total[j], resource.MulSat(x, int64(b)))
		}
	}
	match.Add(total, idle)
}

func (s *domainSums) of(d int32) (idle, total []int64) {
	k := len(s.f.Dims)
	return s.idle[int(d)*k : int(d+1)*k], s.total[int(d)*k : int(d+1)*k]
}

// gangKind is gangs that match the same classes, with equal frame, aggregate, min unit and most per host: most of a crowd of gangs are alike. The second one
// of a kind puts the domains into a tournament; one that has chosen changes one domain for the next, so that a choice
// costs the domains that changed since the last one.
type gangKind struct {
	asked  int // how often contents were looked at
	s      *domainSums
	agg    []int64
	epoch  uint64 // of the log of the counts
	read   int    // how far
	places []domainPlace
	tree   []int32 // heap order, leaves from size on: the best domain below, or -1
	size   int
}

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

// best returns the best domain for a gang where nothing is creditable, outside of skip, or -1, and whether it could hold the gang. A kind has a tournament
// when its gangs have looked at as many contents as there are domains.
func (ts *topologies) best(cl *clusterState, w *needState, t *topState, skip []int32) (at int32, satisfiable bool) {
	if v := ts.w.Inventory.ClassVersion(); t.classes != v {
		t.classes, t.contents = v, contents{}
		t.forget()
	}
	t.rankDomains(ts.plan)
	t.key = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(t.key[:0], ts.cat.SetOf(cl.matcher(w))), uint32(cl.f.Number))
	for _, x := range cl.vec[w.vec : int(w.vec)+2*cl.dimensions()] { // aggregate and min unit
		t.key = binary.LittleEndian.AppendUint64(t.key, uint64(x))
	}
	t.key = binary.LittleEndian.AppendUint32(t.key, uint32(cl.perHost(w)))
	g := t.kinds[string(t.key)]
	if g == nil {
		if len(t.kinds) > kindsMax {
			clear(t.kinds)
		}
		g = &gangKind{agg: slices.Clone(cl.aggregate(w))}
		t.kinds[string(t.key)] = g
	}
	if !t.ByClass && t.contents.sync(ts, t) && (ts.off.atOnce || g.asked*t.contents.cells < len(t.Top.Domains)) {
		g.asked++
		return t.contents.best(cl, w, t, skip)
	}
	c := ts.countsOf(t, cl.matcher(w))
	known := g.s != nil && g.s.c == c && g.s.f == cl.f
	if !known {
		g.s, g.tree = ts.sumsFor(cl, w, c), nil
	}
	g.s.sync()
	return g.best(t, known, skip)
}

// best is that of the kind. known says that it is not the first one of its kind.
func (g *gangKind) best(t *topState, known bool, skip []int32) (at int32, satisfiable bool) {
	var best domainPlace
	at = -1
	if known {
		g.sync(t)
		if at = g.below(1, skip); at >= 0 {
			best = g.places[at]
		}
		return at, best.first >= satisfiableBit
	}
	for d, n := range g.s.count {
		if n == 0 || slices.Contains(skip, int32(d)) {
			continue
		}
		if _, total := g.s.of(int32(d)); best.first >= satisfiableBit && !match.Covers(total, g.agg) {
			continue
		}
		if x := g.place(t, int32(d)); at < 0 || x.better(&best) {
			at, best = int32(d), x
		}
	}
	return at, best.first >= satisfiableBit
}

func (g *gangKind) place(t *topState, d int32) domainPlace {
	idle, total := g.s.of(d)
	return placeOf(idle, total, g.agg, g.s.count[d], t.rank[d])
}

// placeOf computes the keys of a domain.
func placeOf(idle, total, agg []int64, n, rank int32) (x domainPlace) {
	if match.Covers(total, agg) {
		x.first, x.over = satisfiableBit|uint64(CappedScore(idle, agg)), uncappedScore(total, agg)
	} else {
		x.first = uint64(CappedScore(total, agg))
	}
	x.last = uint64(n)<<32 | uint64(^uint32(rank))
	return x
}

// sync looks at the domains that changed.
func (g *gangKind) sync(t *topState) {
	c := g.s.c
	if n := len(g.s.count); g.tree == nil || len(g.places) != n {
		for g.size = 1; g.size < n; g.size *= 2 {
		}
		g.places, g.tree = make([]domainPlace, n), make([]int32, 2*g.size)
		g.epoch = c.epoch - 1 // so that all are looked at
	}
	if g.epoch != c.epoch {
		g.epoch, g.read = c.epoch, len(c.log)
		for i := range g.tree {
			g.tree[i] = -1
		}
		for d := range g.places {
			g.look(t, int32(d))
		}
		for i := g.size - 1; i > 0; i-- {
			g.tree[i] = g.winner(g.tree[2*i], g.tree[2*i+1])
		}
		return
	}
	for last := int32(-1); g.read < len(c.log); g.read++ {
		d := c.log[g.read]
		if d == last || !g.look(t, d) {
			continue
		}
		last = d
		for i := (g.size + int(d)) / 2; i > 0; i /= 2 {
			g.tree[i] = g.winner(g.tree[2*i], g.tree[2*i+1])
		}
	}
}

// look brings the leaf of a domain up to date and reports whether anything about it is another now.
func (g *gangKind) look(t *topState, d int32) bool {
	leaf := g.size + int(d)
	if g.s.count[d] == 0 {
		had := g.tree[leaf] >= 0
		g.tree[leaf] = -1
		return had
	}
	x := g.place(t, d)
	if g.tree[leaf] >= 0 && g.places[d] == x {
		return false
	}
	g.places[d], g.tree[leaf] = x, d
	return true
}

func (g *gangKind) winner(a, b int32) int32 {
	if a < 0 || b >= 0 && g.places[b].better(&g.places[a]) {
		return b
	}
	return a
}

// below is the best domain under a node of the tree, outside of skip.
func (g *gangKind) below(node int, skip []int32) int32 {
	switch d := g.tree[node]; {
	case d < 0 || !slices.Contains(skip, d):
		return d
	case node >= g.size:
		return -1
	}
	return g.winner(g.below(2*node, skip), g.below(2*node+1, skip))
}
