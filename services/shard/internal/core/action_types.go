package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// blockedReason is what keeps a decision from starting.
type blockedReason uint8

const (
	notBlocked    blockedReason = iota
	blockedState                // the start state no longer holds
	blockedBusy                 // an operation is open
	blockedFrozen               // stopping or superseded
	blockedPaused
	blockedDryRun
	blockedGate
	blockedSession
	blockedReport // this session has not delivered demand yet
	blockedStale  // the provider's inventory is too old
	blockedBudget
	blockedBackoff
	blockedClass
	blockedCluster
	blockedProvider
	blockedBreaker
	blockedFence
	blockedMax
	blockedRate
	blockedQuota
	blockedForeign
	blockedOutage  // of supply, and never of a decision
	blockedDrain   // its drain was given up a while ago
	blockedRelease // it has not been in excess for long enough
	blockedCeiling // its cluster may not have more
	blockedPreemptRate
	blockedProtected // its node holds Pods that must not be disturbed
	blockedUnread    // a provider was never listed, whose machines may serve the need
)

func (h blockedReason) String() string {
	return [...]string{"", "state", "busy", "frozen", "paused", "dry_run", "gate", "no_session", "no_report", "stale_inventory",
		"reclaim_budget", "backoff", "concurrency", "cluster_limit", "provider_limit", "breaker", "fence", "max_actions",
		"provision_rate", "quota", "foreign", "provider_down",
		"drain_backoff", "release_delay",
		"cluster_ceiling", "preempt_rate", "protected_pods", "provider_unread"}[h]
}

// dispatchPass remembers, within one pass, what was counted.
type dispatchPass struct {
	busy    map[string]int64           // pulls and Configures by cluster; counted when first asked for
	trying  map[[2]string]bool         // clusters and fingerprints that a machine is bought or configured for; listed when first asked for
	joining map[string]map[string]bool // by cluster, the fingerprints whose machines have no ready Node yet; listed when first asked for
	capped  int64
	wakeAt  int64
}

func (p *dispatchPass) wake(at int64) {
	if at > 0 && (p.wakeAt == 0 || at < p.wakeAt) {
		p.wakeAt = at
	}
}

// drainBackoff keeps a machine from being reclaimed again after its drain was given up.
type drainBackoff struct {
	Backoff backoff `n:"1"`
	Why     string  `n:"2"`
}

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

// before is a machine before an operation, for rolling back.
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
	Wanted         int64     `n:"53"` // the last cycle whose plan asked for the drain
	Deadline       int64     `n:"51"` // Mono: how long the operator may evict before Drain goes out without its word; 0: it is not waited for
}

// drainNote is the operator's last report on a drain.
type drainNote struct {
	State    int32    `n:"1"`
	PodsLeft int64    `n:"2"`
	Blocking []string `n:"3"`
	Reason   string   `n:"4"`
}

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
	return clipText(fmt.Sprintf("Pods left at the deadline: %d%s; they were removed with the machine", d.PodsLeft, by))
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

func (o *operation) describe() string {
	return fmt.Sprintf("%s of %s (%s, attempt %d)", o.Kind, o.Machine, o.Phase, o.Attempt)
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

// concurrencyClasses bound the commands in flight by kind (SHARD-15.3).
type concurrencyClasses struct {
	size [kinds]int64
	used [kinds]int64
}

// init shares the concurrency out: Bootstrap a half, Provision a quarter, Preempt an eighth, Reclaim and Delete a
// sixteenth each, everyone at least one.
func (l *concurrencyClasses) init(total int64) {
	for k, share := range [kinds]int64{0, 2, 4, 8, 16, 16} {
		if k > 0 {
			l.size[k] = max(1, total/share)
		}
	}
}

func (l *concurrencyClasses) free(k Kind) bool { return l.used[k] < l.size[k] }

// Kinds of actions, under the names that the rest of the package uses.
const (
	KindBootstrap = engine.Bootstrap
	KindProvision = engine.Provision
	KindPreempt   = engine.Preempt
	KindReclaim   = engine.Reclaim
	KindDelete    = engine.Delete
)

// States of a drain, by the numbers of bigfleet.v1alpha1.DrainState.
const (
	drainDone             = 2
	drainDeadlineExceeded = 3
	drainStopped          = 4
)
