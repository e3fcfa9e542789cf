package planner

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
)

// spares is what claimed machines of a cluster have left for shares (ENG-11.4).
type spares struct {
	parts [2]spareTree // the bound ones, and those in flight
	place []int32      // of machines in their part
}

const boundSpares, flightSpares = 0, 1

// begin forgets all machines. The trees are narrow, and so deep with few machines, if narrow says so.
func (s *spares) begin(narrow bool) {
	s.place = s.place[:0]
	for i := range s.parts {
		s.parts[i].begin(narrow)
	}
}

// none reports whether no machine has anything left.
func (s *spares) none() bool { return s.parts[boundSpares].listed+s.parts[flightSpares].listed == 0 }

// of returns the part of a machine.
func (s *spares) of(l *machineState) *spareTree {
	if l.state.Bound() {
		return &s.parts[boundSpares]
	}
	return &s.parts[flightSpares]
}

// list notes what a machine has left. If that is less than what every recipient asks for, it is nothing.
func (s *spares) list(cl *clusterState, at int32, left []int64) {
	if !match.Covers(left, cl.least) {
		s.unlist(cl, at)
		return
	}
	s.placeAll(cl)
	l := &cl.machines[at]
	part := s.of(l)
	part.set(s.place[at], left)
	if l.bits&lListed == 0 {
		l.bits |= lListed
		part.listed++
	}
}

// placeAll gives machines a place that have none: those that the cluster had before the plan by class and in pack
// order, so that blocks are mostly alike.
func (s *spares) placeAll(cl *clusterState) {
	n := len(s.place)
	if n == len(cl.machines) {
		return
	}
	more := make([]int32, 0, len(cl.machines)-n)
	for at := n; at < len(cl.machines); at++ {
		more = append(more, int32(at))
	}
	slices.SortFunc(more, func(a, b int32) int {
		return cmp.Or(cmp.Compare(cl.machines[a].class, cl.machines[b].class), cl.pack(a, b))
	})
	s.place = slices.Grow(s.place, len(more))[:len(cl.machines)]
	for _, at := range more {
		s.place[at] = s.of(&cl.machines[at]).add(cl, at)
	}
}

// unlist notes that a machine has nothing left.
func (s *spares) unlist(cl *clusterState, at int32) {
	if l := &cl.machines[at]; l.bits&lListed != 0 {
		l.bits &^= lListed
		part := s.of(l)
		part.listed--
		part.up = append(part.up[:0], cl.least...)
		clear(part.up)
		part.set(s.place[at], part.up)
	}
}

// spareTree knows of each block of machines the most that any of them has left in each dimension, and of each block of blocks. A Need looks at few of thousands
// of machines so: one cluster can state as many Needs that share as rows (ENG-21.9).
type spareTree struct {
	fan    int       // machines in a block, and blocks in one of the next level
	left   [][]int64 // by level: of each block, by dimension and place in the block
	nodes  [][]spare // by level: machines, then blocks of the level before
	up     []int64   // scratch
	listed int       // machines that have something left
}

// spare is a machine, or the blocks below: the first machine in pack order, and the class if it is the same for all.
type spare struct {
	first int32
	class int64 // or manyClasses
}

const manyClasses = -1

func (s *spareTree) begin(narrow bool) {
	s.fan, s.listed = 16, 0
	if narrow {
		s.fan = 2
	}
	for l := range s.nodes {
		s.nodes[l], s.left[l] = s.nodes[l][:0], s.left[l][:0]
	}
}

// add makes room for a machine and returns its place.
func (s *spareTree) add(cl *clusterState, at int32) int32 {
	n, added := spare{at, int64(cl.machines[at].class)}, 0
	if len(s.nodes) > 0 {
		added = len(s.nodes[0])
	}
	for l, i := 0, added; ; l, i = l+1, i/s.fan {
		if l == len(s.nodes) {
			s.nodes, s.left = append(s.nodes, nil), append(s.left, nil)
		}
		if l > 0 && len(s.nodes[l]) == 0 { // for the first block of the level before, too
			s.put(cl, l, 0, s.nodes[l-1][0])
			for _, below := range s.nodes[l-1][:s.fan] {
				s.put(cl, l, 0, below)
			}
			s.most(l-1, 0, cl.dimensions())
			s.write(l, 0, s.up)
		}
		s.put(cl, l, i, n)
		if len(s.nodes[l]) <= s.fan {
			return int32(added)
		}
	}
}

// put makes n a part of a node.
func (s *spareTree) put(cl *clusterState, l, i int, n spare) {
	if i == len(s.nodes[l]) {
		if i%s.fan == 0 {
			s.left[l] = append(s.left[l], make([]int64, cl.dimensions()*s.fan)...)
		}
		s.nodes[l] = append(s.nodes[l], n)
		return
	}
	have := &s.nodes[l][i]
	if cl.pack(n.first, have.first) < 0 {
		have.first = n.first
	}
	if n.class != have.class {
		have.class = manyClasses
	}
}

