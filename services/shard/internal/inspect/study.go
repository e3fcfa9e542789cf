package inspect

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Limits of what is computed for readers beside the loop (SHARD-23.5).
const (
	studyTimeout = 5 * time.Second
	studyWindow  = time.Minute
	studyShare   = 6 * time.Second // in studyWindow: a tenth of a core
)

// studies lets one question at a time be computed, and not too many.
type studies struct {
	busy chan struct{} // capacity 1

	mu   sync.Mutex
	past []spent // within studyWindow
}

type spent struct {
	at   time.Time
	took time.Duration
}

func newStudies() *studies { return &studies{busy: make(chan struct{}, 1)} }

// share is the time spent within the window before now.
func (s *studies) share(now time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.past) > 0 && now.Sub(s.past[0].at) > studyWindow {
		s.past = s.past[1:]
	}
	for _, p := range s.past {
		sum += p.took
	}
	return sum
}

// study copies the world and runs f on the copy, beside the loop. A question that takes too long is given up; it keeps its
// place until it has ended, so that it is never run twice at a time.
func study[T any](ctx context.Context, s *Server, f func(*core.Study) T) (out T, err error) {
	if s.studies.share(time.Now()) >= studyShare {
		return out, rpc.NewError(connect.CodeResourceExhausted, "requests of this kind have used their share of a processor (a tenth) for the last minute; retry shortly")
	}
	ctx, cancel := context.WithTimeout(ctx, studyTimeout)
	defer cancel()
	select {
	case s.studies.busy <- struct{}{}:
	case <-ctx.Done():
		return out, rpc.NewError(connect.CodeResourceExhausted, "another request of this kind is running; retry shortly")
	}
	room := inventory.NewFreezeBuffer(s.cfg.View().Status.Machines)
	var frozen *core.Frozen
	if err := s.visit(ctx, func(c *core.Core) { frozen = c.Freeze(room) }); err != nil {
		<-s.studies.busy
		return out, err
	}
	done := make(chan T, 1)
	go func() {
		began := time.Now()
		done <- f(frozen.Thaw())
		s.studies.mu.Lock()
		s.studies.past = append(s.studies.past, spent{began, time.Since(began)})
		s.studies.mu.Unlock()
		<-s.studies.busy
	}()
	select {
	case out = <-done:
		return out, nil
	case <-ctx.Done():
		return out, rpc.NewError(connect.CodeDeadlineExceeded, "the answer would take longer than a running shard allows; request less, or use `bigfleet replay`")
	}
}
