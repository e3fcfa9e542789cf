package session

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// turns lets clusters have a few workers in turn, by bytes (SHARD-8.3). Next is who waits and has been given the fewest, counted from where the one before
// began: a cluster that sends little never waits behind several roll-ups of one that sends much, and no cluster saves up turns while it sends nothing.
type turns struct {
	mu      sync.Mutex
	free    int              // workers
	now     int64            // what the last one that was let in had been given before
	given   map[string]int64 // bytes by cluster, where that is beyond now
	waiting []*turn          // in the order of their coming
}

// turn is a roll-up that waits for a worker.
type turn struct {
	cluster string
	bytes   int64
	let     chan struct{} // closed when it is let in
}

func newTurns(workers int) *turns { return &turns{free: workers, given: map[string]int64{}} }

// enter waits for a worker.
func (t *turns) enter(ctx context.Context, cluster string, bytes int) error {
	x := &turn{cluster: cluster, bytes: int64(bytes), let: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, x)
	t.admit()
	t.mu.Unlock()
	select {
	case <-x.let:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.waiting, x); at >= 0 {
		t.waiting = slices.Delete(t.waiting, at, at+1)
	} else { // it was let in meanwhile
		t.free++
		t.admit()
	}
	return context.Cause(ctx)
}

// leave gives a worker back.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free++
	t.admit()
}

// admit lets in the next roll-up, as long as workers are free.
func (t *turns) admit() {
	for t.free > 0 && len(t.waiting) > 0 {
		next := 0
		for i, x := range t.waiting {
			if t.had(x.cluster) < t.had(t.waiting[next].cluster) {
				next = i
			}
		}
		x := t.waiting[next]
		t.waiting = slices.Delete(t.waiting, next, next+1)
		t.free--
		t.now = t.had(x.cluster)
		t.given[x.cluster] = t.now + x.bytes
		maps.DeleteFunc(t.given, func(_ string, given int64) bool { return given <= t.now })
		close(x.let)
	}
}

// had is what a cluster has been given.
func (t *turns) had(cluster string) int64 { return max(t.now, t.given[cluster]) }
