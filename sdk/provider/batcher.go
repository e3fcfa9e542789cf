package provider

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Batcher joins calls of several transitions into one call of a batch API, such as "launch n instances" (PROV-19.6). Each caller
// gets its own result, and does not see the others. Make one per kind of call with NewBatcher and use it from the methods
// of a Backend; put Call inside do, so that limits, retries and metrics count what really travels.
type Batcher[In, Out any] struct {
	wait time.Duration
	most int
	do   func(ctx context.Context, in []In) ([]Result[Out], error)

	mu   sync.Mutex
	open *joint[In, Out] // gathers; nil between two batches
}

// Result is what a batch call says about one of its parts.
type Result[Out any] struct {
	Value Out
	Err   error
}

// joint is one batch: it gathers, is called, and is done.
type joint[In, Out any] struct {
	in      []In
	results []Result[Out]
	err     error
	done    chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	there   int // callers that still wait
	begun   bool
}

var errResults = errors.New("a batch call must return one result for each input, in their order")

// NewBatcher returns a Batcher that calls do with at most so many inputs, at the latest that long after the first one came. do
// answers with one result per input, in their order, or with an error for all. Its context has the values of the first caller's
// and ends when the last waiting caller has left. A caller leaves when its own context ends; the others continue.
func NewBatcher[In, Out any](wait time.Duration, most int, do func(ctx context.Context, in []In) ([]Result[Out], error)) *Batcher[In, Out] {
	return &Batcher[In, Out]{wait: wait, most: max(1, most), do: do}
}

// Do adds in to a batch and waits for its result.
func (b *Batcher[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	if err := ctx.Err(); err != nil {
		return out, context.Cause(ctx)
	}
	j, at := b.join(ctx, in)
	select {
	case <-j.done:
	case <-ctx.Done():
		b.leave(j)
		return out, context.Cause(ctx)
	}
	if j.err != nil {
		return out, j.err
	}
	return j.results[at].Value, j.results[at].Err
}

func (b *Batcher[In, Out]) join(ctx context.Context, in In) (*joint[In, Out], int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j := b.open
	if j == nil {
		j = &joint[In, Out]{done: make(chan struct{})}
		j.ctx, j.cancel = context.WithCancel(context.WithoutCancel(ctx))
		b.open = j
		time.AfterFunc(b.wait, func() { b.begin(j) })
	}
	at := len(j.in)
	j.in = append(j.in, in)
	j.there++
	if len(j.in) >= b.most {
		b.open = nil
		go b.begin(j)
	}
	return j, at
}

// begin calls once for all that joined; the timer and the full batch may both ask for it.
func (b *Batcher[In, Out]) begin(j *joint[In, Out]) {
	b.mu.Lock()
	again := j.begun
	j.begun = true
	if b.open == j {
		b.open = nil
	}
	b.mu.Unlock()
	if again {
		return
	}
	defer close(j.done)
	defer j.cancel()
	defer func() {
		if v := recover(); v != nil {
			j.err = fmt.Errorf("the batch call failed (panic): %v", v)
		}
	}()
	if j.ctx.Err() != nil {
		j.err = context.Canceled // every caller left before it began
		return
	}
	j.results, j.err = b.do(j.ctx, j.in)
	if j.err == nil && len(j.results) != len(j.in) {
		j.err = errResults
	}
}

// leave ends the call when the last caller has gone.
func (b *Batcher[In, Out]) leave(j *joint[In, Out]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if j.there--; j.there == 0 {
		j.cancel()
		if b.open == j {
			b.open = nil // who comes now must not join a batch that ended
		}
	}
}
