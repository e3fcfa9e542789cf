package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// The parts, in the order of doc.go: what each owns, and which others it calls.

// sessions knows which operators are connected, and takes what they report beside roll-ups.
type sessions struct {
	*shared
	admin      *orders
	bootstraps *bootstraps
	commands   *commands
	coord      *coordinatorState
	draining   *draining
	ledger     *needLedger
	machines   *machines
	outages    *outages
	pub        *publisher
	reconciler *reconciler
	rollups    *rollups

	turned uint64 // of the inventory: how often topology keys turned out to have domains, or none
}

// rollups judges roll-ups and makes them the demand of their clusters.
type rollups struct {
	*shared
	bootstraps *bootstraps
	commands   *commands
	coord      *coordinatorState
	draining   *draining
	ledger     *needLedger
	machines   *machines
	pub        *publisher
	reconciler *reconciler

	reading []*cluster       // new here, and waiting for the providers to be read
	staging []*cluster       // with a roll-up that is being taken in, in turn
	poison  map[string]int64 // content hash to Mono at which it ends

	answered     []RollupArrived // while something is made beside the loop: demand after it
	answeredRows int             // of them, and of those they took the place of
	taken        []string        // content hashes of those that last became demand,
	takenAt      int64           // after this cycle
}

// needLedger is what the core remembers from plan to plan about needs: since when they are short, which gangs are parked,
// how well shares hold, which nodes do not join. Ages count nominal cycles, because with evaluation on arrival a count
// of evaluations is not a time (SHARD-26.2).
type needLedger struct {
	*step
	pools *poolSet

	parking ledger.Parking
	sharing ledger.Sharing
	join    ledger.Join

	unmet      map[string]*shortRows // since when rows are short, by cluster
	lost       map[string]int64      // last loss of a machine, by cluster
	since      int64                 // when the row became short that has been so for longest; 0: none is
	shortfalls map[string]*shortfall
	order      []*shortfall // as reported
	reasons    [8]int       // short rows of the last plan, by engine.UnmetReason
	summed     []*shortSum  // that shortfalls and reasons are the sums of
	again      bool         // all short rows of the last plan are listed and summed, whatever stands as it stood
	listing    *listing     // of the last plan, if its short rows are not all listed yet
	summing    *summing     // of the last plan, if they are not all summed yet
	oldest     string       // the three oldest, as last logged
	unlogged   bool         // they may be others now
	unplaced   int          // rows that are stuck (ENG-11.11), of the last plan
}

// merger merges what providers say of machines into the inventory.
type merger struct {
	*shared
	admin     *orders
	commands  *commands
	coord     *coordinatorState
	guards    *guards
	ledger    *needLedger
	machines  *machines
	ownership *ownership
	recovery  *recovery
}

// machines moves machines between states and shows each to the cluster that it serves.
type machines struct {
	*shared
	coord      *coordinatorState
	guards     *guards
	outages    *outages
	pools      *poolSet
	pub        *publisher
	reconciler *reconciler
	risks      *risks
}

type poolSet struct {
	*step

	byKey map[string]*pool
	order []*pool // by key
}

// risks are those of all pools. A new process starts over: the long run is the metric's.
type risks struct {
	*step

	since int64
	pools map[riskKey]*risk
}

// reconciler asks providers for machines, and takes their answers.
type reconciler struct {
	*shared
	admin     *orders
	commands  *commands
	coord     *coordinatorState
	machines  *machines
	merger    *merger
	ownership *ownership
	recovery  *recovery
	rollups   *rollups
	sessions  *sessions

	lists    int64 // numbers Lists
	gets     int64 // numbers Gets
	getsByID map[int64]*get
	reduced  reducer
}

// outages withholds the machines of providers that do not work.
type outages struct {
	*shared
	pub *publisher
}

// planning runs the cycles: it plans, and replaces the decisions that wait.
type planning struct {
	*shared
	coord      *coordinatorState
	dispatcher *dispatcher
	draining   *draining
	guards     *guards
	ledger     *needLedger
	machines   *machines
	ownership  *ownership
	pub        *publisher
	sessions   *sessions

	planner     *planner.Planner
	audit       engine.Audit
	compareRoom *inventory.FreezeBuffer // for a comparison of the next plan; nil: none is wanted
}

