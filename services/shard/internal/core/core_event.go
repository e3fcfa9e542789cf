package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// At is when an event happened: Mono in nanoseconds since the process started, never going back, and Wall in Unix
// nanoseconds. Durations, deadlines and ages use Mono; Wall is only written out, so a clock jump changes no decision
// (SHARD-4.3).
type At struct {
	Mono int64 `n:"1"`
	Wall int64 `n:"2"`
	// Ended is Mono at the end of the step before: what the core cannot see of itself without a clock. 0 means that it
	// took no time.
	Ended int64 `n:"3"`
}

// Event is one thing the shell learned. The types of this file that have the method are all of them (SHARD-5.1).
type Event interface{ event() EventKind }

// EventKind numbers the events in metrics and in the decision log. Numbers are never reused.
type EventKind uint8

const (
	KindStarted EventKind = iota + 1
	KindSessionOpened
	KindSessionClosed
	KindRollupArrived
	KindBootstrapAnswered
	KindReclaimAcked
	KindNodeReported
	KindDrainReported
	KindListPage
	KindListDone
	KindGetDone
	KindCommandDone
	KindCoordinatorReplied
	KindAdminAsked
	KindTick
	KindStopping
	KindUnplacedReported
	KindCheckpointAsked
	KindPlanDiffered
	KindDemandTooWide
	KindPartMade
)

func (k EventKind) String() string {
	return [...]string{"", "started", "session_opened", "session_closed", "rollup_arrived", "bootstrap_answered",
		"reclaim_acked", "node_reported", "drain_reported", "list_page", "list_done", "get_done", "command_done",
		"coordinator_replied", "admin_asked", "tick", "stopping", "unplaced_reported", "checkpoint_asked",
		"plan_differed", "demand_too_wide", "part_made"}[k]
}

// KindOf names the kind of an event.
func KindOf(e Event) EventKind { return e.event() }

// SessionOpened installs a session, or renews it: a second Hello of the same stream has the same number.
type SessionOpened struct {
	Cluster         string   `n:"1"`
	Session         int64    `n:"2"` // grows over the process; the newest wins
	Features        []string `n:"3"` // sorted
	ProtocolVersion string   `n:"4"`
	OperatorVersion string   `n:"5"`
	Instance        string   `n:"6"`
}

// SessionClosed says that a stream ended. One that names an older session than the installed one changes nothing.
type SessionClosed struct {
	Cluster string `n:"1"`
	Session int64  `n:"2"`
	Reason  string `n:"3"`
}

// BootstrapAnswered is the answer to a pull. The bytes stay in the shell (SHARD-4.6).
type BootstrapAnswered struct {
	Request   string `n:"1"`
	Cluster   string `n:"2"`
	Session   int64  `n:"3"`
	Digest    string `n:"4"` // SHA-256 of the bytes, for the record
	Length    int64  `n:"5"`
	TTL       int64  `n:"6"` // nanoseconds from receipt; 0: no limit
	Error     string `n:"7"`
	Retryable bool   `n:"8"`
	// Undeliverable: the request could not be queued (the session had ended).
	Undeliverable bool `n:"9"`
}

// ReclaimAcked says that nodes are cordoned.
type ReclaimAcked struct {
	Instruction  string        `n:"1"`
	Cluster      string        `n:"2"`
	Session      int64         `n:"3"`
	NodesStarted int64         `n:"4"`
	Failures     []NodeFailure `n:"5"`
}

// failed reports whether a node failed for one of the reasons.
func (e *ReclaimAcked) failed(reasons ...string) bool {
	return slices.ContainsFunc(e.Failures, func(f NodeFailure) bool { return slices.Contains(reasons, f.Reason) })
}

// Reasons of a NodeFailure for which its node may be there and run Pods, by their names on the wire.
const (
	nodeAmbiguous   = "REASON_AMBIGUOUS"
	nodeAPIError    = "REASON_API_ERROR"
	nodeStillTrying = "REASON_STILL_TRYING"
)

// NodeFailure is one node of an instruction that does not drain.
type NodeFailure struct {
	Node    string `n:"1"`
	Reason  string `n:"2"`
	Message string `n:"3"`
}

// NodeReported is what a cluster sees of one machine's node.
type NodeReported struct {
	Cluster       string `n:"1"`
	Session       int64  `n:"2"`
	Machine       string `n:"3"`
	Node          string `n:"4"`
	Present       bool   `n:"5"`
	Ready         bool   `n:"6"`
	LastOfFullSet bool   `n:"7"`
	// Contents is what the node holds; nil: as before.
	Contents *NodeContents `n:"8"`
}

// NodeContents is what a cluster says a node holds.
type NodeContents struct {
	Pods       int64 `n:"1"` // that a drain has to evict
	Protected  int64 `n:"2"` // those of them that must not be disturbed now
	EmptySince int64 `n:"3"` // wall clock of the cluster; 0: not empty
	CostCents  int64 `n:"4"` // of evicting them
	// Labels are those that the node has and its machine's provider does not state, as far as the cluster selects by them.
	Labels []inventory.Label `n:"5"`
}

