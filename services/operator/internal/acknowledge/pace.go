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
)

// giveWay is how long a worker pauses after a patch that took so long (OP-6.3).
func giveWay(took time.Duration) time.Duration {
	if took <= slow {
		return 0
	}
	return min(pauses*took, pauseMax)
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
