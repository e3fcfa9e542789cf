package store

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	markMagic = 0x42464d4b // "BFMK"
	markBytes = 4 + 8*6 + 4
	markSlot  = 4096 // apart, so that one torn page cannot take both slots
)

// mark says how far the log was acknowledged. It is written after each append without a sync: that survives the end of
// the process, and after a loss of power an older one merely makes fewer demands.
type mark struct {
	seq        uint64 // the newest of two slots counts
	generation uint64 // segments of other generations were deleted
	first      uint64 // lowest index that is part of the log; 0: the log is empty
	last       uint64 // highest acknowledged index; 0: none
	segment    uint64 // first index of the segment that holds last
	end        uint64 // offset behind last in it
}

func (m mark) encode() []byte {
	b := binary.BigEndian.AppendUint32(nil, markMagic)
	for _, n := range []uint64{m.seq, m.generation, m.first, m.last, m.segment, m.end} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func parseMark(b []byte) (mark, bool) {
	if len(b) < markBytes || binary.BigEndian.Uint32(b) != markMagic ||
		crc32.Checksum(b[:markBytes-4], castagnoli) != binary.BigEndian.Uint32(b[markBytes-4:markBytes]) {
		return mark{}, false
	}
	at := func(i int) uint64 { return binary.BigEndian.Uint64(b[4+8*i:]) }
	return mark{seq: at(0), generation: at(1), first: at(2), last: at(3), segment: at(4), end: at(5)}, true
}
