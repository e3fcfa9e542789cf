package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"

// Config is what a core is made with. It is written into the decision log, so it holds plain values only. Guards are on
// in the zero value: what turns one off says so (SHARD-4.11).
type Config struct {
	ShardID   string   `n:"1"`
	Version   string   `n:"2"`
	Providers []string `n:"3"` // names, sorted; at least one

	CycleMinSpacing       int64 `n:"4"`
	CycleInterval         int64 `n:"5"` // also the nominal cycle
	ReconcileInterval     int64 `n:"6"`
	FullReconcileInterval int64 `n:"7"`
	InflightPollInterval  int64 `n:"8"`

	Incremental Incremental `n:"9"`

	ExecuteConcurrency  int64 `n:"10"`
	ExecutePerCluster   int64 `n:"11"`
	ProviderConcurrency int64 `n:"12"`
	BootstrapTimeout    int64 `n:"13"`
	ExecuteTimeout      int64 `n:"14"`
	MaxActionsPerCycle  int64 `n:"15"` // 0: no limit
	ProvisionRate       int64 `n:"16"` // Creates per minute; 0: no limit

	Paused bool `n:"17"` // the start-up flag; no RPC lifts it
	DryRun bool `n:"18"`

	ReclaimCapOff      bool  `n:"19"`
	ReclaimCapPerMille int64 `n:"20"` // thousandths of the Configured machines per window
	ReclaimCapWindow   int64 `n:"21"`
	RollupGuardOff     bool  `n:"22"`

	SilentAfter           int64 `n:"23"`
	CreatingStuckAfter    int64 `n:"24"`
	ConfiguringStuckAfter int64 `n:"25"`
	HintInterval          int64 `n:"26"`
	MaxSessions           int64 `n:"27"`

	// Coordinated says that a coordinator is configured, so that ownership waits for a view (COORD-9.10).
	Coordinated       bool `n:"28"`
	ForgetCoordinator bool `n:"29"`

	Features []string `n:"30"` // what the Hello ack lists
	// ProviderAddress is how the set of providers is reported: addresses, sorted, joined by commas.
	ProviderAddress string `n:"31"`

	ReleaseDelay        int64 `n:"32"` // below 0: none
	ReleaseDelayEmpty   int64 `n:"33"` // below 0: none
	SessionHandoverWait int64 `n:"34"` // below 0: none
	ClusterMachinesMax  int64 `n:"36"` // of one cluster; 0: no limit
	ClusterSpendMax     int64 `n:"37"` // of one cluster, millionths of a dollar per hour; 0: no limit
	PreemptRate         int64 `n:"38"` // Preempts per minute over the shard; 0: no limit
	// AloneAfter is an operator's word: without an answer of the coordinator for so long after the start, and without a view, this
	// shard is the only one of its provider. 0: it waits.
	AloneAfter    int64  `n:"39"`
	DrainDeadline int64  `n:"40"` // of a voluntary drain; 0: the policy's reclaim_grace
	EmptyAfter    int64  `n:"41"` // until a claimed machine whose node is empty is given back (ENG-11.18); below 0: never
	MachinesMax   int64  `n:"42"` // of all providers; 0: machinesMax
	Beside        Beside `n:"43"`
	DrainForce    bool   `n:"35"` // Drain at the deadline of a voluntary drain, whatever is left on the node
}

// Incremental says whether cursors are used (SHARD-13.2).
type Incremental uint8

const (
	IncrementalAuto Incremental = iota // once the provider has shown that they work
	IncrementalOn
	IncrementalOff
)

// Beside says what is made beside the loop (SHARD-6.11).
type Beside uint8

const (
	BesideLong   Beside = iota // what may take long
	BesideAlways               // each plan, too: for tests
	BesideNever
)

// WithDefaults fills in what is zero and has a default (SHARD-31).
func (c Config) WithDefaults() Config {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.CycleMinSpacing, 100*Millisecond)
	def(&c.CycleInterval, 10*Second)
	def(&c.ReconcileInterval, 10*Second)
	def(&c.FullReconcileInterval, 10*Minute)
	def(&c.InflightPollInterval, 50*Millisecond)
	def(&c.ExecuteConcurrency, 128)
	def(&c.ExecutePerCluster, 64)
	def(&c.ProviderConcurrency, 128)
	def(&c.BootstrapTimeout, 30*Second)
	def(&c.ExecuteTimeout, 30*Second)
	def(&c.ReclaimCapPerMille, 50)
	def(&c.ReclaimCapWindow, 10*Second)
	def(&c.SilentAfter, 10*Minute)
	def(&c.CreatingStuckAfter, 30*Minute)
	def(&c.ConfiguringStuckAfter, 20*Minute)
	def(&c.HintInterval, 5*Second)
	def(&c.MaxSessions, 10_000)
	def(&c.ReleaseDelay, 3*Minute)
	def(&c.ReleaseDelayEmpty, 30*Second)
	def(&c.SessionHandoverWait, 30*Second)
	def(&c.EmptyAfter, 5*Minute)
	return c
}

