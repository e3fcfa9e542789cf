package audit

import (
	"errors"
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// Replay says what to run again.
type Replay struct {
	Dir       string
	Epoch     int64          // only this process; 0: the newest
	From      int64          // first segment; 0: the first that is there
	StopAt    int64          // stop before this step; 0: at the end
	Policy    *engine.Policy // nil: the default
	OnEffects func(step int64, at core.At, e core.Event, effects []core.Effect)
}

// Replayed is how a replay went.
type Replayed struct {
	Core     *core.Core // nil when nothing could be replayed
	Epoch    int64
	Segments int
	Steps    int64
	Digests  int   // compared
	Lost     int64 // entries that the log says are missing
	Partial  bool  // the last segment breaks off, as after a crash
}

// ErrDiverged says that the core decided differently from how it did when the log was written.
var ErrDiverged = errors.New("the replay took another way than the history")

// Run reads a log directory and runs the core again. Wherever the log holds a digest, the core's must be equal.
func (r Replay) Run() (out Replayed, err error) {
	list, err := segments(r.Dir)
	if err != nil {
		return out, err
	}
	if r.Epoch == 0 && len(list) > 0 {
		r.Epoch = list[len(list)-1].epoch
	}
	out.Epoch = r.Epoch
	stopped := errors.New("stopped")
	for _, s := range list {
		if s.epoch != r.Epoch || s.number < r.From {
			continue
		}
		err := scan(s.path, func(b block) bool { return b.kind != blockRecords }, func(b block, raw []byte) error {
			if b.kind == blockHead {
				return r.head(&out, raw)
			}
			return r.event(&out, raw, stopped)
		})
		out.Segments++
		switch {
		case errors.Is(err, stopped):
			return out, nil
		case errors.Is(err, errPart):
			out.Partial = true
		case err != nil:
			return out, fmt.Errorf("%s: %w", s.path, err)
		}
	}
	if out.Core == nil {
		return out, fmt.Errorf("no segment of epoch %d in %s can be replayed", r.Epoch, r.Dir)
	}
	return out, nil
}

// head begins a segment: with a new core, one of the checkpoint, or the one that has got here by itself.
func (r Replay) head(out *Replayed, raw []byte) error {
	var h head
	if err := codec.Unmarshal(raw, &h); err != nil {
		return err
	}
	out.Lost += h.Gap
	switch {
	case h.State == nil:
		out.Core = core.New(r.Policy)
	case out.Core == nil || h.Gap > 0 || out.Core.Steps() != h.State.Steps+1:
		out.Core, _ = core.Restore(r.Policy, h.State)
	}
	if h.Digest == 0 {
		return nil
	}
	out.Digests++
	if got := out.Core.Digest(); got != h.Digest {
		return fmt.Errorf("%w: at the checkpoint of segment %d the digest is %016x, it was %016x", ErrDiverged, h.Number, got, h.Digest)
	}
	return nil
}

func (r Replay) event(out *Replayed, raw []byte, stopped error) error {
	var f Frame
	if err := codec.Unmarshal(raw, &f); err != nil {
		return err
	}
	if r.StopAt > 0 && f.Step >= r.StopAt {
		return stopped
	}
	e, err := decode(&f)
	if err != nil {
		return err
	}
	if out.Core == nil {
		return nil // a segment without a checkpoint it can begin with
	}
	effects := out.Core.Step(f.At, e)
	out.Steps++
	if r.OnEffects != nil {
		r.OnEffects(f.Step, f.At, e, effects)
	}
	if f.Digest == 0 {
		return nil
	}
	out.Digests++
	if got := out.Core.Digest(); got != f.Digest {
		return fmt.Errorf("%w: at step %d (%s) the digest is %016x, it was %016x", ErrDiverged, f.Step, f.Kind, got, f.Digest)
	}
	return nil
}
