package planner

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"

// gain is what section 15 does for a Need.
type gain struct {
	promised []passed
	victims  int32
	freed    []int64
}

// passed is a machine that section 15 promised to a Need.
type passed struct {
	idx   inventory.Index
	class uint32
	state inventory.State
}

// gains is what section 15 does for the Needs of one cluster.
type gains struct{ list []gain }

func (g *gains) gainOf(w *needState) *gain {
	if w.gain == 0 {
		g.list = append(g.list, gain{})
		w.gain = int32(len(g.list))
	}
	return &g.list[w.gain-1]
}

func (g *gains) promisedTo(w *needState) []passed {
	if w.gain == 0 {
		return nil
	}
	return g.list[w.gain-1].promised
}

func (g *gains) victimsOf(w *needState) int32 {
	if w.gain == 0 {
		return 0
	}
	return g.list[w.gain-1].victims
}
