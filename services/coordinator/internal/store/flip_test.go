package store

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// stored is everything that a data directory holds.
func stored(t *testing.T, d *Dir) string {
	t.Helper()
	var out strings.Builder
	entries, err := contents(d.Log)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := d.Log.FirstIndex()
	for i := range uint64(len(entries)) {
		out.WriteString("|" + string(entries[first+i].Data))
	}
	list, err := d.Snapshots.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, meta := range list {
		m, state, err := d.Snapshots.Open(meta.ID)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(state)
		if err = errors.Join(err, state.Close()); err != nil {
			t.Fatal(err)
		}
		out.WriteString(m.ID + string(data))
		for _, s := range m.Configuration.Servers {
			out.WriteString(string(s.ID) + string(s.Address))
		}
	}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", ClusterUUIDKey} {
		value, _ := d.Stable.Get([]byte(key))
		out.WriteString(key + string(value))
	}
	return out.String()
}

// COORD-5.3: one flipped bit, at every byte of every file of a data directory, is refused with the ways out, or harmless. No
// acknowledged write is lost silently.
func TestEveryFlippedByteOfADirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Restore(dir, restored(5), hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(6); i < 20; i++ {
		if err := d.Log.StoreLog(entry(i, 40)); err != nil {
			t.Fatal(err)
		}
	}
	sink, err := d.Snapshots.Create(raft.SnapshotVersionMax, 12, entry(12, 0).Term, restored(5).Configuration, 5, nameCodec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(sink, "state"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sink.Close(), d.Stable.SetUint64([]byte("CurrentTerm"), 9)); err != nil {
		t.Fatal(err)
	}
	want := stored(t, d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	each(t, dir, func(name string, data []byte) {
		refused := 0
		for i := range data {
			if filepath.Base(name) == markFile && i%16 != 0 || len(data) > 500 && i%4 != 0 {
				continue // a mark is mostly empty; the others are covered by TestDamageIsAStartError and TestStable
			}
			to := filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			damaged := bytes.Clone(data)
			damaged[i] ^= 1 << rand.IntN(8)
			if err := os.WriteFile(filepath.Join(to, name), damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := Open(to, options())
			if err != nil {
				refused++
				if !strings.Contains(err.Error(), to) || !strings.Contains(err.Error(), waysOut) {
					t.Fatalf("%s, byte %d: the error does not say what to do: %v", name, i, err)
				}
				continue
			}
			if got := stored(t, d); got != want {
				t.Errorf("%s, byte %d: %q became %q, without an error at start", name, i, data[i], damaged[i])
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
		kinds[filepath.Base(name)] += refused
	})
	for _, file := range []string{metaFile, sealFile, "state.bin", stableFile} {
		if kinds[file] == 0 {
			t.Errorf("no damage of a %s was refused: %v", file, kinds)
		}
	}
}

// COORD-5.3: a snapshot of an earlier build has no seal. It opens, gets one, and is compared with its name and the log.
func TestSnapshotWithoutASeal(t *testing.T) {
	dir := t.TempDir()
	if _, err := Restore(dir, restored(5), hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "raft", "snapshots", "*", sealFile))
	if len(found) != 1 || os.Remove(found[0]) != nil {
		t.Fatal(found)
	}
	metaPath := filepath.Join(filepath.Dir(found[0]), metaFile)
	whole, err := os.ReadFile(metaPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{`"Index":4`, `"Index":7`} {
		if err := os.WriteFile(metaPath, bytes.Replace(whole, []byte(`"Index":5`), []byte(wrong), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, options()); err == nil || !strings.Contains(err.Error(), waysOut) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if err := os.WriteFile(metaPath, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Open(dir, options())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil || !exists(found[0]) {
		t.Fatalf("%v; the snapshot has no seal", err)
	}
}
