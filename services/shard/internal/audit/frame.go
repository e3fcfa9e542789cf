package audit

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Frame is one event of the log with the digest of the core behind it, where one was taken.
type Frame struct {
	Step   int64          `n:"1"` // number of the step in the life of the process
	At     core.At        `n:"2"`
	Kind   core.EventKind `n:"3"`
	Body   []byte         `n:"4"`
	Digest uint64         `n:"5"` // 0: none was taken at this step
	Gap    int64          `n:"6"` // entries lost just before this frame
}

// head is the first frame of a segment.
type head struct {
	Shard   string         `n:"1"`
	Epoch   int64          `n:"2"`
	Number  int64          `n:"3"`
	Version string         `n:"4"`
	State   *core.Snapshot `n:"5"` // behind a gap, or in a file of its own; else absent
	Digest  uint64         `n:"6"` // of the core behind the checkpoint step
	Gap     int64          `n:"7"`
	Step    int64          `n:"8"` // number of the checkpoint step; 0: the segment begins with Started, or State says it
}

// begins reports whether the core behind the head is a new one.
func (h *head) begins() bool { return h.State == nil && h.Step == 0 }

// encode writes an event. The largest are roll-ups, which say about how long they will be: memory that grows step by step is several times as much.
func encode(step int64, at core.At, e core.Event, digest uint64) []byte {
	size := 256
	if r, is := e.(core.RollupArrived); is {
		size += int(r.Bytes) * 5 / 4
	}
	f := Frame{Step: step, At: at, Kind: core.KindOf(e), Body: codec.Append(make([]byte, 0, size), e), Digest: digest}
	return codec.Append(make([]byte, 0, len(f.Body)+128), f)
}

// decode reads an event back.
func decode(f *Frame) (core.Event, error) {
	switch f.Kind {
	case core.KindStarted:
		return read[core.Started](f.Body)
	case core.KindSessionOpened:
		return read[core.SessionOpened](f.Body)
	case core.KindSessionClosed:
		return read[core.SessionClosed](f.Body)
	case core.KindRollupArrived:
		return read[core.RollupArrived](f.Body)
	case core.KindBootstrapAnswered:
		return read[core.BootstrapAnswered](f.Body)
	case core.KindReclaimAcked:
		return read[core.ReclaimAcked](f.Body)
	case core.KindNodeReported:
		return read[core.NodeReported](f.Body)
	case core.KindDrainReported:
		return read[core.DrainReported](f.Body)
	case core.KindUnplacedReported:
		return read[core.UnplacedReported](f.Body)
	case core.KindListPage:
		return read[core.ListPage](f.Body)
	case core.KindListDone:
		return read[core.ListDone](f.Body)
	case core.KindGetDone:
		return read[core.GetDone](f.Body)
	case core.KindCommandDone:
		return read[core.CommandDone](f.Body)
	case core.KindCoordinatorReplied:
		return read[core.CoordinatorReplied](f.Body)
	case core.KindAdminAsked:
		return read[core.AdminAsked](f.Body)
	case core.KindTick:
		return core.Tick{}, nil
	case core.KindStopping:
		return core.Stopping{}, nil
	case core.KindCheckpointAsked:
		return core.CheckpointAsked{}, nil
	case core.KindPlanDiffered:
		return read[core.PlanDiffered](f.Body)
	case core.KindDemandTooWide:
		return read[core.DemandTooWide](f.Body)
	case core.KindPartMade:
		return core.PartMade{}, nil
	}
	return nil, fmt.Errorf("step %d is an event of an unknown, newer kind (%d)", f.Step, f.Kind)
}

func read[T core.Event](b []byte) (core.Event, error) {
	var v T
	err := codec.Unmarshal(b, &v)
	return v, err
}
