package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// Phase is a part of a cycle, for cycle_phase_duration_seconds (SHARD-29.3). The core reads no clock: it says which
// phase begins, and whoever watches measures.
type Phase uint8

const (
	PhaseNone     Phase = 0 // the cycle is over, or what follows is not part of a usual one
	PhaseSnapread Phase = 4
	PhaseEmit     Phase = 5
	PhaseExecute  Phase = 6

	Phases = 7 // length of an array indexed by Phase
)

// String returns the label value of the phase.
func (p Phase) String() string {
	return [...]string{"none", "phase1", "phase2", "phase3", "snapread", "emit", "execute"}[p]
}

// WatchPhases makes the core tell f which phase of a cycle begins, and PhaseNone when it is over. f must not touch the
// core; what it does changes no decision.
func (c *Core) WatchPhases(f func(Phase)) {
	c.probe = f
	c.cycle.planner.Observe = func(p planner.Phase) { c.phase(Phase(p)) }
}
