package ledger

import (
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// arrivals answers, for one cluster and one plan, whether machines that the Pods of a Need could use are still on their way
// (ENG-11.16). While some are, Pods that wait may only wait for them.
type arrivals struct {
	w       *engine.World
	cluster *demand.Cluster
	classes []uint32 // of the machines on their way, each once
	known   bool
}

// awaits reports whether a machine is on its way that the Need matches and that holds its min unit.
func (a *arrivals) awaits(b *engine.Block, n *demand.Need) bool {
	if a.cluster == nil {
		return false
	}
	if !a.known {
		a.known = true
		a.list(b)
	}
	m := match.NewMatcher(n.Form, a.w.Inventory)
	return slices.ContainsFunc(a.classes, func(class uint32) bool {
		return m.Matches(a.w.Inventory, class) && unitsOn(a.w, class, a.cluster, n) > 0
	})
}

// list collects the classes of what is bound to the cluster or in flight for it, or was taken for it by this plan, and is not yet
// a Node that was Ready.
func (a *arrivals) list(b *engine.Block) {
	add := func(i inventory.Index) {
		if r := a.w.Inventory.Row(i); coming(r, a.cluster.Facts.ReportsReadiness) && !slices.Contains(a.classes, r.Class) {
			a.classes = append(a.classes, r.Class)
		}
	}
	members, _ := a.w.Inventory.Members(a.cluster.ID)
	for _, i := range members {
		add(i)
	}
	for _, c := range b.Claims {
		add(c.Machine)
	}
}

// coming reports whether a machine will be a Node that takes Pods and is none yet. Where no readiness is reported, Configured
// means Ready (ENG-9.11).
func coming(r *inventory.Row, reports bool) bool {
	switch r.Seen() {
	case inventory.Configured:
		return reports && !r.Readiness().WasReady()
	case inventory.Failed, inventory.Deleting:
		return false
	}
	return true
}

// unitsOn is how many min units of a Need a machine of a class holds in its cluster.
func unitsOn(w *engine.World, class uint32, c *demand.Cluster, n *demand.Need) int64 {
	room := roomOf(w, class, c, &n.MinUnit)
	return unitsIn(&room, n)
}

// roomOf is what a machine of a class has for a cluster, in the dimensions of a vector.
func roomOf(w *engine.World, class uint32, c *demand.Cluster, of *resource.Vector) resource.Vector {
	x := w.Inventory.Class(class)
	return c.Supply(w.Space, w.Inventory.Shape(x.Shape).Type, &x.Supply, of)
}

// unitsIn is how many min units of a Need there is room for.
func unitsIn(room *resource.Vector, n *demand.Need) int64 {
	fit := int64(math.MaxInt64)
	for i := range n.MinUnit.Len() {
		d := n.MinUnit.Dim(i)
		fit = min(fit, room.Get(d)/max(1, n.MinUnit.Val(i)))
	}
	if n.MinUnit.Len() == 0 {
		return 1
	}
	if most := int64(n.Form.MaxPerHost); most > 0 {
		fit = min(fit, most)
	}
	return fit
}
