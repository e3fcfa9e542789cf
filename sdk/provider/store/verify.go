package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"slices"
)

// bbolt keeps no checksum of its pages. So a file is verified whole before it is used: the tree is walked without bbolt, which would
// follow a damaged page forever, and the digest of all keys and values is compared with the stored one.
//
// Layout of bbolt's format 2, in the byte order of the machine. A page: id 8, flags 2, count 2, overflow 4; then what its flags say.
// A meta page: magic 4, version 4, page size 4, flags 4, root page 8, sequence 8, free list page 8, end of pages 8, transaction 8,
// checksum 8. An element of a branch: position 4, key length 4, page 8. An element of a leaf: flags 4, position 4, key length 4,
// value length 4. Positions count from their element. The value of a bucket: root page 8, sequence 8, and with root page 0 a
// page of its own behind it.
const (
	pageHead    = 16
	metaBytes   = 64
	elementSize = 16
	bucketHead  = 16

	flagBranch, flagLeaf, flagFreelist = 0x01, 0x02, 0x10
	metaMagic, metaVersion             = 0xED0CDAED, 2
	noFreelist                         = math.MaxUint64
)

var native = binary.NativeEndian

// pages is the tree of one file.
type pages struct {
	file     io.ReaderAt
	size     uint64 // of a page
	root     uint64
	freelist uint64
	end      uint64 // pages from here on are not used
	seen     map[uint64]bool
	visit    func(bucket string, key, value []byte) error
}

// verify walks the file and calls visit for each key of each bucket.
func verify(path string, visit func(bucket string, key, value []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	p := &pages{file: f, seen: map[uint64]bool{}, visit: visit}
	if err := p.newest(); err != nil {
		return err
	}
	b, err := p.page(p.root)
	if err != nil {
		return err
	}
	if err := p.walk(b, nil, nil, p.bucket); err != nil {
		return err
	}
	return p.free()
}

func damaged(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrDamaged)...)
}

// newest reads the two meta pages and takes the newer valid one, as bbolt does.
func (p *pages) newest() error {
	newest, sizes := int64(-1), []uint64{4096, uint64(os.Getpagesize()), 8192, 16384, 32768, 65536}
	for i, at := range append([]uint64{0}, sizes...) {
		b := make([]byte, pageHead+metaBytes)
		if _, err := p.file.ReadAt(b, int64(at)); err != nil {
			continue
		}
		m := b[pageHead:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaBytes-8])
		size, transaction := uint64(native.Uint32(m[8:])), int64(native.Uint64(m[48:]))
		if native.Uint32(m) != metaMagic || native.Uint32(m[4:]) != metaVersion || native.Uint64(m[56:]) != sum.Sum64() || i > 0 && at != size || transaction <= newest {
			continue
		}
		newest = transaction
		p.size, p.root, p.freelist, p.end = size, native.Uint64(m[16:]), native.Uint64(m[32:]), native.Uint64(m[40:])
	}
	if newest < 0 {
		return damaged("both meta pages")
	}
	return nil
}

// page reads one page with its overflow and marks all of it as used.
func (p *pages) page(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, damaged("page %d is out of bounds", id)
	}
	b := make([]byte, p.size)
	if _, err := p.file.ReadAt(b, int64(id*p.size)); err != nil {
		return nil, ioDamage(id, err)
	}
	overflow := uint64(native.Uint32(b[12:]))
	if native.Uint64(b) != id || id+overflow >= p.end {
		return nil, damaged("page %d has the head of another", id)
	}
	for i := range overflow + 1 {
		if p.seen[id+i] {
			return nil, damaged("page %d is used twice", id+i)
		}
		p.seen[id+i] = true
	}
	if overflow > 0 {
		b = append(b, make([]byte, overflow*p.size)...)
		if _, err := p.file.ReadAt(b[p.size:], int64((id+1)*p.size)); err != nil {
			return nil, ioDamage(id, err)
		}
	}
	return b, nil
}

func ioDamage(id uint64, err error) error {
	if errors.Is(err, io.EOF) {
		return damaged("page %d is behind the end of the file", id)
	}
	return err
}

