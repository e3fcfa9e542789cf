package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/hashicorp/raft"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	segmentMagic  = "BFLOG001"
	segmentHeader = 8 + 8 + 8 + 4 // magic, generation, first index, CRC
	recordHeader  = 4 + 4         // length of the body, CRC over length and body
	bodyHeader    = 8 + 8 + 1 + 8 + 4
	// recordMax bounds one entry; proposals are far smaller, and a length above it is damage.
	recordMax = 64 << 20
)

// errDamaged is a record or header that does not check out.
var errDamaged = errors.New("damaged")

func appendSegmentHeader(b []byte, generation, first uint64) []byte {
	start := len(b)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint64(b, generation)
	b = binary.BigEndian.AppendUint64(b, first)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func parseSegmentHeader(b []byte) (generation, first uint64, err error) {
	if len(b) < segmentHeader || string(b[:8]) != segmentMagic ||
		crc32.Checksum(b[:segmentHeader-4], castagnoli) != binary.BigEndian.Uint32(b[segmentHeader-4:]) {
		return 0, 0, errDamaged
	}
	return binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), nil
}

// appendRecord encodes one entry.
func appendRecord(b []byte, l *raft.Log) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, uint32(bodyHeader+len(l.Extensions)+len(l.Data)))
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, l.Index)
	b = binary.BigEndian.AppendUint64(b, l.Term)
	b = append(b, byte(l.Type))
	appended := int64(0)
	if !l.AppendedAt.IsZero() {
		appended = l.AppendedAt.UnixNano()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(appended))
	b = binary.BigEndian.AppendUint32(b, uint32(len(l.Extensions)))
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	sum := crc32.Update(crc32.Checksum(b[start:start+4], castagnoli), castagnoli, b[start+recordHeader:])
	binary.BigEndian.PutUint32(b[start+4:], sum)
	return b
}

// bodyLength reads the length of the record that starts at b.
func bodyLength(b []byte) (int, error) {
	if len(b) < recordHeader {
		return 0, errDamaged
	}
	n := binary.BigEndian.Uint32(b)
	if n < bodyHeader || n > recordMax {
		return 0, errDamaged
	}
	return int(n), nil
}

// parseRecord decodes one whole record. The entry does not share memory with b.
func parseRecord(b []byte, l *raft.Log) error {
	n, err := bodyLength(b)
	if err != nil || len(b) < recordHeader+n {
		return errDamaged
	}
	body := b[recordHeader : recordHeader+n]
	if crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, body) != binary.BigEndian.Uint32(b[4:]) {
		return errDamaged
	}
	ext := int(binary.BigEndian.Uint32(body[25:]))
	if ext > n-bodyHeader {
		return fmt.Errorf("%w: an entry with %d bytes of extensions in %d", errDamaged, ext, n)
	}
	*l = raft.Log{Index: binary.BigEndian.Uint64(body), Term: binary.BigEndian.Uint64(body[8:]), Type: raft.LogType(body[16])}
	if at := int64(binary.BigEndian.Uint64(body[17:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	if ext > 0 {
		l.Extensions = append([]byte(nil), body[bodyHeader:bodyHeader+ext]...)
	}
	l.Data = append([]byte(nil), body[bodyHeader+ext:]...)
	return nil
}

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
