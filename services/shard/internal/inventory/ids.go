package inventory

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// idIndex finds machines by id. It is many small indexes, chosen by the first bits of the hash, so that the insert
// that meets a full one moves a few thousand entries and never half a million (SHARD-4.7).
type idIndex [idParts]hashIndex

const idParts = 64

func (x *idIndex) find(t *Table, id string) (Index, bool) {
	h := hashText(id)
	n, ok := x[h%idParts].find(h, func(n uint32) bool { return t.ID(Index(n)) == id })
	return Index(n), ok
}

// insert adds a machine whose id is not in the index.
func (x *idIndex) insert(t *Table, i Index) {
	h := hashText(t.ID(i))
	x[h%idParts].insert(h, uint32(i), t.idHash)
}

func (x *idIndex) remove(t *Table, i Index) {
	h := hashText(t.ID(i))
	x[h%idParts].remove(h, uint32(i), t.idHash)
}

func (x *idIndex) clone() (out idIndex) {
	for k := range x {
		out[k] = x[k].clone()
	}
	return out
}

func (t *Table) idHash(n uint32) uint64 { return hashText(t.ID(Index(n))) }

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
