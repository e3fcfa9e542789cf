package engine

import (
	"encoding/binary"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// domainSums is what each domain has free for gangs that can use the same supplies, added up in their frame. So a gang
// costs domains and not machines (ENG-21.9).
type domainSums struct {
	c     *domainCounts
	f     *frame
	fit   []uint32 // the supplies
	sup   []int64  // of each, in the frame
	seen  []uint32 // by domain: seq of the counts
	idle  []int64  // by domain
	total []int64  // by domain: Idle and Speculative
	count []int32  // by domain: machines

	shapes map[string]*gangShape // by aggregate
}

// sumsFor returns the sums for a gang, up to date.
func (p *planning) sumsFor(cl *clusterState, w *want, t *topState) *domainSums {
	c := p.countsOf(t, w.m)
	c.key = append(c.key[:0], cl.f.id...)
	agg, unit := cl.aggregate(w), cl.unit(w)
	for n := 1; n < c.supplies; n++ {
		if class, ok := p.cat.example(uint32(n)); ok {
			if sup := cl.f.of(class); coversAll(sup, unit) && touches(sup, agg) {
				c.key = binary.AppendUvarint(c.key, uint64(n))
			}
		}
	}
	s := c.sums[string(c.key)]
	if s == nil {
		if len(c.sums) > sumsMax {
			clear(c.sums)
		}
		s = &domainSums{c: c, f: cl.f, shapes: map[string]*gangShape{}}
		for list := c.key[len(cl.f.id):]; len(list) > 0; {
			n, size := binary.Uvarint(list)
			list = list[size:]
			class, _ := p.cat.example(uint32(n))
			s.fit = append(s.fit, uint32(n))
			s.sup = append(s.sup, cl.f.of(class)...)
		}
		c.sums[string(c.key)] = s
	}
	s.sync()
	return s
}

// sumsMax bounds how many sets of supplies are remembered per matcher, shapesMax how many kinds of gangs per set.
const sumsMax = 256

func (s *domainSums) sync() {
	k := len(s.f.dims)
	if more := len(s.c.seq) - len(s.seen); more > 0 {
		s.seen, s.count = append(s.seen, make([]uint32, more)...), append(s.count, make([]int32, more)...)
		s.idle, s.total = append(s.idle, make([]int64, more*k)...), append(s.total, make([]int64, more*k)...)
	}
	for d, seq := range s.c.seq {
		if s.seen[d] == seq {
			continue
		}
		s.seen[d] = seq
		idle, total := s.idle[d*k:(d+1)*k], s.total[d*k:(d+1)*k]
		clear(idle)
		clear(total)
		s.count[d] = 0
		for i, n := range s.fit {
			sup := s.sup[i*k : (i+1)*k]
			at := d*s.c.supplies + int(n)
			a, b := s.c.n[inventory.IdlePool][at], s.c.n[inventory.SpeculativePool][at]
			if a == 0 && b == 0 {
				continue
			}
			s.count[d] += a + b
			for j, x := range sup {
				idle[j] = resource.AddSat(idle[j], resource.MulSat(x, int64(a)))
				total[j] = resource.AddSat(total[j], resource.MulSat(x, int64(b)))
			}
		}
		more(total, idle)
	}
}

// view computes the keys of 10.6 for a domain where nothing is creditable.
func (s *domainSums) view(t *topState, want []int64, d int) domainView {
	k := len(s.f.dims)
	idle, total := s.idle[d*k:(d+1)*k], s.total[d*k:(d+1)*k]
	v := domainView{value: t.top.Domains[d].Value, count: s.count[d], satisfiable: coversAll(total, want)}
	if v.satisfiable {
		v.withIdle, v.over = cappedScore(idle, want), uncappedScore(total, want)
	} else {
		v.total = cappedScore(total, want)
	}
	return v
}

// best returns the best domain where nothing is creditable, outside of skip: its position, or -1.
func (s *domainSums) best(p *planning, t *topState, want []int64, skip []int32) (int32, domainView) {
	s.c.key = s.c.key[:0]
	for _, x := range want {
		s.c.key = binary.LittleEndian.AppendUint64(s.c.key, uint64(x))
	}
	shape := s.shapes[string(s.c.key)]
	if shape != nil {
		shape.sync(p, t, s, want)
		return shape.best(p, skip)
	}
	if len(s.shapes) > shapesMax {
		clear(s.shapes)
	}
	s.shapes[string(s.c.key)] = &gangShape{} // the next one of its kind will find what this one leaves
	at := int32(-1)
	var best domainView
	k := len(s.f.dims)
	for d, n := range s.count {
		if n == 0 || at >= 0 && best.satisfiable && !coversAll(s.total[d*k:(d+1)*k], want) || slices.Contains(skip, int32(d)) {
			continue
		}
		if v := s.view(t, want, d); at < 0 || p.compareDomains(&v, &best) < 0 {
			at, best = int32(d), v
		}
	}
	return at, best
}

// gangShape is the domains in a tournament, for gangs with equal aggregates: most of a crowd of gangs are alike, and a
// gang that chooses changes one domain for the next.
type gangShape struct {
	seen  []uint32
	views []domainView
	tree  []int32 // heap order, leaves from len/2 on: the best domain below, or -1
	size  int     // leaves
}

func (g *gangShape) sync(p *planning, t *topState, s *domainSums, want []int64) {
	if g.tree == nil || len(g.seen) != len(s.seen) {
		n := len(s.seen)
		for g.size = 1; g.size < n; g.size *= 2 {
		}
		g.seen, g.views, g.tree = make([]uint32, n), make([]domainView, n), make([]int32, 2*g.size)
		for i := range g.tree {
			g.tree[i] = -1
		}
		for d := range g.seen {
			g.seen[d] = s.seen[d]
			g.views[d] = s.view(t, want, d)
			g.leaf(d)
		}
		for i := g.size - 1; i > 0; i-- {
			g.tree[i] = g.better(p, g.tree[2*i], g.tree[2*i+1])
		}
		return
	}
	for d, seq := range s.seen {
		if g.seen[d] == seq {
			continue
		}
		g.seen[d] = seq
		g.views[d] = s.view(t, want, d)
		g.leaf(d)
		for i := (g.size + d) / 2; i > 0; i /= 2 {
			g.tree[i] = g.better(p, g.tree[2*i], g.tree[2*i+1])
		}
	}
}

func (g *gangShape) leaf(d int) {
	g.tree[g.size+d] = -1
	if g.views[d].count > 0 {
		g.tree[g.size+d] = int32(d)
	}
}

func (g *gangShape) better(p *planning, a, b int32) int32 {
	if a < 0 || b >= 0 && p.compareDomains(&g.views[b], &g.views[a]) < 0 {
		return b
	}
	return a
}

func (g *gangShape) best(p *planning, skip []int32) (int32, domainView) {
	d := g.below(p, 1, skip)
	if d < 0 {
		return -1, domainView{}
	}
	return d, g.views[d]
}

// below is the best domain under a node, outside of skip.
func (g *gangShape) below(p *planning, node int, skip []int32) int32 {
	switch d := g.tree[node]; {
	case d < 0 || !slices.Contains(skip, d):
		return d
	case node >= g.size:
		return -1
	}
	return g.better(p, g.below(p, 2*node, skip), g.below(p, 2*node+1, skip))
}
