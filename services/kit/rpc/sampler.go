package rpc

import (
	"sync"
	"time"
)

const (
	sampleEvery   = 10 * time.Second
	sampleKeysMax = 1024
)

// sampler lets the first of equal log lines through and then one per sampleEvery with the number left out, so that a
// misconfigured peer that retries for a week does not fill the disk (SHARD-30.1).
type sampler struct {
	mu   sync.Mutex
	seen map[string]*sample
}

type sample struct {
	last    time.Time
	skipped int
}

// take reports whether to log now, and how many equal lines were left out before.
func (s *sampler) take(key string) (repeats int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if at, found := s.seen[key]; found {
		if now.Sub(at.last) < sampleEvery {
			at.skipped++
			return 0, false
		}
		repeats, at.skipped, at.last = at.skipped, 0, now
		return repeats, true
	}
	if len(s.seen) >= sampleKeysMax {
		for k, at := range s.seen {
			if now.Sub(at.last) >= sampleEvery {
				delete(s.seen, k)
			}
		}
	}
	if s.seen == nil {
		s.seen = map[string]*sample{}
	}
	if len(s.seen) < sampleKeysMax { // else every key is fresh: log without remembering
		s.seen[key] = &sample{last: now}
	}
	return 0, true
}
