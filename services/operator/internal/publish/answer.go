package publish

import (
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/session"
)

// tracker remembers which requests were in which roll-up until the shard says that it has them.
type tracker struct {
	batches []batch                // by timestamp, growing
	handed  map[aggregate.Key]bool // requests that were in a roll-up; true: the shard has them
	sentAt  map[int64]Outcome      // roll-ups without an answer yet
	heard   time.Time              // the session opened, or the shard answered a roll-up
}

type batch struct {
	timestamp int64
	keys      []aggregate.Key
}

func newTracker() tracker {
	return tracker{handed: map[aggregate.Key]bool{}, sentAt: map[int64]Outcome{}}
}

func outcomeOf(needs *pb.ClusterCapacityNeeds, size int, change uint64) Outcome {
	return Outcome{Change: change, Rows: len(needs.Needs), Bytes: size, SoftExceeded: size > BytesSoft || len(needs.Needs) > RowsSoft}
}

func (t *tracker) opened(now time.Time) {
	t.heard = now
	clear(t.sentAt)
}

// sent notes a roll-up and the requests that are in it for the first time. A request is handed on once, even if its
// object changes before the acknowledgement is visible.
func (t *tracker) sent(timestamp int64, now time.Time, keys []aggregate.Key, o Outcome) {
	fresh := keys[:0]
	for _, k := range keys {
		if _, known := t.handed[k]; !known {
			t.handed[k] = false
			fresh = append(fresh, k)
		}
	}
	if len(t.sentAt) >= batchesMax {
		clear(t.sentAt)
	}
	o.At, o.OfTimestampNs = now, timestamp
	t.sentAt[timestamp] = o
	if len(fresh) == 0 {
		return
	}
	if len(t.batches) >= batchesMax {
		end := &t.batches[len(t.batches)-1]
		end.timestamp, end.keys = timestamp, append(end.keys, fresh...)
		return
	}
	t.batches = append(t.batches, batch{timestamp, fresh})
}

// upTo takes the requests of all roll-ups up to one.
func (t *tracker) upTo(timestamp int64) (keys []aggregate.Key) {
	for len(t.batches) > 0 && t.batches[0].timestamp <= timestamp {
		keys = append(keys, t.batches[0].keys...)
		t.batches = t.batches[1:]
	}
	for _, k := range keys {
		if _, known := t.handed[k]; known { // else it was deleted meanwhile
			t.handed[k] = true
		}
	}
	return keys
}

func (t *tracker) all() []aggregate.Key { return t.upTo(1<<63 - 1) }

// silent takes all requests when the shard has not answered anything for a while (OP-6.2).
func (t *tracker) silent(now time.Time, limit time.Duration) []aggregate.Key {
	if now.Sub(t.heard) < limit {
		return nil
	}
	return t.all()
}

func (t *tracker) forget(key aggregate.Key) { delete(t.handed, key) }

var results = map[pb.RollupDisposition]string{
	pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED:  "accepted",
	pb.RollupDisposition_ROLLUP_DISPOSITION_UNCHANGED: "unchanged",
	pb.RollupDisposition_ROLLUP_DISPOSITION_HELD:      "held",
	pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED:  "rejected",
}

var echoes = map[string]string{
	session.EchoRollup: "accepted", session.EchoHeld: "held", session.EchoRejected: "rejected",
}

// Answered takes the shard's acknowledgement of a roll-up. Acknowledgements of other things are ignored.
func (p *Publisher) Answered(a *pb.Acknowledgement) {
	result, known := echoes[session.Echo(a)]
	if !known && a.Rollup == nil {
		return
	}
	p.OnOutcome(p.answered(a, result)) // without the lock: the receiver may be about to read the demand
}

func (p *Publisher) answered(a *pb.Acknowledgement, result string) Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.tracker.heard = now
	var o Outcome
	if r := a.Rollup; r != nil {
		result = "unknown"
		if name, ok := results[r.Disposition]; ok {
			result = name
		}
		o = p.tracker.sentAt[r.TimestampUnixNanos]
		delete(p.tracker.sentAt, r.TimestampUnixNanos)
		if !o.At.IsZero() {
			p.Instruments.RollupSend.Observe(now.Sub(o.At).Seconds())
		}
		o.Reason, o.Text, o.FieldPath, o.HeldCount, o.HeldNeeded = r.Reason, r.Message, r.FieldPath, r.HeldCount, r.HeldNeeded
		o.OfTimestampNs = r.TimestampUnixNanos
		p.Log.Debug("a roll-up is answered", "timestamp", r.TimestampUnixNanos, "result", result)
	}
	o.At, o.Result = now, result
	p.Instruments.Rollups.WithLabelValues(result).Inc()
	if result == "accepted" || result == "unchanged" {
		p.accepted = now
		if a.Rollup != nil {
			p.release(p.tracker.upTo(a.Rollup.TimestampUnixNanos))
		}
	} else {
		p.Log.Warn("the shard did not accept the roll-up", "result", result, "reason", o.Reason, "field", o.FieldPath, "message", o.Text,
			"held", o.HeldCount, "held_needed", o.HeldNeeded)
	}
	return o
}
