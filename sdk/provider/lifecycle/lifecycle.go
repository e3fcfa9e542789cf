// Package lifecycle is the state machine of one machine, as a set of pure functions.
//
// It answers three questions, and only these: may this request pass (Decide), what does the machine look like once a
// request is accepted (Accept), and what does it look like once the work ended, failed, was cut off or the host was
// lost (Settle, Fail, Interrupt, Lose, Refresh). The tables of sections 3 to 8 of docs/spec/provider.md are its data.
//
// It owns no state: a Record is an immutable value, each function returns a new one. It has no I/O, clock, goroutine,
// lock or randomness: time and operation ids come in as arguments. It knows no RPC code, no store and no substrate, and
// it never logs.
//
// The provider server drives it for real machines; the conformance suite drives it as the model that random walks
// against a provider are compared with. Safe for concurrent use. Start at Decide, then record.go.
// Tests cite clauses as PROV-n.m.
package lifecycle

import (
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// State is where a machine is in its life.
type State = bigfleetv1alpha1.MachineState

// The states of PROV-3, without the prefix of the generated names.
const (
	Speculative = bigfleetv1alpha1.MachineState_MACHINE_STATE_SPECULATIVE
	Creating    = bigfleetv1alpha1.MachineState_MACHINE_STATE_CREATING
	Idle        = bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE
	Configuring = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING
	Configured  = bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED
	Draining    = bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING
	Deleting    = bigfleetv1alpha1.MachineState_MACHINE_STATE_DELETING
	Failed      = bigfleetv1alpha1.MachineState_MACHINE_STATE_FAILED
)

// Failure says why a machine is Failed, so that no reader parses text (PROV-11.10).
type Failure = bigfleetv1alpha1.MachineFailure

// Kind is which of the four mutations an operation is.
type Kind uint8

// The four kinds. The zero Kind is no operation.
const (
	Create Kind = iota + 1
	Configure
	Drain
	Delete
)

// Kinds lists the kinds in the order of a full cycle.
func Kinds() [4]Kind { return [4]Kind{Create, Configure, Drain, Delete} }

// String is the RPC name: "Create", "Configure", "Drain" or "Delete".
func (k Kind) String() string { return edges[k].name }

// Label is the lower-case name: metric label, prefix of last_error and of operation ids.
func (k Kind) Label() string { return edges[k].label }

// Edge is one row of the table of PROV-3.
type Edge struct{ From, Through, To State }

// Edge returns the row of the kind.
func (k Kind) Edge() Edge { return edges[k].Edge }

// edges is the table of PROV-3, indexed by Kind. Index 0 names what is not an operation.
var edges = [...]struct {
	Edge
	name, label string
}{
	0:         {Edge{}, "none", "none"},
	Create:    {Edge{Speculative, Creating, Idle}, "Create", "create"},
	Configure: {Edge{Idle, Configuring, Configured}, "Configure", "configure"},
	Drain:     {Edge{Configured, Draining, Idle}, "Drain", "drain"},
	Delete:    {Edge{Idle, Deleting, Speculative}, "Delete", "delete"},
}

// InFlight returns the kind whose work a machine in state s is going through, 0 when none is.
func InFlight(s State) Kind {
	for _, k := range Kinds() {
		if edges[k].Through == s {
			return k
		}
	}
	return 0
}

// Bound says whether a machine in state s serves a cluster. Failed is not answered here: it depends on the record.
func Bound(s State) bool { return s == Configuring || s == Configured || s == Draining }

// HasHost says whether PROV-3 requires a host in state s.
func HasHost(s State) bool {
	return s == Idle || s == Deleting || Bound(s)
}

// Token orders the calls of one shard for one machine (PROV-6.3). Any int64 is legal in both places.
type Token struct{ Epoch, Sequence int64 }

// Newer says whether t is strictly newer than mark. It compares and never adds or subtracts (PROV-6.8).
func (t Token) Newer(mark Token) bool {
	if t.Epoch != mark.Epoch {
		return t.Epoch > mark.Epoch
	}
	return t.Sequence > mark.Sequence
}
