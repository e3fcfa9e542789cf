package acknowledge

import (
	"context"
	"sync"
	"time"
)

// pace lets a number of calls a second pass, and a burst after a pause.
type pace struct {
	mu    sync.Mutex
	every time.Duration
	burst time.Duration
	next  time.Time // when the next call may pass if none is saved up
}

func newPace(perSecond float64, burst int) *pace {
	every := time.Duration(float64(time.Second) / perSecond)
	return &pace{every: every, burst: time.Duration(burst) * every}
}

// wait blocks until the caller may pass. It returns false when ctx ended first.
func (p *pace) wait(ctx context.Context) bool {
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-p.burst); p.next.Before(earliest) {
		p.next = earliest
	}
	p.next = p.next.Add(p.every)
	wait := p.next.Sub(now)
	p.mu.Unlock()
	return sleep(ctx, wait)
}

const (
	slow     = 50 * time.Millisecond // a patch that takes longer says that the API server has more to do than it can
	pauses   = 4                     // how much longer than such a patch its worker then pauses: a fifth of the share that it could have
	pauseMax = time.Second

	burstGap = 3 * time.Second  // without more requests for so long, a burst is over
	burstMax = 15 * time.Second // what lasts longer is not a burst, and is not given way to forever
)

// burst knows whether requests come in a burst.
type burst struct{ first, last time.Time }

func (b *burst) more(now time.Time) {
	if now.Sub(b.last) > burstGap {
		b.first = now
	}
	b.last = now
}

func (b *burst) on(now time.Time) bool {
	return now.Sub(b.last) <= burstGap && now.Sub(b.first) <= burstMax
}

// sleep returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
