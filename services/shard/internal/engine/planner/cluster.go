package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// clusterState is one cluster: its Needs, the machines that count for it, and which Need claims which machine. Credit fills it
// from the cluster's own demand and machines alone (ENG-9), so it is kept until one of the two changes. What happens
// after credit may change it further; it is then stale, and credited again in the next plan.
type clusterState struct {
	// What allocations look at lies together: in a cold plan each allocation is in another cluster than the one before, and the lines of
	// memory that it has to fetch are most of its time.
	d *demand.Cluster
	vectors
	cat            *cover.Indexes
	at             int32 // block of the result
	lastRecipient  int32 // position in needs; -1 if no Need receives shares
	unclaimedCount int   // bound and creditable machines without a claim
	needs          []needState
	machines       []machineState
	unpacked       []int32  // Needs of which it is to be found out what their machines have left
	least          []int64  // what every recipient of shares asks for in one unit, at the least
	shares         []share  //
	flight         []int32  // in flight: Idle, Creating, Draining, each by id
	open           int      // Needs that are short and not held, after credit
	stale          bool     //
	sets           setBits  //
	gone           bool     // not in the demand any more
	isDirty        bool     //
	ahead          bool     // in clusters.ahead
	again          bool     // its Needs stay in this plan
	listed         bool     // in publisher.ready
	spreads        bool     // of those that are short, some have a hard spread
	unclaimedStale bool     // of unclaimedAt: more may have been let go since
	waitingStale   bool     // of waitingAt: the same
	freed          bool     // credit let something go after others had looked for it
	handsOver      bool     // an Idle machine was credited to a Need
	reread         bool     // its machines were read again for this credit
	inOrder        bool     // bound is in the order of walks
	reported       bool     // its nodes reported when machines was listed
	anyEmpty       bool     // some of machines has an empty node
	columns        []column //

	// What it was credited from.
	demandVersion  uint64
	supplyVersion  uint64
	gathered       uint64 // supplyVersion of machines, bound, flight and byID
	classVersion   uint64
	domainsVersion uint64 // when Needs of it settled
	foldVersion    uint64
	expires        int64 // when readiness changes its answer by itself; 0 is never
	policy         *engine.Policy
	checked        uint64 // the plan that last looked at its reasons
	counted        counted

	gains
	served    uint64  // the last plan in which a run left no Need short
	made      int     // length of vec once the Needs are made, or 0
	rowNeed   []int32 // by row of demand: its Need, or the folded Need it is a member of
	folds     []engine.Folded
	gangRows  []gangRow // ascending
	owns      []owns    // by row of a gang
	left      []int32   // rows of gangs that left their folds, in order
	members   int       // of machines; behind them is what the plan acquired
	bound     []int32   // bound and creditable, in the order of walks if inOrder
	byID      []int32   // flight, by id
	excluded  []inventory.Index
	protected []inventory.Index
	overdue   int

	empty       []int32      // of machines: what an exchange gave back
	unclaimedAt []int32      // those of bound that were unclaimed when it was listed
	unclaimedOf []classCount // their classes, if they are many and were asked for
	waitingAt   []int32      // the same of byID
	waiting     int          // of flight: unclaimed
	lastClaimed int32        // no Need behind it has a claim
	excess      int          // the unclaimed ones that are Configured and ours
	shorts      int          // Needs that are short, after credit
	newsAt      int          // where they are in pendingList.news
	victimsAt   int          // where what is bound is in targets.seen
	block       *engine.Block
	judged      uint64 // version of the classes, plus 1, that needState.none is about

	spares spares
	rooms  *roomsOfNeed
}

// needState is one Need at work: a cache line without pointers, so that an allocation reads one line of it and a collection none.
type needState struct {
	row      int32 // of demand, or of a folded Need from FoldedRow on
	at       int32 // position in needs
	priority int32
	matcher  uint32        // in Catalog.ByID
	vec      int32         // of aggregate, min unit and residual, one behind the other; and see amount
	key      symbol.ID     // of Same or of the hard spread
	domain   symbol.ID     // if wChosen
	claims   int32         // first of its claims, chained by machineState.next
	lastOne  int32         //
	own      int32         // first of its Own machines, chained by machineState.ownNext, in walk order
	slot     int32         // in clusterState.unpacked, or -1
	received int32         // first of its shares, chained by share.nextTo
	gain     int32         // 1 plus its position in clusterState.gains, or 0
	bits     needBits      //
	hold     demand.Hold   //
	bucket   demand.Bucket // of interruption
	none     engine.Detail // if wJudged: why no class whatsoever could serve it, or NoDetail
	unfit    bool          // if wJudged: no class matches and fits
	lost     bool          // a claim or share to another Need (ENG-12.6)
	_        [2]byte       // up to a cache line
}