// Constants of SHARD-32.
const (
	guardRows    = 10
	guardReports = 3
	guardSpacing = 5 * Second
	guardElapsed = 20 * Second

	removalElapsed  = 60 * Second
	removalLists    = 3
	removalMin      = 10
	staleInventory  = 5 * Minute
	listTimeout     = 2 * Minute
	getTimeout      = 10 * Second
	getConcurrency  = 32
	preemptAckWait  = 5 * Second
	reclaimRepeat   = 15 * Second
	drainStuckExtra = 10 * Minute
	deletingStuck   = 15 * Minute
	stuckAskEvery   = Minute
	unjoinedAfter   = 5 * Minute
	drainReportWait = Minute // beyond the deadline of a voluntary drain, for the operator's last word on it

	commandAttempts  = 3
	pullAttempts     = 2
	blobMargin       = 10 * Second
	breakerFailures  = 5
	breakerWindow    = 60 * Second
	breakerForgets   = 5 * Minute
	fenceSlowPeriod  = 10 * Minute
	fenceClassRetry  = Second
	unknownThrottle  = 3
	acceptedPerRaise = 10

	inflightGetsMax     = 64
	nodeGoneGetsMax     = 64 // Gets waiting at a provider, above which machines without their nodes wait for the next List
	newcomerIntervals   = 2  // reconcile intervals that a new cluster waits at most for a provider to be read
	hintsPerCluster     = 500
	hintClustersPerStep = 200
	hintNeedsPerStep    = 500 // a need is compared with each class that holds something: about 10 us with 1,000 of them
	needStatusEvery     = 5 * Second
	instructionsDone    = 4096
	shortfallsMax       = 100
	errorTextMax        = 512
	digestEvery         = 10_000
	rejectsMax          = 10_000
	machinesMax         = 2_000_000 // of all providers: four times what a shard is built for
	relabelPause        = 10 * Minute
	longPlan            = 20 * Millisecond // the plan that follows one that took as long is made beside the loop
)

// Started is the first event of a process.
type Started struct {
	Config   Config         `n:"1"`
	Epoch    int64          `n:"2"`
	Control  Control        `n:"3"`
	Journal  []JournalEntry `n:"4"` // sorted by machine
	Poisoned []Poison       `n:"5"` // sorted by hash
	Room     []KeptRoom     `n:"6"` // sorted by cluster
}

// Control is what a person or the coordinator ordered and a restart must not forget (SHARD-5.4). Lists are sorted.
type Control struct {
	Pauses       []Pause       `n:"1"`
	DryRun       bool          `n:"2"`
	Retired      []string      `n:"3"`
	Forgotten    []Forgotten   `n:"4"`
	Coordinator  Lineage       `n:"5"`
	View         *View         `n:"6"`
	Reservations []Reservation `n:"7"`
	Done         []DoneAck     `n:"8"` // oldest first
	Domains      []DomainRef   `n:"9"` // assigned by a coordinator without views
	// Removed says who removed this shard from the fleet; empty: it was not. A restart keeps it.
	Removed string `n:"10"`
}

// Pause holds back the start of operations (SHARD-19.5, 19.6).
type Pause struct {
	ID       string `n:"1"`
	Kinds    []Kind `n:"2"` // empty: all
	Cluster  string `n:"3"`
	Provider string `n:"4"`
	Reason   string `n:"5"`
	Actor    string `n:"6"`
	Created  int64  `n:"7"` // wall clock
	Expires  int64  `n:"8"` // wall clock; 0: until resumed
	// TTL is what is left at the event that brought the pause, in Mono; the core counts it down itself.
	TTL int64 `n:"9"`
	// Ends is when that is over, in Mono; 0: never. It holds in one process only.
	Ends int64 `n:"11"`
	// Fragile marks a pause that could not be stored and will not survive a restart.
	Fragile bool `n:"10"`
}

// Forgotten is a machine that an order says to leave alone until its state at the provider changes.
type Forgotten struct {
	Machine string `n:"1"`
	State   uint8  `n:"2"` // state at the provider when it was forgotten; 0: it was not there
}

// Poison is the content of a roll-up that made a step panic (SHARD-3.8).
type Poison struct {
	Hash  string `n:"1"`
	Until int64  `n:"2"` // Mono of this process
}

// JournalEntry is the hint about one open operation (SHARD-13.15).
type JournalEntry struct {
	Machine           string       `n:"1"`
	Kind              Kind         `n:"2"`
	Cluster           string       `n:"3"`
	For               Attribution  `n:"4"`
	Grace             int64        `n:"5"`
	Started           int64        `n:"6"` // wall clock
	Instruction       string       `n:"7"`
	DrainEnds         int64        `n:"8"` // wall clock: end of the grace
	Promise           *PromiseNote `n:"9"`
	PreemptorPriority int32        `n:"10"`
}

// PromiseNote is a promise as the journal keeps it.
type PromiseNote struct {
	Cluster string      `n:"1"`
	For     Attribution `n:"2"`
	Cause   uint8       `n:"3"`
	Expires int64       `n:"4"` // wall clock; 0: never
}

// KeptRoom is the hint about what the ledgers know of the rows of one cluster (SHARD-13.20).
type KeptRoom struct {
	Cluster string           `n:"1"`
	Rows    []ledger.KeptRow `n:"2"`
}

// Buckets of shard.db. The shell loads them for Started; the core writes hints to the journal and the room alone.
const (
	BucketPauses       = "pauses"
	BucketControl      = "control"
	BucketRetired      = "retired"
	BucketForgotten    = "forgotten"
	BucketReservations = "reservations"
	BucketJournal      = "journal"
	BucketPoison       = "poison"
	BucketRoom         = "room"
)
