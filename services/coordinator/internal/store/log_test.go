package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entry(index uint64, size int) *raft.Log {
	return &raft.Log{Index: index, Term: index/3 + 1, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(index)}, size), AppendedAt: time.Unix(0, int64(index))}
}

func equal(a, b *raft.Log) bool {
	return a.Index == b.Index && a.Term == b.Term && a.Type == b.Type && bytes.Equal(a.Data, b.Data) && bytes.Equal(a.Extensions, b.Extensions) && a.AppendedAt.Equal(b.AppendedAt)
}

func openLog(t testing.TB, dir string, opts LogOptions) *Log {
	t.Helper()
	if opts.segmentBytes == 0 {
		opts.segmentBytes = 400
	}
	l, err := OpenLog(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// contents reads a whole log, and checks that First and Last are what GetLog knows.
func contents(l *Log) (map[uint64]*raft.Log, error) {
	out := map[uint64]*raft.Log{}
	first, _ := l.FirstIndex()
	last, _ := l.LastIndex()
	for i := first; i > 0 && i <= last; i++ {
		var e raft.Log
		if err := l.GetLog(i, &e); err != nil {
			return nil, err
		}
		out[i] = &e
	}
	var e raft.Log
	for _, outside := range []uint64{first - 1, last + 1} {
		if _, ok := out[outside]; !ok && !errors.Is(l.GetLog(outside, &e), raft.ErrLogNotFound) {
			return nil, fmt.Errorf("entry %d is outside of %d to %d and can be read", outside, first, last)
		}
	}
	return out, nil
}

func same(got, want map[uint64]*raft.Log) bool {
	if len(got) != len(want) {
		return false
	}
	for i, e := range want {
		if got[i] == nil || !equal(got[i], e) {
			return false
		}
	}
	return true
}

// COORD-5.1: whatever is appended, truncated and compacted, the log holds what a map would, also after a reopen at any
// point, and after a loss of power took the newest mark.
func TestLogIsAMap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := filepath.Join(t.TempDir(), "log")
		l := openLog(t, dir, LogOptions{})
		defer func() { _ = l.Close() }()
		want := map[uint64]*raft.Log{}
		bounds := func() (uint64, uint64) {
			first, last := uint64(0), uint64(0)
			for i := range want {
				if first == 0 || i < first {
					first = i
				}
				last = max(last, i)
			}
			return first, last
		}
		var oldMark []byte
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			first, last := bounds()
			switch what := rapid.SampledFrom([]string{"append", "append", "append", "append", "suffix", "prefix", "all", "reopen", "keep mark", "power loss"}).Draw(rt, "what"); what {
			case "append":
				next := last + 1
				if last == 0 {
					next = rapid.Uint64Range(1, 5).Draw(rt, "first")
				}
				var batch []*raft.Log
				for range rapid.IntRange(1, 5).Draw(rt, "n") {
					e := entry(next, rapid.IntRange(0, 200).Draw(rt, "size"))
					if next%4 == 0 {
						e.Extensions = []byte("ext")
					}
					batch = append(batch, e)
					want[next] = e
					next++
				}
				if err := l.StoreLogs(batch); err != nil {
					rt.Fatal(err)
				}
			case "suffix", "prefix", "all":
				if last == 0 {
					continue
				}
				low, high := first, last
				if what == "suffix" {
					low = rapid.Uint64Range(first, last).Draw(rt, "low")
				} else if what == "prefix" {
					high = rapid.Uint64Range(first, last).Draw(rt, "high")
				}
				if err := l.DeleteRange(low, high); err != nil {
					rt.Fatal(err)
				}
				for i := low; i <= high; i++ {
					delete(want, i)
				}
				oldMark = nil // a deletion is durable: an older mark cannot come back
			case "reopen":
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
				l = openLog(t, dir, LogOptions{})
			case "keep mark":
				oldMark, _ = os.ReadFile(filepath.Join(dir, markFile))
			case "power loss":
				if err := l.Close(); err != nil {
					rt.Fatal(err)
				}
				if oldMark != nil {
					if err := os.WriteFile(filepath.Join(dir, markFile), oldMark, 0o600); err != nil {
						rt.Fatal(err)
					}
				}
				l = openLog(t, dir, LogOptions{})
			}
			got, err := contents(l)
			if err != nil || !same(got, want) {
				rt.Fatalf("%v: got %d entries, want %d", err, len(got), len(want))
			}
		}
	})
}

