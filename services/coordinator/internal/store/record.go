package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

// A segment is a magic and frames of package wal. The metadata of the first frame is the generation and the first index. Each
// further frame is an entry: its metadata is index, term, type, time and extensions, its body is the data.
const (
	segmentMagic  = "BFLOG002"
	segmentHeader = len(segmentMagic) + wal.HeadBytes + 8 + 8
	entryMeta     = 8 + 8 + 1 + 8
)

// EntryBytesMax bounds the data of an entry, for writing and for reading. What is proposed has a far lower limit; this one leaves
// room for entries of earlier builds, which a follower must be able to store.
const EntryBytesMax = 512 << 20

var entryFormat = wal.Format{BodyMax: EntryBytesMax}

// errDamaged is a record or header that does not check out.
var errDamaged = errors.New("damaged")

func appendSegmentHeader(b []byte, generation, first uint64) ([]byte, error) {
	meta := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, generation), first)
	return entryFormat.Append(append(b, segmentMagic...), meta)
}

func parseSegmentHeader(b []byte) (generation, first uint64, err error) {
	if len(b) < segmentHeader || string(b[:len(segmentMagic)]) != segmentMagic {
		return 0, 0, errDamaged
	}
	f, err := entryFormat.Parse(b[len(segmentMagic):segmentHeader])
	if err != nil || len(f.Meta) != 16 || len(f.Body) != 0 {
		return 0, 0, errDamaged
	}
	return binary.BigEndian.Uint64(f.Meta), binary.BigEndian.Uint64(f.Meta[8:]), nil
}

// appendRecord encodes one entry.
func appendRecord(b []byte, l *raft.Log) ([]byte, error) {
	meta := make([]byte, 0, entryMeta+len(l.Extensions))
	meta = binary.BigEndian.AppendUint64(meta, l.Index)
	meta = binary.BigEndian.AppendUint64(meta, l.Term)
	meta = append(meta, byte(l.Type))
	appended := int64(0)
	if !l.AppendedAt.IsZero() {
		appended = l.AppendedAt.UnixNano()
	}
	meta = binary.BigEndian.AppendUint64(meta, uint64(appended))
	meta = append(meta, l.Extensions...)
	b, err := entryFormat.Append(b, meta, l.Data)
	if err != nil {
		return b, fmt.Errorf("entry %d: %w", l.Index, err)
	}
	return b, nil
}

// parseRecord decodes the record that b begins with. The entry does not share memory with b.
func parseRecord(b []byte, l *raft.Log) (size int, err error) {
	f, err := entryFormat.Parse(b)
	if err != nil {
		return 0, err
	}
	if len(f.Meta) < entryMeta {
		return 0, fmt.Errorf("%w: an entry has %d bytes of metadata", errDamaged, len(f.Meta))
	}
	*l = raft.Log{Index: binary.BigEndian.Uint64(f.Meta), Term: binary.BigEndian.Uint64(f.Meta[8:]), Type: raft.LogType(f.Meta[16])}
	if at := int64(binary.BigEndian.Uint64(f.Meta[17:])); at != 0 {
		l.AppendedAt = time.Unix(0, at)
	}
	if len(f.Meta) > entryMeta {
		l.Extensions = append([]byte(nil), f.Meta[entryMeta:]...)
	}
	l.Data = append([]byte(nil), f.Body...)
	return f.Size, nil
}
