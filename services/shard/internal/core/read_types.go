package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Publish is what readers outside the loop see: immutable, replaced as a whole, sharing what did not change
// (SHARD-23.2). Times are Mono; Offset added to one gives the wall clock.
type Publish struct {
	At       int64
	Offset   int64
	Status   Status
	Clusters []*ClusterView // by name
	Needs    []*NeedBlock   // by cluster; nil before the first cycle
	Supply   *Summary
}

// Wall turns a Mono of this process into a wall clock; 0 stays 0.
func (p *Publish) Wall(mono int64) int64 {
	if mono == 0 {
		return 0
	}
	return mono + p.Offset
}

// Status describes the shard (SHARD-23.1).
type Status struct {
	Config     Config
	Epoch      int64
	Listed     bool // every provider has listed once
	Stopping   bool
	Superseded string
	Paused     bool // any pause exists
	DryRun     bool
	Pauses     []Pause
	Cycle      int64
	CycleAt    int64
	Machines   int
	States     [9]int
	Foreign    int
	Needs      int
	Short      int
	Sessions   int
	Silent     int
	GatesShut  int
	Planned    [kinds]int // actions of the last plan
	Waiting    [kinds]int
	InFlight   [kinds]int
	Open       [kinds]int
	Tokens     int64 // thousandths of a reclaim token of the shard
	Providers  []ProviderStatus
	Pools      []PoolStatus
	Drains     []DrainStatus
	Cost       int64
	Unplaced   int             // rows whose Pods the scheduler cannot place although they are covered (ENG-11.11)
	Sharing    [3]int          // clusters with demand, by engine.SharingLevels
	Demand     []PenaltyDemand // in machines, over all clusters
	Held       int             // clusters whose roll-up is held
	Parked     int
	Counters   engine.Counters
	Unmet      map[engine.UnmetReason]int
	HeldBack   int   // needs that are planned for and held back; counted in Short
	OldestAge  int64 // of the oldest unmet need; 0: none
	Shortfalls []Shortfall
	Aged       [4]int // shortfalls by age in nominal cycles: 1-9, 10-59, 60-299, 300 and more
	Coord      CoordinatorStatus
	Plaintext  bool // filled in by the shell
}

// ProviderStatus describes one provider.
type ProviderStatus struct {
	Name        string
	Listed      bool // once in this process
	Machines    int
	ListedAt    int64
	Incremental bool
	Breaker     int
	Limit       int64
	InFlight    int64
	Held        int
	LastError   string
	ErrorAt     int64
}

// PoolStatus is one pool that is out of stock.
type PoolStatus struct {
	Key, Provider, Type, Zone string
	Class                     inventory.CapacityType
	RetryAt                   int64
	Fails                     int
}

// DrainStatus is one drain under way.
type DrainStatus struct {
	Machine, Cluster, Instruction string
	Started, Ends                 int64
	Note                          drainNote
	Asked                         *OutOfService // somebody cordoned its node, and no operation is open yet
}

// Shortfall is what all clusters lack of one profile.
type Shortfall struct {
	Fingerprint string
	Priority    int32
	Since       int64
	AgeCycles   int64
	Residual    []resource.Quantity
	MinUnit     []resource.Quantity
	Reqs        []demand.Requirement
	Reason      engine.UnmetReason
	Bucket      demand.Bucket
}

// ClusterView describes one cluster.
type ClusterView struct {
	Name          string
	Connected     bool
	Since         int64
	Features      []string
	Version       string
	Disposition   Disposition
	DispositionAt int64
	Reason        string
	Held          int
	GateOpen      bool
	Needs, Short  int
	States        [9]int
	Tokens        int64
	Backoffs      []BackoffView
	Silent        bool
	Retired       bool
	Fresh         int64
	Unplaced      []UnplacedRow
	Cost          int64

	of *NeedBlock
}

type clusterView = ClusterView

// BackoffView is one pause of a cluster.
type BackoffView struct {
	Subject string // fingerprint; empty: the whole cluster
	Until   int64
	Text    string
}

// NeedBlock is the rows of one cluster with their verdicts, in allocation order. Blocks share rows that did not change.
type NeedBlock struct {
	Cluster string
	Rows    []NeedRow
	Places  []int32         // of each row: 1 plus how many short needs of the shard go before it, 0 if it is not short; may be nil
	Demand  []PenaltyDemand // in machines, by bucket

	HeldBack  int   // rows that are held back
	HeldSince int64 // of the row that has been so for longest; 0: none is

	of *engine.Block
	at int64
}

