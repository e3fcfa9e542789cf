package inventory

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"unsafe"
)

// texts keeps short strings outside the garbage collector's sight: bytes in large blocks that are filled once and never
// moved, so that a string into one stays valid for as long as somebody holds it.
type texts struct {
	blocks [][]byte
	dead   int // bytes that no reference names any more
	size   int // bytes in use, dead ones included
}

// textRef names a string in texts: block and offset. Its length stands before its bytes. 0 is the empty string.
type textRef uint32

const (
	blockBits = 16
	blockSize = 1 << blockBits
)

// add stores s and returns its reference. A string longer than a block has one of its own.
func (a *texts) add(s string) textRef {
	need := len(s) + binary.MaxVarintLen64
	last := len(a.blocks) - 1
	if last < 0 || len(a.blocks[last])+need > blockSize {
		b := make([]byte, 0, max(blockSize, need))
		if last < 0 {
			b = append(b, 0) // reference 0 is the empty string
		}
		a.blocks = append(a.blocks, b)
		last++
	}
	at := len(a.blocks[last])
	a.blocks[last] = append(binary.AppendUvarint(a.blocks[last], uint64(len(s))), s...)
	a.size += len(s)
	return textRef(last<<blockBits | at)
}

// text returns the string at r without copying it. Blocks are append-only and never reallocated, so the bytes under a
// string never change.
func (a *texts) text(r textRef) string {
	if r == 0 {
		return ""
	}
	b := a.blocks[r>>blockBits][r&(blockSize-1):]
	n, head := uint64(b[0]), 1
	if n >= 0x80 {
		n, head = binary.Uvarint(b)
	}
	if n == 0 {
		return ""
	}
	return unsafe.String(&b[head], int(n))
}

// drop says that nobody names the string at r any more.
func (a *texts) drop(r textRef) { a.dead += len(a.text(r)) }

// wasteful reports whether more than half of a good deal of memory is dead.
func (a *texts) wasteful() bool { return a.dead > a.size/2 && a.dead >= blockSize }

func (a *texts) clone() texts {
	// Full blocks are shared; the last one is still growing and must not grow under two owners.
	c := texts{blocks: slices.Clone(a.blocks), dead: a.dead, size: a.size}
	if n := len(c.blocks); n > 0 {
		c.blocks[n-1] = slices.Clip(c.blocks[n-1])
	}
	return c
}

// idIndex finds machines by id: a flat table with linear probing. A slot is the low half of the id's hash and Index+1;
// 0 is empty. With the hash at hand a table that grows reads no id again: half a million of them take a few milliseconds.
type idIndex struct {
	slots []uint64
	used  int
}

func slotOf(i Index, hash uint64) uint64 { return hash<<32 | uint64(i) + 1 }

func slotIndex(s uint64) Index { return Index(uint32(s) - 1) }

// hashText is a multiply-fold hash. It finds things; it never orders them.
func hashText(s string) uint64 {
	const k = 0x9E3779B97F4A7C15
	h := uint64(len(s)) * k
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for len(b) >= 8 {
		hi, lo := bits.Mul64(h^binary.LittleEndian.Uint64(b), k)
		h = hi ^ lo
		b = b[8:]
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	hi, lo := bits.Mul64(h^tail, 0xD6E8FEB86659FD93)
	return hi ^ lo
}

func (x *idIndex) find(t *Table, id string) (Index, bool) {
	if len(x.slots) == 0 {
		return None, false
	}
	mask := uint64(len(x.slots) - 1)
	hash := hashText(id) & math.MaxUint32
	for at := hash & mask; x.slots[at] != 0; at = (at + 1) & mask {
		if s := x.slots[at]; s>>32 == hash && t.ID(slotIndex(s)) == id {
			return slotIndex(s), true
		}
	}
	return None, false
}

// insert adds a machine whose id is not in the index.
func (x *idIndex) insert(t *Table, i Index) {
	if 4*(x.used+1) > 3*len(x.slots) {
		old := x.slots
		x.slots = make([]uint64, max(64, 2*len(old)))
		for _, s := range old {
			if s != 0 {
				x.place(s)
			}
		}
	}
	x.place(slotOf(i, hashText(t.ID(i))))
	x.used++
}

func (x *idIndex) place(slot uint64) {
	mask := uint64(len(x.slots) - 1)
	at := slot >> 32 & mask
	for x.slots[at] != 0 {
		at = (at + 1) & mask
	}
	x.slots[at] = slot
}

// remove takes a machine out and moves up what probing had pushed behind it.
func (x *idIndex) remove(t *Table, i Index) {
	mask := uint64(len(x.slots) - 1)
	at := hashText(t.ID(i)) & math.MaxUint32 & mask
	for slotIndex(x.slots[at]) != i {
		at = (at + 1) & mask
	}
	x.used--
	for hole := at; ; {
		x.slots[hole] = 0
		next := hole
		for {
			next = (next + 1) & mask
			if x.slots[next] == 0 {
				return
			}
			home := x.slots[next] >> 32 & mask
			if (next-home)&mask >= (next-hole)&mask {
				break
			}
		}
		x.slots[hole] = x.slots[next]
		hole = next
	}
}