func (cl *clusterState) need(w *needState) *demand.Need {
	if w.row >= engine.FoldedRow {
		return &cl.folds[w.row-engine.FoldedRow].Need
	}
	return &cl.d.Needs[w.row]
}

func (cl *clusterState) matcher(w *needState) *match.Matcher { return cl.cat.ByID[w.matcher] }

// membersOf returns the rows of a folded Need.
func (cl *clusterState) membersOf(w *needState) []int32 {
	if w.row < engine.FoldedRow {
		return nil
	}
	return cl.folds[w.row-engine.FoldedRow].Members
}

type needBits uint16

const (
	wSame     needBits = 1 << iota
	wSpread            // has a hard spread that counts
	wUnit              // min unit is not empty
	wZero              // asks for nothing
	wChosen            // domain says where
	wPossible          // its domain could cover it with what is free (ENG-10.6 key 2)
	wLost              // something was taken over from it (ENG-15.4)
	wPacked            // machineState.used of its claims is right
	wFolded
	wLate   // in allocationQueue.requeued
	wJudged // none is right for the classes of clusterState.judged
	wWhole  // its aggregate is whole units (ENG-4.12)
	wMany   // and what a machine holds of it as well: it is more than one, or a gang's
	wBought // took Speculative machines in this plan, and perhaps gave them back
	wSpare  // has hard spread terms that do not count: its Same wins over them (ENG-10.13), or it does not count in units
	wGang   // Pods of it start together or not at all (ENG-4.13)
)

// wMade is what a Need says by itself, before it is credited.
const wMade = wSame | wSpread | wUnit | wZero | wFolded | wJudged | wWhole | wMany | wSpare | wGang

// machineState is one machine in its cluster: a cache line.
type machineState struct {
	price   int64
	recl    demand.Penalty // of its attribution
	idx     inventory.Index
	class   uint32
	order   uint32
	key     symbol.ID // of the attribution, if lKeyed
	claim   int32     // position in needs, or -1
	next    int32     // in the claimant's chain
	owner   int32     // position in needs of the Need whose Own it is, or -1
	ownNext int32
	shares  int32 // first share on it, chained by share.nextOn
	out     int32 // vector: what shares take, or -1
	used    int32 // vector: what its claimant uses (ENG-11.3), or -1; right while the claimant has wPacked
	bits    machineBits
	state   inventory.State
	rank    uint8 // of what its node holds: a higher one is kept first
}

type machineBits uint16

const (
	lKept     machineBits = 1 << iota // claimed, but credited with nothing
	lAcquired                         // taken from a free pool by this plan
	lExcluded                         // not credited for not having joined
	lOurs                             // its attribution is in our format
	lGone                             // promised to another by section 15, or drained by it
	lPreempt                          // drained as a Preempt
	lForeign                          // owned by another shard
	lKeyed                            // key says for which row it is attributed
	lInUse                            // its node is known to hold something
	lListed                           // in spares
)

// share is whole units of one Need on a machine that another claims.
type share struct {
	to, on         int32
	nextTo, nextOn int32
	units          int64
	vec            int32 // what left the offered part, and what is credited
}

// column is the value of one topology key of each local machine: the symbol, or -1.
type column struct {
	key     symbol.ID
	values  []int64
	numbers []int32 // of the values, by machine, for those that were asked for; and by value
	number  map[int64]int32
}

// usable is match and fit (ENG-6.3).
func (cl *clusterState) usable(w *needState, l *machineState) bool { return cl.fits(w, l.class) }

func (cl *clusterState) fits(w *needState, class uint32) bool {
	return cl.matcher(w).Has(class) && match.Covers(cl.f.Supply(class), cl.unit(w))
}
