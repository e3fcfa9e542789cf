package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// stock is what the plan at work has left of the free pools of the table: the table's lists are not touched, machines
// that the plan took are marked and passed over.
type freePool struct {
	inv    *inventory.Table
	free   [2][]int32  // by class
	cursor [2][]cursor // by class: nothing before it is free
	from   []freeFrom  // by id of the matcher
	taken  []uint64    // one bit per Index
	list   []inventory.Index
	kinds  []takenKind // of each of list
	gen    uint32      // grows when something is given back, or a new plan begins: places remembered as empty may not be
}

// takenKind is the class of a taken machine and the pool that it was in.
type takenKind uint32

func (k takenKind) class() uint32        { return uint32(k >> 1) }
func (k takenKind) pool() inventory.Pool { return inventory.Pool(k & 1) }

type cursor struct{ chunk, pos int32 }

// free is a free machine.
type free struct {
	idx   inventory.Index
	class uint32
}

// begin makes everything free that the table says is free.
func (s *freePool) begin(inv *inventory.Table) {
	s.inv = inv
	s.gen++
	n := inv.Classes()
	for k := range s.free {
		s.free[k] = slices.Grow(s.free[k][:0], n)[:n]
		s.cursor[k] = slices.Grow(s.cursor[k][:0], n)[:n]
		clear(s.cursor[k])
	}
	for c := range n {
		cl := inv.Class(uint32(c))
		for k := range s.free {
			s.free[k][c] = int32(cl.Pools[k].Len())
		}
	}
	for _, i := range s.list {
		s.taken[i/64] = 0
	}
	s.list, s.kinds = s.list[:0], s.kinds[:0]
	if need := (inv.Bound() + 63) / 64; need > len(s.taken) {
		s.taken = append(s.taken, make([]uint64, need-len(s.taken))...)
	}
}

func (s *freePool) isTaken(i inventory.Index) bool { return s.taken[i/64]&(1<<(i%64)) != 0 }

// take marks a free machine as taken.
func (s *freePool) take(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] |= 1 << (i % 64)
	s.free[k][class]--
	s.note(i, class, k)
}

// note adds a taken machine to the list.
func (s *freePool) note(i inventory.Index, class uint32, k inventory.Pool) {
	if len(s.list) == cap(s.list) {
		s.expect(max(len(s.list), 256))
	}
	s.list, s.kinds = append(s.list, i), append(s.kinds, takenKind(class<<1|uint32(k)))
}

// expect makes room for so many more that are taken.
func (s *freePool) expect(n int) { s.list, s.kinds = slices.Grow(s.list, n), slices.Grow(s.kinds, n) }

// forget cuts the list to its first n.
func (s *freePool) forget(n int) { s.list, s.kinds = s.list[:n], s.kinds[:n] }

// giveBack makes a machine free again that the plan took.
func (s *freePool) giveBack(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] &^= 1 << (i % 64)
	s.free[k][class]++
	s.cursor[k][class] = cursor{}
	s.gen++
}

// freeFrom is from where on the classes of a matcher may hold something free, by pool.
type freeFrom struct {
	gen uint32 // of the stock
	at  [2]int32
}

// first is the position of the first class of a matcher of which a pool has anything left.
func (s *freePool) first(m *match.Matcher, k inventory.Pool) int {
	for int(m.ID) >= len(s.from) {
		s.from = append(s.from, freeFrom{})
	}
	x := &s.from[m.ID]
	if x.gen != s.gen {
		*x = freeFrom{gen: s.gen}
	}
	for int(x.at[k]) < len(m.Classes) && s.free[k][m.Classes[x.at[k]]] <= 0 {
		x.at[k]++
	}
	return int(x.at[k])
}

// any reports whether a pool has anything left that matches.
func (s *freePool) any(m *match.Matcher, k inventory.Pool) bool {
	return s.first(m, k) < len(m.Classes)
}
