package lifecycle

import (
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// LastErrorBytesMax is the longest last_error kept (PROV-11.9).
const LastErrorBytesMax = 2048

// Record is everything a provider knows about one machine, apart from its marks. A Record is never changed after it was
// made; every function of this package that changes something returns a new one that shares the unchanged parts.
type Record struct {
	ID    string
	State State
	// Host is set wherever PROV-3 asks for it. On a Failed machine it is as it was at the failure.
	Host Host
	// Shape is what the machine is: type, zone, size, price. Shared between machines, never nil.
	Shape *Shape
	// Cluster and Metadata are the binding: from acceptance of Configure until Idle.
	Cluster  string
	Metadata map[string]string
	// LastError and Failure are set on Failed only.
	LastError string
	Failure   Failure
	// Operations holds the newest operation id per kind (PROV-7.10); index it with Operation.
	Operations [5]string
	// Origin says which offering the machine comes from. Zero for an owned host that no offering lists.
	Origin Origin
	// Doing is the kind of the newest operation: the one in flight, else the one that ended last. FAILED keeps it, and
	// with it the answer to "failed in what". HostLost is not an operation: see Lost.
	Doing Kind
	// Lost is set on a machine that Failed because its host is gone (PROV-11.8).
	Lost bool
	// GraceSeconds belongs to the newest Drain.
	GraceSeconds int64
	// AcceptedAt and ChangedAt are wall-clock times: of the newest acceptance, of the newest change of state.
	AcceptedAt, ChangedAt time.Time
}

// Host names the real thing behind a machine.
type Host struct{ Provider, Ref string }

// Present says whether there is a host (PROV-9.9).
func (h Host) Present() bool { return h.Provider != "" || h.Ref != "" }

// Origin is the offering slot behind a machine: key and index stay over all generations, the id does not (PROV-18.1).
type Origin struct {
	Offering   string
	Index      int
	Generation int
}

// Operation returns the newest operation id of the kind, empty when there was none.
func (r *Record) Operation(k Kind) string { return r.Operations[k] }

// IsBound says whether workloads of a cluster may run on the machine: in a bound state, or Failed with a cluster
// (PROV-11.12).
func (r *Record) IsBound() bool { return Bound(r.State) || r.State == Failed && r.Cluster != "" }

// NewSlot returns a machine in Speculative (PROV-15.8).
func NewSlot(id string, origin Origin, shape *Shape, at time.Time) *Record {
	return &Record{ID: id, State: Speculative, Origin: origin, Shape: shape, ChangedAt: at}
}

// NewOwned returns a machine that starts its life in Idle, because its host already exists (PROV-3.11). A binding found
// on the host makes it Configured instead (PROV-17.8).
func NewOwned(id string, origin Origin, host Host, shape *Shape, cluster string, metadata map[string]string, at time.Time) *Record {
	r := &Record{ID: id, State: Idle, Origin: origin, Host: host, Shape: shape, ChangedAt: at}
	if cluster != "" {
		r.State, r.Cluster, r.Metadata = Configured, cluster, maps.Clone(metadata)
	}
	return r
}

// Adopt returns a slot as the machine of a host that was found with its marks (PROV-17.8): Configured when the marks name a
// cluster, else Idle. It is never Idle while they name one.
func Adopt(r *Record, host Host, shape *Shape, cluster string, metadata map[string]string, at time.Time) *Record {
	n := NewOwned(r.ID, r.Origin, host, shape, cluster, metadata, at)
	n.Operations = r.Operations
	return n
}

// Accept returns the machine with the operation begun: in flight, and bound in the case of Configure (PROV-4.1 step 8).
// It must follow a Decision to start; the caller mints the id.
func Accept(r *Record, req Request, operationID string, at time.Time) *Record {
	next := *r
	next.State = req.Kind.Edge().Through
	next.Operations[req.Kind] = operationID
	next.Doing, next.AcceptedAt, next.ChangedAt = req.Kind, at, at
	switch req.Kind {
	case Configure:
		// PROV-8.3: the stored copy shares no memory with the request.
		next.Cluster, next.Metadata = strings.Clone(req.Cluster), maps.Clone(req.Metadata)
	case Drain:
		next.GraceSeconds = req.GraceSeconds
	}
	return &next
}

// Result is what a finished operation leaves behind.
type Result struct {
	Host  Host   // of Create
	Shape *Shape // of Create and Delete; nil: as before
}

// Settle returns the machine with the operation ended well. ok is false when the machine is no longer in that operation
// (it was failed by the time limit, or by the loss of its host): the completion is late and must be thrown away
// (PROV-11.3).
func Settle(r *Record, k Kind, operationID string, result Result, at time.Time) (next *Record, ok bool) {
	if !r.in(k, operationID) {
		return nil, false
	}
	n := *r
	n.State, n.ChangedAt = k.Edge().To, at
	switch k {
	case Create:
		n.Host = result.Host
	case Drain:
		n.Cluster, n.Metadata, n.GraceSeconds = "", nil, 0
	case Delete:
		n.Host = Host{}
	}
	if result.Shape != nil && (k == Create || k == Delete) {
		n.Shape = result.Shape
	}
	return &n, true
}

// Fail returns the machine as Failed in the operation. ok as for Settle.
func Fail(r *Record, k Kind, operationID string, why Failure, text string, at time.Time) (next *Record, ok bool) {
	if !r.in(k, operationID) {
		return nil, false
	}
	return failed(r, why, ErrorText(k.Label(), text), at), true
}

// Interrupt fails a machine whose operation was cut off by the end of the process (PROV-12.5). ok is false for a machine
// at rest.
func Interrupt(r *Record, at time.Time) (next *Record, ok bool) {
	k := InFlight(r.State)
	if k == 0 {
		return nil, false
	}
	text := fmt.Sprintf("the provider stopped during this operation, so its effect is unknown. "+
		"The janitor or an operator (RetireMachine) ends this record; operation %s", r.Operation(k))
	return failed(r, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED, ErrorText(k.Label(), text), at), true
}

// Loses says whether a machine is failed when its host is gone (PROV-11.8): at rest, and after a failed Configure or Drain, which may have
// failed for that reason. Not on a slot, in flight (the operation itself finds out), or where the janitor looks at the substrate itself.
func (r *Record) Loses() bool {
	switch r.State {
	case Idle, Configured:
		return true
	case Failed:
		return !r.Lost && (r.Doing == Configure || r.Doing == Drain)
	}
	return false
}

// Lose fails a machine whose host is proven gone (PROV-11.8). ok is false where no host can be lost.
func Lose(r *Record, text string, at time.Time) (next *Record, ok bool) {
	if !r.Loses() {
		return nil, false
	}
	n := failed(r, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST, ErrorText("host", text), at)
	n.Lost = true
	return n, true
}

// Refresh returns the machine with another shape; nothing else may change outside an operation (PROV-17.2).
func Refresh(r *Record, shape *Shape) *Record {
	n := *r
	n.Shape = shape
	return &n
}

func failed(r *Record, why Failure, text string, at time.Time) *Record {
	n := *r
	n.State, n.Failure, n.LastError, n.ChangedAt = Failed, why, text, at
	return &n
}

func (r *Record) in(k Kind, operationID string) bool {
	return r != nil && InFlight(r.State) == k && r.Operation(k) == operationID
}

// ErrorText builds a last_error: "<what>: <text>", valid UTF-8, one line, at most LastErrorBytesMax bytes (PROV-11.9).
func ErrorText(what, text string) string {
	text = strings.ToValidUTF8(text, "�")
	text = strings.Map(func(c rune) rune {
		if c == '\n' || c == '\r' || c == '\t' || c == 0 {
			return ' '
		}
		return c
	}, strings.TrimSpace(text))
	if text == "" {
		text = "failed without a reason; look at the log of the provider"
	}
	text = what + ": " + text
	if len(text) <= LastErrorBytesMax {
		return text
	}
	const cut = " …"
	end := LastErrorBytesMax - len(cut)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}
