package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// Replay says what to run again.
type Replay struct {
	Dir       string
	Epoch     int64                          // only this process; 0: the newest
	From      int64                          // first segment; 0: the first that is there
	StopAt    int64                          // stop before this step; 0: at the end
	Policy    *engine.Policy                 // nil: the default
	Before    func(at core.At, c *core.Core) // each step
	OnEffects func(step int64, at core.At, e core.Event, effects []core.Effect)
	OnRecord  func(*pb.DecisionRecord) // each decision record that the replay makes

	until     int64 // first segment not to read; 0: none
	captureAt int64 // checkpoint step at which the core hands out its state
}

// Replayed is how a replay went.
type Replayed struct {
	Core     *core.Core // nil when nothing could be replayed
	Shard    string
	Version  string // of the process that wrote the log
	Epoch    int64
	Segments int
	Steps    int64
	Records  int64   // made by the replay and equal to those of the log, byte for byte
	Digests  int     // compared
	Lost     int64   // entries that the log says are missing
	Damage   *Damage // where the log stops being readable; nil: it was read to its end
	Stopped  bool    // at StopAt
}

// ErrDiverged says that the core decided differently from how it did when the log was written.
var ErrDiverged = errors.New("the replay differs from the recorded history")

// replaying is one replay at work.
type replaying struct {
	Replay
	out  *Replayed
	ctx  context.Context
	made map[int64]*pb.DecisionRecord // by the replay, not yet compared
}

var errStopped = errors.New("stopped")

// Run reads a log directory and runs the core again. Wherever the log holds a digest the core's must be equal, and every
// decision record of the log must be the one that the core makes now. Damage ends the replay, and everything before it
// stands; only where the log itself says what is missing does it continue behind.
func (r Replay) Run(ctx context.Context) (out Replayed, err error) {
	list, err := segments(r.Dir)
	if err != nil {
		return out, err
	}
	if len(list) == 0 {
		return out, fmt.Errorf("%s holds no segment of a decision log: %w", r.Dir, fs.ErrNotExist)
	}
	if r.Epoch == 0 {
		r.Epoch = list[len(list)-1].epoch
	}
	out.Epoch = r.Epoch
	p := &replaying{Replay: r, out: &out, ctx: ctx, made: map[int64]*pb.DecisionRecord{}}
	for _, s := range list {
		if s.epoch != r.Epoch || s.number < r.From || r.until > 0 && s.number >= r.until {
			continue
		}
		if out.Damage != nil && !p.goesOn(s.path) {
			break
		}
		done, err := p.segment(s.path)
		if done || err != nil {
			return out, err
		}
	}
	if out.Core == nil && out.Damage == nil {
		return out, fmt.Errorf("no segment of epoch %d in %s can be replayed", r.Epoch, r.Dir)
	}
	return out, nil
}

// segment replays one file and reports whether to stop there.
func (p *replaying) segment(path string) (done bool, err error) {
	err = scan(path, func(block) bool { return true }, func(b block, raw []byte) error {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		switch b.kind {
		case blockHead:
			return p.head(path, raw)
		case blockEvents:
			return p.event(raw)
		}
		return p.record(raw)
	})
	p.out.Segments++
	var d *Damage
	switch {
	case errors.Is(err, errStopped):
		p.out.Stopped = true
		return true, nil
	case errors.As(err, &d):
		p.out.Damage = d
		return false, nil
	case err != nil:
		return true, fmt.Errorf("%s: %w", path, err)
	}
	return false, nil
}

// goesOn reports whether a segment behind a damaged one says itself that entries are missing before it: the process that
// wrote it knew, and started over with a checkpoint.
func (p *replaying) goesOn(path string) bool {
	knew := false
	_ = scan(path, func(block) bool { return true }, func(b block, raw []byte) error {
		var h head
		knew = b.kind == blockHead && codec.Unmarshal(raw, &h) == nil && h.Gap > 0 && h.State != nil
		return errStopped
	})
	if knew {
		p.out.Damage = nil
	}
	return knew
}