// filled writes a log of a few segments, closes it, and returns its entries.
func filled(t testing.TB, dir string) map[uint64]*raft.Log {
	l := openLog(t, dir, LogOptions{})
	want := map[uint64]*raft.Log{}
	for i := uint64(1); i <= 12; i++ {
		e := entry(i, 60)
		want[i] = e
		if err := l.StoreLog(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

func clone(t testing.TB, dir string) string {
	to := filepath.Join(t.TempDir(), "log")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func each(t testing.TB, dir string, do func(name string, data []byte)) {
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		do(name, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// judge opens a damaged log: it must refuse with the name of a file or of the directory, or hold what it held.
func judge(t testing.TB, what, dir string, want map[uint64]*raft.Log) (refused bool) {
	l, err := OpenLog(dir, LogOptions{segmentBytes: 400})
	if err != nil {
		if !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: the error names no file: %v", what, err)
		}
		return true
	}
	defer func() { _ = l.Close() }()
	got, err := contents(l)
	if err != nil || !same(got, want) {
		t.Errorf("%s: %v; %d entries of %d, without an error at start", what, err, len(got), len(want))
	}
	return false
}

// COORD-5.3, COORD-21.18: any flipped byte and any truncation of any file is a start error that names the file, or harmless.
func TestDamageIsAStartError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	want := filled(t, dir)
	refused, tried := 0, 0
	each(t, dir, func(name string, data []byte) {
		for i := range data {
			if name == markFile && i%8 != 0 { // the mark is mostly empty
				continue
			}
			to := clone(t, dir)
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << (i % 8)
			if err := os.WriteFile(filepath.Join(to, name), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			tried++
			if judge(t, fmt.Sprintf("%s, byte %d flipped", name, i), to, want) {
				refused++
			} else if name != markFile {
				t.Errorf("%s: a flipped byte %d was not noticed", name, i)
			}
			if i%7 == 0 {
				if err := os.WriteFile(filepath.Join(to, name), data[:i], 0o600); err != nil {
					t.Fatal(err)
				}
				judge(t, fmt.Sprintf("%s cut at %d", name, i), to, want)
			}
		}
		to := clone(t, dir)
		if err := os.Remove(filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
		if !judge(t, name+" removed", to, want) {
			t.Errorf("%s: its loss was not noticed", name)
		}
	})
	if refused < 100 {
		t.Fatalf("only %d of %d damages were refused", refused, tried)
	}
}

// COORD-5.2, 5.3: a write that a crash cut short is not damage, wherever it was cut, and appends continue behind it.
func TestTornWriteIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	want := filled(t, dir)
	tail, err := appendRecord(nil, entry(13, 60))
	if err != nil {
		t.Fatal(err)
	}
	if tail, err = appendRecord(tail, entry(14, 60)); err != nil {
		t.Fatal(err)
	}
	newest := ""
	each(t, dir, func(name string, _ []byte) {
		if strings.HasSuffix(name, ".seg") {
			newest = name
		}
	})
	for cut := range tail {
		to := clone(t, dir)
		f, err := os.OpenFile(filepath.Join(to, newest), os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(tail[:cut]); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		l := openLog(t, to, LogOptions{})
		got, err := contents(l)
		if err != nil || len(got) != 12+cut/(len(tail)/2) {
			t.Fatalf("cut at %d: %v, %d entries", cut, err, len(got))
		}
		next, _ := l.LastIndex()
		if err := l.StoreLog(entry(next+1, 10)); err != nil {
			t.Fatal(err)
		}
		for i, e := range want {
			if !equal(got[i], e) {
				t.Fatalf("cut at %d: entry %d changed", cut, i)
			}
		}
		_ = l.Close()
	}
	// A rotation that was cut short leaves a file without a whole header.
	to := clone(t, dir)
	if err := os.WriteFile(filepath.Join(to, segmentName(0, 13)), []byte(segmentMagic), 0o600); err != nil {
		t.Fatal(err)
	}
	if judge(t, "torn rotation", to, want) {
		t.Fatal("a rotation that a crash cut short was taken for damage")
	}
}

// COORD-5.2, COORD-21.17: after a failed fsync nothing is acknowledged any more, and the owner hears of it once.
func TestFailedSyncIsFinal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	broken := false
	heard := 0
	l := openLog(t, dir, LogOptions{OnFailure: func(error) { heard++ }, sync: func(f *os.File) error {
		if broken {
			return errors.New("input/output error")
		}
		return f.Sync()
	}})
	if err := l.StoreLog(entry(1, 10)); err != nil {
		t.Fatal(err)
	}
	broken = true
	if err := l.StoreLog(entry(2, 10)); err == nil || !strings.Contains(err.Error(), dir) {
		t.Fatalf("got %v", err)
	}
	broken = false
	if l.StoreLog(entry(2, 10)) == nil || l.DeleteRange(1, 1) == nil {
		t.Fatal("a log whose fsync failed takes writes again")
	}
	if last, _ := l.LastIndex(); last != 1 || heard != 1 {
		t.Fatalf("last entry %d, heard %d times", last, heard)
	}
}

// A log never has gaps.
func TestGapsAreRefused(t *testing.T) {
	l := openLog(t, filepath.Join(t.TempDir(), "log"), LogOptions{})
	if err := l.StoreLogs([]*raft.Log{entry(4, 1), entry(5, 1), entry(6, 1)}); err != nil {
		t.Fatal(err)
	}
	if l.StoreLog(entry(8, 1)) == nil || l.StoreLog(entry(6, 1)) == nil || l.DeleteRange(5, 5) == nil {
		t.Fatal("a gap")
	}
}

// The store satisfies what package raft expects of its own stores, and damage of votes is noticed.
func TestStable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stable")
	s, err := OpenStable(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetUint64([]byte("CurrentTerm")); err == nil || err.Error() != "not found" {
		t.Fatalf("got %v, package raft compares with the text %q", err, "not found")
	}
	if err := errors.Join(s.SetUint64([]byte("CurrentTerm"), 7), s.SetUint64([]byte("LastVoteTerm"), 7), s.Set([]byte("LastVoteCand"), []byte("node-1")),
		s.Set([]byte("empty"), nil), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStable(path, nil); err != nil {
		t.Fatal(err)
	}
	term, err := s.GetUint64([]byte("CurrentTerm"))
	who, err2 := s.Get([]byte("LastVoteCand"))
	voted, err3 := s.GetUint64([]byte("LastVoteTerm"))
	if err != nil || err2 != nil || err3 != nil || term != 7 || voted != 7 || string(who) != "node-1" {
		t.Fatalf("%d %s %v %v", term, who, err, err2)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, _ := os.ReadFile(path)
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		for _, data := range [][]byte{damaged, whole[:i]} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenStable(path, nil); err == nil || !strings.Contains(err.Error(), path) {
				t.Fatalf("damage at byte %d: %v", i, err)
			}
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	heard := 0
	if s, err = OpenStable(path, func(error) { heard++ }); err != nil {
		t.Fatal(err)
	}
	if err := s.Set([]byte("long"), make([]byte, 600)); err == nil || heard != 1 {
		t.Fatalf("a value that does not fit was acknowledged: %v", err)
	}
	heard = 0
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStable(path, func(error) { heard++ }); err != nil {
		t.Fatal(err)
	}
	if err := s.file.Close(); err != nil { // writes fail from now on
		t.Fatal(err)
	}
	first, again := s.Set([]byte("x"), nil), s.Set([]byte("x"), nil)
	if first == nil || again == nil || heard != 1 {
		t.Fatalf("a vote that could not be stored was acknowledged, heard %d times", heard)
	}
}
