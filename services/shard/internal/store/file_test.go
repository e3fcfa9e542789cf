package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// opened opens a directory and returns what is stored in it.
func opened(dir string) (content, error) {
	s, err := Open(dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.content, nil
}

// written makes a directory with some content and returns it with the bytes of its file.
func written(t *testing.T) (dir string, want content, whole []byte) {
	t.Helper()
	dir = t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := s.Put("pauses", "p"+strconv.Itoa(i%5), []byte(strings.Repeat("x", i*3))); err != nil {
			t.Fatal(err)
		}
	}
	s.Hint("journal", "m1", []byte("create"))
	if err := errors.Join(s.Put("pauses", "p3", nil), s.Put("control", "removed", []byte{})); err != nil {
		t.Fatal(err)
	}
	want = s.content
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if whole, err = os.ReadFile(filepath.Join(dir, FileName)); err != nil {
		t.Fatal(err)
	}
	return dir, want, whole
}

// SHARD-3.14: each flipped bit of the file is refused with what to do about it, or changes nothing. Before and after the file was
// rewritten.
func TestEveryFlippedBitOfTheFile(t *testing.T) {
	_, want, grown := written(t)
	rewritten, _, err := encodeContent(want)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, whole := range [][]byte{grown, rewritten} {
		refused := 0
		for bit := range len(whole) * 8 {
			damaged := bytes.Clone(whole)
			damaged[bit/8] ^= 1 << (bit % 8)
			if err := os.WriteFile(filepath.Join(dir, FileName), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := opened(dir)
			switch {
			case err == nil && !reflect.DeepEqual(got, want):
				t.Fatalf("bit %d of byte %d: %v became %v, without an error", bit%8, bit/8, want, got)
			case err == nil:
			case !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), remedy):
				t.Fatalf("bit %d of byte %d: the error does not say what to do: %v", bit%8, bit/8, err)
			default:
				refused++
			}
		}
		if refused < len(whole)*4 {
			t.Errorf("of %d flipped bits %d were refused", len(whole)*8, refused)
		}
	}
}

// SHARD-5.4: a file that a crash cut off holds every batch that was acknowledged, and continues.
func TestCutOffFile(t *testing.T) {
	dir, want, whole := written(t)
	path := filepath.Join(dir, FileName)
	for range 50 {
		s, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		before := s.file.end
		if err := s.Put("pauses", "cut", []byte("off")); err != nil {
			t.Fatal(err)
		}
		s.Close()
		longer, _ := os.ReadFile(path)
		frame := s.file.end - before - 29 // without its seal
		cut := longer[:before+rand.Int64N(frame)]
		if rand.IntN(2) == 0 { // a file system that had made room
			cut = append(bytes.Clone(cut), make([]byte, 100)...)
		}
		if err := os.WriteFile(path, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := opened(dir); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("cut at %d of %d: %v, %v", len(cut), len(longer), got, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A file that holds much more than its content is rewritten, and nothing is lost by it.
func TestFileIsRewritten(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	value := bytes.Repeat([]byte("x"), 256<<10)
	for i := range 40 {
		if err := s.Put("control", "k"+strconv.Itoa(i%5), value); err != nil {
			t.Fatal(err)
		}
		if most := int64(2*7*len(value) + slackBytes); s.file.end > most {
			t.Fatalf("the file has %d bytes after %d writes", s.file.end, i+1)
		}
	}
	want := s.content
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d values, %v", len(got["control"]), err)
	}
}

// A file of an earlier build is read and replaced; one that cannot be read is refused with what to do.
func TestFileOfAnEarlierBuild(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("pauses"))
		return errors.Join(err, b.Put([]byte("p1"), []byte("x")), b.Put([]byte("p2"), []byte{}))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	old, _ := os.ReadFile(path)
	want := content{"pauses": {"p1": []byte("x"), "p2": {}}}
	for range 2 {
		if got, err := opened(dir); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if now, _ := os.ReadFile(path); !bytes.HasPrefix(now, []byte(magic)) {
		t.Error("the file is still that of the earlier build")
	}
	for _, damaged := range [][]byte{old[:5000], append(bytes.Clone(old[:20]), bytes.Repeat([]byte{0xff}, 40_000)...)} {
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := opened(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), remedy) {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// SHARD-5.4: after a failed write the content is that before it, in memory and on the disk, and the next write works.
func TestFailedWriteChangesNothing(t *testing.T) {
	dir, _, _ := written(t)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	usable := s.file.f
	if s.file.f, err = os.Open(filepath.Join(dir, FileName)); err != nil { // for reading only
		t.Fatal(err)
	}
	if err := s.Put("pauses", "p1", []byte("lost")); err == nil {
		t.Fatal("a write to a file that is open for reading succeeded")
	}
	if got := s.Load("pauses")["p1"]; string(got) == "lost" {
		t.Error("a refused value is there")
	}
	if err := s.Put("pauses", "p2", []byte("kept")); err != nil {
		t.Fatalf("the write behind the failed one: %v", err)
	}
	want := s.content
	if err := errors.Join(s.Close(), usable.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := opened(dir); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
}
