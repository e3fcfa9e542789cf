package server

import (
	"sync"
	"time"
)

// callersMax bounds the callers that are remembered; the least recent half is forgotten at the bound, which lets it
// begin with a full bucket again.
const callersMax = 4096

// limiter is a bucket for each caller: rate calls a second, saved up for one second (COORD-16.8).
type limiter struct {
	rate float64

	mu      sync.Mutex
	callers map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

func newLimiter(rate int) *limiter {
	return &limiter{rate: float64(rate), callers: map[string]*bucket{}}
}

func (l *limiter) allow(caller string, now time.Time) bool {
	if l.rate < 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.callers[caller]
	if b == nil {
		if len(l.callers) >= callersMax {
			l.forget(now)
		}
		b = &bucket{left: l.rate, at: now}
		l.callers[caller] = b
	}
	b.left = min(l.rate, b.left+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// forget drops callers whose bucket is full again, and everybody when there are none.
func (l *limiter) forget(now time.Time) {
	for name, b := range l.callers {
		if now.Sub(b.at) > time.Second {
			delete(l.callers, name)
		}
	}
	if len(l.callers) >= callersMax {
		clear(l.callers)
	}
}
