package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store/storetest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// PROV-16.1: both stores load, commit and close by the rules of the interface, which storetest holds.
func TestMemory(t *testing.T) {
	storetest.Run(t, func(testing.TB, string) (store.Store, error) { return store.Memory(), nil })
}

// PROV-16.1.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	storetest.Run(t, func(_ testing.TB, place string) (store.Store, error) { return store.Open(filepath.Join(dir, place)) })
}

// PROV-12.8: a file that is locked, damaged, cut short or not ours stops with a sentence that names it and the way out,
// and stays as it was.
func TestUnusableFiles(t *testing.T) {
	good := filepath.Join(t.TempDir(), "good.db")
	s, err := store.Open(good)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := s.Commit([]store.Write{{Table: store.Machines, Key: []byte{byte(i), 1}, Value: make([]byte, 500)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Open(good); err == nil || !strings.Contains(err.Error(), good) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("locked: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func([]byte) []byte{
		"text":      func([]byte) []byte { return []byte(strings.Repeat("not a state file\n", 600)) },
		"cut short": func(b []byte) []byte { return b[:len(b)/2&^4095] },
		"zeroed":    func(b []byte) []byte { clear(b[:8192]); return b },
		"overwritten": func(b []byte) []byte {
			for i := 8192; i < len(b); i++ {
				b[i] = 0xa5
			}
			return b
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "bad.db")
			bad := do(append([]byte(nil), whole...))
			if err := os.WriteFile(file, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := store.Open(file)
			if err == nil {
				err = s.Load(func(store.Table, []byte, []byte) error { return nil })
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "--adopt-store") {
				t.Errorf("%v", err)
			}
		})
	}
}
