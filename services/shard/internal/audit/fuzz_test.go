package audit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// snapshotOf is the state of a core with a machine and a cluster, and its step.
func snapshotOf(t testing.TB) (*core.Snapshot, int64) {
	h := &history{core: core.New(nil), at: core.At{Mono: 1, Wall: 1}, log: New(Config{Dir: t.TempDir(), Shard: "s", Epoch: 7})}
	h.begin()
	h.live(2)
	h.core.Capture()
	for _, x := range h.core.Step(core.At{Mono: h.at.Mono + core.Second, Wall: h.at.Wall}, core.CheckpointAsked{}) {
		if taken, ok := x.(core.CheckpointTaken); ok && taken.State != nil {
			return taken.State.Snapshot(), h.core.Steps()
		}
	}
	t.Fatal("the core gave no state")
	return nil, 0
}

// SHARD-10.8 for files, 28.3: any bytes as the state that a replay begins with, and any content of a state file whose checksum
// is right, are refused without a panic.
func FuzzStateFile(f *testing.F) {
	state, step := snapshotOf(f)
	good := codec.Marshal(head{Shard: "s", Epoch: 7, Number: 2, Step: step, State: state})
	f.Add(good, true)
	f.Add(good[:len(good)/2], true)
	f.Add([]byte(magic), false)
	f.Add([]byte("nothing"), false)
	begin, err := pack(blockHead, [][]byte{codec.Marshal(head{Shard: "s", Epoch: 7, Number: 2, Step: step})}, 0, 0)
	if err != nil {
		f.Fatal(err)
	}
	segment := append([]byte(magic), begin...)
	f.Fuzz(func(t *testing.T, raw []byte, packed bool) {
		if packed {
			b, err := pack(blockHead, [][]byte{raw}, 0, 0)
			if err != nil {
				return
			}
			raw = append([]byte(magic), b...)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, segmentName(7, 2))
		if err := errors.Join(os.WriteFile(path, segment, 0o600), os.WriteFile(statePath(path), raw, 0o600)); err != nil {
			t.Fatal(err)
		}
		if got, err := (Replay{Dir: dir}).Run(t.Context()); err == nil && got.Damage == nil && got.Core == nil {
			t.Error("nothing was replayed and nothing is said to be wrong")
		}
	})
}
