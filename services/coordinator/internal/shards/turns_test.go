package shards

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// COORD-7.11, 21.32: however many reports arrive at once, a few are worked on at a time; one that waits for the log lets
// others pass, and one whose caller went away takes no turn with it.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		size := cap(turns.free)
		var working, most atomic.Int64
		var all sync.WaitGroup
		work := func(commit time.Duration) {
			all.Go(func() {
				ctx, end, err := turns.Take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				defer end()
				step := func() {
					if n := working.Add(1); n > most.Load() {
						most.Store(n)
					}
					time.Sleep(time.Millisecond)
					working.Add(-1)
				}
				step()
				resume := pause(ctx)
				time.Sleep(commit)
				resume()
				step()
			})
		}
		start := time.Now()
		for range 10 * size {
			work(time.Second)
		}
		all.Wait()
		if most.Load() > int64(size) {
			t.Errorf("%d reports at a time", most.Load())
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("reports waited for each other's commits: %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		held, end, err := turns.Take(ctx)
		if err != nil {
			t.Fatal(err)
		}
		resume := pause(held)
		cancel()
		var ends []func()
		for range size {
			_, leave, err := turns.Take(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, leave)
		}
		resume()
		end()
		for _, leave := range ends {
			leave()
		}
		if len(turns.free) != 0 {
			t.Errorf("%d turns are lost", len(turns.free))
		}
	})
}
