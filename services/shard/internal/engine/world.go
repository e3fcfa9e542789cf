package engine

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// World is everything a plan reads that changes from plan to plan.
type World struct {
	Space     *symbol.Space
	Demand    *demand.Table
	Inventory *inventory.Table
}

// NewWorld returns an empty world.
func NewWorld() *World {
	s := symbol.NewSpace()
	return &World{Space: s, Demand: demand.NewTable(s), Inventory: inventory.New(s)}
}

// Clone returns an independent copy, for a what-if (ENG-20). Indexes mean the same in both until one of them changes.
func (w *World) Clone() *World {
	s := w.Space.Clone()
	return &World{Space: s, Demand: w.Demand.Clone(s), Inventory: w.Inventory.Clone(s)}
}

// Input is what one plan is made from. The time of the plan is the time of the last Inventory.Advance.
type Input struct {
	World  *World
	Cycle  int64
	Policy *Policy // nil means DefaultPolicy
}

// Frozen is a World at one moment. Taking it costs what copying the columns of its machines costs; what a plan needs
// beside them is made by Thaw, on any goroutine.
type Frozen struct {
	space     *symbol.Frozen
	demand    *demand.Frozen
	inventory *inventory.Frozen
}

// Freeze takes the world as it is. The world may change at once.
func (w *World) Freeze(r *inventory.FreezeBuffer) *Frozen {
	return &Frozen{w.Space.Freeze(), w.Demand.Freeze(), w.Inventory.Freeze(r)}
}

// Thaw returns an independent copy of the world as it was. Indexes mean the same in both. It is called once.
func (f *Frozen) Thaw() *World {
	s := f.space.Thaw()
	return &World{Space: s, Demand: f.demand.Thaw(s), Inventory: f.inventory.Thaw(s)}
}
