package store_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// content is what a store shall hold, by table and key.
type content map[string]string

func (c content) with(batch []store.Write) content {
	out := maps.Clone(c)
	for _, w := range batch {
		if key := w.Table.String() + "/" + string(w.Key); w.Value == nil {
			delete(out, key)
		} else {
			out[key] = string(w.Value)
		}
	}
	return out
}

func contentOf(s store.Store) (content, error) {
	got := content{}
	return got, s.Load(func(t store.Table, k, v []byte) error { got[t.String()+"/"+string(k)] = string(v); return nil })
}

// mix is batch number i of a history that sets, replaces and deletes, over several logs of 4 KiB.
func mix(i int) (batch []store.Write) {
	for j := range 1 + i%3 {
		w := store.Write{Table: store.Tables()[(i+j)%4], Key: fmt.Appendf(nil, "key%d", (i*7+j)%11), Value: fmt.Appendf(make([]byte, 40*(i%5)), "value%d.%d", i, j)}
		if (i+j)%6 == 5 {
			w.Value = nil
		}
		batch = append(batch, w)
	}
	if i == 17 {
		batch = append(batch, store.Write{Table: store.Machines, Key: []byte("large"), Value: make([]byte, 5000)}) // larger than a log
	}
	return batch
}

// image is what the disk held at one moment, and what had been acknowledged by then.
type image struct {
	when  string
	files map[string][]byte
	acked content
	begun content // acked and the batch that was being written
}

func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func writeDir(t testing.TB, files map[string][]byte) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "image")
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "p.db")
}

