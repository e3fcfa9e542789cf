package provider

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// Backend drives one substrate. Calls block until done; they run in parallel for different machines, never for one.
//
// Every call must end when its context ends. A call may be repeated with the same operation id after a restart or a
// retry, and must then have its effect once. What a call returns as an error becomes last_error of the machine, so it
// must hold no secret; wrap it with Transient, OutOfCapacity, Quota, Credentials or Bootstrap to say what it means.
type Backend interface {
	// Describe reports every host that carries the provider's mark, once each. An error, of found or its own, makes the
	// whole round count for nothing.
	Describe(ctx context.Context, found func(Host) error) error
	// Create launches a host for a slot and returns once it exists.
	Create(ctx context.Context, op CreateOp) (Host, error)
	// Configure joins the host to op.Cluster with op.Blob. It need not wait for the node: the readiness gate does.
	Configure(ctx context.Context, op ConfigureOp) error
	// Drain resets the host: its kubelet ends, its node leaves the cluster, nothing of the old tenant stays. It evicts no
	// Pod and deletes none (PROV-11.13): the cluster's operator has done that before.
	Drain(ctx context.Context, op DrainOp) error
}

// Deleter gives hosts back. A backend without it answers Delete with UNIMPLEMENTED (PROV-3.10).
type Deleter interface {
	// Delete returns once the host is gone. A host that is not there is no error: the janitor calls it to make sure. When
	// a Create failed, op.Machine.HostRef is empty and only the machine id names what to look for.
	Delete(ctx context.Context, op DeleteOp) error
}

// Resetter makes hosts that cannot be given back usable again after a failure: a backend without Deleter that can prove that
// nothing of a binding is left on a host. Without it a failed machine waits for a person (PROV-18.6).
type Resetter interface {
	// Reset returns once nothing of an earlier binding is on the host. Unless op.Force is set it refuses with an error while
	// workloads may run there.
	Reset(ctx context.Context, op ResetOp) error
}

// Readier is the backend's own readiness check, for WithReadiness(SubstrateReadiness()).
type Readier interface {
	// Ready returns nil once the machine's node is Ready in the cluster it is bound to, and waits until then.
	Ready(ctx context.Context, m Machine) error
}

// Admitter is a quick check before a mutation is accepted. It does no I/O and answers within 10 ms. An error is
// INVALID_ARGUMENT with its text, and the machine stays where it was.
type Admitter interface {
	Admit(kind Kind, m Machine, cluster string) error
}

// Pricer quotes prices. It is asked every PriceInterval; a quote changes the slots and hosts of an offering.
type Pricer interface {
	Prices(ctx context.Context, quote func(Quote) error) error
}

// Notifier pushes news that should not wait for the next Describe. Notify blocks until its context ends; when it returns
// earlier it is called again after a pause.
type Notifier interface {
	Notify(ctx context.Context, send func(Notice)) error
}

// Binder keeps a copy of the binding on the host, so that a lost store can be rebuilt (PROV-17.6).
type Binder interface {
	// Bind writes the binding before Configured is shown; Unbind clears it before Idle is shown.
	Bind(ctx context.Context, m Machine, b Binding) error
	Unbind(ctx context.Context, m Machine) error
}

// Estimator says how long a Drain of a machine of an offering usually takes, where the offering does not say (PROV-9.14).
type Estimator interface {
	DrainEstimate(o Offering) time.Duration
}

// Attacher receives a view of the machines before the first call. A backend whose hosts exist only in the provider's own
// books, such as kwok, describes from it.
type Attacher interface {
	Attach(Fleet)
}

// Fleet is a read-only view of the machines of this provider.
type Fleet interface {
	// StoreID is the identity of the store; hosts are marked with it.
	StoreID() string
	// Machines visits all machines as of one moment, in no order.
	Machines() iter.Seq[Machine]
	// Machine returns one.
	Machine(id string) (Machine, bool)
}

// Kind is which of the four mutations an operation is.
type Kind = lifecycle.Kind

// The kinds.
const (
	Create    = lifecycle.Create
	Configure = lifecycle.Configure
	Drain     = lifecycle.Drain
	Delete    = lifecycle.Delete
)

// State is where a machine is in its life; the names are in package lifecycle.
type State = lifecycle.State

// CapacityType says who pays while a machine is idle.
type CapacityType = lifecycle.CapacityType

// The capacity types. Owned hardware is BareMetal or Reserved and is kept forever; rented hardware that can be given
// back is OnDemand or Spot, also when it is a physical server (PROV-9.4).
const (
	BareMetal = lifecycle.BareMetal
	Reserved  = lifecycle.Reserved
	OnDemand  = lifecycle.OnDemand
	Spot      = lifecycle.Spot
)

