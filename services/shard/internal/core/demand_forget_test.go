package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-12.8: a cluster that left and has no machine is forgotten after an hour, with its demand; one that has machines, or came
// back, is not. A name that comes again starts again.
func TestClustersThatLeftAreForgotten(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "kept")...)
	for i := range 2000 {
		name := fmt.Sprintf("invented-%04d", i)
		w.connect(name)
		w.rollup(name, needs(0, 1_000_000)) // there is no supply
	}
	w.connect("kept")
	w.rollup("kept", needs(1, 4))
	w.run(Minute)
	for _, cl := range append([]*cluster(nil), w.c.clusters.ordered...) {
		w.step(SessionClosed{Cluster: cl.Name, Session: cl.Session, Reason: "gone"})
	}
	w.run(50 * Minute)
	if n := len(w.c.clusters.ordered); n != 2001 {
		t.Fatalf("%d clusters are known before the hour is over", n)
	}
	w.connect("invented-0000")
	w.run(20 * Minute)
	var left []string
	for _, cl := range w.c.clusters.ordered {
		left = append(left, cl.Name)
	}
	if fmt.Sprint(left) != "[invented-0000 kept]" {
		t.Errorf("%d clusters are left: %.200v", len(left), left)
	}
	if rows := w.c.world.Demand.Cluster("invented-0001"); rows != nil {
		t.Error("the demand of a forgotten cluster is still planned")
	}
	if why := w.c.Broken(); why != "" {
		t.Error(why)
	}
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines serve", n)
	}
	w.connect("invented-0001")
	w.rollup("invented-0001", needs(0, 4))
	w.run(Minute)
	if d := w.c.world.Demand.Cluster("invented-0001"); d == nil || len(d.Needs) != 1 {
		t.Errorf("a forgotten cluster came back with a need, and has %v", d)
	}
}
