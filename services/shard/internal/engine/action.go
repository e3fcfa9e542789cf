package engine

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Kind is the kind of an action (ENG-2.8). The numbers are those of the wire.
type Kind uint8

const (
	Bootstrap Kind = 1 // Idle → Configured in a cluster
	Provision Kind = 2 // Speculative → Idle → that cluster
	Preempt   Kind = 3 // Configured → Idle, for a higher priority
	Reclaim   Kind = 4 // Configured → Idle, no Need claims it
	Delete    Kind = 5 // Idle → Speculative
)

// String returns the kind in lower case.
func (k Kind) String() string {
	names := [...]string{"none", "bootstrap", "provision", "preempt", "reclaim", "delete"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

// Cause is the rule an action comes from (ENG-19.9).
type Cause uint8

const (
	NoCause Cause = iota
	CauseIdle
	CauseSpeculative
	CauseHandover
	CauseInversion
	CauseExcessTaken
	CauseExcess
	CauseExcessPromised
	CauseGangMoved
	CauseNotJoined
	CauseRelease
	CauseMoved   // never planned: the core drains for a move to another shard (COORD-12.13)
	CauseDrained // never planned: a person drained its Node (SHARD-18.11)
	causes       // number of causes
)

// Ref names one Need inside a Result: Row counts the rows of a block's demand, and folded Needs (ENG-8.3) from FoldedRow
// on. NoNeed is the Ref of none.
type Ref struct{ Block, Row int32 }

// FoldedRow is the Row of the first folded Need of a block.
const FoldedRow = 1 << 30

// NoNeed names none.
var NoNeed = Ref{-1, -1}

// None reports whether r names no Need.
func (r Ref) None() bool { return r.Block < 0 }

// Action is one decision. It is plain numbers, because a cold plan has hundreds of thousands; Result.View spells it out.
type Action struct {
	Machine inventory.Index
	Kind    Kind
	Cause   Cause
	Need    Ref   // served by Bootstrap and Provision, harmed by Preempt and Reclaim if it is still in the demand
	Cost    int64 // effective cost for the Need served; the price for all others. Millionths of a dollar per hour
	Drain   int32 // position in Result.Drains, for Preempt and Reclaim; else -1
}

// Drain is what a Preempt or Reclaim has beside its action.
type Drain struct {
	Grace     int64 // whole seconds
	Preemptor Ref   // to whom the machine is promised; NoNeed for a plain Reclaim
	Gap       int64 // priority of the preemptor minus effective priority
	Score     int64 // victim score in micro-points (ENG-15.9); 0 where none was computed
	Terms     ScoreTerms
}

// ScoreTerms are the four terms of a victim score.
type ScoreTerms struct{ Priority, Drain, Interruption, Reclamation int64 }

// Sum adds the terms up.
func (s ScoreTerms) Sum() int64 { return s.Priority + s.Drain + s.Interruption + s.Reclamation }

// View is an action with everything ENG-2.11 asks for, in plain values.
type View struct {
	Machine           string
	Kind              Kind
	Cause             Cause
	Cluster           string        // where the machine goes to, or comes from
	Row               demand.RowKey // of the Need served or harmed; from the attribution if that Need is gone
	RowID             string
	Priority          int32 // of the Need served or harmed
	Interruption      demand.Penalty
	Reclamation       demand.Penalty
	Domain            string // chosen Same domain of the Need served
	Cost              int64
	Price             int64
	Grace             int64
	PreemptorCluster  string
	Preemptor         demand.RowKey
	PreemptorRowID    string
	PreemptorPriority int32 // 0 for voluntary
	Score             int64
	Terms             ScoreTerms
}

var causeCodes = [...]code{
	{"", "", ""},
	{"phase1.idle", "An Idle machine was free.", ""},
	{"phase1.speculative", "A machine was available to buy, and none was Idle.", ""},
	{"phase1.handover", "The machine was reserved for this need and is now Idle.", ""},
	{"phase2.inversion", "A need of higher priority takes this machine from one of lower priority.", ""},
	{"phase2.excess", "No need uses the machine, and a need of higher priority requires it.", ""},
	{"phase3.excess", "No need uses the machine any more.", ""},
	{"phase3.excess_promised", "No need uses the machine any more, and another need waits for it.", ""},
	{"phase3.gang_moved", "The gang that used the machine has moved to another domain.", ""},
	{"phase3.not_joined", "The machine's Node never joined its cluster.", ""},
	{"phase3.release", "The machine has been Idle for longer than its hold time.", ""},
	{"move.drained", "The machine moves to another shard, where a need of higher priority and penalty requires it.", ""},
	{"person.drained", "A person drained the machine's Node.", ""},
}

var _ [0]struct{} = [len(causeCodes) - int(causes)]struct{}{}

// String returns the name of the cause, for example "phase2.inversion".
func (c Cause) String() string { return nameOf(causeCodes[:], int(c)) }

// Sentence says the cause in words.
func (c Cause) Sentence() string { return causeCodes[min(int(c), int(causes)-1)].say }
