package inventory

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Live reports whether i names a machine now.
func (t *Table) Live(i Index) bool { return int(i) < len(t.entries) && t.entries[i].live }

// Machine returns what the provider says about a machine. The slices are the table's own.
func (t *Table) Machine(i Index) Machine { return t.entries[i].m }

// ID returns the id of a machine.
func (t *Table) ID(i Index) string { return t.entries[i].m.ID }

// State returns the state as the provider says it or as the shard moved it.
func (t *Table) State(i Index) State { return t.entries[i].m.State }

// Seen returns the state as the engine sees it: Failed if the machine is stuck.
func (t *Table) Seen(i Index) State {
	if t.entries[i].stuck {
		return Failed
	}
	return t.entries[i].m.State
}

// Cluster returns the cluster a machine is bound to, or "".
func (t *Table) Cluster(i Index) string { return t.entries[i].m.Cluster }

// Stamp returns the attribution of a machine.
func (t *Table) Stamp(i Index) (Stamp, bool) { return t.entries[i].stamp, t.entries[i].hasStamp }

// Promise returns the promise of a machine.
func (t *Table) Promise(i Index) (Promise, bool) {
	if p := t.entries[i].promise; p != nil {
		return *p, true
	}
	return Promise{}, false
}

// Withheld returns the marks of a machine, by reason and cluster. The slice is the table's own.
func (t *Table) Withheld(i Index) []Withheld { return t.entries[i].withheld }

// Since returns when the machine entered its present state, as SetSince stored it.
func (t *Table) Since(i Index) int64 { return t.entries[i].since }

// Readiness returns what node reports say.
func (t *Table) Readiness(i Index) Readiness { return t.entries[i].readiness }

// Foreign reports whether another shard owns the machine.
func (t *Table) Foreign(i Index) bool { return t.entries[i].foreign }

// Stuck reports whether the machine is marked stuck.
func (t *Table) Stuck(i Index) bool { return t.entries[i].stuck }

// Clone returns an independent copy in a clone of the space.
func (t *Table) Clone(space *symbol.Space) *Table {
	c := *t
	c.space = space
	c.entries = slices.Clone(t.entries)
	c.byID = maps.Clone(t.byID)
	c.free, c.removed = slices.Clone(t.free), slices.Clone(t.removed)
	c.perC = maps.Clone(t.perC)
	return &c
}

// Price returns the price of a machine, in millionths of a dollar per hour.
func (t *Table) Price(i Index) int64 { return t.entries[i].m.Price }

// Probability returns the interruption probability of a machine, in parts per million.
func (t *Table) Probability(i Index) int32 { return t.entries[i].m.Probability }

// CapacityType returns the holding-cost class of a machine.
func (t *Table) CapacityType(i Index) CapacityType { return t.entries[i].m.CapacityType }