// history writes batches over several turns of the logs, one kill between and a clean end, and returns what a kill would have
// found on the disk before and after every write.
func history(t *testing.T, batches int) (images []image) {
	t.Helper()
	dir := t.TempDir()
	var mu sync.Mutex
	acked, begun := content{}, content{}
	step := func(what string) {
		if what != "wrote base" {
			mu.Lock()
		}
		images = append(images, image{what, readDir(t, dir), acked, begun})
		if what != "write base" { // bbolt's file must not be read while it is written
			mu.Unlock()
		}
	}
	s, err := store.OpenWith(filepath.Join(dir, "p.db"), 4096, step)
	if err != nil {
		t.Fatal(err)
	}
	for i := range batches {
		mu.Lock()
		begun = acked.with(mix(i))
		mu.Unlock()
		if err := s.Commit(mix(i)); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		acked = begun
		mu.Unlock()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	images = append(images, image{"closed", readDir(t, dir), acked, acked})
	return images
}

// PROV-12.1, 12.3: killed before or after any write, also while a log is being brought into the base, the next start has
// every acknowledged batch, and of the one that was being written all or nothing. And it can be killed again.
func TestKilledAtEveryWrite(t *testing.T) {
	images := history(t, 40)
	seen := map[string]int{}
	for i, m := range images {
		seen[m.when]++
		path := writeDir(t, m.files)
		s, err := store.OpenWith(path, 4096, nil)
		if err != nil {
			t.Fatalf("image %d, %s: %v", i, m.when, err)
		}
		got, err := contentOf(s)
		if err != nil {
			t.Fatalf("image %d, %s: %v", i, m.when, err)
		}
		if !maps.Equal(got, m.acked) && !maps.Equal(got, m.begun) {
			t.Fatalf("image %d, %s: %v, want %v", i, m.when, got, m.acked)
		}
		// One more batch, a kill, and another start.
		if err := s.Commit(mix(1)); err != nil {
			t.Fatalf("image %d, %s: %v", i, m.when, err)
		}
		again, err := store.OpenWith(writeDir(t, readDir(t, filepath.Dir(path))), 4096, nil)
		if err != nil {
			t.Fatalf("image %d, %s, again: %v", i, m.when, err)
		}
		if after, err := contentOf(again); err != nil || !maps.Equal(after, got.with(mix(1))) {
			t.Fatalf("image %d, %s, again: %v, %v", i, m.when, after, err)
		}
		if err := errors.Join(s.Close(), again.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"append", "appended", "write base", "wrote base", "remove a log", "closed"} {
		if seen[what] == 0 {
			t.Errorf("no kill at %q: %v", what, seen)
		}
	}
	if n := len(images[len(images)-1].files); n != 1 {
		t.Errorf("%d files are left by a clean end, want the state file alone", n)
	}
}

// PROV-12.1: when power fails, any of the sectors that were being written may be old. The start finds the batch whole or not
// at all, and what was acknowledged before as it was.
func TestTornWrites(t *testing.T) {
	images := history(t, 30)
	rapid.Check(t, func(rt *rapid.T) {
		i := rapid.IntRange(0, len(images)-2).Draw(rt, "image")
		before, after := images[i], images[i+1]
		if before.when != "append" || after.when != "appended" {
			return
		}
		files := maps.Clone(after.files)
		for name, b := range files {
			old, log := before.files[name], strings.Contains(name, ".log")
			if !log {
				files[name] = old
				continue
			}
			mixed := append([]byte(nil), b...)
			for at := 0; at < len(mixed); at += 512 {
				end := min(at+512, len(mixed))
				if string(mixed[at:end]) != string(part(old, at, end)) && rapid.Bool().Draw(rt, "old") {
					copy(mixed[at:end], part(old, at, end))
				}
			}
			files[name] = mixed
		}
		s, err := store.OpenWith(writeDir(t, files), 4096, nil)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		got, err := contentOf(s)
		if err != nil || !maps.Equal(got, after.acked) && !maps.Equal(got, after.begun) {
			rt.Fatalf("%v, %v, want %v", got, err, after.acked)
		}
	})
}

// part is b[at:end], zeros where b does not reach.
func part(b []byte, at, end int) []byte {
	out := make([]byte, end-at)
	if at < len(b) {
		copy(out, b[at:])
	}
	return out
}

// live returns an image in which both logs hold batches that the base does not have.
func live(t *testing.T) image {
	t.Helper()
	dir := t.TempDir()
	full, free := make(chan struct{}), make(chan struct{})
	once := sync.OnceFunc(func() { close(full); <-free })
	s, err := store.OpenWith(filepath.Join(dir, "p.db"), 4096, func(what string) {
		if what == "write base" {
			once()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	m := image{acked: content{}, begun: content{}}
	for i := range 11 { // the first log has room for eight
		if err := s.Commit(mix(i)); err != nil {
			t.Fatal(err)
		}
		m.acked = m.acked.with(mix(i))
	}
	<-full
	m.files = readDir(t, dir)
	close(free)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return m
}

// flip opens a copy of the files with one bit of one file flipped. It must have everything that was acknowledged, or refuse with the
// remedy; and it answers at once.
func flip(t *testing.T, m image, name string, bit int) (refused bool) {
	t.Helper()
	files := maps.Clone(m.files)
	files[name] = append([]byte(nil), files[name]...)
	files[name][bit/8] ^= 1 << (bit % 8)
	path := writeDir(t, files)
	defer func() { _ = os.RemoveAll(filepath.Dir(path)) }()
	s, err := store.OpenWith(path, 4096, nil)
	var got content
	if err == nil {
		got, err = contentOf(s)
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		if !strings.Contains(err.Error(), "p.db") || !strings.Contains(err.Error(), "--adopt-store") && !strings.Contains(err.Error(), "another state file") {
			t.Fatalf("%s, bit %d: no remedy: %v", name, bit, err)
		}
		return true
	}
	if !maps.Equal(got, m.acked) {
		t.Fatalf("%s, bit %d: silently %v, want %v", name, bit, got, m.acked)
	}
	return false
}

// PROV-16.8, 12.8: whatever bit of the logs or of the state file flips, after a kill or after a clean end, the start has everything
// that was acknowledged, the newest batch too, or it says that the file is damaged and what to do.
func TestEveryFlippedBit(t *testing.T) {
	closed := image{files: map[string][]byte{}}
	dir := t.TempDir()
	s, err := store.OpenWith(filepath.Join(dir, "p.db"), 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed.acked = content{}
	for i := range 90 {
		batch := append(mix(i), store.Write{Table: store.Machines, Key: fmt.Appendf(nil, "machine-%03d", i), Value: make([]byte, 150)})
		if err := s.Commit(batch); err != nil {
			t.Fatal(err)
		}
		closed.acked = closed.acked.with(batch)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed.files = readDir(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	for name, m := range map[string]image{"killed": live(t), "closed": closed} {
		t.Run(name, func(t *testing.T) {
			for file, b := range m.files {
				refused, tries := 0, 1500
				for range tries {
					if flip(t, m, file, random.IntN(8*len(b))) {
						refused++
					}
				}
				t.Logf("%s, %d bytes: %d of %d flipped bits were refused, the others changed nothing", file, len(b), refused, tries)
				if refused == 0 {
					t.Errorf("%s: %d of %d flipped bits were noticed", file, refused, tries)
				}
			}
		})
	}
}

// PROV-12.8: logs that do not belong to the state file beside them are named and stay as they are.
func TestLogsOfOthers(t *testing.T) {
	m, other := live(t), live(t)
	for name, do := range map[string]func(files map[string][]byte){
		"the state file is gone": func(f map[string][]byte) { delete(f, "p.db") },
		"the logs of another": func(f map[string][]byte) {
			f["p.db.log0"], f["p.db.log1"] = other.files["p.db.log0"], other.files["p.db.log1"]
		},
		"the older of two logs gone": func(f map[string][]byte) { delete(f, older(m)) },
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(m.files)
			do(files)
			path := writeDir(t, files)
			s, err := store.Open(path)
			if err == nil {
				_ = s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "log") {
				t.Error(err)
			}
			for name, b := range readDir(t, filepath.Dir(path)) {
				if strings.Contains(name, ".log") && string(b) != string(files[name]) {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

// older is the log with the lower number in its first frame.
func older(m image) string {
	first := func(name string) uint64 { return binary.BigEndian.Uint64(m.files[name][28:]) }
	if first("p.db.log0") < first("p.db.log1") {
		return "p.db.log0"
	}
	return "p.db.log1"
}

// A bbolt file of a build that had no log is opened as it is, and after a clean end a build without logs can read it again.
func TestFileWithoutALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(store.Machines.String()))
		if err != nil {
			return err
		}
		return b.Put([]byte("old"), []byte("1"))
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit([]store.Write{{Table: store.Machines, Key: []byte("new"), Value: []byte("2")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := contentOf(s); err != nil || !maps.Equal(got, content{"machines/old": "1", "machines/new": "2"}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = bbolt.Open(path, 0o600, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.View(func(tx *bbolt.Tx) error {
		if got := tx.Bucket([]byte(store.Machines.String())).Get([]byte("new")); string(got) != "2" {
			t.Errorf("the file alone has %q", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// The error of a system call is reported with the file and the remedy, and can be unwrapped.
func TestSentences(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.ENOSPC: "free some space", syscall.EROFS: "read-only", syscall.EIO: "replace the disk", os.ErrPermission: "write access",
		store.ErrDamaged: "--adopt-store",
	} {
		err := store.Explain("x.db", &os.PathError{Op: "write", Path: "x.db", Err: cause})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "x.db") || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	}
}

// Scenario 44, PROV-12.7: a full disk is an error that names the file and the remedy and stores nothing of the batch. With room again the
// same process continues, and a restart finds everything that was acknowledged.
func TestNoRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.db")
	s, err := store.OpenWith(path, 4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	acked := content{}
	batch := func(i int) []store.Write {
		return []store.Write{{Table: store.Machines, Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, 100)}}
	}
	commit := func(i int) {
		t.Helper()
		if err := s.Commit(batch(i)); err != nil {
			t.Fatal(err)
		}
		acked = acked.with(batch(i))
	}
	commit(0)
	if err := store.FillDisk(s); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 3; i++ {
		err = s.Commit(batch(i))
		if !errors.Is(err, syscall.ENOSPC) || !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "free some space") {
			t.Errorf("a full disk: %v", err)
		}
	}
	if err := store.FreeDisk(s); err != nil {
		t.Fatal(err)
	}
	for i := 10; i < 40; i++ { // over several logs
		commit(i)
	}
	if got, err := contentOf(s); err != nil || !maps.Equal(got, acked) {
		t.Errorf("%v, %v, want %v", got, err, acked)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = store.Open(path); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if got, err := contentOf(s); err != nil || !maps.Equal(got, acked) {
		t.Errorf("after a restart %v, %v, want %v", got, err, acked)
	}
}