// Attributes describe a machine apart from its life: type, zone, size, price.
type Attributes = lifecycle.Attributes

// Taint is a taint that the node registers with.
type Taint = lifecycle.Taint

// Machine is a copy of what the provider knows about a machine. The backend owns it.
type Machine struct {
	ID    string
	State State
	Attributes
	// HostRef is Host.Ref of the host, empty while there is none.
	HostRef string
	// Cluster is set while the machine is bound.
	Cluster string
	// Offering is the key of the offering behind it.
	Offering string
}

// Host is a real thing at the substrate.
type Host struct {
	// Ref names it; it should be the spec.providerID that the node registers with.
	Ref string
	// MachineID, StoreID and OperationID are the marks that Create put on it. All empty on an owned host that no
	// provider has touched yet.
	MachineID, StoreID, OperationID string
	// Attributes refine the machine: what the host really is. Nil leaves the offering's. Required on an owned host.
	Attributes *Attributes
	// Binding is the copy that Binder wrote, nil when there is none.
	Binding *Binding
}

// Binding is what a machine is for.
type Binding struct {
	Cluster  string
	Metadata map[string]string
}

// CreateOp is one Create.
type CreateOp struct {
	// ID is the operation id: the idempotency token for the substrate. The same ID twice launches once.
	ID       string
	Machine  Machine
	Provider string // name of the provider, to be put on the host
	StoreID  string // identity of the store, to be put on the host
}

// ConfigureOp is one Configure.
type ConfigureOp struct {
	ID      string
	Machine Machine
	Cluster string
	// Metadata goes with the binding and means nothing to a provider. A Binder may write it together with the join, and
	// then has nothing left to do in Bind.
	Metadata map[string]string
	// Blob is the boot data: a secret. It must not reach logs, tags or errors.
	Blob []byte
}

// DrainOp is one Drain.
type DrainOp struct {
	ID      string
	Machine Machine
	Cluster string
	// Grace is how long what still runs may take to end. After it the host is reset all the same.
	Grace time.Duration
}

// DeleteOp is one Delete.
type DeleteOp struct {
	ID      string
	Machine Machine
	StoreID string
}

// ResetOp is one Reset.
type ResetOp struct {
	ID      string
	Machine Machine // as it failed; Cluster is set if it was bound
	StoreID string
	// Force says that an operator has looked and wants it whatever runs there.
	Force bool
}

// Quote is a price of an offering.
type Quote struct {
	Offering                string
	PricePerHour            float64
	InterruptionProbability float64
	Source                  string // for the metric: "live", "pinned", "override"
	At                      time.Time
}

// Notice is news about one host.
type Notice struct {
	MachineID string
	// InterruptionProbability, when above 0, replaces the machine's: 1 is an interruption notice (PROV-28.6).
	InterruptionProbability float64
	// Gone says that the substrate answered definitely that the host is no more. One Describe confirms it (PROV-17.4).
	Gone bool
	// Changed says that Describe would show something new: it is asked soon. MachineID may be empty.
	Changed bool
}

// Class is what an error of a backend means (PROV-15.6).
type Class uint8

// The classes. An error without a class is Permanent.
const (
	ClassPermanent Class = iota
	ClassTransient
	ClassCapacity
	ClassQuota
	ClassCredentials
	ClassBootstrap
	ClassNotReady
)

type classified struct {
	class Class
	after time.Duration
	err   error
}

func (e *classified) Error() string { return e.err.Error() }
func (e *classified) Unwrap() error { return e.err }

// Transient marks an error that may vanish by itself: the call is repeated until the limit of the transition.
func Transient(err error) error { return &classified{class: ClassTransient, err: err} }

// RetryAfter is Transient with the pause the substrate asked for.
func RetryAfter(after time.Duration, err error) error {
	return &classified{class: ClassTransient, after: after, err: err}
}

// OutOfCapacity marks a stock-out: the slot is offered again after a while (PROV-11.11).
func OutOfCapacity(err error) error { return &classified{class: ClassCapacity, err: err} }

// Quota marks an exhausted account quota.
func Quota(err error) error { return &classified{class: ClassQuota, err: err} }

// Credentials marks missing or refused credentials.
func Credentials(err error) error { return &classified{class: ClassCredentials, err: err} }

// Bootstrap marks boot data that did not work.
func Bootstrap(err error) error { return &classified{class: ClassBootstrap, err: err} }

// Permanentf makes an error that ends the transition at once.
func Permanentf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// ClassOf returns the class of an error and the pause that goes with a transient one.
func ClassOf(err error) (Class, time.Duration) {
	var c *classified
	if errors.As(err, &c) {
		return c.class, c.after
	}
	return ClassPermanent, 0
}
