package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// cluster is what the core knows of one cluster beside its rows, which are in the demand table.
type cluster struct {
	keptCluster

	has         featureSet
	staged      *stagedRollup       // being taken in
	counts      [9]int              // of machines bound to it, by state
	blobs       map[string]*backoff // by fingerprint
	blobText    map[string]string   // last error of the operator, by fingerprint
	failed      map[string]string   // why a provider could not configure the last machine, by fingerprint
	nodes       map[string]*node    // by machine id
	hints       map[string]*hintSent
	stated      *NeedBlock // block whose verdicts were last sent
	hintBasis   hintBasis  // of the last hints; a cache, not state
	statusWaits bool       // some verdict of it had to wait, or was not looked at yet
	statusLeft  int        // rows of stated that were not looked at
	statusFrom  int64      // when the first verdict that had to wait may be sent; 0: none
	statusAsOf  uint64     // of which classes of machines statuses name what no machine has; 0: none does
	statuses    map[string]*statusSent
	out         map[string]OutOfService // machines whose nodes take no Pods, by id
	heldBack    map[demand.RowKey]int64 // since when rows are held back
	shown       *clusterView            // last published; nil: changed since
	holds       bool                    // holds have to be computed again
	facts       bool                    // facts have to be handed to the engine again
}

// keptCluster is what a checkpoint keeps of a cluster as it is. Maps and what can be computed again are in cluster.
type keptCluster struct {
	Name string `n:"1"`

	// Session.
	Session      int64    `n:"2"` // number of the installed session; 0: none
	SessionSince int64    `n:"3"`
	Features     []string `n:"4"`
	Version      string   `n:"5"`
	Protocol     string   `n:"6"`
	Heard        bool     `n:"7"` // this session has delivered an accepted or unchanged roll-up (SHARD-12.4)

	// Demand.
	Known       bool                `n:"8"` // a roll-up was accepted in this process
	Hash        string              `n:"9"`
	Rows        int                 `n:"10"`
	Totals      []resource.Quantity `n:"11"` // per resource, by name
	Arrival     int64               `n:"12"` // of the last roll-up that was processed
	Fresh       int64               `n:"13"` // when a roll-up was last accepted or unchanged; 0: never
	Disposition Disposition         `n:"14"`
	DispAt      int64               `n:"15"`
	DispReason  string              `n:"16"`
	Held        confirmation        `n:"17"` // by the roll-up guard
	HeldRollup  *RollupArrived      `n:"18"`
	Queued      *RollupArrived      `n:"46"` // the newest that came while another was taken in, or a checkpoint waited

	GateOpen  bool         `n:"19"`
	Gate      confirmation `n:"20"` // of a first roll-up that asks for almost nothing (SHARD-12.3)
	GateWaits bool         `n:"21"` // the first roll-up came before the first complete List; judged when that is in
	Retired   bool         `n:"22"`
	ReadFrom  int64        `n:"39"` // new here: the first List that may have seen all its machines; 0: not waited for
	ReadUntil int64        `n:"40"` // the longest it is waited for
	ForgetAt  int64        `n:"43"` // when it is looked at whether it can be forgotten; 0: it has a session

	// Acquisition.
	Reclaim  tokenBucket `n:"23"`
	Timeouts backoff     `n:"24"` // of the whole cluster, after pulls that timed out
	OneProbe bool        `n:"25"` // a pull timed out and none was answered since (SHARD-15.4)

	// Node readiness.
	Reporting      bool          `n:"29"` // a full set of this session is complete
	ReportingSince int64         `n:"30"`
	Unplaced       []UnplacedRow `n:"31"`

	HintedAt int64 `n:"38"` // when hints were last computed; 0: never in this session

	StatusNext int `n:"47"` // row of which the verdict is looked at next

	// How wide its demand is (SHARD-10.12).
	Width      Width         `n:"50"` // of the last accepted roll-up
	SetAside   DemandTooWide `n:"52"` // why its demand was set aside,
	AsideUntil int64         `n:"53"` // and until when it must not state as much again
}

func (c *cluster) connected() bool { return c.Session != 0 }

// waitsUnplaced reports whether the cluster's scheduler finds no Node for Pods of a row.
func (c *cluster) waitsUnplaced(row string) bool {
	_, unplaced := slices.BinarySearchFunc(c.Unplaced, row, func(r UnplacedRow, id string) int { return strings.Compare(r.RowID, id) })
	return unplaced && row != ""
}

// current reports whether a session is the installed one. Session 0 is none.
func (c *cluster) current(session int64) bool {
	return c != nil && session != 0 && c.Session == session
}

// bound counts Configuring, Configured and Draining machines.
func (c *cluster) bound() int {
	return c.counts[inventory.Configuring] + c.counts[inventory.Configured] + c.counts[inventory.Draining]
}

func (c *cluster) configured() int { return c.counts[inventory.Configured] }

// changed marks the cluster for the next publication.
func (c *cluster) changed() { c.shown = nil }

// templateUntil is the time before which no boot data is requested for a row, because its template failed or its operator did
// not answer (SHARD-16.9).
func (cl *cluster) templateUntil(fingerprint string) (until int64) {
	if cl.Timeouts.Fails > 0 {
		until = cl.Timeouts.Until
	}
	if b := cl.blobs[fingerprint]; b != nil {
		until = max(until, b.Until)
	}
	return until
}

