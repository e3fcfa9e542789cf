package audit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// SHARD-28.10: of a damaged log the replay says where and why it stops, and everything before that stands.
func TestDamageIsNamed(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, func(c *Config) { c.SyncEvery = time.Hour })
	h.begin()
	h.log.Sync(10 * time.Second)
	h.live(2)
	h.log.Sync(10 * time.Second)
	h.live(3)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	list, _ := segments(dir)
	path := list[0].path
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clean, err := Replay{Dir: dir}.Run(t.Context())
	if err != nil || clean.Damage != nil || clean.Records == 0 {
		t.Fatalf("%+v, %v", clean, err)
	}
	var offsets []int64 // of the blocks
	at := int64(len(magic))
	if err := scan(path, func(b block) bool { offsets = append(offsets, at); at += headerSize + b.size; return false }, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		spoil func(b []byte) []byte
		block int
		why   string
	}{
		"a flipped bit":     {func(b []byte) []byte { b[offsets[3]+headerSize+4] ^= 16; return b }, 3, "checksum"},
		"a torn write":      {func(b []byte) []byte { return b[:offsets[4]+headerSize+1] }, 4, "ends within a block"},
		"a torn header":     {func(b []byte) []byte { return b[:offsets[4]+5] }, 4, "ends within a block"},
		"an unknown kind":   {func(b []byte) []byte { b[offsets[2]+headerSize-blockMeta] = 9; return b }, 2, "checksum of the metadata"},
		"an absurd size":    {func(b []byte) []byte { b[offsets[2]+4] = 255; return b }, 2, "checksum of the head"},
		"overwritten magic": {func(b []byte) []byte { b[0] = 'X'; return b }, -1, "does not begin"},
	} {
		if err := os.WriteFile(path, c.spoil(append([]byte(nil), whole...)), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Replay{Dir: dir}.Run(t.Context())
		if err != nil || got.Damage == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		d := got.Damage
		want := int64(0)
		if c.block >= 0 {
			want = offsets[c.block]
		}
		if d.File != path || d.Offset != want || !strings.Contains(d.Why, c.why) || d.Entry < 1 {
			t.Errorf("%s: %v, want byte %d: %s", name, d, want, c.why)
		}
		if c.block > 2 && (got.Steps == 0 || got.Steps >= clean.Steps) {
			t.Errorf("%s: %d steps of %d were replayed", name, got.Steps, clean.Steps)
		}
	}
}

// SHARD-28.10: a bit that changed is found wherever it is, in headers too, and never passes for a torn write.
func TestAnyFlippedBitIsFound(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	h.live(3)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	list, _ := segments(dir)
	whole, err := os.ReadFile(list[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		damaged := append([]byte(nil), whole...)
		damaged[n] ^= 1 << (n % 8)
		if err := os.WriteFile(list[0].path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		err := scan(list[0].path, func(block) bool { return true }, func(block, []byte) error { return nil })
		if d := (*Damage)(nil); !errors.As(err, &d) || d.Tail && n >= len(magic) {
			t.Fatalf("bit %d of byte %d of %d changed: %v", n%8, n, len(whole), err)
		}
	}
}

// SHARD-28.3: what a crash leaves is readable up to the last whole block, wherever it is cut.
func TestCutAnywhere(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, func(c *Config) { c.SyncEvery = time.Hour })
	h.begin()
	h.log.Sync(10 * time.Second)
	h.live(3)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	list, _ := segments(dir)
	whole, err := os.ReadFile(list[0].path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n <= len(whole); n += 7 {
		if err := os.WriteFile(list[0].path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Replay{Dir: dir}.Run(t.Context())
		if err != nil && got.Core != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	broken := append([]byte(nil), whole...)
	broken[len(broken)-3] ^= 1
	if err := os.WriteFile(list[0].path, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	err = scan(list[0].path, func(block) bool { return true }, func(block, []byte) error { return nil })
	if d := (*Damage)(nil); !errors.As(err, &d) {
		t.Errorf("a damaged block: %v", err)
	}
}

// SHARD-28.4, scenario 70: while the disk fails nothing waits; the gap is marked, and the log continues with a checkpoint.
func TestFailingDiskLeavesAMarkedGap(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "decisions")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the directory should be
		t.Fatal(err)
	}
	var h *history
	asked := make(chan struct{}, 16)
	h = newHistory(t, dir, func(c *Config) {
		c.SyncEvery = 5 * time.Millisecond
		c.Checkpoint = func(bool) bool { asked <- struct{}{}; return true }
	})
	h.begin()
	h.live(3)
	for h.errors.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	h.live(1)
	deadline := time.After(20 * time.Second)
	for done := false; !done; {
		select {
		case <-asked:
			done = true
		case <-time.After(10 * time.Millisecond):
			if list, _ := segments(dir); len(list) > 0 {
				done = true
			} else {
				h.step(core.Tick{})
			}
		case <-deadline:
			t.Fatal("no checkpoint was asked for")
		}
	}
	h.step(core.CheckpointAsked{Full: true})
	h.live(2)
	want := h.core.StateDigest()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	got, err := Replay{Dir: dir}.Run(t.Context())
	if err != nil || got.Core.StateDigest() != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.Lost == 0 {
		t.Error("the gap is not marked")
	}
}

// SHARD-3.14: history over a damaged segment says that records are missing, and the log says which file it is, once.
func TestHistoryOverADamagedSegment(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	h.live(8)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	list, _ := segments(dir)
	whole, err := os.ReadFile(list[0].path)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	errors := 0
	reader := New(Config{Dir: dir, Shard: "s", Epoch: 8, Log: slog.New(slog.NewTextHandler(&said, nil)), OnError: func() { errors++ }})
	if _, missing, err := reader.History(t.Context(), Query{}); err != nil || missing || errors != 0 {
		t.Fatalf("the whole segment: missing %v, %v", missing, err)
	}
	whole[len(whole)-5] ^= 4 // in the records
	if err := os.WriteFile(list[0].path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, missing, err := reader.History(t.Context(), Query{}); err != nil || !missing {
			t.Errorf("missing %v, %v", missing, err)
		}
	}
	if errors != 1 || !strings.Contains(said.String(), list[0].path) {
		t.Errorf("said %d times: %s", errors, said.String())
	}
}
