package store

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

// legacySegment is what earlier builds wrote.
func legacySegment(first uint64, entries ...*raft.Log) []byte {
	b := []byte(legacyMagic)
	b = binary.BigEndian.AppendUint64(b, 0)
	b = binary.BigEndian.AppendUint64(b, first)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for _, l := range entries {
		start := len(b)
		b = binary.BigEndian.AppendUint32(b, uint32(legacyBodyHead+len(l.Extensions)+len(l.Data)))
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint64(b, l.Index)
		b = binary.BigEndian.AppendUint64(b, l.Term)
		b = append(b, byte(l.Type))
		b = binary.BigEndian.AppendUint64(b, uint64(l.AppendedAt.UnixNano()))
		b = binary.BigEndian.AppendUint32(b, uint32(len(l.Extensions)))
		b = append(append(b, l.Extensions...), l.Data...)
		sum := crc32.Update(crc32.Checksum(b[start:start+4], castagnoli), castagnoli, b[start+legacyRecordHead:])
		binary.BigEndian.PutUint32(b[start+4:], sum)
	}
	return b
}

// legacyLog is a log of an earlier build with two segments.
func legacyLog(t *testing.T, tail ...*raft.Log) (dir string, want map[uint64]*raft.Log) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "log")
	l := openLog(t, dir, LogOptions{})
	want = map[uint64]*raft.Log{}
	segments := map[uint64][]byte{}
	e := entry(3, 20)
	e.Extensions = []byte("ext")
	first, second := []*raft.Log{entry(1, 60), entry(2, 0), e}, append([]*raft.Log{entry(4, 60)}, tail...)
	segments[1], segments[4] = legacySegment(1, first...), legacySegment(4, second...)
	for _, e := range append(first, second...) {
		want[e.Index] = e
	}
	m := mark{first: 1, last: uint64(len(want)), segment: 4, end: uint64(len(segments[4]))}
	if err := l.setMark(m, true); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for first, data := range segments {
		if err := os.WriteFile(filepath.Join(dir, segmentName(0, first)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, want
}

// COORD-5.1: a log of an earlier build is read, truncated and continued.
func TestLegacyLogIsContinued(t *testing.T) {
	dir, want := legacyLog(t, entry(5, 30))
	l := openLog(t, dir, LogOptions{})
	if got, err := contents(l); err != nil || !same(got, want) {
		t.Fatalf("%v; %d entries", err, len(got))
	}
	if err := l.DeleteRange(5, 5); err != nil {
		t.Fatal(err)
	}
	for i := uint64(5); i < 9; i++ {
		want[i] = entry(i, 40)
		if err := l.StoreLog(want[i]); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if got, err := contents(l); err != nil || !same(got, want) {
			t.Fatalf("%v; %d entries", err, len(got))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, dir, LogOptions{})
	}
}

// COORD-5.3: damage of a segment of an earlier build is a start error.
func TestLegacyDamageIsAStartError(t *testing.T) {
	dir, want := legacyLog(t, entry(5, 30))
	each(t, dir, func(name string, data []byte) {
		for i := range data {
			if name == markFile {
				return
			}
			to := clone(t, dir)
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << (i % 8)
			if err := os.WriteFile(filepath.Join(to, name), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if !judge(t, name, to, want) {
				t.Errorf("%s: a flipped byte %d was not noticed", name, i)
			}
		}
	})
}

// COORD-5.1: an entry that earlier builds wrote and refused to read is read, and can be stored by a follower.
func TestLargeLegacyEntryIsRead(t *testing.T) {
	dir, want := legacyLog(t, entry(5, 70<<20))
	l := openLog(t, dir, LogOptions{})
	if got, err := contents(l); err != nil || !same(got, want) {
		t.Fatalf("%v; %d entries", err, len(got))
	}
	follower := openLog(t, filepath.Join(t.TempDir(), "log"), LogOptions{})
	if err := follower.StoreLog(want[5]); err != nil {
		t.Fatal(err)
	}
	if err := follower.Close(); err != nil {
		t.Fatal(err)
	}
}
