package conformance_test

import (
	"context"
	"errors"
	"sync"

	"connectrpc.com/connect"
)

// brokenFences break section 6.
func brokenFences() []broken {
	return []broken{
		{"forgets fencing", []string{"fence/stale-token", "fence/effect", "fence/before-repeat"}, func(w *wrong) {
			w.before = func(_ context.Context, q *mutation) (*pbAck, error) {
				q.shard, q.epoch, q.sequence = "", 0, 0
				return nil, nil
			}
		}},
		{"marks per shard", []string{"fence/machines-are-apart", "fence/out-of-order"}, ownMarks(older, func(q mutation) string { return q.shard }, always)},
		{"marks per machine", []string{"fence/shards-are-apart", "fence/first-contact"}, ownMarks(older, func(q mutation) string { return q.machine }, always)},
		{"lets an equal token pass", []string{"fence/stale-token"}, ownMarks(func(q mutation, m [2]int64) bool {
			return q.epoch < m[0] || q.epoch == m[0] && q.sequence < m[1]
		}, pair, always)},
		{"compares tokens as unsigned numbers", []string{"fence/negative"}, ownMarks(func(q mutation, m [2]int64) bool {
			return uint64(q.epoch) < uint64(m[0]) || q.epoch == m[0] && uint64(q.sequence) <= uint64(m[1])
		}, pair, always)},
		{"compares tokens by subtraction", []string{"fence/extremes"}, ownMarks(func(q mutation, m [2]int64) bool {
			return q.epoch-m[0] < 0 || q.epoch == m[0] && q.sequence-m[1] <= 0
		}, pair, always)},
		{"forgets the token of a refused call", []string{"fence/refusal-moves-mark", "fence/before-existence"}, ownMarks(older, pair, func(err error) bool { return err == nil })},
		{"looks for the machine before the fence", []string{"fence/before-existence", "fence/unknown-machines"}, func(w *wrong) {
			w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
				if q.machine != "" && w.state(ctx, q.machine) == nil {
					return nil, connect.NewError(connect.CodeNotFound, errors.New("no such machine"))
				}
				return nil, nil
			}
		}},
	}
}

// ownMarks replaces fencing by a careless one; the good provider behind it sees unfenced calls.
func ownMarks(stale func(q mutation, mark [2]int64) bool, key func(q mutation) string, moves func(err error) bool) func(*wrong) {
	return func(w *wrong) {
		var mu sync.Mutex
		marks := map[string][2]int64{}
		w.before = func(ctx context.Context, q *mutation) (*pbAck, error) {
			asked := *q
			if asked.shard == "" && asked.epoch == 0 && asked.sequence == 0 {
				return nil, nil
			}
			mu.Lock()
			defer mu.Unlock()
			if mark, known := marks[key(asked)]; known && stale(asked, mark) {
				return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("stale"))
			}
			q.shard, q.epoch, q.sequence = "", 0, 0
			a, err := w.forward(ctx, *q)
			if moves(err) {
				marks[key(asked)] = [2]int64{asked.epoch, asked.sequence}
			}
			return a, err
		}
	}
}

func older(q mutation, m [2]int64) bool {
	return q.epoch < m[0] || q.epoch == m[0] && q.sequence <= m[1]
}
func pair(q mutation) string { return q.shard + "\x00" + q.machine }
func always(error) bool      { return true }
