package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// SHARD-18.10: a label that only the node has serves the need that selects it: the machine of a running Pod is not taken. It ends with the
// label, and a checkpoint keeps it.
func TestLabelsOfTheNodeAloneServeNeeds(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReleaseDelay, c.ReleaseDelayEmpty = Minute, Minute }, hostsOf(2, "red")...)
	w.connect("red", "node-report", "node-contents", "drain-report", "reclaim-cancel", "released")
	w.run(Second)
	labelled := &NodeContents{Pods: 1, CostCents: 1, Labels: []inventory.Label{{Key: "feature.node.kubernetes.io/cpu-avx", Value: "true"}}}
	w.holds("red", "red-000", labelled)
	w.holds("red", "red-001", &NodeContents{Pods: 1, CostCents: 1})
	r := demand.Row{RowID: "avx", Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "feature.node.kubernetes.io/cpu-avx", Op: demand.In, Values: []string{"true"}}}},
		Aggregate: []resource.Quantity{{Name: "cpu", Milli: 1000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
	r.Seal()
	w.rollup("red", []demand.Row{r})
	w.run(Hour)
	sent := sentOf[SendReclaim](w)
	if len(sent) == 0 {
		t.Fatal("the unneeded machine is not reclaimed")
	}
	for _, x := range sent {
		if x.Machine != "red-001" {
			t.Fatalf("the machine whose node has the label is drained: %+v", x)
		}
	}
	back, _ := Restore(nil, w.c.live().Snapshot())
	i, _ := back.world.Inventory.Find("red-000")
	if got := back.world.Inventory.OfNode(i); len(got) != 1 || got[0].Value != "true" {
		t.Errorf("after a restore the node has labels %v", got)
	}
	w.holds("red", "red-000", &NodeContents{Pods: 1, CostCents: 1})
	w.run(2 * Minute)
	if last := sentOf[SendReclaim](w); last[len(last)-1].Machine != "red-000" {
		t.Errorf("the label is gone, and nothing is in excess: %+v", last)
	}
}
