package server

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// refusedEvery is how often equal refusals are logged, so that a caller that is refused for a week fills no disk.
	refusedEvery = 10 * time.Second
	// refusedKeysMax bounds what is remembered. A refusal beyond it is counted and not logged.
	refusedKeysMax = 1024
)

// refusedLog logs refusals for the caller's identity at a bounded rate. The zero value is ready.
type refusedLog struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (l *refusedLog) log(to *slog.Logger, procedure string, who peer, reason string) {
	if l.due(procedure+" "+who.id.String()+" "+reason, time.Now()) {
		to.Warn("denied", "procedure", procedure, "peer", who.id.String(), "reason", reason, "err", who.err)
	}
}

func (l *refusedLog) due(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, known := l.last[key]; known && now.Sub(last) < refusedEvery {
		return false
	}
	if l.last == nil {
		l.last = map[string]time.Time{}
	}
	if len(l.last) >= refusedKeysMax {
		for k, last := range l.last {
			if now.Sub(last) >= refusedEvery {
				delete(l.last, k)
			}
		}
	}
	if len(l.last) >= refusedKeysMax {
		return false
	}
	l.last[key] = now
	return true
}
