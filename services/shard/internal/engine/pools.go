package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// stock is what the plan at work has left of the free pools of the table: the table's lists are not touched, machines
// that the plan took are marked and passed over.
type stock struct {
	inv    *inventory.Table
	free   [2][]int32  // by class
	cursor [2][]cursor // by class: nothing before it is free
	heads  [2][]head   // by class: what is free there
	taken  []uint64    // one bit per Index
	list   []inventory.Index
	ahead  uint32 // means nothing
	gen    uint32 // grows when something is given back, or a new plan begins: places remembered as empty may not be
}

type cursor struct{ chunk, pos int32 }

// head is the first free machine of a class, if known. Most looks at a class find the one that the look before found.
type head struct {
	at    inventory.Index
	order uint32 // the largest number where nothing is free
	known bool
}

// begin makes everything free that the table says is free.
func (s *stock) begin(inv *inventory.Table) {
	s.inv = inv
	s.gen++
	n := inv.Classes()
	for k := range s.free {
		s.free[k] = slices.Grow(s.free[k][:0], n)[:n]
		s.cursor[k] = slices.Grow(s.cursor[k][:0], n)[:n]
		clear(s.cursor[k])
		s.heads[k] = slices.Grow(s.heads[k][:0], n)[:n]
		clear(s.heads[k])
	}
	for c := range n {
		cl := inv.Class(uint32(c))
		s.free[0][c], s.free[1][c] = int32(cl.Pools[0].Len()), int32(cl.Pools[1].Len())
	}
	for _, i := range s.list {
		s.taken[i/64] = 0
	}
	s.list = s.list[:0]
	if need := (inv.Bound() + 63) / 64; need > len(s.taken) {
		s.taken = append(s.taken, make([]uint64, need-len(s.taken))...)
	}
}

func (s *stock) isTaken(i inventory.Index) bool { return s.taken[i/64]&(1<<(i%64)) != 0 }

// take marks a free machine as taken.
func (s *stock) take(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] |= 1 << (i % 64)
	s.free[k][class]--
	if len(s.list) == cap(s.list) {
		s.list = slices.Grow(s.list, max(len(s.list), 256))
	}
	s.list = append(s.list, i)
}

// head returns the first free machine of a class.
func (s *stock) head(class uint32, k inventory.Pool) head {
	h := &s.heads[k][class]
	if h.known && (h.order == atEnd || !s.isTaken(h.at)) {
		return *h
	}
	cur, chunks := &s.cursor[k][class], s.inv.Class(class).Pools[k].Chunks()
	*h = head{order: atEnd, known: true}
	for ; int(cur.chunk) < len(chunks); cur.chunk, cur.pos = cur.chunk+1, 0 {
		for list := chunks[cur.chunk]; int(cur.pos) < len(list); cur.pos++ {
			if i := list[cur.pos]; !s.isTaken(i) {
				if cur.pos%aheadTurns == 0 { // all that come soon are read together: see lookAhead
					sum := uint32(0)
					for _, i := range list[cur.pos:min(int(cur.pos)+aheadTurns, len(list))] {
						sum += s.inv.Row(i).Order
					}
					s.ahead = sum
				}
				h.at, h.order = i, s.inv.Row(i).Order
				return *h
			}
		}
	}
	return *h
}

// least returns the first free machine of some classes.
func (s *stock) least(slots []slot, k inventory.Pool) head {
	first := head{order: atEnd}
	for i := range slots {
		if h := s.head(slots[i].class, k); h.order < first.order {
			first = h
		}
	}
	return first
}

// next appends the first n free machines of a class to a list, by id. They are not taken yet.
func (s *stock) next(into []inventory.Index, class uint32, k inventory.Pool, n int32) []inventory.Index {
	chunks := s.inv.Class(class).Pools[k].Chunks()
	cur := &s.cursor[k][class]
	chunk, pos := int(cur.chunk), int(cur.pos)
	for first := true; chunk < len(chunks) && n > 0; chunk, pos = chunk+1, 0 {
		for list := chunks[chunk]; pos < len(list) && n > 0; pos++ {
			if s.isTaken(list[pos]) {
				continue
			}
			if first {
				first = false
				cur.chunk, cur.pos = int32(chunk), int32(pos)
			}
			into = append(into, list[pos])
			n--
		}
	}
	return into
}

// giveBack makes a machine free again that the plan took.
func (s *stock) giveBack(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] &^= 1 << (i % 64)
	s.free[k][class]++
	s.cursor[k][class], s.heads[k][class] = cursor{}, head{}
	s.gen++
}
