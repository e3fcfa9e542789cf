package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// cluster is what the core knows of one cluster beside its rows, which are in the demand table.
type cluster struct {
	keptCluster

	has          featureSet
	staged       *stagedRollup       // being taken in
	queuedRollup *RollupArrived      // the newest that came meanwhile
	counts       [9]int              // of machines bound to it, by state
	blobs        map[string]*backoff // by fingerprint
	blobText     map[string]string   // last error of the operator, by fingerprint
	failed       map[string]string   // why a provider could not configure the last machine, by fingerprint
	nodes        map[string]*node    // by machine id
	hints        map[string]*hintSent
	stated       *NeedBlock // block whose verdicts were last sent
	hintBasis    hintBasis  // of the last hints; a cache, not state
	statusWaits  bool       // some verdict of it had to wait, or was not looked at yet
	statusNext   int        // row to look at next
	statusLeft   int        // rows of stated that were not looked at
	statusFrom   int64      // when the first verdict that had to wait may be sent; 0: none
	statuses     map[string]*statusSent
	out          map[string]OutOfService // machines whose nodes take no Pods, by id
	heldBack     map[demand.RowKey]int64 // since when rows are held back
	shown        *clusterView            // last published; nil: changed since
	holds        bool                    // holds have to be computed again
	facts        bool                    // facts have to be told to the engine again
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

// add counts a report if the last counted one is old enough, and reports whether that makes enough of them over enough
// time. Time as well as count, because a reconnect loop makes three reports in a moment.
func (c *confirmation) add(now int64) (confirmed bool) {
	switch {
	case c.Count == 0:
		*c = confirmation{Count: 1, First: now, Last: now}
	case now-c.Last >= guardSpacing:
		c.Count++
		c.Last = now
	}
	return c.Count >= guardReports && c.Last-c.First >= guardElapsed
}

func (c *cluster) connected() bool { return c.Session != 0 }

// current reports whether a session is the installed one. No session is nobody's.
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

// forgetAfter is for how long a cluster without session, machines and operations is remembered. What it asked for acquires nothing
// without a session, and comes again with one. Why: whoever can open sessions could otherwise slow every cycle until a restart.
const forgetAfter = Hour

// left begins the time after which a cluster without a session is forgotten (SHARD-12.8).
func (c *sessions) left(cl *cluster) {
	cl.ForgetAt = c.now + forgetAfter
	c.timers.add(cl.ForgetAt, timerForget, cl.Name)
}

// forgetCluster forgets a cluster of which nothing is here but its name and its demand.
func (c *sessions) forgetCluster(t timer) {
	cl := c.clusters.get(t.Subject)
	if cl == nil || cl.connected() || cl.ForgetAt != t.At {
		return
	}
	if cl.Retired || cl.counts != [9]int{} || len(c.machines.machinesOf(cl)) > 0 ||
		slices.ContainsFunc(c.ops.ordered(), func(o *operation) bool { return o.Cluster == cl.Name }) {
		c.left(cl)
		return
	}
	c.record(Record{Type: RecordSessionClosed, Cluster: cl.Name, Detail: "forgotten: no session and no machine for an hour"})
	delete(c.coord.home, cl.Name)
	c.ledger.sharing.Forget(cl.Name)
	c.emit(Persist{Bucket: BucketRoom, Key: cl.Name})
	c.rollups.reading = slices.DeleteFunc(c.rollups.reading, func(x *cluster) bool { return x == cl })
	c.rollups.unstage(cl)
	c.world.Demand.Remove(cl.Name)
	c.clusters.remove(cl)
	c.pub.dirty = true
	c.trigger(triggerSession)
}

// hold is why a Need of the cluster acquires nothing for now (SHARD-6.9). Parking has its own ledger.
func (c *sessions) hold(cl *cluster, n *demand.Need) demand.Hold {
	switch {
	case !cl.connected():
		return demand.HeldOffline
	case c.rollups.unread(cl):
		return demand.HeldNewCluster
	case cl.templateUntil(n.Form.Fingerprint) > c.now:
		return demand.HeldBootstrapBackoff
	}
	if c.ledger.parking.Parked(cl.Name, n.RowKey(), c.policy) {
		return demand.HeldParked
	}
	return demand.NotHeld
}

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

// bringHoldsUpToDate tells the engine of holds and facts that may have changed (SHARD-6.7).
func (c *sessions) bringHoldsUpToDate() {
	for _, cl := range c.clusters.ordered {
		if cl.holds {
			cl.holds = false
			c.world.Demand.SetHolds(cl.Name, func(n *demand.Need) demand.Hold { return c.hold(cl, n) })
		}
		if cl.facts {
			cl.facts = false
			c.world.Demand.SetFacts(cl.Name, c.factsOf(cl))
		}
	}
}

func (c *sessions) factsOf(cl *cluster) demand.Facts {
	drained, failures := c.ledger.join.Counters(cl.Name, c.now, c.policy)
	if at := c.ledger.join.NextChange(cl.Name, c.policy); at > 0 {
		c.bootstraps.holdsEnd(cl, at)
	}
	return demand.Facts{Heard: cl.GateOpen, SharingPerMille: c.ledger.sharing.PerMille(cl.Name), ReportsReadiness: cl.Reporting,
		ReportingSince: cl.ReportingSince, JoinDrained: drained, JoinFailures: failures}
}
