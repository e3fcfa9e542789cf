package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Kinds of actions, under the names that the rest of the package uses.
const (
	KindBootstrap = engine.Bootstrap
	KindProvision = engine.Provision
	KindPreempt   = engine.Preempt
	KindReclaim   = engine.Reclaim
	KindDelete    = engine.Delete
)

// phase is where an operation stands.
type phase uint8

const (
	phasePulling     phase = iota + 1 // waits for a bootstrap blob
	phaseReady                        // waits for a slot to send its command
	phaseSending                      // a command is in flight
	phaseWaiting                      // accepted; waits for the terminal state
	phaseAsking                       // outcome unknown; Get decides
	phaseInstructing                  // waits for the ack of a reclaim instruction
	phaseFenced                       // refused by the fence; waits for the confirming attempt
)

func (p phase) String() string {
	return [...]string{"", "pulling", "ready", "sending", "waiting", "asking", "instructing", "fenced"}[p]
}

// record of a machine before an operation, for rolling back.
type before struct {
	State       inventory.State    `n:"1"`
	Cluster     string             `n:"2"`
	Attribution *Attribution       `n:"3"`
	Promise     *inventory.Promise `n:"4"`
	Since       int64              `n:"5"`
	Ready       uint8              `n:"6"`
}

// operation is what the shard does to one machine, from the dispatch of a decision to its observed end.
type operation struct {
	ID       string          `n:"1"`
	N        int64           `n:"2"` // position in the order of starts
	Kind     Kind            `n:"3"`
	Index    inventory.Index `n:"-"` // numbers of machines depend on history
	Machine  string          `n:"5"`
	Provider string          `n:"6"`
	Cluster  string          `n:"7"` // acquired for, or drained from
	Cycle    int64           `n:"8"`
	Cause    engine.Cause    `n:"9"`

	Need        demand.RowKey        `n:"10"` // served or harmed
	RowID       string               `n:"11"`
	Priority    int32                `n:"12"`
	Attribution Attribution          `n:"13"` // attribution to write
	Domain      string               `n:"14"`
	Reqs        []demand.Requirement `n:"15"`
	Cost        int64                `n:"16"`
	Price       int64                `n:"17"`
	Score       int64                `n:"18"`
	Terms       Terms                `n:"19"`

	Grace             int64              `n:"20"` // seconds
	Preemptor         demand.RowKey      `n:"21"`
	PreemptorCluster  string             `n:"22"`
	PreemptorPriority int32              `n:"23"`
	Promise           *inventory.Promise `n:"24"` // made when the drain begins
	Instruction       string             `n:"25"`
	Acked             bool               `n:"26"`
	DrainEnds         int64              `n:"27"` // Mono: end of the grace

	Phase          phase     `n:"28"`
	Attempt        int64     `n:"29"`
	Started        int64     `n:"30"`
	Sent           int64     `n:"31"` // when the last command was sent
	Accepted       int64     `n:"32"` // when a command was accepted
	Unmet          int64     `n:"33"` // since when the need is unmet; 0: not known
	Before         before    `n:"34"`
	Request        string    `n:"35"` // bootstrap request id
	Pulls          int64     `n:"36"`
	PullAt         int64     `n:"37"`
	BlobTTL        int64     `n:"38"`
	BlobAt         int64     `n:"39"` // receipt; 0: no blob
	Asks           int64     `n:"40"`
	Gone           bool      `n:"41"` // the provider said not found
	Token          int64     `n:"42"`
	ProviderOp     string    `n:"43"`
	Slot           bool      `n:"44"` // holds a concurrency class, cluster and provider slot
	Planned        int64     `n:"45"` // when the decision first appeared
	Drain          drainNote `n:"46"` // last word of the operator
	Repeats        int64     `n:"47"`
	Deleted        bool      `n:"48"`
	Alone          bool      `n:"49"` // of a retired cluster: the provider drains alone
	Committed      bool      `n:"50"` // a drain that will come whatever the next plan says
	PreemptorRowID string    `n:"52"`
	Deadline       int64     `n:"51"` // Mono: how long the operator may evict before Drain goes out without its word; 0: it is not waited for
}

// drainNote is the operator's last report on a drain.
type drainNote struct {
	State    int32    `n:"1"`
	PodsLeft int64    `n:"2"`
	Blocking []string `n:"3"`
	Reason   string   `n:"4"`
}

// States of a drain, by the numbers of bigfleet.v1alpha1.DrainState.
const (
	drainDone             = 2
	drainDeadlineExceeded = 3
	drainStopped          = 4
)