// walk visits the leaves below a page in the order of their keys, all of which are at least low and below high; nil is no bound.
func (p *pages) walk(b, low, high []byte, leaf func(flags uint32, key, value []byte) error) error {
	flags, count := native.Uint16(b[8:]), int(native.Uint16(b[10:]))
	if flags != flagBranch && flags != flagLeaf || pageHead+count*elementSize > len(b) || flags == flagBranch && count == 0 {
		return damaged("page %d is neither branch nor leaf", native.Uint64(b))
	}
	var before []byte
	for i := range count {
		e := b[pageHead+i*elementSize:]
		if flags == flagBranch {
			key, ok := cut(e, native.Uint32(e), native.Uint32(e[4:]))
			if !ok || !between(key, low, high, before, i) {
				return damaged("page %d, key %d", native.Uint64(b), i)
			}
			next := high
			if i+1 < count {
				n := b[pageHead+(i+1)*elementSize:]
				if next, ok = cut(n, native.Uint32(n), native.Uint32(n[4:])); !ok {
					return damaged("page %d, key %d", native.Uint64(b), i+1)
				}
			}
			child, err := p.page(native.Uint64(e[8:]))
			if err != nil {
				return err
			}
			if err := p.walk(child, key, next, leaf); err != nil {
				return err
			}
			before = key
			continue
		}
		both, ok := cut(e, native.Uint32(e[4:]), native.Uint32(e[8:])+native.Uint32(e[12:]))
		keyBytes := native.Uint32(e[8:])
		if !ok || uint64(keyBytes) > uint64(len(both)) || !between(both[:keyBytes], low, high, before, i) {
			return damaged("page %d, key %d", native.Uint64(b), i)
		}
		if err := leaf(native.Uint32(e), both[:keyBytes], both[keyBytes:]); err != nil {
			return err
		}
		before = both[:keyBytes]
	}
	return nil
}

// cut is the part of an element's page at a position.
func cut(e []byte, at, length uint32) ([]byte, bool) {
	if uint64(at)+uint64(length) > uint64(len(e)) || at < elementSize && length > 0 {
		return nil, false
	}
	return e[at : at+length : at+length], true
}

func between(key, low, high, before []byte, i int) bool {
	return bytes.Compare(key, low) >= 0 && (high == nil || bytes.Compare(key, high) < 0) && (i == 0 || bytes.Compare(before, key) < 0)
}

// bucket visits one bucket of the root.
func (p *pages) bucket(flags uint32, name, value []byte) error {
	if flags != 1 || len(value) < bucketHead {
		return damaged("table %.20q", name)
	}
	b, err := value[bucketHead:], error(nil)
	if root := native.Uint64(value); root != 0 {
		b, err = p.page(root)
	} else if len(b) < pageHead || native.Uint16(b[8:]) != flagLeaf {
		return damaged("table %.20q", name)
	}
	if err != nil {
		return err
	}
	bucket := string(name)
	return p.walk(b, nil, nil, func(flags uint32, key, value []byte) error {
		if flags != 0 {
			return damaged("table %.20q has a table", bucket)
		}
		return p.visit(bucket, key, value)
	})
}

// free checks that no used page is in the free list: the next write would overwrite it.
func (p *pages) free() error {
	if p.freelist == noFreelist {
		return nil
	}
	b, err := p.page(p.freelist)
	if err != nil {
		return err
	}
	ids, count := b[pageHead:], uint64(native.Uint16(b[10:]))
	if count == math.MaxUint16 {
		count, ids = native.Uint64(ids), ids[8:]
	}
	if native.Uint16(b[8:]) != flagFreelist || count > uint64(len(ids)/8) {
		return damaged("the free list")
	}
	all := make([]uint64, count)
	for i := range all {
		all[i] = native.Uint64(ids[i*8:])
		if all[i] < 2 || all[i] >= p.end || p.seen[all[i]] {
			return damaged("the free list names page %d", all[i])
		}
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != int(count) {
		return damaged("the free list names a page twice")
	}
	return nil
}
