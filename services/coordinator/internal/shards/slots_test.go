package shards

import (
	"context"
	"errors"
	"slices"
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
		turns := NewWorkSlots()
		size := turns.free
		var working, most atomic.Int64
		var all sync.WaitGroup
		work := func(commit time.Duration) {
			all.Go(func() {
				ctx, end, err := turns.Take(t.Context(), time.Hour, nil)
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
		held, end, err := turns.Take(ctx, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		resume := pause(held)
		cancel()
		var ends []func()
		for range size {
			_, leave, err := turns.Take(t.Context(), time.Hour, nil)
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
		if lost := size - turns.free; lost != 0 {
			t.Errorf("%d turns are lost", lost)
		}
	})
}

// COORD-7.15: a report that was begun continues before those that have not begun; one that would wait for too long is refused,
// and leaves its place to others.
func TestTurnsOfBegunReportsComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("full")
		turns := &WorkSlots{free: 1}
		begun, end, err := turns.Take(t.Context(), time.Second, full)
		if err != nil {
			t.Fatal(err)
		}
		resume := pause(begun) // it waits for the log
		_, leave, err := turns.Take(t.Context(), time.Second, full)
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		var all sync.WaitGroup
		all.Go(func() {
			_, leave, err := turns.Take(t.Context(), time.Hour, full)
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "new")
			leave()
		})
		synctest.Wait()
		all.Go(func() {
			resume()
			order = append(order, "begun")
			end()
		})
		if _, _, err := turns.Take(t.Context(), time.Second, full); !errors.Is(err, full) {
			t.Errorf("a report that waited for a second got %v", err)
		}
		synctest.Wait()
		leave()
		all.Wait()
		if !slices.Equal(order, []string{"begun", "new"}) || turns.free != 1 {
			t.Errorf("%v, %d turns are free", order, turns.free)
		}
	})
}