// forced says that a drain ended past its deadline although Pods were left, and what had held them; "" if none were (OP-8.12).
func (o *operation) forced(now int64) string {
	d := &o.Drain
	if d.PodsLeft == 0 || now < o.DrainEnds {
		return ""
	}
	by := ""
	if len(d.Blocking) > 0 {
		by = ", held by " + strings.Join(d.Blocking, ", ")
	}
	return clipText(fmt.Sprintf("Pods left at the deadline: %d%s; they went with the machine", d.PodsLeft, by))
}

// rpc is the command that the operation sends.
func (o *operation) rpc() RPC { return firstRPC(o.Kind) }

// drains reports whether the operation takes a machine away from a cluster.
func (o *operation) drains() bool { return o.Kind == KindPreempt || o.Kind == KindReclaim }

// untouched reports whether no command of the operation was ever sent.
func (o *operation) untouched() bool {
	return o.Attempt == 0 && (o.Phase == phasePulling || o.Phase == phaseReady)
}

// expects reports whether a fact is what the operation began on.
func (o *operation) expects(m inventory.Machine) bool {
	return m.State == o.Before.State && (!boundState(m.State) || m.Cluster == o.Before.Cluster)
}

// operations are the open ones: at most one per machine (SHARD-15.1).
type operations struct {
	byMachine map[string]*operation
	byID      map[string]*operation
	byRequest map[string]*operation
	byInstr   map[string]*operation
	list      []*operation // by N; ended ones are taken out lazily
	open      [kinds]int
}

func (s *operations) init() {
	*s = operations{byMachine: map[string]*operation{}, byID: map[string]*operation{}, byRequest: map[string]*operation{},
		byInstr: map[string]*operation{}}
}

// ordered returns the open operations in the order of their starts. The slice is a copy.
func (s *operations) ordered() []*operation {
	s.list = slices.DeleteFunc(s.list, func(o *operation) bool { return o.Deleted })
	return slices.Clone(s.list)
}

func (s *operations) add(o *operation) {
	s.byMachine[o.Machine] = o
	s.byID[o.ID] = o
	s.list = append(s.list, o)
	s.open[o.Kind]++
}

func (s *operations) remove(o *operation) {
	delete(s.byMachine, o.Machine)
	delete(s.byID, o.ID)
	delete(s.byRequest, o.Request)
	if s.byInstr[o.Instruction] == o {
		delete(s.byInstr, o.Instruction)
	}
	o.Deleted = true
	s.open[o.Kind]--
	if len(s.list) > 64 && len(s.list) > 2*len(s.byID) {
		s.list = slices.DeleteFunc(s.list, func(o *operation) bool { return o.Deleted })
	}
}

// operationID makes the id of an operation: shard, epoch, counter (SHARD-4.4).
func (c *commands) operationID(n int64) string {
	return c.cfg.ShardID + "/" + strconv.FormatInt(c.epoch, 10) + "/" + strconv.FormatInt(n, 10)
}

// wireID is the id of a bootstrap request or reclaim instruction of an operation's attempt.
func wireID(op string, what string, attempt int64) string {
	return hex16(newHash().str(op).str(what).i64(attempt).sum())
}

func (c *commands) snapshot(i inventory.Index) before {
	inv := c.world.Inventory
	b := before{State: inv.State(i), Cluster: inv.Cluster(i), Since: inv.Since(i), Ready: uint8(inv.Readiness(i))}
	if s, ok := inv.Attribution(i); ok {
		b.Attribution = &s
	}
	if p, ok := inv.Promise(i); ok {
		b.Promise = &p
	}
	return b
}

// open makes an operation of a decision and records its start. The caller moves the machine.
func (c *commands) open(d *decision) *operation {
	c.opCount++
	v := &d.view
	o := &operation{
		ID: c.operationID(c.opCount), N: c.opCount, Kind: v.Kind, Index: d.index, Machine: v.Machine,
		Provider: c.world.Inventory.Machine(d.index).Provider, Cluster: v.Cluster, Cycle: d.cycle, Cause: v.Cause,
		Need: v.Row, RowID: v.RowID, Priority: v.Priority, Domain: v.Domain, Cost: v.Cost, Price: v.Price,
		Score: v.Score, Terms: termsOf(v.Terms), Grace: v.Grace, Preemptor: v.Preemptor, PreemptorCluster: v.PreemptorCluster,
		PreemptorRowID: v.PreemptorRowID, PreemptorPriority: v.PreemptorPriority, Attribution: d.attribution, Reqs: d.reqs, Promise: d.promise, Started: c.now,
		Unmet: c.ledger.unmetSince(v.Cluster, v.Row), Planned: d.planned, Before: c.snapshot(d.index),
	}
	if v.Kind == KindDelete {
		o.Cluster = ""
	}
	c.ops.add(o)
	c.guards.started(v.Kind)
	how := ""
	if v.Cause == engine.CauseHandover {
		how = ByHandover
	}
	c.emit(Sample{Metric: MetricActions, Label1: v.Kind.String(), Label2: how, Value: 1})
	c.emit(Sample{Metric: MetricDispatchWait, Label1: v.Kind.String(), Value: c.now - d.planned})
	c.recordOp(RecordStarted, o, "", "")
	return o
}

