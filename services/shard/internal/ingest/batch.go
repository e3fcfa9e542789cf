package ingest

import (
	"hash/maphash"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Batch gates the records of one List. Half a million machines are of a few types and stand in a few hundred racks: what one
// record offers and is labelled with is read once, and the records after it share it. What it gives out is what
// Gate.Machine gives out. A Batch is for one goroutine.
type Batch struct {
	gate   *Gate
	offers map[string]*offer // by instance type, the last one seen
	labels map[uint64][]inventory.Label
	seed   maphash.Seed
}

// batchLabels is how many sets of labels a Batch remembers before it begins anew.
const batchLabels = 1 << 15

// Batch returns a Batch that remembers nothing yet.
func (g *Gate) Batch() *Batch {
	return &Batch{gate: g, offers: map[string]*offer{}, labels: map[uint64][]inventory.Label{}, seed: maphash.MakeSeed()}
}

// Machine is Gate.Machine for a row of a List.
func (b *Batch) Machine(m *pb.Machine) (core.Fact, *Refused) { return b.gate.machine(m, "", b) }

// offer is what the machines of a type say they have, and what was read from it. It passed the rules.
type offer struct {
	resources, allocatable         amounts
	readResources, readAllocatable []resource.Quantity
}

// amounts is a map of the wire as it was said.
type amounts []struct{ name, value string }

func amountsOf(m map[string]string) amounts {
	out := make(amounts, 0, len(m))
	for k, v := range m {
		out = append(out, struct{ name, value string }{k, v})
	}
	return out
}

// says reports whether this is what the map says.
func (a amounts) says(m map[string]string) bool {
	if len(a) != len(m) {
		return false
	}
	for i := range a {
		if v, ok := m[a[i].name]; !ok || v != a[i].value {
			return false
		}
	}
	return true
}

// offerOf returns the remembered reading of what a record offers, or nil.
func (b *Batch) offerOf(m *pb.Machine) *offer {
	if b == nil {
		return nil
	}
	o := b.offers[m.InstanceType]
	if o == nil || !o.resources.says(m.GetResources().GetResources()) || !o.allocatable.says(m.GetAllocatable().GetResources()) {
		return nil
	}
	return o
}

// keep remembers a reading of plain amounts. Types are few; where they are not, the memory begins anew.
func (b *Batch) keep(m *pb.Machine, o *offer) {
	if b == nil || !plainAmounts(m.GetResources().GetResources()) || !plainAmounts(m.GetAllocatable().GetResources()) {
		return
	}
	if len(b.offers) >= batchLabels {
		clear(b.offers)
	}
	o.resources, o.allocatable = amountsOf(m.GetResources().GetResources()), amountsOf(m.GetAllocatable().GetResources())
	b.offers[m.InstanceType] = o
}

// sorted returns labels by key, shared with those before that were the same.
func (b *Batch) sorted(m map[string]string) []inventory.Label {
	if len(m) == 0 {
		return nil
	}
	if b == nil {
		return sortLabels(m)
	}
	var sum uint64
	for k, v := range m {
		sum += (maphash.String(b.seed, k) ^ 0x9E3779B97F4A7C15) * (maphash.String(b.seed, v) | 1)
	}
	if known := b.labels[sum]; len(known) == len(m) && !slices.ContainsFunc(known, func(l inventory.Label) bool {
		v, ok := m[l.Key]
		return !ok || v != l.Value
	}) {
		return known
	}
	if len(b.labels) >= batchLabels {
		clear(b.labels)
	}
	out := sortLabels(m)
	b.labels[sum] = out
	return out
}

func sortLabels(m map[string]string) []inventory.Label {
	out := make([]inventory.Label, 0, len(m))
	for k, v := range m {
		out = append(out, inventory.Label{Key: k, Value: v})
	}
	slices.SortFunc(out, func(x, y inventory.Label) int { return strings.Compare(x.Key, y.Key) })
	return out
}
