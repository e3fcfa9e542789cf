package audit

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Query selects records. Zero fields select everything.
type Query struct {
	Since, Until int64 // Unix nanoseconds, both inclusive
	Match        func(*pb.DecisionRecord) bool
	Limit        int
	// Word stands in each record that Match wants, such as the id of its machine. Records on the disk without it are not
	// read. Empty: any may match.
	Word string
}

// History returns records, newest first, and whether some are missing: older ones have left the log, or a segment is damaged,
// which is also logged. Records that are not on the disk yet come from memory.
func (l *Log) History(ctx context.Context, q Query) (out []*pb.DecisionRecord, truncated bool, err error) {
	recent, _, _ := l.recent.from(1, l.cfg.Recent)
	oldest := int64(0)
	if len(recent) > 0 {
		oldest = recent[0].Sequence
	}
	keep := func(r *pb.DecisionRecord) {
		if r.AtUnixNanos >= q.Since && (q.Until == 0 || r.AtUnixNanos <= q.Until) && (q.Match == nil || q.Match(r)) {
			out = append(out, r)
		}
	}
	for _, r := range slices.Backward(recent) {
		keep(r)
	}
	if q.Limit > 0 && len(out) >= q.Limit || l.cfg.Dir == "" {
		return cut(out, q.Limit), l.cfg.Dir == "" && oldest > 1, nil
	}
	list, err := segments(l.cfg.Dir)
	if err != nil {
		return nil, false, err
	}
	damaged := false
	for _, s := range slices.Backward(list) {
		if ctx.Err() != nil {
			return nil, false, ctx.Err()
		}
		from := len(out)
		err := scan(s.path, func(b block) bool {
			return b.kind == blockRecords && b.last >= q.Since && (q.Until == 0 || b.first <= q.Until)
		}, func(_ block, raw []byte) error {
			if q.Word != "" && !bytes.Contains(raw, []byte(q.Word)) {
				return nil
			}
			var r pb.DecisionRecord
			if proto.Unmarshal(raw, &r) == nil && (r.ShardEpoch != l.cfg.Epoch || oldest == 0 || r.Sequence < oldest) {
				keep(&r)
			}
			return nil
		})
		if d := (*Damage)(nil); errors.As(err, &d) {
			if !d.Tail { // a tail is what a crash left
				damaged = true
				l.complain(d)
			}
		} else if err != nil {
			return nil, false, err
		}
		slices.Reverse(out[from:])
		if q.Limit > 0 && len(out) >= q.Limit {
			break
		}
	}
	return cut(out, q.Limit), damaged || len(list) > 0 && list[0].number > 1, nil
}

// complain says once per segment that it is damaged.
func (l *Log) complain(d *Damage) {
	if _, said := l.damaged.LoadOrStore(d.File, true); said {
		return
	}
	l.cfg.OnError()
	l.cfg.Log.Error("a segment of the decision log is damaged: its later records are not shown; restore a copy of it, or remove it", "err", d)
}

func cut(list []*pb.DecisionRecord, limit int) []*pb.DecisionRecord {
	if limit > 0 && len(list) > limit {
		return list[:limit]
	}
	return list
}

// followMax bounds how many records Follow returns at once.
const followMax = 1024

// Follow returns records in memory from a sequence on, oldest first and at most followMax, the next sequence to ask for, and how
// many were skipped because they have left memory. Sequence 0 is behind the newest.
func (l *Log) Follow(from int64) (out []*pb.DecisionRecord, next, skipped int64) {
	if from == 0 {
		return nil, l.recent.next.Load(), 0
	}
	return l.recent.from(from, followMax)
}