// guards stand between a decision and its start. They may slow or stop actions; they never add, reorder or change one
// (SHARD-19.1).
type guards struct {
	*shared
	coord     *coordinatorState
	machines  *machines
	ownership *ownership
	pools     *poolSet

	reclaim  tokenBucket // of the whole shard
	creates  tokenBucket // of --provision-rate
	preempts tokenBucket // of --preempt-rate
	backoffs map[string]*[rpcs]backoff
	capped   map[string]bool          // machines whose reclaim is known to wait for the budget
	drains   map[string]*drainBackoff // machines whose drain was given up
}

// dispatcher starts decisions that nothing holds back, and sends their commands.
type dispatcher struct {
	*shared
	bootstraps *bootstraps
	commands   *commands
	draining   *draining
	guards     *guards
	machines   *machines
	ownership  *ownership
	recovery   *recovery

	classes concurrencyClasses
}

// commands carries operations from their start to their one outcome.
type commands struct {
	*shared
	bootstraps *bootstraps
	coord      *coordinatorState
	dispatcher *dispatcher
	draining   *draining
	guards     *guards
	ledger     *needLedger
	machines   *machines
	merger     *merger
	ownership  *ownership
	pools      *poolSet
	reconciler *reconciler
	recovery   *recovery

	opCount int64 // numbers operations
}

// bootstraps pulls boot data for machines that are to be configured.
type bootstraps struct {
	*shared
	commands   *commands
	dispatcher *dispatcher
}

// draining tells operators to cordon and evict, and drains when they have.
type draining struct {
	*shared
	commands *commands
	coord    *coordinatorState
	guards   *guards
	ledger   *needLedger
	machines *machines
	recovery *recovery
}

// ownership decides which machines are this shard's, and withholds those beyond a quota.
type ownership struct {
	*shared
	coord    *coordinatorState
	machines *machines
}

// coordinatorState is what the core knows of the coordinator beyond Control.
type coordinatorState struct {
	*shared
	ownership  *ownership
	reconciler *reconciler
	rollups    *rollups

	keptCoordinator

	foreign  int
	owners   map[string]string // shard named by the metadata of a bound machine
	relabels map[string]int64  // type/zone whose Creates pause, until
	used     map[string]int64  // elastic machines held, by region
	home     map[string]bool   // clusters that were served here without a break, so all their machines are known
}

// orders carries out what people order, and keeps the orders that wait for a List or a Get.
type orders struct {
	*shared
	commands   *commands
	coord      *coordinatorState
	guards     *guards
	machines   *machines
	ownership  *ownership
	pools      *poolSet
	pub        *publisher
	reconciler *reconciler
	rollups    *rollups

	answers []AdminAnswer           // of this step
	gets    map[string][]AdminAsked // by machine
	done    map[int64]int           // ask to providers still to list
}

// publisher is the state behind Publish and behind what clusters have received.
type publisher struct {
	*shared
	admin      *orders
	coord      *coordinatorState
	dispatcher *dispatcher
	guards     *guards
	ledger     *needLedger
	outages    *outages
	ownership  *ownership
	pools      *poolSet
	reconciler *reconciler

	offers        explain.Offers
	cycled        bool // a cycle ran since the last publication
	dirty         bool // something else happened since then
	blocksChanged bool // what holds actions back may be another in any block
	lastAt        int64
	notBefore     int64      // this step has done much already
	statusAt      int64      // when a verdict that had to wait may be sent; 0: none waits
	ahead         []spelling // of the last plan
	needs         map[string]*NeedBlock
	list          []*NeedBlock
	subscribers   []subscriber      // by number; 0 is no cluster
	byCluster     map[string]uint32 // their numbers
	unused        []uint32
	acquired      map[string]*acquisition
}

// reader answers questions between steps. It changes nothing.
type reader struct {
	*shared
	risks    *risks
	rollups  *rollups
	coord    *coordinatorState
	guards   *guards
	ledger   *needLedger
	pub      *publisher
	sessions *sessions
}

// recovery resumes what the process before had begun, from its journal.
type recovery struct {
	*step

	journal map[string]JournalEntry // of the process before, by machine, until used or disproved
}
