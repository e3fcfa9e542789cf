package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one kind of thing that goes wrong.
type Fault uint8

// The kinds of faults. Those of the first group are drawn at each opportunity, those of the second happen at times.
const (
	// Calls to a provider.
	NotSent          Fault = iota // the connection cannot be made
	LostRequest                   // never arrives; the caller sees a timeout
	LateRequest                   // arrives after the caller has given up
	LostReply                     // done, but the caller sees a timeout
	DuplicateRequest              // arrives twice
	Throttled
	Unavailable   // refused before any effect
	ErrorAfter    // an error although the command took effect
	Refused       // invalid_argument
	WrongAck      // the ack names another machine
	FenceNoDetail // a fence refusal without the mark
	CoarseMarks   // fence marks per shard instead of per machine, in this run

	// Transitions and Lists.
	TransitionFails
	TransitionReverts
	TransitionSlow
	ListFails
	ListBreaks // fails after some pages
	ListSlow
	ListStale // shows a past that is minutes old
	ListEmpty
	ListHalved
	DeltaLost
	RowTwice
	RowInvalid
	CursorRefused
	GetFails

	// Operators and nodes.
	BlobSilence
	BlobError
	BlobShortTTL
	BlobBroken // accepted, but the node cannot join with it
	NodeNeverJoins
	NodeSlow
	AckLost
	AckTwice
	AckFailures
	RollupRejected
	FrameSlow
	EvictionBlocked
	HintsLost    // what was persisted last is gone after a crash
	DataDirLost  // everything is
	DeafOperator // a drop that one side notices much later

	Outage // of a provider; the first of the kinds that happen at times
	RestartKeeps
	RestartForgets // a provider forgets marks, cursors and operations under way
	StockOut
	HostLoss
	SpotInterruption
	PriceMove
	SlotGone
	SlotNew
	NodeLost // Ready was lost for a while

	SessionDrop
	OperatorCrash
	TwoOperators
	RollupWiped // an operator loses its store for one or two roll-ups
	RollupStorm

	ProcessCrash
	ProcessFreeze
	ProcessTwice // a second process with the same id
	CleanStop
	WallJump

	AdminPause
	AdminDryRun
	AdminRetry
	AdminForget
	AdminReconcile
	AdminAccept
	AdminClear
	AdminRetire

	DemandMove // not a fault: what users do

	SlowReader // an operator stops reading
	ClusterCut // nothing gets through between a cluster and its shard
	ProviderCut
	DrainCrash // an operator crashes in a drain, and has forgotten it

	CoordinatorAway
	NewLeader
	DomainMove
	Decommissioned // a shard is removed from the fleet for a while

	// Drawn at each opportunity again.
	BlobSlow        // the template takes longer than the pull may wait
	Coordinated     // there is a coordinator, and perhaps a second shard at the same providers; drawn once
	CoordinatorSlow // answers after the shard has given up
	StaleLeader     // a reply of a lower term, full of orders
	InstructionTwice
	InstructionUnknown
	InstructionOld // of a lower term, in a right reply

	// At times again.
	MachineMove // machines go from one shard to another
	QuotaShift  // a shard may hold more elastic machines, or fewer

	// Drawn at each opportunity.
	RollupLate  // decoding takes long, and newer roll-ups overtake it
	RollupTwice // comes a second time, later

	// At times again.
	OperatorUpgrade // an operator of another version takes over, at once
	DemandAside     // a plan could not hold what a cluster asks for

	faults // number of kinds
)

// timed tells the kinds that happen at times.
func (f Fault) timed() bool {
	return f >= Outage && f <= Decommissioned || f >= MachineMove && f <= QuotaShift || f == OperatorUpgrade || f == DemandAside
}

var faultNames = [...]string{
	"not-sent", "lost-request", "late-request", "lost-reply", "duplicate-request", "throttled", "unavailable", "error-after",
	"refused", "wrong-ack", "fence-no-detail", "coarse-marks",
	"transition-fails", "transition-reverts", "transition-slow", "list-fails", "list-breaks", "list-slow", "list-stale", "list-empty",
	"list-halved", "delta-lost", "row-twice", "row-invalid", "cursor-refused", "get-fails",
	"blob-silence", "blob-error", "blob-short-ttl", "blob-broken", "node-never-joins", "node-slow", "ack-lost", "ack-twice", "ack-failures",
	"rollup-rejected", "frame-slow", "eviction-blocked", "hints-lost", "data-dir-lost", "deaf-operator",
	"outage", "restart-keeps", "restart-forgets", "stock-out", "host-loss", "spot-interruption", "price-move", "slot-gone", "slot-new", "node-lost",
	"session-drop", "operator-crash", "two-operators", "rollup-wiped", "rollup-storm",
	"process-crash", "process-freeze", "process-twice", "clean-stop", "wall-jump",
	"admin-pause", "admin-dry-run", "admin-retry", "admin-forget", "admin-reconcile", "admin-accept", "admin-clear", "admin-retire",
	"demand-move",
	"slow-reader", "cluster-cut", "provider-cut", "drain-crash",
	"coordinator-away", "new-leader", "domain-move", "decommissioned",
	"blob-slow", "coordinated", "coordinator-slow", "stale-leader", "instruction-twice", "instruction-unknown", "instruction-old",
	"machine-move", "quota-shift",
	"rollup-late", "rollup-twice",
	"operator-upgrade", "demand-aside",
}

var _ [0]struct{} = [len(faultNames) - int(faults)]struct{}{}

func (f Fault) String() string { return faultNames[f] }

// FaultSet is a set of kinds.
type FaultSet [2]uint64

func (s FaultSet) Has(f Fault) bool { return s[f/64]&(1<<(f%64)) != 0 }

// With returns the set with one kind more.
func (s FaultSet) With(f Fault) FaultSet {
	s[f/64] |= 1 << (f % 64)
	return s
}

// Empty reports whether no kind is in the set.
func (s FaultSet) Empty() bool { return s == FaultSet{} }

// String lists the names, joined by commas.
func (s FaultSet) String() string {
	var names []string
	for f := range faults {
		if s.Has(f) {
			names = append(names, f.String())
		}
	}
	return strings.Join(names, ",")
}

// ParseFaults reads a list of names, joined by commas. "all" is every kind.
func ParseFaults(text string) (FaultSet, error) {
	var s FaultSet
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if name == "all" {
			for f := range faults {
				s = s.With(f)
			}
			continue
		}
		i := slices.Index(faultNames[:], name)
		if i < 0 {
			return s, fmt.Errorf("no fault is called %q; they are %s", name, strings.Join(faultNames[:], ", "))
		}
		s = s.With(Fault(i))
	}
	return s, nil
}
