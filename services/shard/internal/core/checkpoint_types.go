package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Snapshot is everything a core has to know to continue, in a canonical order: the checkpoint at the head of a segment of
// the decision log. What follows from it (the last plan, views, caches) is not in it; a core that gives or takes a
// snapshot plans again in the same step, so both stand alike afterwards.
type Snapshot struct {
	Config     Config  `n:"1"`
	Epoch      int64   `n:"2"`
	At         At      `n:"3"`
	Stopping   bool    `n:"4"`
	Superseded string  `n:"5"`
	Control    Control `n:"6"`

	Ops       int64  `n:"10"` // counters
	Gets      int64  `n:"11"`
	Lists     int64  `n:"12"`
	Mutations int64  `n:"13"`
	Records   int64  `n:"14"`
	Rolling   uint64 `n:"15"`
	Steps     int64  `n:"16"`

	Cycle     savedCycle       `n:"20"`
	Providers []savedProvider  `n:"21"`
	Clusters  []savedCluster   `n:"22"`
	Machines  []savedMachine   `n:"23"`
	Open      []*operation     `n:"24"`
	GetsOpen  []savedGet       `n:"25"`
	Timers    []timer          `n:"26"`
	TimerSeq  int64            `n:"27"`
	Pools     []*pool          `n:"28"`
	Guards    savedGuards      `n:"29"`
	Ledger    savedLedger      `n:"30"`
	Journal   []JournalEntry   `n:"31"`
	Poison    []Poison         `n:"32"`
	Waiting   []AdminAsked     `n:"33"` // orders that wait for a Get
	Packed    []savedCount     `n:"34"` // of older versions: ask*1000 + Lists still to come
	Listing   []savedListing   `n:"37"` // orders that wait for Lists
	Coord     savedCoordinator `n:"35"`
	Armed     int64            `n:"36"`
}

type savedCycle struct {
	keptCycle

	Pending []uint8     `n:"5"`
	Planned []savedPlan `n:"6"`
	Ran     bool        `n:"12"` // a plan exists
}

type savedPlan struct {
	Machine string `n:"1"`
	Kind    Kind   `n:"2"`
	At      int64  `n:"3"`
	Held    bool   `n:"4"`
	InPlan  bool   `n:"5"`
}

type savedProvider struct {
	keptProvider

	List    *savedList  `n:"9"`
	Owed    []string    `n:"15"`
	Asked   []savedWant `n:"16"`
	Rejects []KeyVal    `n:"30"`
	Wanted  []savedWant `n:"31"`
}

type savedList struct {
	ID      int64 `n:"1"`
	Full    bool  `n:"2"`
	Asked   int64 `n:"3"`
	Started int64 `n:"4"`
}

type savedWant struct {
	Machine string     `n:"1"`
	Why     getPurpose `n:"2"`
}

type savedGet struct {
	ID       int64      `n:"1"`
	Provider string     `n:"2"`
	Machine  string     `n:"3"`
	Purpose  getPurpose `n:"4"`
	Asked    int64      `n:"5"`
}

type savedMachine struct {
	Machine     inventory.Machine      `n:"1"`
	Attribution *inventory.Attribution `n:"2"`
	Promise     *inventory.Promise     `n:"3"`
	Withheld    []inventory.Withheld   `n:"4"`
	Since       int64                  `n:"5"`
	Readiness   inventory.Readiness    `n:"6"`
	Foreign     bool                   `n:"7"`
	Stuck       bool                   `n:"8"`
	Mutation    int64                  `n:"9"` // mutation column
	Absent      int64                  `n:"11"`
	AbsentAt    int64                  `n:"12"`
	Subscriber  string                 `n:"13"`
	Acquired    *acquisition           `n:"14"`
	Backoffs    []savedBackoff         `n:"15"`
	Capped      bool                   `n:"16"`
	Owner       string                 `n:"17"`
	Announced   bool                   `n:"18"`
	Drain       *drainBackoff          `n:"19"`
	Occupancy   inventory.Occupancy    `n:"20"`
	NodeLabels  []inventory.Label      `n:"21"` // of its node alone
}

type savedBackoff struct {
	Subject string  `n:"1"`
	RPC     RPC     `n:"2"`
	Backoff backoff `n:"3"`
	Text    string  `n:"4"`
}

type savedCluster struct {
	keptCluster

	Blobs    []savedBackoff      `n:"26"`
	BlobText []KeyVal            `n:"27"`
	Nodes    []savedNode         `n:"28"`
	Hints    []savedHint         `n:"32"`
	Statuses []savedStatus       `n:"33"`
	Demand   []demand.Saved      `n:"34"`
	Overhead []resource.Quantity `n:"35"`
	Facts    demand.Facts        `n:"36"`
	InTable  bool                `n:"37"` // the demand table knows the cluster
	HeldBack []savedHeldBack     `n:"41"`
	Out      []OutOfService      `n:"42"`
	Failed   []KeyVal            `n:"44"`
	Rooms    []demand.Room       `n:"45"`
}

type savedHeldBack struct {
	Row demand.RowKey `n:"1"`
	At  int64         `n:"2"`
}

type savedNode struct {
	Machine  string        `n:"1"`
	Name     string        `n:"2"`
	Ready    bool          `n:"3"`
	At       int64         `n:"4"`
	Contents *NodeContents `n:"5"`
}

type savedHint struct {
	Fingerprint string     `n:"1"`
	Count       int64      `n:"2"`
	Confidence  Confidence `n:"3"`
	Price       int64      `n:"4"`
	At          int64      `n:"5"`

	Requirements []demand.Requirement `n:"6"`
}

type savedStatus struct {
	Row  string `n:"1"`
	Hash uint64 `n:"2"`
	At   int64  `n:"3"`
}

type savedGuards struct {
	Reclaim  tokenBucket `n:"1"`
	Creates  tokenBucket `n:"2"`
	Preempts tokenBucket `n:"3"`
}

type savedLedger struct {
	Parking []ledger.ParkingEntry `n:"1"`
	Sharing []ledger.SharingEntry `n:"2"`
	Join    []ledger.JoinEntry    `n:"3"`
	Unmet   []savedUnmet          `n:"4"`
	Lost    []savedCount          `n:"5"`
	Short   []savedCount          `n:"6"` // since when each fingerprint is short
	Oldest  string                `n:"7"`
}

type savedUnmet struct {
	Cluster string        `n:"1"`
	Row     demand.RowKey `n:"2"`
	At      int64         `n:"3"`
}

type savedCount struct {
	Name string `n:"1"`
	N    int64  `n:"2"`
}

// savedListing is an order that waits for so many more full Lists.
type savedListing struct {
	Ask   int64 `n:"1"`
	Lists int64 `n:"2"`
}

type savedCoordinator struct {
	keptCoordinator

	Relabels []savedCount `n:"8"`
	Home     []string     `n:"10"`
}