// suspects reports whether the boot data of a row failed last, and no machine or answer has shown since that it works (SHARD-16.10).
func (cl *cluster) suspects(fingerprint string) bool {
	_, rendered := cl.blobText[fingerprint]
	_, configured := cl.failed[fingerprint]
	return rendered || configured
}

// node is what a cluster reports of one machine's node.
type node struct {
	name     string
	ready    bool
	at       int64
	contents *NodeContents // nil: not known
}

// featureSet is the part of WIRE-2.8 that the core branches on.
type featureSet struct {
	nodeReport, drainReport, released, needStatus, reclaimCancel, unplaced, nodeContents bool
}

func featuresOf(list []string) featureSet {
	var f featureSet
	for _, token := range list {
		name, _, _ := strings.Cut(token, "/")
		switch name {
		case "node-report":
			f.nodeReport = true
		case "node-contents":
			f.nodeContents = true
		case "drain-report":
			f.drainReport = true
		case "released":
			f.released = true
		case "need-status":
			f.needStatus = true
		case "reclaim-cancel":
			f.reclaimCancel = true
		case "unplaced-pods":
			f.unplaced = true
		}
	}
	return f
}

// confirmation counts reports that say the same unlikely thing (SHARD-11.4).
type confirmation struct {
	Count int   `n:"1"`
	First int64 `n:"2"`
	Last  int64 `n:"3"`
}

// clusterSet is the clusters by name.
type clusterSet struct {
	byName  map[string]*cluster
	ordered []*cluster
}

func (s *clusterSet) init() { s.byName = map[string]*cluster{} }

func (s *clusterSet) get(name string) *cluster { return s.byName[name] }

func (s *clusterSet) ensure(name string) *cluster {
	if c := s.byName[name]; c != nil {
		return c
	}
	c := &cluster{keptCluster: keptCluster{Name: name}, blobs: map[string]*backoff{}, blobText: map[string]string{}, failed: map[string]string{}, nodes: map[string]*node{},
		hints: map[string]*hintSent{}, statuses: map[string]*statusSent{}, holds: true, facts: true}
	s.byName[name] = c
	i, _ := slices.BinarySearchFunc(s.ordered, name, func(c *cluster, n string) int { return strings.Compare(c.Name, n) })
	s.ordered = slices.Insert(s.ordered, i, c)
	return c
}

func (s *clusterSet) remove(cl *cluster) {
	delete(s.byName, cl.Name)
	s.ordered = slices.DeleteFunc(s.ordered, func(c *cluster) bool { return c == cl })
}

// stagedRollup is an accepted roll-up that is being taken in.
type stagedRollup struct {
	event  RollupArrived
	totals []resource.Quantity
	rows   *demand.Staging

	labels, topology int  // keys of it that nothing named when it began
	ordered          bool // all rows are in, and in turn order
}

// shortRows are the short rows of one cluster and since when each is. The list is replaced, not changed, and only when the
// cluster's block is: a shard that is out of machines has tens of thousands of short rows, and most stand as they stood.
type shortRows struct {
	of   *engine.Block
	list []shortRow // in the order of the block
}

type shortRow struct {
	at    int32 // position in the block
	key   demand.RowKey
	since int64
}

// shortSum is the sum of the short rows of a few blocks, for as long as these stand. A plan that changes nothing about a cluster
// says so by sharing its block with the one before, so nearly all sums of a shard that is out of machines are known.
type shortSum struct {
	blocks  []*engine.Block // with short rows, in order
	forms   []formSum       // in the order in which they are met
	reasons [8]int
}

// formSum is what rows of one form lack together.
type formSum struct {
	form           *demand.Form
	residual, unit resource.Vector
	arrival        int64 // of the row that goes first, whose reason is reported
	reason         engine.UnmetReason
}

// shortfall is what all clusters together lack of one profile (SHARD-26.1).
type shortfall struct {
	Fingerprint string
	First       int64
	Priority    int32
	Residual    []resource.Quantity // of the first ones of a report
	MinUnit     []resource.Quantity // the same
	Reqs        []demand.Requirement
	Reason      engine.UnmetReason
	Group       string
	Bucket      demand.Bucket

	sum *formSum // while they are put in order
}

// hintSent is the last hint a session got for one shape.
type hintSent struct {
	count      int64
	confidence Confidence
	price      int64
	at         int64
	reqs       []demand.Requirement // of the shape, for the last word on it
}

// statusSent is the last verdict a session got for one row. It is replaced, never changed: a checkpoint that is being written reads it.
type statusSent struct {
	hash uint64
	at   int64

	// Of a row that nothing matches: which requirements no machine meets, and of which classes that is said.
	byNone  string
	classes uint64
}

// hintBasis is what the hints of a cluster were computed from. With equal versions they come out the same.
type hintBasis struct{ demand, inventory uint64 }

// OutOfService is a machine whose node takes no Pods now. The roll-up that names it leaves the Pods on it out of its needs.
type OutOfService struct {
	Machine string `n:"1"`
	Reason  int32  `n:"2"` // number of bigfleet.v1alpha1.MachineOutOfService.Reason
	Since   int64  `n:"3"` // wall clock of the cluster
	Pods    int64  `n:"4"` // that a drain has to evict; they keep the machine
	Detail  string `n:"5"`
}