// end closes an operation with its one outcome (SHARD-15.11) and frees what it held.
func (c *commands) end(o *operation, out Outcome, detail string) {
	c.dispatcher.releaseSlot(o)
	c.draining.uncommit(o)
	if o.Cause == engine.CauseNotJoined && out != OutcomeSuccess {
		c.world.Inventory.Lift(o.Index, inventory.WithheldNotJoined, o.Cluster)
	}
	if o.BlobAt != 0 || o.Phase == phasePulling {
		c.emit(DropBlob{Request: o.Request})
	}
	c.ops.remove(o)
	c.emit(Sample{Metric: MetricOutcomes, Label1: o.Kind.String(), Label2: out.String(), Value: 1})
	c.recordOp(RecordEnded, o, out.String(), detail)
	c.emit(Persist{Bucket: BucketJournal, Key: o.Machine})
	if out == OutcomeSuccess && o.Kind == KindDelete {
		c.sample(MetricIdleReleases, "", 1)
	}
	c.reconciler.requestOwed(o)
	if c.cfg.Coordinated {
		if i, ok := c.world.Inventory.Find(o.Machine); ok {
			c.ownership.reown(i)
		}
		if len(c.coord.Waiting) > 0 {
			c.timers.add(c.now, timerInstruction, "")
		}
	}
	c.trigger(triggerMachine)
}

// restore puts the machine's record back to what it was before the operation.
func (c *commands) restore(o *operation) {
	inv := c.world.Inventory
	if i, ok := inv.Find(o.Machine); !ok || i != o.Index {
		return
	}
	c.draining.uncommit(o)
	c.machines.move(o.Index, o.Before.State, o.Before.Cluster)
	inv.SetAttribution(o.Index, o.Before.Attribution)
	inv.SetPromise(o.Index, o.Before.Promise)
	inv.SetSince(o.Index, o.Before.Since)
	inv.SetReadiness(o.Index, inventory.Readiness(o.Before.Ready))
}

// rollBack ends an operation of which no provider call can have taken effect (SHARD-14.1).
func (c *commands) rollBack(o *operation, out Outcome, detail string) {
	c.restore(o)
	if o.drains() && o.Instruction != "" {
		c.draining.cancelInstruction(o, "the machine stays")
	}
	c.end(o, out, detail)
	c.machines.announceRollback(o)
}

// attribution is what Configure stores at the provider (SHARD-13.14), in key order.
func (c *commands) attribution(s Attribution) []KeyVal {
	return []KeyVal{
		{metaGroup, s.Group},
		{metaInterruption, dollars(s.Interruption)},
		{metaFingerprint, s.Fingerprint},
		{metaPriority, strconv.FormatInt(int64(s.Priority), 10)},
		{metaReclamation, dollars(s.Reclamation)},
		{metaOwner, c.cfg.ShardID},
	}
}

// Keys of shard_metadata (WIRE-11).
const (
	metaGroup        = "bigfleet.lucy.sh/assigned-group"
	metaInterruption = "bigfleet.lucy.sh/assigned-interruption-penalty-dollars"
	metaFingerprint  = "bigfleet.lucy.sh/assigned-need-fingerprint"
	metaPriority     = "bigfleet.lucy.sh/assigned-priority"
	metaReclamation  = "bigfleet.lucy.sh/assigned-reclamation-penalty-dollars"
	metaOwner        = "bigfleet.lucy.sh/owner-shard"
)

// MetadataKeys names the keys of shard_metadata for the gate that reads them back.
func MetadataKeys() (priority, interruption, reclamation, fingerprint, group, owner string) {
	return metaPriority, metaInterruption, metaReclamation, metaFingerprint, metaGroup, metaOwner
}

// dollars writes whole half-dollars as the shortest decimal that reads back as the same float64.
func dollars(p demand.Penalty) string {
	whole := strconv.FormatInt(int64(p)/2, 10)
	if p%2 != 0 {
		return whole + ".5"
	}
	return whole
}

func (o *operation) describe() string {
	return fmt.Sprintf("%s of %s (%s, attempt %d)", o.Kind, o.Machine, o.Phase, o.Attempt)
}
