package inventory

import (
	"encoding/binary"
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

// drop ends the use of the string at r.
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
