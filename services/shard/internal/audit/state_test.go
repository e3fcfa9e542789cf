package audit

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// SHARD-28.3: the core hands out no state at a checkpoint; the log makes it beside the loop by replaying what it holds, and
// from each segment a replay comes to the same state. Without its file a segment is reached from the one before.
func TestStatesAreMadeBesideTheLoop(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	for n := range 3 {
		h.live(4)
		h.step(core.CheckpointAsked{})
		waitForState(t, dir, int64(n+2))
	}
	h.live(3)
	want := h.core.StateDigest()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if h.errors.Load() != 0 {
		t.Errorf("%d errors", h.errors.Load())
	}
	list, err := segments(dir)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d segments, %v", len(list), err)
	}
	check := func(from, segments int64) {
		t.Helper()
		got, err := Replay{Dir: dir, From: from}.Run(t.Context())
		if err != nil || got.Damage != nil || got.Core == nil || got.Core.StateDigest() != want || got.Digests == 0 {
			t.Fatalf("from segment %d: %+v, %v", from, got, err)
		}
		if got.Steps == 0 || got.Segments != int(segments) {
			t.Errorf("from segment %d: %d steps of %d segments", from, got.Steps, got.Segments)
		}
	}
	for from := int64(1); from <= 4; from++ {
		check(from, 5-from)
	}
	if err := os.Remove(statePath(list[1].path)); err != nil {
		t.Fatal(err)
	}
	check(2, 3) // nothing to begin with in segment 2: segment 3 has it
	check(1, 4)
	if n := newestBase(list, 7); n != 4 {
		t.Errorf("a replay can begin at segment %d", n)
	}
}

// waitForState waits until a segment has its state.
func waitForState(t *testing.T, dir string, number int64) {
	t.Helper()
	path := statePath(filepath.Join(dir, segmentName(7, number)))
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("the state of segment %d was never made", number)
}

// SHARD-28.3: a segment that is pruned while a state is being made is no hindrance: the state begins at a later one.
func TestAStateIsMadeWhileOthersArePruned(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, nil)
	h.begin()
	for n := range 2 {
		h.live(2)
		h.step(core.CheckpointAsked{})
		waitForState(t, dir, int64(n+2))
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	gone, state := filepath.Join(dir, segmentName(7, 1)), statePath(filepath.Join(dir, segmentName(7, 3)))
	for _, path := range []string{gone, state} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", gone); err != nil { // listed, and not there when it is opened
		t.Fatal(err)
	}
	if err := writeState(t.Context(), dir, 7, 3); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
}

// SHARD-28.3: pruning never takes away the last segment at which a replay can begin.
func TestPruningKeepsABeginning(t *testing.T) {
	dir := t.TempDir()
	h := newHistory(t, dir, func(c *Config) { c.BytesMax = 1 })
	h.begin()
	for n := range 4 {
		h.live(2)
		h.step(core.CheckpointAsked{})
		waitForState(t, dir, int64(n+2))
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	got, err := Replay{Dir: dir}.Run(t.Context())
	if err != nil || got.Core == nil || got.Core.StateDigest() != h.core.StateDigest() {
		t.Errorf("%+v, %v", got, err)
	}
	if list, _ := segments(dir); len(list) > 3 {
		t.Errorf("%d segments were kept", len(list))
	}
}