// block returns what is left in a block of a level: by dimension and place.
func (s *spareTree) block(l, b, dims int) []int64 { return s.left[l][b*dims*s.fan:][:dims*s.fan] }

// most finds the most that is left in a block.
func (s *spareTree) most(l, b, dims int) {
	s.up = s.up[:0]
	for cells := s.block(l, b, dims); len(cells) > 0; cells = cells[s.fan:] {
		s.up = append(s.up, slices.Max(cells[:s.fan]))
	}
}

// write notes what is left at a place of a level, and reports whether it was something else.
func (s *spareTree) write(l, i int, left []int64) (changed bool) {
	cells := s.block(l, i/s.fan, len(left))
	for j, v := range left {
		if c := &cells[j*s.fan+i%s.fan]; *c != v {
			*c, changed = v, true
		}
	}
	return changed
}

// set notes what the machine at a place has left.
func (s *spareTree) set(i int32, left []int64) {
	for l, i := 0, int(i); s.write(l, i, left) && len(s.nodes[l]) > s.fan; l, i = l+1, i/s.fan {
		s.most(l, i/s.fan, len(left))
		left = s.up
	}
}

// candidate is a machine, or machines in a block of spares, and how many whole units of a Need they have left, of a block the most that one can have.
type candidate struct {
	k     int64
	first int32 // machine
	part  int8  // of spares
	level int8  // of the block; -1: a machine
	block int32
}

// offers finds the machines that have something left for one Need, those with more units first, then in pack order (ENG-11.6).
type offers struct {
	cl     *clusterState
	w      *needState
	unit   []int64
	asked  []int       // dimensions
	values []int64     // of the key of a hard spread
	list   []candidate // a heap, the next one first
	opened int         // blocks, for tests
}

// begin starts to look for what some parts of spares have left for a Need.
func (o *offers) begin(cl *clusterState, w *needState, parts []int8, values []int64) {
	o.cl, o.w, o.unit, o.asked, o.values, o.list = cl, w, cl.unit(w), o.asked[:0], values, o.list[:0]
	for j, u := range o.unit {
		if u > 0 {
			o.asked = append(o.asked, j)
		}
	}
	for _, part := range parts {
		if s := &cl.spares.parts[part]; s.listed > 0 {
			top := int8(0)
			for len(s.nodes[top]) > s.fan {
				top++
			}
			o.open(part, top, 0)
		}
	}
}

// next returns the next machine and how many whole units of the Need it has left (ENG-11.5).
func (o *offers) next() (at int32, k int64, ok bool) {
	for len(o.list) > 0 {
		c, last := o.list[0], len(o.list)-1
		o.list[0], o.list = o.list[last], o.list[:last]
		if last > 0 {
			heap.Fix(o, 0)
		}
		if c.level < 0 {
			return c.first, c.k, true
		}
		o.open(c.part, c.level, c.block)
	}
	return 0, 0, false
}

// open adds what is in a block to the list.
func (o *offers) open(part, level int8, block int32) {
	o.opened++
	s, m := &o.cl.spares.parts[part], o.cl.matcher(o.w)
	cells := s.block(int(level), int(block), o.cl.dimensions())
	nodes := s.nodes[level][int(block)*s.fan:]
	for i := range nodes[:min(s.fan, len(nodes))] {
		k := int64(-1)
		for _, j := range o.asked {
			left := cells[j*s.fan+i]
			if left < o.unit[j] {
				k = 0
				break
			}
			if n := left / o.unit[j]; k < 0 || n < k {
				k = n
			}
		}
		if n := nodes[i]; k > 0 && (n.class == manyClasses || m.Has(uint32(n.class))) {
			if level == 0 {
				k = o.of(n.first, k)
			}
			if k > 0 {
				o.add(candidate{k, n.first, part, level - 1, block*int32(s.fan) + int32(i)})
			}
		}
	}
}

// of is how many of k units that a machine has left are for the Need.
func (o *offers) of(at int32, k int64) int64 {
	cl, l := o.cl, &o.cl.machines[at]
	if l.claim < 0 || l.claim == o.w.at || l.bits&(lKept|lGone) != 0 || o.values != nil && o.values[at] < 0 {
		return 0
	}
	if most := int64(cl.perHost(o.w)); most > 0 {
		for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
			if cl.shares[i].to == o.w.at {
				most -= cl.shares[i].units
			}
		}
		k = min(k, most)
	}
	return k
}

// add puts a candidate into the list.
func (o *offers) add(c candidate) {
	o.list = append(o.list, c)
	heap.Fix(o, len(o.list)-1)
}

func (o *offers) Len() int      { return len(o.list) }
func (o *offers) Swap(i, j int) { o.list[i], o.list[j] = o.list[j], o.list[i] }
func (o *offers) Push(any)      {} // it boxes what it moves: add and next do without
func (o *offers) Pop() any      { return nil }
func (o *offers) Less(i, j int) bool {
	a, b := &o.list[i], &o.list[j]
	return a.k > b.k || a.k == b.k && o.cl.pack(a.first, b.first) < 0
}
