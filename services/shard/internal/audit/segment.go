package audit

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

// A segment is a magic line and blocks. A block is a frame of package wal. Its metadata describe it; its body, compressed by
// deflate, holds entries, each behind its length:
//
//	kind 1 byte | first time 8 | last time 8 | entries 4
//
// Numbers are big endian, times Unix nanoseconds. A crash leaves a whole block or a part of the last one; readers stop
// at a part.
const (
	magic      = "bigfleet decision log 3\n"
	blockMeta  = 1 + 8 + 8 + 4
	headerSize = wal.HeadBytes + blockMeta
	suffix     = ".log"
	blockMax   = 64 << 20
)

var blocks = wal.Format{BodyMax: blockMax}

// blockKind says what the entries of a block are.
type blockKind byte

const (
	blockHead    blockKind = 1 // one head
	blockEvents  blockKind = 2 // Frames
	blockRecords blockKind = 3 // marshalled bigfleet.v1alpha1.DecisionRecords
)

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
	body, err := compress(entries)
	if err != nil {
		return nil, err
	}
	meta := binary.BigEndian.AppendUint64([]byte{byte(kind)}, uint64(first))
	meta = binary.BigEndian.AppendUint64(meta, uint64(last))
	meta = binary.BigEndian.AppendUint32(meta, uint32(len(entries)))
	return blocks.Append(nil, meta, body)
}

func compress(entries [][]byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := flate.NewWriter(&out, flate.BestSpeed)
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
	return out.Bytes(), nil
}

// block is the header of one block and where its payload is.
type block struct {
	kind        blockKind
	size        int64
	crc         uint32 // of a legacy block
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
	n, err := io.ReadFull(r, first)
	switch {
	case err == nil && string(first) == legacyMagic:
		return scanLegacy(path, r, want, each)
	case err != nil || string(first) != magic:
		return &Damage{File: path, Entry: 1, Why: "the file does not begin as a segment of the decision log", Tail: string(first[:n]) == magic[:n]}
	}
	frames, entries := blocks.NewReader(r), int64(1)
	located := func(err error) error {
		var d *Damage
		switch {
		case errors.Is(err, wal.ErrTorn):
			d = &Damage{Why: "the file ends within a block", Tail: true}
		case errors.Is(err, wal.ErrDamaged):
			d = &Damage{Why: err.Error()}
		case !errors.As(err, &d) || d.File != "":
			return err
		}
		d.File, d.Offset, d.Entry = path, int64(len(magic))+frames.Offset(), entries
		return d
	}
	for passed := int64(0); ; {
		meta, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return located(err)
		}
		entries += passed // a block that was passed over is whole now that the next one began
		b, err := describe(meta, frames.BodyBytes())
		if err != nil {
			return located(err)
		}
		if passed = int64(b.entries); !want(b) {
			continue
		}
		passed = 0
		body, err := frames.Body()
		if err != nil {
			return located(err)
		}
		if err := unpack(body, b, func(raw []byte) error {
			err := each(b, raw)
			if err == nil {
				entries++
			}
			return err
		}); err != nil {
			return located(err)
		}
	}
}

// describe reads the metadata of a block.
func describe(meta []byte, size int) (block, error) {
	if len(meta) != blockMeta {
		return block{}, &Damage{Why: fmt.Sprintf("the header of a block has %d bytes", len(meta))}
	}
	b := block{kind: blockKind(meta[0]), size: int64(size), first: int64(binary.BigEndian.Uint64(meta[1:])),
		last: int64(binary.BigEndian.Uint64(meta[9:])), entries: int(binary.BigEndian.Uint32(meta[17:]))}
	if b.kind < blockHead || b.kind > blockRecords {
		return block{}, &Damage{Why: fmt.Sprintf("no block is of kind %d", b.kind)}
	}
	return b, nil
}

// unpack hands out the entries of a block. Each is valid until the next.
func unpack(body []byte, b block, each func([]byte) error) error {
	z := bufio.NewReader(flate.NewReader(bytes.NewReader(body)))
	var entry bytes.Buffer // grows with what is there, whatever a length claims
	for range b.entries {
		n, err := binary.ReadUvarint(z)
		if err != nil || n > blockMax*16 {
			return &Damage{Why: "the block has fewer entries than its header says"}
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
