package inventory

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// State is where a machine is in its life (ENG-5.1). The numbers are those of the wire.
type State uint8

const (
	Speculative State = 1 // a slot without a host
	Creating    State = 2
	Idle        State = 3 // a host without a cluster
	Configuring State = 4
	Configured  State = 5 // joined its cluster
	Draining    State = 6
	Deleting    State = 7
	Failed      State = 8

	states = 9 // length of an array indexed by State
)

// Bound reports whether a machine in this state belongs to a cluster and is supply for it (ENG-5.4).
func (s State) Bound() bool { return s == Configuring || s == Configured }

// Stable reports whether an action may start from this state (ENG-2.8).
func (s State) Stable() bool { return s == Speculative || s == Idle || s == Configured }

// Hosted reports whether there is a host in this state.
func (s State) Hosted() bool { return s >= Idle && s <= Deleting }

// String returns the name of the state in lower case.
func (s State) String() string {
	names := [states]string{"none", "speculative", "creating", "idle", "configuring", "configured", "draining", "deleting", "failed"}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// CapacityType is the holding-cost class of a machine. The numbers are those of the wire.
type CapacityType uint8

const (
	UnspecifiedCapacity CapacityType = 0
	BareMetal           CapacityType = 1
	Reserved            CapacityType = 2
	OnDemand            CapacityType = 3
	Spot                CapacityType = 4
)

// Elastic reports whether machines of this type may be released when no need claims them (ENG-16.7).
func (c CapacityType) Elastic() bool { return c == OnDemand || c == Spot }

// String returns the name of the type in lower case, with dashes.
func (c CapacityType) String() string {
	names := [...]string{"unspecified", "bare-metal", "reserved", "on-demand", "spot"}
	if int(c) < len(names) {
		return names[c]
	}
	return "unknown"
}

// Label is one label of a machine.
type Label struct {
	Key   string `n:"1"`
	Value string `n:"2"`
}

// Taint is one taint of a machine's node.
type Taint struct {
	Key    string `n:"1"`
	Value  string `n:"2"`
	Effect string `n:"3"`
}

// Machine is what a provider says about one machine, in plain form.
type Machine struct {
	ID           string              `n:"1"`
	Provider     string              `n:"2"` // which of the shard's providers lists it
	State        State               `n:"3"`
	InstanceType string              `n:"4"`
	Zone         string              `n:"5"`
	CapacityType CapacityType        `n:"6"`
	Price        int64               `n:"7"` // millionths of a dollar per hour
	Probability  int32               `n:"8"` // of an interruption within an hour, parts per million (ENG-3.4)
	Resources    []resource.Quantity `n:"9"`
	Allocatable  []resource.Quantity `n:"10"` // empty: Resources counts (ENG-3.6)
	Labels       []Label             `n:"11"`
	Taints       []Taint             `n:"12"`
	Cluster      string              `n:"13"`
	HostProvider string              `n:"14"`
	HostRef      string              `n:"15"`
	LastError    string              `n:"16"`
	Failure      int32               `n:"17"` // the wire's MachineFailure
	DrainSeconds int32               `n:"18"` // usual duration of a Drain; 0: unknown (ENG-15.9)
}

// What is kept of the host: it is shown, never compared, and longer ones are cut.
const (
	hostRefMax      = 4096
	hostProviderMax = 255
)

// normalise sorts what has no order of its own. Of labels with equal keys the last one stays.
func (m *Machine) normalise() {
	m.HostProvider, m.HostRef = m.HostProvider[:min(len(m.HostProvider), hostProviderMax)], m.HostRef[:min(len(m.HostRef), hostRefMax)]
	if !inOrder(m.Labels) {
		m.Labels = slices.Clone(m.Labels)
		slices.SortStableFunc(m.Labels, compareLabelKeys)
		out := m.Labels[:0]
		for i, l := range m.Labels {
			if i+1 < len(m.Labels) && m.Labels[i+1].Key == l.Key {
				continue
			}
			out = append(out, l)
		}
		m.Labels = out
	}
	if !slices.IsSortedFunc(m.Taints, compareTaints) {
		m.Taints = slices.Clone(m.Taints)
		slices.SortFunc(m.Taints, compareTaints)
	}
}

// inOrder reports whether the keys of labels rise.
func inOrder(labels []Label) bool {
	for i := 1; i < len(labels); i++ {
		if labels[i-1].Key >= labels[i].Key {
			return false
		}
	}
	return true
}

func compareLabelKeys(a, b Label) int { return strings.Compare(a.Key, b.Key) }

func compareTaints(a, b Taint) int {
	return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.Value, b.Value), strings.Compare(a.Effect, b.Effect))
}

// PriceOfDollars is a price of the wire in millionths of a dollar per hour, to the nearest, saturating (ENG-3.4). The
// gate has refused what is negative or not finite.
func PriceOfDollars(dollars float64) int64 {
	micro := dollars*1e6 + 0.5
	switch {
	case !(micro >= 1):
		return 0
	case micro >= 1<<63:
		return 1<<63 - 1
	}
	return int64(micro)
}

