package archive

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// COORD-15.2: the oldest copies go, also when several were made in one second and their indexes have another number of
// digits; latest is always there.
func TestPruneKeepsTheNewest(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 11, 21, 18, 0, 0, 0, time.UTC)
	for _, index := range []uint64{8, 9, 10, 11, 100} {
		if _, err := Export(dir, Meta{Index: index, CreatedAt: at}, []byte("state"), 2); err != nil {
			t.Fatal(err)
		}
		if got := Exported(dir); got != index {
			t.Fatalf("latest is %d after export %d", got, index)
		}
		if _, err := os.Stat(filepath.Join(dir, "latest", StateFile)); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"20261121-180000-100", "20261121-180000-11", "latest"}; !slices.Equal(names, want) {
		t.Fatalf("%v", names)
	}
}
