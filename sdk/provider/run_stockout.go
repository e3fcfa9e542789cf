package provider

import (
	"sync"
	"time"
)

// stockouts says when a slot that met a stock-out is offered again (PROV-18.3): after a pause that begins with its own
// failure, so that slots which fail later do not keep the earlier ones out. The pause belongs to the offering. It doubles
// with each repeat, which is a failure after the last pause ended and before as long again has passed; a launch that
// succeeds, or a quiet time, ends the row. It lives in memory: a restart forgets it.
type stockouts struct {
	mu         sync.Mutex
	byOffering map[string]*episode
	due        map[string]time.Time // by machine
}

// episode is the newest stock-out of an offering.
type episode struct {
	pause time.Duration
	until time.Time // the slots that failed first are back
}

// over says whether the pause of a machine that failed at that time has passed. The first question about a machine fixes
// its time; the janitor asks in the order of the failures.
func (s *stockouts) over(machine, offering string, failed time.Time, base time.Duration, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due == nil {
		s.due, s.byOffering = map[string]time.Time{}, map[string]*episode{}
	}
	due, known := s.due[machine]
	if !known {
		due = failed.Add(s.pause(offering, failed, base))
		s.due[machine] = due
	}
	return !now.Before(due)
}

// pause is the pause after a failure at that time.
func (s *stockouts) pause(offering string, failed time.Time, base time.Duration) time.Duration {
	e := s.byOffering[offering]
	switch {
	case e == nil || failed.After(e.until.Add(e.pause)):
		e = &episode{pause: base}
		s.byOffering[offering] = e
	case failed.After(e.until):
		e.pause = min(2*e.pause, max(base, stockoutMax))
	default:
		return e.pause
	}
	e.until = failed.Add(e.pause)
	return e.pause
}

// launched ends the row of an offering that has stock again.
func (s *stockouts) launched(offering string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byOffering, offering)
}

// forget drops a machine that was retired.
func (s *stockouts) forget(machine string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.due, machine)
}
