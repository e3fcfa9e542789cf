package cover

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// FreePool is what the plan at work has left of the free pools of the table. The lists of the table are not touched: machines that the plan took
// are marked and passed over.
type FreePool struct {
	inv    *inventory.Table
	free   [2][]int32  // by class
	cursor [2][]cursor // by class: nothing before it is free
	from   []freeFrom  // by id of the matcher
	taken  []uint64    // one bit per Index
	Taken  []inventory.Index
	Kinds  []Kind // of each of list
	Gen    uint32 // grows when something is given back, or a new plan begins: places remembered as empty may not be
}

// Kind is the class of a taken machine and the pool that it was in.
type Kind uint32

// Class is that of the machine.
func (k Kind) Class() uint32 { return uint32(k >> 1) }

// Pool is the one that the machine was in.
func (k Kind) Pool() inventory.Pool { return inventory.Pool(k & 1) }

type cursor struct {
	chunk, pos int32
	known      bool // first is the one found last, with this order
	first      Machine
	order      uint32
}

// Machine is a free machine.
type Machine struct {
	Index inventory.Index
	Class uint32
}

// Begin makes everything free that the table says is free.
func (s *FreePool) Begin(inv *inventory.Table) {
	s.inv = inv
	s.Gen++
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
	for _, i := range s.Taken {
		s.taken[i/64] = 0
	}
	s.Taken, s.Kinds = s.Taken[:0], s.Kinds[:0]
	if need := (inv.Bound() + 63) / 64; need > len(s.taken) {
		s.taken = append(s.taken, make([]uint64, need-len(s.taken))...)
	}
}

// IsTaken reports whether the plan took a free machine.
func (s *FreePool) IsTaken(i inventory.Index) bool { return s.taken[i/64]&(1<<(i%64)) != 0 }

// Left is how many machines of a class a pool has left.
func (s *FreePool) Left(k inventory.Pool, class uint32) int32 { return s.free[k][class] }

// Start is where the first free machine of a class may be.
func (s *FreePool) Start(k inventory.Pool, class uint32) (chunk, pos int) {
	c := s.cursor[k][class]
	return int(c.chunk), int(c.pos)
}

// Take marks a free machine as taken.
func (s *FreePool) Take(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] |= 1 << (i % 64)
	s.free[k][class]--
	s.Note(i, class, k)
}

// Note adds a taken machine to the list.
func (s *FreePool) Note(i inventory.Index, class uint32, k inventory.Pool) {
	if len(s.Taken) == cap(s.Taken) {
		s.Expect(max(len(s.Taken), 256))
	}
	s.Taken, s.Kinds = append(s.Taken, i), append(s.Kinds, Kind(class<<1|uint32(k)))
}

// Expect makes room for so many more that are taken.
func (s *FreePool) Expect(n int) { s.Taken, s.Kinds = slices.Grow(s.Taken, n), slices.Grow(s.Kinds, n) }

// Forget cuts the list to its first n.
func (s *FreePool) Forget(n int) { s.Taken, s.Kinds = s.Taken[:n], s.Kinds[:n] }

// GiveBack makes a machine free again that the plan took.
func (s *FreePool) GiveBack(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] &^= 1 << (i % 64)
	s.free[k][class]++
	s.cursor[k][class] = cursor{}
	s.Gen++
}

// freeFrom is from where on the classes of a matcher may hold something free, by pool.
type freeFrom struct {
	gen uint32 // of the free pools
	at  [2]int32
}

// First is the position of the first class of a matcher of which a pool has anything left.
func (s *FreePool) First(m *match.Matcher, k inventory.Pool) int {
	for int(m.ID) >= len(s.from) {
		s.from = append(s.from, freeFrom{})
	}
	x := &s.from[m.ID]
	if x.gen != s.Gen {
		*x = freeFrom{gen: s.Gen}
	}
	for int(x.at[k]) < len(m.Classes) && s.free[k][m.Classes[x.at[k]]] <= 0 {
		x.at[k]++
	}
	return int(x.at[k])
}

// Any reports whether a pool has anything left that matches.
func (s *FreePool) Any(m *match.Matcher, k inventory.Pool) bool {
	return s.First(m, k) < len(m.Classes)
}