// ProbabilityOf is a probability of the wire in parts per million. A positive one is never 0 (ENG-3.4).
func ProbabilityOf(p float64) int32 {
	switch {
	case !(p > 0):
		return 0
	case p >= 1:
		return 1_000_000
	}
	return max(1, int32(p*1e6+0.5))
}

// Attribution remembers for which Need a machine was bound (ENG-5.5). Fields that were never known are zero.
type Attribution struct {
	Fingerprint  string         `n:"1"`
	Group        string         `n:"2"`
	Priority     int32          `n:"3"`
	Interruption demand.Penalty `n:"4"`
	Reclamation  demand.Penalty `n:"5"`
}

// Ours reports whether the attribution was written in our fingerprint format. A bound machine without such an attribution is adopted:
// full supply for its cluster, and the Own of no Need (ENG-5.6).
func (s *Attribution) Ours() bool { return strings.HasPrefix(s.Fingerprint, demand.FingerprintPrefix) }

// Promise says to whom a machine on its way belongs (ENG-5.8).
type Promise struct {
	Cluster string       `n:"1"`
	For     Attribution  `n:"2"`
	Cause   PromiseCause `n:"3"`
	Expires int64        `n:"4"` // nanoseconds of the shard's clock; 0 means never
}

// PromiseCause says which action made a promise.
type PromiseCause uint8

const (
	ForCreate  PromiseCause = 1 // an intent: ends with the state Creating
	ForPreempt PromiseCause = 2 // a reservation: lasts through Draining to the hand-over at Idle
)

// WithheldReason says why a machine may be counted but not acquired.
type WithheldReason uint8

const (
	WithheldBackoff   WithheldReason = iota + 1 // a command on it failed a moment ago
	WithheldStockOut                            // its pool is out of stock
	WithheldQuota                               // the quota slice is used up
	_                                           // a number that was given up
	WithheldReserved                            // it is to move to another shard
	WithheldNotJoined                           // it did not join this cluster (ENG-17.7)
	WithheldElsewhere                           // bound here, another shard's once it is Idle (SHARD-21.6)
	WithheldProvider                            // its provider does not answer (SHARD-14.15)
	WithheldDrained                             // a person drained it (SHARD-18.11)

	WithheldReasons = 10 // length of an array indexed by WithheldReason
)

// String returns the reason in lower case, with dashes.
func (r WithheldReason) String() string {
	names := [WithheldReasons]string{"none", "backoff", "stock-out", "quota", "", "reserved", "not-joined", "elsewhere", "provider-down", "drained"}
	if int(r) < len(names) {
		return names[r]
	}
	return "unknown"
}

// BlocksRelease reports whether an Idle machine withheld for this reason must not be deleted (ENG-16.8).
func (r WithheldReason) BlocksRelease() bool { return r == WithheldReserved }

// Withheld is one mark: counted, but not to be acquired, by any cluster or by one.
type Withheld struct {
	Reason  WithheldReason `n:"1"`
	Until   int64          `n:"2"` // nanoseconds of the shard's clock; 0 means until it is lifted
	Cluster string         `n:"3"` // empty: for every cluster
}

// Readiness is what the cluster's node reports say of a bound machine (ENG-17.1).
type Readiness uint8

const (
	NoReport  Readiness = 0
	NotReady  Readiness = 1 // reported, and never Ready since this binding
	ReadyOnce Readiness = 2 // Ready at some time since this binding, and now
	ReadyLost Readiness = 3 // Ready at some time since this binding, but not now (ENG-17.9)
)

// Occupancy is a class of what the node of a bound machine holds. The larger, the longer it is kept (ENG-7.3).
type Occupancy uint8

// The classes in between are of powers of four of the cost of evicting what is there, in cents.
const (
	OccupancyUnknown   Occupancy = 0 // compares as occupancyMiddle
	OccupancyEmpty     Occupancy = 1
	occupancyFirst     Occupancy = 2
	occupancyMiddle    Occupancy = 10 // 4^8 cents
	OccupancyProtected Occupancy = 40 // what must not be disturbed
)

// InUse reports whether the node is known to hold something.
func (o Occupancy) InUse() bool { return o > OccupancyEmpty }

// OccupancyOf is the class of a cost of less than 4^(k+1) cents.
func OccupancyOf(k int) Occupancy { return occupancyFirst + Occupancy(max(0, min(k, 31))) }

// Rank is what classes compare by: an unknown one stands in the middle.
func (o Occupancy) Rank() int {
	if o == OccupancyUnknown {
		o = occupancyMiddle
	}
	return int(o)
}

// WasReady reports whether the Node was Ready at any time since this binding.
func (r Readiness) WasReady() bool { return r >= ReadyOnce }
