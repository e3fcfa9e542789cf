package aggregate

import "hash/maphash"

// index finds the slot of a request by its key: open addressing with linear probing, eight bytes a cell and no more than
// half of them used. The keys themselves are in the requests, which are looked at when the hash says that it is worth it.
// It is a third of the cost of a map with two strings as its key, and that was most of the cost of a roll-up.
type index struct {
	seed  maphash.Seed
	cells []cell // a power of two
	used  int
}

type cell struct {
	hash uint32
	slot int32 // from 1; 0: empty
}

const cellsMin = 16

func newIndex(n int) index {
	x := index{seed: maphash.MakeSeed()}
	size := cellsMin
	for size < 2*n {
		size *= 2
	}
	x.cells = make([]cell, size)
	return x
}

func (x *index) hash(namespace, name string) uint32 {
	h := maphash.String(x.seed, name) ^ maphash.String(x.seed, namespace)*3
	return uint32(h ^ h>>32)
}

// find returns the place of the cell that holds a key, or of the empty one where it belongs.
func (x *index) find(hash uint32, is func(slot int32) bool) int {
	mask := len(x.cells) - 1
	for at := int(hash) & mask; ; at = (at + 1) & mask {
		if c := &x.cells[at]; c.slot == 0 || c.hash == hash && is(c.slot-1) {
			return at
		}
	}
}

// put fills the empty cell that find returned.
func (x *index) put(at int, hash uint32, slot int32) {
	x.cells[at] = cell{hash, slot + 1}
	if x.used++; 2*x.used <= len(x.cells) {
		return
	}
	old := x.cells
	x.cells = make([]cell, 2*len(old))
	for _, c := range old {
		if c.slot != 0 {
			x.cells[x.find(c.hash, func(int32) bool { return false })] = c
		}
	}
}

// remove empties a cell, and moves up those behind it that were displaced.
func (x *index) remove(at int) {
	mask := len(x.cells) - 1
	for next := (at + 1) & mask; x.cells[next].slot != 0; next = (next + 1) & mask {
		home := int(x.cells[next].hash) & mask
		if (next-home)&mask >= (next-at)&mask { // its home is not between the gap and where it is
			x.cells[at], at = x.cells[next], next
		}
	}
	x.cells[at] = cell{}
	x.used--
}
