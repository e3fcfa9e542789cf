package audit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Segments of earlier builds have a header of their own in front of each block. They are read, never written:
//
//	kind 1 byte | length of the payload 4 | crc32c of the payload 4 | first time 8 | last time 8 | entries 4 | crc32c of this header 4
const (
	legacyMagic      = "bigfleet decision log 2\n"
	legacyHeaderSize = 33
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// scanLegacy is scan behind the magic of an earlier build.
func scanLegacy(path string, r *bufio.Reader, want func(block) bool, each func(block, []byte) error) error {
	at, entries := int64(len(legacyMagic)), int64(1)
	located := func(err error) error {
		var d *Damage
		if errors.As(err, &d) && d.File == "" {
			d.File, d.Offset, d.Entry = path, at, entries
		}
		return err
	}
	for {
		b, err := nextLegacyBlock(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return located(err)
		}
		if want(b) {
			if err := readLegacyBlock(r, b, func(raw []byte) error {
				err := each(b, raw)
				if err == nil {
					entries++
				}
				return err
			}); err != nil {
				return located(err)
			}
		} else {
			if n, err := io.CopyN(io.Discard, r, b.size); err != nil || n != b.size {
				return located(&Damage{Why: "the file ends within a block", Tail: true})
			}
			entries += int64(b.entries)
		}
		at += legacyHeaderSize + b.size
	}
}

func nextLegacyBlock(r io.Reader) (block, error) {
	var h [legacyHeaderSize]byte
	if n, err := io.ReadFull(r, h[:]); err != nil {
		if n == 0 && errors.Is(err, io.EOF) {
			return block{}, io.EOF
		}
		return block{}, &Damage{Why: "the file ends within the header of a block", Tail: true}
	}
	b := block{kind: blockKind(h[0]), size: int64(binary.BigEndian.Uint32(h[1:])), crc: binary.BigEndian.Uint32(h[5:]),
		first: int64(binary.BigEndian.Uint64(h[9:])), last: int64(binary.BigEndian.Uint64(h[17:])), entries: int(binary.BigEndian.Uint32(h[25:]))}
	switch {
	case b.kind < blockHead || b.kind > blockRecords:
		return block{}, &Damage{Why: fmt.Sprintf("block kind %d does not exist: the block's header is overwritten", b.kind)}
	case b.size > blockMax:
		return block{}, &Damage{Why: fmt.Sprintf("a block cannot have %d bytes: its header is overwritten", b.size)}
	case crc32.Checksum(h[:29], crcTable) != binary.BigEndian.Uint32(h[29:]):
		return block{}, &Damage{Why: "the checksum of a block's header does not match"}
	}
	return b, nil
}

func readLegacyBlock(r io.Reader, b block, each func([]byte) error) error {
	body := make([]byte, b.size)
	if _, err := io.ReadFull(r, body); err != nil {
		return &Damage{Why: "the file ends within a block", Tail: true}
	}
	if got := crc32.Checksum(body, crcTable); got != b.crc {
		return &Damage{Why: fmt.Sprintf("the checksum of the block is %08x, its header says %08x", got, b.crc)}
	}
	return unpack(body, b, each)
}
