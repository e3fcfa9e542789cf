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
