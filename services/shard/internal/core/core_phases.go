package core

// Phase is a part of a cycle, for cycle_phase_duration_seconds (SHARD-29.3). The core reads no clock: it says which
// phase begins, and the watcher measures.
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
