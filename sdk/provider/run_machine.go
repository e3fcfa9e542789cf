package provider

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// machineOf copies a record for a backend: it may change what it gets.
func machineOf(r *lifecycle.Record) Machine {
	return Machine{
		ID: r.ID, State: r.State, Attributes: cloneAttributes(r.Shape.Attributes()),
		HostRef: r.Host.Ref, Cluster: r.Cluster, Offering: r.Origin.Offering,
	}
}

func cloneAttributes(a Attributes) Attributes {
	a.Resources, a.Allocatable, a.Labels = maps.Clone(a.Resources), maps.Clone(a.Allocatable), maps.Clone(a.Labels)
	a.Taints = slices.Clone(a.Taints)
	return a
}

func equalAttributes(a, b Attributes) bool {
	return a.InstanceType == b.InstanceType && a.Zone == b.Zone && a.CapacityType == b.CapacityType &&
		a.PricePerHour == b.PricePerHour && a.InterruptionProbability == b.InterruptionProbability &&
		maps.Equal(a.Resources, b.Resources) && maps.Equal(a.Allocatable, b.Allocatable) &&
		maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Taints, b.Taints) && a.DrainEstimate == b.DrainEstimate
}

// estimated is what a host says about itself, with the estimate in force where it says none.
func estimated(seen *Attributes, estimate time.Duration) *Attributes {
	if seen.DrainEstimate != 0 || estimate == 0 {
		return seen
	}
	with := *seen
	with.DrainEstimate = estimate
	return &with
}

// nothing is a Fleet without machines, for --check.
type nothing struct{}

func (nothing) StoreID() string                { return "" }
func (nothing) Machines() iter.Seq[Machine]    { return func(func(Machine) bool) {} }
func (nothing) Machine(string) (Machine, bool) { return Machine{}, false }

// fleet is the view that an Attacher gets.
type fleet struct{ p *Provider }

func (f fleet) StoreID() string { return f.p.storeID() }

func (f fleet) Machines() iter.Seq[Machine] {
	return func(yield func(Machine) bool) {
		for row := range f.p.inventory.All() {
			if !yield(machineOf(row.Record)) {
				return
			}
		}
	}
}

func (f fleet) Machine(id string) (Machine, bool) {
	row := f.p.inventory.Get(id)
	if row == nil {
		return Machine{}, false
	}
	return machineOf(row.Record), true
}
