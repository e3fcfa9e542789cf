package store

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digest is a checksum of all keys and values of the tables. It is a sum, so that a write changes it by what it replaces.
type digest struct{ entries, sum uint64 }

func (d *digest) add(t Table, key, value []byte) {
	d.entries++
	d.sum += hashOf(t, key, value)
}

func (d *digest) remove(t Table, key, value []byte) {
	d.entries--
	d.sum -= hashOf(t, key, value)
}

func hashOf(t Table, key, value []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	var head [9]byte
	head[0] = byte(t)
	binary.BigEndian.PutUint64(head[1:], uint64(len(key)))
	_, _ = d.Write(head[:]) // never fails
	_, _ = d.Write(key)
	_, _ = d.Write(value)
	return d.Sum64()
}

// head is what the base says about itself. It is written with every transaction.
type head struct {
	id      uint64 // of the log; every frame carries it
	applied uint64 // number of the newest batch that is wholly in the tables
	digest  digest
}

const headBytes = 1 + 4*8 + 4

func (h head) encode() []byte {
	b := []byte{1}
	for _, n := range []uint64{h.id, h.applied, h.digest.entries, h.digest.sum} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeHead(b []byte) (head, bool) {
	if len(b) != headBytes || b[0] != 1 || crc32.Checksum(b[:headBytes-4], castagnoli) != binary.BigEndian.Uint32(b[headBytes-4:]) {
		return head{}, false
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[1+8*i:]) }
	return head{id: n(0), applied: n(1), digest: digest{n(2), n(3)}}, true
}
