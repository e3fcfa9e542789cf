package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// stock is what the plan at work has left of the free pools of the table: the table's lists are not touched, machines
// that the plan took are marked and passed over.
type stock struct {
	inv    *inventory.Table
	cat    *catalog
	free   [2][]int32  // by class
	piled  [2][]int32  // the same by pile of the catalog
	cursor [2][]cursor // by class: nothing before it is free
	heads  [2][]head   // by class: what is free there
	taken  []uint64    // one bit per Index
	list   []inventory.Index
	kinds  []takenKind // of each of list
	ahead  uint32      // means nothing
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

// head is the first free machine of a class, if known. Most looks at a class find the one that the look before found.
type head struct {
	at    inventory.Index
	order uint32 // the largest number where nothing is free
	known bool
}

// begin makes everything free that the table says is free.
func (s *stock) begin(inv *inventory.Table, cat *catalog) {
	s.inv, s.cat = inv, cat
	s.gen++
	n := inv.Classes()
	for k := range s.free {
		s.free[k] = slices.Grow(s.free[k][:0], n)[:n]
		s.cursor[k] = slices.Grow(s.cursor[k][:0], n)[:n]
		clear(s.cursor[k])
		s.heads[k] = slices.Grow(s.heads[k][:0], n)[:n]
		clear(s.heads[k])
		s.piled[k] = slices.Grow(s.piled[k][:0], len(cat.piled))[:len(cat.piled)]
		clear(s.piled[k])
	}
	for c := range n {
		cl := inv.Class(uint32(c))
		for k := range s.free {
			free := int32(cl.Pools[k].Len())
			s.free[k][c] = free
			s.piled[k][cat.pile[c]] += free
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

// whole reports whether a pile is still the so many classes that somebody knows to be of it.
func (s *stock) whole(pile, classes int32) bool { return s.cat.piled[pile] == classes }

func (s *stock) isTaken(i inventory.Index) bool { return s.taken[i/64]&(1<<(i%64)) != 0 }

// take marks a free machine as taken.
func (s *stock) take(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] |= 1 << (i % 64)
	s.free[k][class]--
	s.piled[k][s.cat.pile[class]]--
	s.note(i, class, k)
}

// note adds a taken machine to the list.
func (s *stock) note(i inventory.Index, class uint32, k inventory.Pool) {
	if len(s.list) == cap(s.list) {
		s.expect(max(len(s.list), 256))
	}
	s.list, s.kinds = append(s.list, i), append(s.kinds, takenKind(class<<1|uint32(k)))
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

// least returns the first free machine of some classes, and which it is of.
func (s *stock) least(slots []slot, k inventory.Pool) (first head, class uint32) {
	first = head{order: atEnd}
	for i := range slots {
		if h := s.head(slots[i].class, k); h.order < first.order {
			first, class = h, slots[i].class
		}
	}
	return first, class
}

// next appends the first n free machines of a class to a list, by id. They are not taken yet.
func (s *stock) next(into []free, class uint32, k inventory.Pool, n int32) []free {
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
			into = append(into, free{list[pos], class})
			n--
		}
	}
	return into
}

// expect makes room for so many more that are taken.
func (s *stock) expect(n int) { s.list, s.kinds = slices.Grow(s.list, n), slices.Grow(s.kinds, n) }

// forget cuts the list to its first n.
func (s *stock) forget(n int) { s.list, s.kinds = s.list[:n], s.kinds[:n] }

// giveBack makes a machine free again that the plan took.
func (s *stock) giveBack(i inventory.Index, class uint32, k inventory.Pool) {
	s.taken[i/64] &^= 1 << (i % 64)
	s.free[k][class]++
	s.piled[k][s.cat.pile[class]]++
	s.cursor[k][class], s.heads[k][class] = cursor{}, head{}
	s.gen++
}