// head begins a segment: with a new core, one of the checkpoint, or the one that has got here by itself.
func (p *replaying) head(path string, raw []byte) error {
	var h head
	if err := codec.Unmarshal(raw, &h); err != nil {
		return &Damage{Why: "the head of the segment cannot be read: " + err.Error()}
	}
	out := p.out
	out.Lost += h.Gap
	out.Shard, out.Version = h.Shard, h.Version
	if h.State == nil && h.Step > 0 && out.Core == nil { // begin here, if the state is there
		x, err := readHead(statePath(path))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if x.State == nil {
			return &Damage{Why: "the checkpoint file of the segment contains no state"}
		}
		h.State = x.State
	}
	switch {
	case h.begins():
		out.Core = core.New(p.Policy)
	case h.State == nil:
		if got := out.Core.Steps(); got != h.Step {
			return &Damage{Why: fmt.Sprintf("the segment begins after step %d, but the previous one ends with step %d", h.Step, got)}
		}
	case out.Core == nil || h.Gap > 0 || out.Core.Steps() != h.State.Steps+1:
		clear(p.made)
		effects, failed := p.restore(h.State)
		if failed != "" {
			return &Damage{Why: "the core cannot start from the segment's state: " + failed}
		}
		p.keep(effects)
	}
	if h.Digest == 0 {
		return nil
	}
	out.Digests++
	if got := out.Core.Digest(); got != h.Digest {
		return fmt.Errorf("%w: at the checkpoint of segment %d the digest is %016x; the log has %016x", ErrDiverged, h.Number, got, h.Digest)
	}
	return nil
}

// restore makes the core of a stored state. A checksum says that the bytes are those that were written, not that a core can be made
// of them.
func (p *replaying) restore(state *core.Snapshot) (effects []core.Effect, failed string) {
	defer func() {
		if r := recover(); r != nil {
			failed = fmt.Sprint(r)
		}
	}()
	c, effects := core.Restore(p.Policy, state)
	p.out.Core = c
	return effects, ""
}

func (p *replaying) event(raw []byte) (err error) {
	var f Frame
	if err := codec.Unmarshal(raw, &f); err != nil {
		return &Damage{Why: "an event cannot be read: " + err.Error()}
	}
	if p.StopAt > 0 && f.Step >= p.StopAt {
		return errStopped
	}
	e, err := decode(&f)
	if err != nil {
		return &Damage{Why: err.Error()}
	}
	out := p.out
	if out.Core == nil {
		return nil // a segment without a checkpoint it can begin with
	}
	if want := out.Core.Steps() + 1; f.Step != want && out.Steps > 0 {
		return &Damage{Why: fmt.Sprintf("step %d follows step %d", f.Step, want-1)}
	}
	if p.captureAt > 0 && f.Step == p.captureAt {
		out.Core.Capture()
	}
	if p.Before != nil {
		p.Before(f.At, out.Core)
	}
	effects, failed := p.step(&f, e)
	if failed != "" {
		return fmt.Errorf("step %d (%s) makes the core fail, as it did in the history if this is its last one: %s", f.Step, f.Kind, failed)
	}
	out.Steps++
	p.keep(effects)
	if p.OnEffects != nil {
		p.OnEffects(f.Step, f.At, e, effects)
	}
	if f.Digest == 0 {
		return nil
	}
	out.Digests++
	if got := out.Core.Digest(); got != f.Digest {
		return fmt.Errorf("%w: at step %d (%s) the digest is %016x; the log has %016x", ErrDiverged, f.Step, f.Kind, got, f.Digest)
	}
	return nil
}

// step steps the core. The last event of a log may be the one that ended its process (SHARD-3.7).
func (p *replaying) step(f *Frame, e core.Event) (effects []core.Effect, failed string) {
	defer func() {
		if r := recover(); r != nil {
			failed = fmt.Sprint(r)
		}
	}()
	return p.out.Core.Step(f.At, e), ""
}

// keep holds the records that the replay made until the log shows the same ones.
func (p *replaying) keep(effects []core.Effect) {
	for _, e := range effects {
		if r, ok := e.(core.Record); ok {
			x := convert.Record(&r, p.out.Shard)
			p.made[x.Sequence] = x
			if p.OnRecord != nil {
				p.OnRecord(x)
			}
		}
	}
}

// record compares a record of the log with the one that the replay made. One that belongs to steps which the log does not
// hold cannot be compared.
func (p *replaying) record(raw []byte) error {
	var was pb.DecisionRecord
	if err := proto.Unmarshal(raw, &was); err != nil {
		return &Damage{Why: "a record cannot be read: " + err.Error()}
	}
	now := p.made[was.Sequence]
	if now == nil {
		if p.out.Core == nil || p.out.Steps == 0 {
			return nil
		}
		return fmt.Errorf("%w: record %d (%s) is missing", ErrDiverged, was.Sequence, was.Type)
	}
	delete(p.made, was.Sequence)
	p.out.Records++
	a, b := canonical(&was), canonical(now)
	if string(a) != string(b) {
		return fmt.Errorf("%w: record %d is %v in the log and %v in the replay", ErrDiverged, was.Sequence, &was, now)
	}
	return nil
}

// canonical is the bytes by which records are compared: equal records give equal ones.
func canonical(r *pb.DecisionRecord) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return []byte(err.Error())
	}
	return b
}
