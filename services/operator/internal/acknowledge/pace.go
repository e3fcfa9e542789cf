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
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