// DrainReported is how a drain goes.
type DrainReported struct {
	Cluster     string   `n:"1"`
	Session     int64    `n:"2"`
	Instruction string   `n:"3"`
	State       int32    `n:"4"` // number of bigfleet.v1alpha1.DrainState
	PodsLeft    int64    `n:"5"`
	Blocking    []string `n:"6"`
	Reason      string   `n:"7"`
}

// UnplacedReported lists the rows whose Pods the scheduler of a cluster could not place (ENG-11.11).
type UnplacedReported struct {
	Cluster string        `n:"1"`
	Session int64         `n:"2"`
	Rows    []UnplacedRow `n:"3"` // sorted by row id

	StatesUnbound bool     `n:"4"`
	Unbound       []string `n:"5"` // ids of rows that ask for more than Pods on nodes, sorted (ENG-11.18)
}

// UnplacedRow is one row of UnplacedReported.
type UnplacedRow struct {
	RowID string `n:"1"`
	Pods  int64  `n:"2"`
	Since int64  `n:"3"` // wall clock of the cluster, shown only

	Full []string `n:"4"` // values of the key of its spread under which the scheduler puts no more of its Pods now
}

// Equal reports whether two rows say the same.
func (r UnplacedRow) Equal(o UnplacedRow) bool {
	return r.RowID == o.RowID && r.Pods == o.Pods && r.Since == o.Since && slices.Equal(r.Full, o.Full)
}

// ListPage is part of the answer to a List.
type ListPage struct {
	List     int64        `n:"1"`
	Rows     []Fact       `n:"2"`
	Rejected []RejectedID `n:"3"`
}

// RejectedID is a record that the machine gate refused; it counts as seen.
type RejectedID struct {
	ID     string `n:"1"`
	Reason string `n:"2"`
	Text   string `n:"3"`
}

// ListDone ends a List.
type ListDone struct {
	List     int64    `n:"1"`
	Revision []byte   `n:"2"`
	Complete bool     `n:"3"` // every machine was shown: a full List, or one that the provider marked so
	Paged    bool     `n:"4"` // the provider's answers carry complete or more, so it may be paged and asked by cursor
	Removed  []string `n:"5"`
	Failed   bool     `n:"6"`
	Code     Code     `n:"7"`
	Error    string   `n:"8"`
	Duration int64    `n:"9"`
	// Missing replaces the search for absent machines when a reduced log is replayed (SHARD-28.2); Seen is how many the
	// list showed. Reduced marks such an event.
	Reduced bool     `n:"10"`
	Missing []string `n:"11"`
	Seen    int64    `n:"12"`
}

// GetDone answers GetMachine.
type GetDone struct {
	Get      int64  `n:"1"`
	Machine  string `n:"2"`
	Row      *Fact  `n:"3"`
	NotFound bool   `n:"4"`
	Code     Code   `n:"5"`
	Error    string `n:"6"`
	Rejected string `n:"7"` // reason, when the record did not pass the gate
}

// CommandDone ends one attempt of one command.
type CommandDone struct {
	Op          string `n:"1"`
	Attempt     int64  `n:"2"`
	Machine     string `n:"3"`
	Code        Code   `n:"4"`
	Sent        bool   `n:"5"`
	Detail      string `n:"6"`
	Ack         *Fact  `n:"7"`
	AckRejected string `n:"8"` // reason, when the ack did not pass the gate
	Token       int64  `n:"9"` // sequence number used
	FenceEpoch  int64  `n:"10"`
	FenceSeq    int64  `n:"11"`
	HasFence    bool   `n:"12"` // a FenceDetail came with the refusal
	ProviderOp  string `n:"13"`
	Duration    int64  `n:"14"`
}

// Tick says that time passed.
type Tick struct{}

// Stopping says that the process ends: nothing new is started from here on.
type Stopping struct{}

func (Started) event() EventKind            { return KindStarted }
func (SessionOpened) event() EventKind      { return KindSessionOpened }
func (SessionClosed) event() EventKind      { return KindSessionClosed }
func (RollupArrived) event() EventKind      { return KindRollupArrived }
func (BootstrapAnswered) event() EventKind  { return KindBootstrapAnswered }
func (ReclaimAcked) event() EventKind       { return KindReclaimAcked }
func (NodeReported) event() EventKind       { return KindNodeReported }
func (DrainReported) event() EventKind      { return KindDrainReported }
func (UnplacedReported) event() EventKind   { return KindUnplacedReported }
func (ListPage) event() EventKind           { return KindListPage }
func (ListDone) event() EventKind           { return KindListDone }
func (GetDone) event() EventKind            { return KindGetDone }
func (CommandDone) event() EventKind        { return KindCommandDone }
func (CoordinatorReplied) event() EventKind { return KindCoordinatorReplied }
func (AdminAsked) event() EventKind         { return KindAdminAsked }
func (Tick) event() EventKind               { return KindTick }
func (Stopping) event() EventKind           { return KindStopping }
