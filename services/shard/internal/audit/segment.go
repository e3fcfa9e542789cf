package audit

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is a magic line and blocks. A block is a header of 33 bytes and a payload, compressed by deflate, that holds
// entries, each behind its length:
//
//	kind 1 byte | length of the payload 4 | crc32c of the payload 4 | first time 8 | last time 8 | entries 4 | crc32c of this header 4
//
// Numbers are big endian, times Unix nanoseconds. A crash leaves a whole block or a part of the last one; readers stop
// at a part. The header has a checksum of its own, so that a length that was overwritten is not taken for a torn write.
const (
	magic      = "bigfleet decision log 2\n"
	headerSize = 33
	suffix     = ".log"
	blockMax   = 64 << 20
)

// blockKind says what the entries of a block are.
type blockKind byte

const (
	blockHead    blockKind = 1 // one head
	blockEvents  blockKind = 2 // Frames
	blockRecords blockKind = 3 // marshalled bigfleet.v1alpha1.DecisionRecords
)

var crcTable = crc32.MakeTable(crc32.Castagnoli)

// segmentName orders by epoch and number as text.
func segmentName(epoch, number int64) string {
	return fmt.Sprintf("%020d-%08d%s", epoch, number, suffix)
}

// segmentFile is one file of a log directory.
type segmentFile struct {
	path          string
	epoch, number int64
	size          int64
	modified      int64
}

// segments lists a log directory, oldest first.
func segments(dir string) ([]segmentFile, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []segmentFile
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), suffix)
		a, b, ok := strings.Cut(name, "-")
		epoch, err1 := strconv.ParseInt(a, 10, 64)
		number, err2 := strconv.ParseInt(b, 10, 64)
		info, err3 := e.Info()
		if !isLog || !ok || err1 != nil || err2 != nil || err3 != nil {
			continue
		}
		s := segmentFile{filepath.Join(dir, e.Name()), epoch, number, info.Size(), info.ModTime().UnixNano()}
		if state, err := os.Stat(statePath(s.path)); err == nil {
			s.size += state.Size()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b segmentFile) int { return strings.Compare(a.path, b.path) })
	return out, nil
}

// pack makes a block.
func pack(kind blockKind, entries [][]byte, first, last int64) ([]byte, error) {
	var payload bytes.Buffer
	payload.Write(make([]byte, headerSize))
	z, err := flate.NewWriter(&payload, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	var length [binary.MaxVarintLen64]byte
	for _, e := range entries {
		n := binary.PutUvarint(length[:], uint64(len(e)))
		if _, err := z.Write(length[:n]); err != nil {
			return nil, err
		}
		if _, err := z.Write(e); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	b := payload.Bytes()
	body := b[headerSize:]
	b[0] = byte(kind)
	binary.BigEndian.PutUint32(b[1:], uint32(len(body)))
	binary.BigEndian.PutUint32(b[5:], crc32.Checksum(body, crcTable))
	binary.BigEndian.PutUint64(b[9:], uint64(first))
	binary.BigEndian.PutUint64(b[17:], uint64(last))
	binary.BigEndian.PutUint32(b[25:], uint32(len(entries)))
	binary.BigEndian.PutUint32(b[29:], crc32.Checksum(b[:29], crcTable))
	return b, nil
}

// block is the header of one block and where its payload is.
type block struct {
	kind        blockKind
	size        int64
	crc         uint32
	first, last int64
	entries     int
}

// Damage is where a segment stops being readable. What comes before it is whole.
type Damage struct {
	File   string
	Offset int64 // of the block that cannot be used, in bytes
	Entry  int64 // number of the first entry that cannot be used, from 1 over the whole segment, its head being 1
	Why    string
	Tail   bool // the file ends within the block, as after a crash
}

func (d *Damage) Error() string {
	return fmt.Sprintf("%s: at byte %d, entry %d: %s", d.File, d.Offset, d.Entry, d.Why)
}

// scan walks the blocks of a segment. want says whether to read a block's entries; each gets them in order, and may
// return a Damage of which scan fills in the place. It returns nil at a clean end and a Damage where the file is not whole.
func scan(path string, want func(block) bool, each func(block, []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 1<<16)
	first := make([]byte, len(magic))
	if n, err := io.ReadFull(r, first); err != nil || string(first) != magic {
		return &Damage{File: path, Entry: 1, Why: "it does not begin as a segment of the decision log", Tail: string(first[:n]) == magic[:n]}
	}
	at, entries := int64(len(magic)), int64(1)
	located := func(err error) error {
		var d *Damage
		if errors.As(err, &d) && d.File == "" {
			d.File, d.Offset, d.Entry = path, at, entries
		}
		return err
	}
	for {
		b, err := nextBlock(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return located(err)
		}
		if want(b) {
			if err := readBlock(r, b, func(raw []byte) error {
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
		at += headerSize + b.size
	}
}

func nextBlock(r io.Reader) (block, error) {
	var h [headerSize]byte
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
		return block{}, &Damage{Why: fmt.Sprintf("no block is of kind %d: its header is overwritten", b.kind)}
	case b.size > blockMax:
		return block{}, &Damage{Why: fmt.Sprintf("a block of %d bytes cannot be: its header is overwritten", b.size)}
	case crc32.Checksum(h[:29], crcTable) != binary.BigEndian.Uint32(h[29:]):
		return block{}, &Damage{Why: "the header of a block does not have its checksum"}
	}
	return b, nil
}

// readBlock hands out the entries of a block. Each is valid until the next.
func readBlock(r io.Reader, b block, each func([]byte) error) error {
	body := make([]byte, b.size)
	if _, err := io.ReadFull(r, body); err != nil {
		return &Damage{Why: "the file ends within a block", Tail: true}
	}
	if got := crc32.Checksum(body, crcTable); got != b.crc {
		return &Damage{Why: fmt.Sprintf("the checksum of the block is %08x, its header says %08x", got, b.crc)}
	}
	z := bufio.NewReader(flate.NewReader(bytes.NewReader(body)))
	var entry bytes.Buffer // grows with what is there, whatever a length claims
	for range b.entries {
		n, err := binary.ReadUvarint(z)
		if err != nil || n > blockMax*16 {
			return &Damage{Why: "the block holds fewer entries than its header says"}
		}
		entry.Reset()
		if got, err := io.CopyN(&entry, z, int64(n)); err != nil || got != int64(n) {
			return &Damage{Why: "an entry of the block is shorter than it says"}
		}
		if err := each(entry.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
