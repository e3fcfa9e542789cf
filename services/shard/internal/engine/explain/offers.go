package explain

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Offer is what is free for a Need whose Same is left out: the material of a capacity hint (SHARD-25.1).
type Offer struct {
	Idle        int64 // machines that match, fit, contribute, are owned and neither promised nor withheld from everybody
	Speculative int64
	Withheld    int64           // the same, but promised or withheld
	Cost        int64           // lowest effective cost among what is free, millionths of a dollar per hour; -1 if nothing is
	Supply      resource.Vector // of one machine of that class
}

// Offers answers with the one match function of the engine (ENG-6.1) and remembers which classes match and which have
// anything to give, which are few. The zero value remembers nothing.
type Offers struct {
	cat     *match.Catalog
	version uint64 // of stock and classes
	stocked []uint32
}

func (o *Offers) begin(w *engine.World) {
	if o.cat == nil {
		o.cat = match.New()
	}
	fresh := o.cat.Begin(w)
	inv := w.Inventory
	if v := inv.StockVersion() + inv.ClassVersion(); fresh || o.version != v {
		o.version, o.stocked = v, o.stocked[:0]
		for id := range uint32(inv.Classes()) {
			if x := inv.Class(id).Stock; x[inventory.IdlePool]+x[inventory.SpeculativePool] > 0 {
				o.stocked = append(o.stocked, id)
			}
		}
	}
}

// For counts what is free for a Need of a cluster, by class.
func (o *Offers) For(w *engine.World, d *demand.Cluster, n *demand.Need) Offer {
	o.begin(w)
	inv, m := w.Inventory, o.cat.MatcherOf(n.Form.Stripped)
	out := Offer{Cost: -1}
	for _, id := range o.stocked {
		if !m.Has(id) {
			continue
		}
		class := inv.Class(id)
		supply := d.Supply(w.Space, inv.Shape(class.Shape).Type, &class.Supply, &n.MinUnit, &n.Aggregate)
		if !supply.Covers(&n.MinUnit) || !supply.Touches(&n.Aggregate) {
			continue
		}
		idle, slots := int64(class.Pools[inventory.IdlePool].Len()), int64(class.Pools[inventory.SpeculativePool].Len())
		out.Idle, out.Speculative = out.Idle+idle, out.Speculative+slots
		out.Withheld += int64(class.Stock[inventory.IdlePool]) + int64(class.Stock[inventory.SpeculativePool]) - idle - slots
		if idle+slots == 0 {
			continue
		}
		if cost := m.Cost(id, class, n.Form.Interruption); out.Cost < 0 || cost < out.Cost {
			out.Cost, out.Supply = cost, class.Supply
		}
	}
	return out
}
