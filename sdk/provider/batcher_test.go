package provider_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-19.6: transitions are joined by time and size; each keeps its own result.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []int
		full := errors.New("no room for 3")
		b := provider.NewBatcher(10*time.Millisecond, 4, func(_ context.Context, in []int) ([]provider.Result[int], error) {
			mu.Lock()
			calls = append(calls, len(in))
			mu.Unlock()
			time.Sleep(time.Second)
			out := make([]provider.Result[int], len(in))
			for i, n := range in {
				if out[i].Value = 10 * n; n == 3 {
					out[i].Err = full
				}
			}
			return out, nil
		})
		begin := time.Now()
		var all sync.WaitGroup
		for n := range 6 {
			all.Go(func() {
				got, err := b.Do(t.Context(), n)
				if n == 3 && err != full || n != 3 && (err != nil || got != 10*n) {
					t.Errorf("%d gives %d, %v", n, got, err)
				}
			})
		}
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(calls) != 2 || calls[0] != 4 || calls[1] != 2 {
			t.Errorf("batches of %v, want four and, after the wait, two", calls)
		}
		if took := time.Since(begin); took != time.Second+10*time.Millisecond {
			t.Errorf("took %s", took)
		}
	})
}

// PROV-19.6, 13.4: a caller whose limit passes leaves and the others continue; when all have left, the call ends.
func TestABatchEndsWithItsLastCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int32
		b := provider.NewBatcher(time.Millisecond, 10, func(ctx context.Context, in []int) ([]provider.Result[int], error) {
			defer ended.Add(1)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		do := func(limit time.Duration) (took time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begin := time.Now()
			_, err = b.Do(ctx, 1)
			return time.Since(begin), err
		}
		var all sync.WaitGroup
		for _, limit := range []time.Duration{time.Second, 3 * time.Second} {
			all.Go(func() {
				if took, err := do(limit); took != limit || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %v", took, err)
				}
			})
		}
		time.Sleep(2 * time.Second)
		if ended.Load() != 0 {
			t.Error("the call ended with its first caller")
		}
		all.Wait()
		synctest.Wait()
		if ended.Load() != 1 {
			t.Errorf("%d calls ended after all callers had left", ended.Load())
		}
		if took, _ := do(time.Microsecond); took != time.Microsecond { // leaves before the batch begins
			t.Errorf("%s", took)
		}
		time.Sleep(time.Second)
		short := provider.NewBatcher(0, 1, func(context.Context, []int) ([]provider.Result[int], error) { return nil, nil })
		if _, err := short.Do(t.Context(), 1); err == nil {
			t.Error("an answer without results is taken")
		}
		broken := provider.NewBatcher(0, 1, func(context.Context, []int) ([]provider.Result[int], error) { panic("nil map") })
		if _, err := broken.Do(t.Context(), 1); err == nil {
			t.Error("a panic is no error")
		}
	})
}
