package engine

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

func TestSmoke(t *testing.T) {
	w := NewWorld()
	w.Inventory.Put(inventory.Machine{ID: "m1", State: inventory.Idle, Price: 5, Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}}})
	w.Inventory.Put(inventory.Machine{ID: "m2", State: inventory.Configured, Cluster: "red", Price: 5, Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}}})
	w.Demand.Replace("red", []demand.Row{{Aggregate: []resource.Quantity{{Name: "cpu", Milli: 8000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}}, nil, 1)
	w.Inventory.Advance(1)
	r := Plan(Input{World: w})
	if len(r.Actions) != 1 || r.Actions[0].Kind != Bootstrap {
		t.Fatalf("%+v", r.Actions)
	}
	if v := r.Blocks[0].Verdicts[0]; v.Status != OnTheWay || v.Claimed != 1 || v.Bootstrap != 1 {
		t.Fatalf("%+v", v)
	}
}
