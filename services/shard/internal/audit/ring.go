package audit

import (
	"sync/atomic"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ring keeps the newest records in memory. The core's loop alone adds to it and takes no lock: readers, however many, cost the loop
// nothing. A reader that is overtaken misses records and hears how many.
type ring struct {
	slots []atomic.Pointer[pb.DecisionRecord] // a record stands at its sequence modulo their number
	next  atomic.Int64                        // sequence after the newest record
}

func newRing(records int) *ring {
	r := &ring{slots: make([]atomic.Pointer[pb.DecisionRecord], records)}
	r.next.Store(1)
	return r
}

func (r *ring) add(x *pb.DecisionRecord) {
	r.slots[x.Sequence%int64(len(r.slots))].Store(x)
	r.next.Store(x.Sequence + 1)
}

// from returns at most so many records from a sequence on, oldest first, the sequence to continue with, and how many before it have
// left the ring.
func (r *ring) from(sequence int64, most int) (out []*pb.DecisionRecord, next, skipped int64) {
	end := r.next.Load()
	next = max(sequence, end-int64(len(r.slots)), 1)
	for ; next < end && len(out) < most; next++ {
		if x := r.slots[next%int64(len(r.slots))].Load(); x != nil && x.Sequence == next {
			out = append(out, x)
		} else if len(out) > 0 {
			break // overtaken; what is out is whole, and the next call skips
		}
	}
	first := next
	if len(out) > 0 {
		first = out[0].Sequence
	}
	return out, next, max(0, first-sequence)
}
