package inventory

import (
	"math/bits"
	"slices"
)

// hashIndex finds numbers by the hash of what they stand for: a flat table with linear probing, four bytes a slot and no
// pointer. A slot holds the number + 1 and above it eight bits of the hash, so that a search hardly ever looks at a
// stranger; 0 is empty. Numbers stay below 2^24: the order of ids ends before that (idOrder).
type hashIndex struct {
	slots []uint32
	used  int
}

const (
	tagShift   = 24
	numberMask = 1<<tagShift - 1
)

func slotOf(n uint32, hash uint64) uint32 { return uint32(hash>>32)&^numberMask | n + 1 }

// home is where the search for a hash begins: its low half, spread over any number of slots.
func (x *hashIndex) home(hash uint64) int {
	hi, _ := bits.Mul64(hash<<32|hash>>32, uint64(len(x.slots)))
	return int(hi)
}

func (x *hashIndex) next(at int) int {
	if at++; at == len(x.slots) {
		return 0
	}
	return at
}

// find returns the number with this hash that is the one.
func (x *hashIndex) find(hash uint64, is func(n uint32) bool) (uint32, bool) {
	if x.used == 0 {
		return 0, false
	}
	tag := slotOf(0, hash) &^ numberMask
	for at := x.home(hash); x.slots[at] != 0; at = x.next(at) {
		if s := x.slots[at]; s&^numberMask == tag && is(s&numberMask-1) {
			return s&numberMask - 1, true
		}
	}
	return 0, false
}

// insert adds a number that is not in the index. hashOf gives the hash of any number that is.
func (x *hashIndex) insert(hash uint64, n uint32, hashOf func(n uint32) uint64) {
	if n >= numberMask {
		panic("inventory: more numbers than an index can hold")
	}
	if 5*(x.used+1) > 4*len(x.slots) {
		old := x.slots
		// By half: each time every number is looked up for its hash, which is not kept, and that is a cache miss.
		x.slots = make([]uint32, max(8, len(old)+len(old)/2))
		for _, s := range old {
			if s != 0 {
				x.place(hashOf(s&numberMask-1), s)
			}
		}
	}
	x.place(hash, slotOf(n, hash))
	x.used++
}

func (x *hashIndex) place(hash uint64, slot uint32) {
	at := x.home(hash)
	for x.slots[at] != 0 {
		at = x.next(at)
	}
	x.slots[at] = slot
}

// remove takes a number out and moves up what probing had pushed behind it.
func (x *hashIndex) remove(hash uint64, n uint32, hashOf func(n uint32) uint64) {
	at := x.home(hash)
	for x.slots[at]&numberMask != n+1 {
		at = x.next(at)
	}
	x.used--
	for hole := at; ; {
		x.slots[hole] = 0
		next := hole
		for {
			next = x.next(next)
			s := x.slots[next]
			if s == 0 {
				return
			}
			if x.distance(x.home(hashOf(s&numberMask-1)), next) >= x.distance(hole, next) {
				break
			}
		}
		x.slots[hole] = x.slots[next]
		hole = next
	}
}

// distance is how many slots a search takes from one to another.
func (x *hashIndex) distance(from, to int) int {
	if to < from {
		return to - from + len(x.slots)
	}
	return to - from
}

// hashNumbers is a hash of a few numbers.
func hashNumbers(list ...uint64) uint64 {
	h := uint64(len(list))
	for _, x := range list {
		hi, lo := bits.Mul64(h^x^0xD6E8FEB86659FD93, 0x9E3779B97F4A7C15)
		h = hi ^ lo
	}
	return h
}

func (x *hashIndex) clone() hashIndex { return hashIndex{slots: slices.Clone(x.slots), used: x.used} }
