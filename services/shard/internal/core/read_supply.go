package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// SupplyKey is what tells machines apart in a report (SHARD-21.2).
type SupplyKey struct {
	Type, Zone, Arch, OS, Region string
	Capacity                     inventory.CapacityType
}

// Supply is what machines of one key there are.
type Supply struct {
	States [9]int32            // by inventory.State
	Price  int64               // of the cheapest, in millionths of a dollar per hour
	Offer  []resource.Quantity // by name: the least of what each of them has
}

// supplyKind is a key as the inventory keeps it, and what decides price and offer.
type supplyKind struct {
	shape            uint32
	arch, os, region symbol.ID
}

// CountSupply adds at most n machines from a position on to what is counted by key, and returns the position to continue from, or -1 at the end. It takes a third of a microsecond for
// each machine, and ten for each kind of machine that it meets.
func (c *reader) CountSupply(out map[SupplyKey]*Supply, from, n int) (next int) {
	inv := c.world.Inventory
	kinds := map[supplyKind]*Supply{} // of this call: the numbers of shapes are given to others
	arch, os, region := c.labelOf("kubernetes.io/arch"), c.labelOf("kubernetes.io/os"), c.labelOf("topology.kubernetes.io/region")
	end := min(from+n, inv.Bound())
	for i := inventory.Index(from); int(i) < end; i++ {
		if !inv.Live(i) || inv.Foreign(i) {
			continue
		}
		r := inv.Row(i)
		k := supplyKind{inv.Class(r.Class).Shape, arch(i, r), os(i, r), region(i, r)}
		s := kinds[k]
		if s == nil {
			s = c.supplyOf(out, k)
			kinds[k] = s
		}
		s.States[r.State()]++
	}
	if end == inv.Bound() {
		return -1
	}
	return end
}

// labelOf finds the values of a label.
func (c *reader) labelOf(key string) func(inventory.Index, *inventory.Row) symbol.ID {
	id, known := c.world.Space.Strings.Find(key)
	return func(i inventory.Index, r *inventory.Row) symbol.ID {
		if !known {
			return 0
		}
		v, _ := c.world.Inventory.ValueOf(r.Class, c.world.Inventory.LabelSet(i), id)
		return v
	}
}

// supplyOf finds what counts a kind of machines, and takes in what they cost and offer.
func (c *reader) supplyOf(out map[SupplyKey]*Supply, k supplyKind) *Supply {
	str, shape := c.world.Space.Strings, c.world.Inventory.Shape(k.shape)
	key := SupplyKey{Type: str.Text(shape.Type), Zone: str.Text(shape.Zone), Arch: str.Text(k.arch), OS: str.Text(k.os), Region: str.Text(k.region), Capacity: shape.Capacity}
	offer := shape.Supply.Quantities(c.world.Space.Dimensions)
	s := out[key]
	if s == nil {
		s = &Supply{Price: shape.Price, Offer: offer}
		out[key] = s
		return s
	}
	s.Price, s.Offer = min(s.Price, shape.Price), least(s.Offer, offer)
	return s
}

// least keeps the smaller amount of each dimension that both have. Both are in the order of names.
func least(a, b []resource.Quantity) []resource.Quantity {
	out := make([]resource.Quantity, 0, min(len(a), len(b)))
	for _, x := range a {
		at, both := slices.BinarySearchFunc(b, x, func(y, x resource.Quantity) int { return strings.Compare(y.Name, x.Name) })
		if both {
			out = append(out, resource.Quantity{Name: x.Name, Milli: min(x.Milli, b[at].Milli)})
		}
	}
	return out
}
