package demand

import (
	"math/bits"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// keyIndex finds rows of one cluster by their row key: a flat table with linear probing and no pointer. A map takes three
// times the memory, and a collection goes through each of its parts.
type keyIndex []keySlot

type keySlot struct {
	key symbol.ID
	at  int32 // position of the row, plus 1; 0 is an empty slot
}

// newKeyIndex returns an index with room for so many rows.
func newKeyIndex(rows int) keyIndex {
	if rows == 0 {
		return nil
	}
	return make(keyIndex, 1<<bits.Len(uint(rows+rows/3)))
}

// slot is where a key is, or where it would be put.
func (x keyIndex) slot(key symbol.ID) *keySlot {
	mask := uint32(len(x) - 1)
	at := uint32(uint64(uint32(key)*0x9E3779B1) * uint64(len(x)) >> 32) // keys are dense: the upper bits of the product are spread
	for x[at].at != 0 && x[at].key != key {
		at = (at + 1) & mask
	}
	return &x[at]
}

func (x keyIndex) find(key symbol.ID) (int, bool) {
	if len(x) == 0 {
		return 0, false
	}
	at := x.slot(key).at
	return int(at) - 1, at != 0
}

// set notes the position of a row. There is room for it.
func (x keyIndex) set(key symbol.ID, at int) { *x.slot(key) = keySlot{key, int32(at) + 1} }