// ChangedAt is the Mono of the last change.
func (b *NeedBlock) ChangedAt() int64 { return b.at }

// PenaltyDemand is how many machines the needs of one interruption penalty ask for.
type PenaltyDemand struct {
	Bucket   demand.Bucket
	Machines int
}

// NeedRow is one row of demand and the last verdict on it.
type NeedRow struct {
	Form      *demand.Form // shared by all rows with this profile
	Group     string
	RowID     string
	Aggregate []resource.Quantity
	MinUnit   []resource.Quantity
	Arrival   int64
	Verdict   engine.Verdict
	Domain    string // chosen Same domain
	Residual  []resource.Quantity
	Freed     []resource.Quantity
	Since     int64 // since when it is short; 0: it is not
	Parked    int64 // nominal cycles stalled, if parked
	BlobText  string
	// ConfigureFailed is why a provider could not configure the last machine for the row; empty: it could.
	ConfigureFailed string
	Blocked         blockedReason // what keeps the planned actions from starting, or its supply from being used
	BlockedBy       string        // the same, by name, for people
}

// Summary is the supply that reports carry.
type Summary struct {
	Total, Available int
	ByType, ByZone   map[string]int
}

// MachineView is one machine as readers see it. Times are Mono.
type MachineView struct {
	Machine     inventory.Machine
	Attribution inventory.Attribution
	Intended    string // cluster it is being made for
	Since       int64
	Met         bool // in its state when this process met it
	Op          string
	OpKind      Kind
	Flags       []MachineFlag
	Withheld    string
	Backoff     int64
	Node        string
	Ready       bool
	Readiness   inventory.Readiness
}

// MachineFlag is something unusual about a machine. The numbers are those of the wire.
type MachineFlag uint8

const (
	FlagStuck     MachineFlag = 1
	FlagForeign   MachineFlag = 2
	FlagWithheld  MachineFlag = 3
	FlagUnjoined  MachineFlag = 4
	FlagForgotten MachineFlag = 5
	FlagReserved  MachineFlag = 6
	FlagBusy      MachineFlag = 7
)

// Kept says why a machine is as it is (SHARD-23.1).
type Kept struct {
	Keep    engine.Keep
	Need    NeedName
	Blocked blockedReason // what holds a planned action back
	Until   int64         // Mono: when that ends; 0: not known
	Because string        // what is known of it
	Out     *OutOfService // its node takes no Pods; nil: it does
	Op      *Record
	Drain   *DrainStatus
	Planned Kind
}

// NeedName names a need for readers.
type NeedName struct {
	Cluster, Fingerprint, Group, RowID string
	Priority                           int32
}

// HintView is one hint as it was last sent.
type HintView struct {
	Cluster, Fingerprint string
	Count, PriceMicro    int64
	Confidence           Confidence
	Requirements         []demand.Requirement
}

// rowMark is what the core knows of a row and a plan does not.
type rowMark struct {
	since    int64
	blobText string
	failed   string
	blocked  blockedReason
	by       string // what holds it back, by name
}

// Study is a copy of everything that a plan reads, for questions that are answered off the loop: why, and what if
// (SHARD-23.5). Nothing that is done with it reaches the core.
type Study struct {
	World  *engine.World
	Policy *engine.Policy
	Cycle  int64 // last cycle
	At     int64 // Mono
	Paused bool
	DryRun bool
}

// Frozen is what a Study is made from, off the loop.
type Frozen struct {
	world *engine.Frozen
	study Study
	now   int64
	holds map[string][]demand.Hold
}

// Census is a count of all machines for the gauges of SHARD-29.3. Its reader fills it in chunks between steps
// (SHARD-23.3), so it may straddle some: each machine is counted once, as it was when its turn came.
type Census struct {
	Machines map[CensusKey]int    // owned by this shard
	Spend    map[CensusKey]int64  // of those that cost something, micro-dollars per hour; Bucket is 0
	Clusters map[string]int64     // the same by the cluster that a machine is in or made for; "" for none
	Stuck    [9]int               // by state
	Failed   [2]int               // unbound, bound
	Withheld [withheldReasons]int // by inventory.WithheldReason
	Unjoined int
}

// CensusKey is one kind of machine.
type CensusKey struct {
	State    inventory.State
	Capacity inventory.CapacityType
	Bucket   demand.Bucket // of the interruption penalty that protects it; 0: none
}
