package server

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// callersMax bounds the callers that are remembered. At the bound those with a full token bucket are forgotten, and all of them
// when there are none: a forgotten caller starts with a full bucket.
const callersMax = 4096

// limiter has one token bucket for each caller: perSecond calls a second, saved up for one second (COORD-16.8).
type limiter struct {
	perSecond int // negative: unlimited

	mu      sync.Mutex
	callers map[string]*rate.Limiter
}

func newLimiter(perSecond int) *limiter {
	return &limiter{perSecond: perSecond, callers: map[string]*rate.Limiter{}}
}

func (l *limiter) allow(caller string, now time.Time) bool {
	if l.perSecond < 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.callers[caller]
	if b == nil {
		if len(l.callers) >= callersMax {
			l.forget(now)
		}
		b = rate.NewLimiter(rate.Limit(l.perSecond), l.perSecond)
		l.callers[caller] = b
	}
	return b.AllowN(now, 1)
}

func (l *limiter) forget(now time.Time) {
	for name, b := range l.callers {
		if b.TokensAt(now) >= float64(l.perSecond) {
			delete(l.callers, name)
		}
	}
	if len(l.callers) >= callersMax {
		clear(l.callers)
	}
}
