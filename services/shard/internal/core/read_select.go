package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// MachineColumns selects machines by what stands in columns. An empty field selects all.
type MachineColumns struct {
	States               []inventory.State
	Capacity             []inventory.CapacityType
	Cluster              string // in it, or made for it
	Provider, Type, Zone string
	Owned                bool
	Part                 string // of the id or the node's name, in lower case
}

// MachineTable is all machines, for readers that visit the core between steps (SHARD-23.3).
type MachineTable struct{ c *Core }

// MachineTable is valid within a visit.
func (c *Core) MachineTable() MachineTable { return MachineTable{c} }

// Select lists machines that match, by id, from the one after the given id on: at most n, of at most `most` that it looks at. last
// is the id up to which it looked, and more says that there are others behind it. Indexes are valid within the visit.
func (t MachineTable) Select(after string, q *MachineColumns, n, most int) (found []inventory.Index, last string, more bool) {
	inv := t.c.world.Inventory
	classes := make([]classMatch, inv.Classes())
	looked, at := 0, inventory.Index(0)
	for i := range inv.After(after) {
		if looked == most || len(found) == n {
			more = true
			break
		}
		looked, at = looked+1, i
		if t.inColumns(i, q, classes) {
			found = append(found, i)
		}
	}
	if looked == 0 {
		return nil, after, more
	}
	return found, inv.ID(at), more
}

// classMatch remembers whether machines of a class can match.
type classMatch uint8

const (
	classUnknown classMatch = iota
	classMatches
	classDiffers
)

func (t MachineTable) inColumns(i inventory.Index, q *MachineColumns, classes []classMatch) bool {
	inv := t.c.world.Inventory
	r := inv.Row(i)
	if q.Owned && r.Foreign() || len(q.States) > 0 && !slices.Contains(q.States, r.State()) {
		return false
	}
	if classes[r.Class] == classUnknown {
		classes[r.Class] = t.classMatches(r.Class, q)
	}
	if classes[r.Class] == classDiffers {
		return false
	}
	if q.Cluster != "" && inv.Cluster(i) != q.Cluster {
		if p, promised := inv.Promise(i); !promised || p.Cluster != q.Cluster {
			return false
		}
	}
	return q.Part == "" || t.named(i, q.Part)
}

func (t MachineTable) classMatches(class uint32, q *MachineColumns) classMatch {
	inv := t.c.world.Inventory
	s, text := inv.Shape(inv.Class(class).Shape), inv.Space().Strings
	if q.Provider != "" && text.Text(s.Provider) != q.Provider || q.Type != "" && text.Text(s.Type) != q.Type || q.Zone != "" && text.Text(s.Zone) != q.Zone ||
		len(q.Capacity) > 0 && !slices.Contains(q.Capacity, s.Capacity) {
		return classDiffers
	}
	return classMatches
}

func (t MachineTable) named(i inventory.Index, part string) bool {
	id := t.c.world.Inventory.ID(i)
	if strings.Contains(strings.ToLower(id), part) {
		return true
	}
	cl := t.c.clusters.get(t.c.world.Inventory.Cluster(i))
	if cl == nil {
		return false
	}
	n := cl.nodes[id]
	return n != nil && strings.Contains(strings.ToLower(n.name), part)
}

// MachineAt describes a machine that Select found.
func (t MachineTable) MachineAt(i inventory.Index) MachineView { return t.c.viewMachine(i) }

// Priced is the part of a machine's description that costs are grouped by; resources asks for those of a Configured one too.
func (t MachineTable) Priced(i inventory.Index, resources bool) (v MachineView) {
	inv := t.c.world.Inventory
	s, text := inv.Shape(inv.Class(inv.Row(i).Class).Shape), inv.Space().Strings
	v.Machine.Provider, v.Machine.InstanceType, v.Machine.Zone = text.Text(s.Provider), text.Text(s.Type), text.Text(s.Zone)
	v.Machine.CapacityType, v.Machine.Price, v.Machine.State, v.Machine.Cluster = s.Capacity, s.Price, inv.State(i), inv.Cluster(i)
	v.Attribution, _ = inv.Attribution(i)
	if p, ok := inv.Promise(i); ok {
		if v.Intended = p.Cluster; v.Machine.State != inventory.Draining {
			v.Attribution = p.For
		}
	}
	if inv.Stuck(i) {
		v.Flags = append(v.Flags, FlagStuck)
	}
	if v.Machine.State != inventory.Configured {
		return v
	}
	if inv.Row(i).Readiness() != inventory.ReadyOnce && t.c.unjoined(i) {
		v.Flags = append(v.Flags, FlagUnjoined)
	}
	if resources {
		v.Machine.Resources = s.Resources.Quantities(inv.Space().Dimensions)
	}
	return v
}

// Exists says whether a machine has a host, and so costs its price.
func (t MachineTable) Exists(i inventory.Index) bool { return t.c.world.Inventory.Exists(i) }

// ID is the id of a machine that Select found.
func (t MachineTable) ID(i inventory.Index) string { return t.c.world.Inventory.ID(i) }
