package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

// Segments of earlier builds have a framing of their own. They are read, never written: an append behind one begins a new segment.
const (
	legacyMagic      = "BFLOG001"
	legacyHeader     = 8 + 8 + 8 + 4 // magic, generation, first index, CRC
	legacyRecordHead = 4 + 4         // length of the body, CRC over length and body
	legacyBodyHead   = 8 + 8 + 1 + 8 + 4
)

func parseLegacyHeader(b []byte) (generation, first uint64, err error) {
	if len(b) < legacyHeader || string(b[:8]) != legacyMagic ||
		crc32.Checksum(b[:legacyHeader-4], castagnoli) != binary.BigEndian.Uint32(b[legacyHeader-4:]) {
		return 0, 0, errDamaged
	}
	return binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), nil
}

// parseLegacyRecord decodes the record that b begins with. The entry does not share memory with b. Its size is bounded by b
// alone: earlier builds wrote entries that they then refused to read.
func parseLegacyRecord(b []byte, l *raft.Log) (size int, err error) {
	if len(b) < legacyRecordHead {
		return 0, errDamaged
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n < legacyBodyHead || n > uint64(len(b)-legacyRecordHead) {
		return 0, errDamaged
	}
	size = legacyRecordHead + int(n)
	body := b[legacyRecordHead:size]
	if crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, body) != binary.BigEndian.Uint32(b[4:]) {
		return 0, errDamaged
	}
	ext := uint64(binary.BigEndian.Uint32(body[25:]))
	if ext > n-legacyBodyHead {
		return 0, fmt.Errorf("%w: an entry with %d bytes of extensions in %d", errDamaged, ext, n)
	}
	*l = raft.Log{Index: binary.BigEndian.Uint64(body), Term: binary.BigEndian.Uint64(body[8:]), Type: raft.LogType(body[16])}
	if at := int64(binary.BigEndian.Uint64(body[17:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	if ext > 0 {
		l.Extensions = append([]byte(nil), body[legacyBodyHead:legacyBodyHead+ext]...)
	}
	l.Data = append([]byte(nil), body[legacyBodyHead+ext:]...)
	return size, nil
}
