package shard

import (
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/meter"
)

// phaseClock measures the phases of the last cycle, which the core only names. It is used by the loop's goroutine alone.
type phaseClock struct {
	now   core.Phase
	since time.Time
	took  [core.Phases]time.Duration
}

// enter ends the present phase and begins another one.
func (p *phaseClock) enter(next core.Phase) {
	at := time.Now()
	if next == core.PhaseSnapread {
		p.took = [core.Phases]time.Duration{}
	} else if p.now != core.PhaseNone {
		p.took[p.now] += at.Sub(p.since)
	}
	p.now, p.since = next, at
}

// observe hands the durations of the cycle on.
func (p *phaseClock) observe(m *meter.Meter) {
	for i := range p.took {
		if ph := core.Phase(i); ph != core.PhaseNone {
			m.Phase(ph.String(), p.took[i])
		}
	}
}
