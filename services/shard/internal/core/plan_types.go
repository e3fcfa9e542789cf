package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// keptCycle is what a checkpoint keeps of the cadence as it is.
type keptCycle struct {
	N       int64 `n:"1"` // cycles of this process
	At      int64 `n:"2"` // Mono of the last one
	Wall    int64 `n:"3"`
	LastEnd int64 `n:"4"`
	Took    int64 `n:"14"` // the last one and the step it ran in
	Open    bool  `n:"15"` // the step in which a cycle ran has not been seen to end

	Started  int64 `n:"10"` // starts in this cycle, for --max-actions-per-cycle
	Deferred bool  `n:"11"` // some start had to wait for the next cycle

	Turns int64 `n:"16"` // plans that follow without another cause, for Needs that this one postponed

	Redispatch bool      `n:"13"` // something that may let a decision go has changed
	HoldEnds   []holdEnd `n:"7"`
	Rollups    []int64   `n:"8"` // when roll-ups were received that no cycle has used yet
}

// lastPlan is the cadence of decisions, and what the last plan left to start.
type lastPlan struct {
	keptCycle

	pending   [triggers]bool
	wanted    bool
	next      bool           // a large roll-up was taken in by this step: its plan is the next one's
	large     []largeDemand  // large roll-ups that no plan has yet
	result    *engine.Result // of the last cycle
	used      int64          // its cycle, which is N unless another one is being made,
	usedAt    int64          // and Mono when that began
	waiting   [kinds][]decision
	planned   map[planKey]int64 // when a decision that is still planned first appeared
	held      map[planKey]bool  // decisions that a pause or dry run suppressed and that were counted
	ranBefore bool              // restored: the core of the snapshot had a plan
}

type planKey struct {
	Machine string
	Kind    Kind
}

// decision is one action of the last plan that has not started.
type decision struct {
	action  engine.Action
	index   inventory.Index
	machine string
	cycle   int64
	planned int64

	// Filled in when it starts.
	view        engine.View
	attribution Attribution
	promise     *inventory.Promise
	reqs        []demand.Requirement
	blocked     blockedReason // what held it at the last look
	evict       *eviction     // not of the plan, but of a move
}

// largeDemand is a cluster with a large roll-up that is credited before the plan, part by part (SHARD-8.9).
type largeDemand struct {
	cluster     string
	part, parts int    // next, and how many
	begun       int    // how often its credit began,
	of          uint64 // with this version of the demand
}

// trigger is why a cycle runs (SHARD-6.3).
type trigger uint8

const (
	triggerRollup trigger = iota
	triggerMachine
	triggerSession
	triggerNode
	triggerExpiry
	triggerAdmin
	triggerInterval
	triggerPostponed
	triggers
)

func (t trigger) String() string {
	return [...]string{"rollup", "machine", "session", "node", "expiry", "admin", "interval", "postponed"}[t]
}

// eviction is what a drain for a move has beside an action of the plan.
type eviction struct {
	planner.Evictee
	priority int32
}

type holdEnd struct {
	At      int64  `n:"1"`
	Cluster string `n:"2"`
}
