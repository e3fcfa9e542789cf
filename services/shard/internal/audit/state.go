package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// The state at the head of a segment is in a file of its own, beside the segment. It is made by replaying the segments
// before, which gives what a copy of the core would have given, byte for byte, and costs the loop nothing (SHARD-28.3). Until it is
// there, a replay begins at an earlier segment.
const stateSuffix = ".state"

func statePath(segment string) string { return segment + stateSuffix }

// states makes one state at a time: of the newest segment that was asked for.
type states struct {
	mu     sync.Mutex
	wanted int64 // segment to make next; 0: none
	busy   bool
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// make begins to make the state of a segment that has just been begun. While another one is being made it waits, and a newer one
// takes its place: that one is made of more segments.
func (s *states) make(c *Config, number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = number
	if s.busy {
		return
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	s.busy = true
	s.done.Go(func() {
		for number := s.next(); number > 0; number = s.next() {
			if err := writeState(ctx, c.Dir, c.Epoch, number); err != nil && ctx.Err() == nil {
				c.OnError()
				c.Log.Error("the decision log has no checkpoint for its newest segment; a replay begins at an earlier one", "segment", number, "err", err)
			}
		}
	})
}

// next takes the segment that is wanted. When there is none, the making has ended.
func (s *states) next() (number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, s.wanted = s.wanted, 0
	if number == 0 {
		s.busy = false
		s.cancel()
	}
	return number
}

func (s *states) stop() {
	s.mu.Lock()
	s.wanted = 0
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	s.done.Wait()
}

// writeState replays a log up to the head of a segment and stores the state there.
func writeState(ctx context.Context, dir string, epoch, number int64) error {
	list, err := segments(dir)
	if err != nil {
		return err
	}
	var path string
	var h head
	from := int64(0)
	for _, s := range list {
		if s.epoch != epoch || s.number > number {
			continue
		}
		x, err := readHead(s.path)
		switch {
		case errors.Is(err, os.ErrNotExist): // pruned meanwhile, which the newest segments never are
			continue
		case err != nil:
			return err
		}
		if s.number == number {
			path, h = s.path, x
		} else if x.begins() || hasState(s.path, &x) {
			from = s.number
		}
	}
	if path == "" || from == 0 {
		return fmt.Errorf("segment %d cannot be reached from an earlier checkpoint", number)
	}
	var state *core.Snapshot
	r := Replay{Dir: dir, Epoch: epoch, From: from, until: number, captureAt: h.Step, OnEffects: func(step int64, _ core.At, _ core.Event, effects []core.Effect) {
		for _, e := range effects {
			if t, ok := e.(core.CheckpointTaken); ok && step == h.Step {
				state = t.State.Snapshot()
			}
		}
	}}
	got, err := r.Run(ctx)
	switch {
	case err != nil:
		return err
	case got.Damage != nil:
		return got.Damage
	case state == nil || got.Core.Digest() != h.Digest:
		return fmt.Errorf("%w: at the head of segment %d", ErrDiverged, number)
	}
	h.State = state
	b, err := pack(blockHead, [][]byte{codec.Marshal(h)}, 0, 0)
	if err != nil {
		return err
	}
	return replaceFile(statePath(path), append([]byte(magic), b...))
}

// replaceFile writes a file so that it is there as a whole or not at all.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "state-*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// readHead reads the head of a segment or of a state file.
func readHead(path string) (h head, err error) {
	err = scan(path, func(block) bool { return true }, func(b block, raw []byte) error {
		if b.kind != blockHead {
			return &Damage{Why: "the file has no head"}
		}
		if err := codec.Unmarshal(raw, &h); err != nil {
			return &Damage{Why: "the head cannot be read: " + err.Error()}
		}
		return errStopped
	})
	if errors.Is(err, errStopped) {
		return h, nil
	}
	if err == nil {
		err = &Damage{File: path, Why: "the file has no head"}
	}
	return h, err
}

// hasState reports whether a replay can begin at a segment.
func hasState(path string, h *head) bool {
	if h.State != nil {
		return true
	}
	_, err := os.Stat(statePath(path))
	return err == nil
}

// newestBase is the number of the newest segment of a process at which a replay can begin.
func newestBase(list []segmentFile, epoch int64) (number int64) {
	for _, s := range list {
		if s.epoch != epoch {
			continue
		}
		if h, err := readHead(s.path); err == nil && (h.begins() || hasState(s.path, &h)) {
			number = s.number
		}
	}
	return number
}
