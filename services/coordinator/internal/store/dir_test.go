package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func options() Options {
	return Options{Logger: hclog.NewNullLogger(), CheckState: func(r io.Reader) (uint64, error) {
		data, err := io.ReadAll(r)
		if err == nil && string(data) != "state" {
			err = errors.New("the state is damaged")
		}
		return 0, err
	}}
}

func restored(index uint64) Restored {
	return Restored{Index: index, Term: 7, ClusterUUID: "uuid-2", At: time.Unix(0, 0),
		Configuration: raft.Configuration{Servers: []raft.Server{{ID: "node-0", Address: "node-0:7791"}}},
		State:         func(w io.Writer) error { _, err := io.WriteString(w, "state"); return err }}
}

// COORD-5.1: a second process does not start on the same directory.
func TestDirectoryIsLocked(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, options()); !errors.Is(err, ErrLocked) {
		t.Fatalf("got %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err = Open(dir, options()); err != nil {
		t.Fatal(err)
	}
	if has, err := d.HasState(); has || err != nil {
		t.Fatalf("an empty directory has state: %v", err)
	}
	_ = d.Close()
}

// COORD-5.3: a directory from which a part is missing never starts empty, and the error says what to do.
func TestMissingPart(t *testing.T) {
	for _, part := range []string{"stable", "log/mark", "log", "snapshots/*/state.bin", "snapshots/*/meta.json", "snapshots/*"} {
		dir := t.TempDir()
		if _, err := Restore(dir, restored(5), hclog.NewNullLogger()); err != nil {
			t.Fatal(err)
		}
		d, err := Open(dir, options())
		if err != nil {
			t.Fatal(err)
		}
		for i := uint64(6); i < 9; i++ {
			if err := d.Log.StoreLog(entry(i, 10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		found, _ := filepath.Glob(filepath.Join(dir, "raft", part))
		if len(found) != 1 || os.RemoveAll(found[0]) != nil {
			t.Fatalf("%s: found %v", part, found)
		}
		if _, err := Open(dir, options()); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "empty data directory") {
			t.Errorf("without %s: %v", part, err)
		}
	}
}

// COORD-5.2, 5.3: a replica that starts while its disk is full does not tell people to give up its data, which is whole: on one disk all replicas say the same. With room again it
// starts as it was.
func TestAFullDiskAtTheStartIsNoDamage(t *testing.T) {
	dir := t.TempDir()
	fill := func() error {
		d, err := Open(dir, options())
		if err != nil {
			return err
		}
		next, err := d.Log.LastIndex()
		return errors.Join(err, d.Log.StoreLog(entry(next+1, 10)), d.Close())
	}
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	err := fill()
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if err == nil || !strings.Contains(err.Error(), "keep the data directory") || strings.Contains(err.Error(), "empty data directory") {
		t.Errorf("with a full disk: %v", err)
	}
	if err := fill(); err != nil {
		t.Error(err)
	}
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS} {
		if got := withRemedy(fmt.Errorf("write x: %w", e)).Error(); !strings.HasSuffix(got, keepIt) {
			t.Error(got)
		}
	}
}

// COORD-5.3: a snapshot that does not check out is a start error, although an older one is whole.
func TestDamagedSnapshotIsAStartError(t *testing.T) {
	dir := t.TempDir()
	if _, err := Restore(dir, restored(5), hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "raft", "snapshots", "*", "state.bin"))
	if err := os.WriteFile(found[0], []byte("stale"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, options()); err == nil || !strings.Contains(err.Error(), filepath.Dir(found[0])) {
		t.Fatalf("got %v", err)
	}
}

// COORD-15.8: a crash at any point of a restore leaves the old or the new stores whole.
func TestRestoreSurvivesACrashAnywhere(t *testing.T) {
	before := func(t *testing.T) string {
		dir := t.TempDir()
		if _, err := Restore(dir, restored(5), hclog.NewNullLogger()); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	index := func(t *testing.T, dir string) uint64 {
		d, err := Open(dir, options())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		list, err := d.Snapshots.List()
		if err != nil || len(list) != 1 {
			t.Fatalf("%v %v", list, err)
		}
		return list[0].Index
	}
	path := func(dir, name string) string { return filepath.Join(dir, name) }
	for name, crash := range map[string]struct {
		at   func(t *testing.T, dir string)
		want uint64
	}{
		"while it builds": {func(t *testing.T, dir string) {
			if err := os.MkdirAll(path(dir, "raft.restore-tmp/log"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, 5},
		"before the first rename": {func(t *testing.T, dir string) {
			if err := build(path(dir, restoreTmp), restored(9), hclog.NewNullLogger()); err != nil {
				t.Fatal(err)
			}
		}, 5},
		"between the renames": {func(t *testing.T, dir string) {
			if err := errors.Join(build(path(dir, restoreTmp), restored(9), hclog.NewNullLogger()), os.Rename(path(dir, raftDir), path(dir, "raft.before-restore-x"))); err != nil {
				t.Fatal(err)
			}
		}, 9},
		"not at all": {func(t *testing.T, dir string) {
			old, err := Restore(dir, restored(9), hclog.NewNullLogger())
			if err != nil || !strings.HasPrefix(filepath.Base(old), "raft.before-restore-") || !exists(old) {
				t.Fatalf("%q %v", old, err)
			}
		}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			dir := before(t)
			crash.at(t, dir)
			if got := index(t, dir); got != crash.want {
				t.Fatalf("started from index %d, want %d", got, crash.want)
			}
			if _, err := Restore(dir, restored(11), hclog.NewNullLogger()); err != nil { // and it can be repeated
				t.Fatal(err)
			}
			if got := index(t, dir); got != 11 {
				t.Fatalf("started from index %d", got)
			}
		})
	}
	if _, err := Restore(t.TempDir(), restored(0), hclog.NewNullLogger()); err == nil {
		t.Fatal("COORD-15.7: index 0 was restored")
	}
}
