package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func (w *world) holds(cluster, machine string, held *NodeContents) {
	w.step(NodeReported{Cluster: cluster, Session: w.sessions[cluster], Machine: machine, Node: "n-" + machine, Present: true, Ready: true, Contents: held})
}

// SHARD-18.8: a machine whose node holds Pods that must not be disturbed is not reclaimed; when they have left, it goes after
// the delay of an empty one.
func TestProtectedPodsKeepAMachine(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReleaseDelay, c.ReleaseDelayEmpty = Hour, 30*Second }, hostsOf(2, "red")...)
	w.connect("red", "node-report", "node-contents", "drain-report", "reclaim-cancel", "released")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	for _, id := range []string{"red-000", "red-001"} {
		w.holds("red", id, &NodeContents{Pods: 2, Protected: 1, CostCents: 200})
	}
	w.run(2 * Hour)
	if sent := sentOf[SendReclaim](w); len(sent) != 0 {
		t.Fatalf("sent %+v", sent)
	}
	k, _ := w.c.Why("red-001")
	if k.BlockedText() != "protected_pods" {
		t.Errorf("the machine is kept for %q", k.BlockedText())
	}
	w.holds("red", "red-001", nil) // readiness alone: what it holds is as before
	w.run(Minute)
	if sent := sentOf[SendReclaim](w); len(sent) != 0 {
		t.Fatalf("sent %+v", sent)
	}
	w.holds("red", "red-000", &NodeContents{EmptySince: 1})
	w.holds("red", "red-001", &NodeContents{EmptySince: 1})
	w.run(20 * Second) // the first report made the other machine the one in excess (ENG-7.3), the second one changed that again
	if n := len(w.called(RPCDrain)); n != 0 {
		t.Errorf("%d Drains before the delay of an empty machine", n)
	}
	w.run(20 * Second)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Errorf("%d Drains after the delay of an empty machine", n)
	}
}

// SHARD-18.8: what a node holds is a class that changes seldom, unknown without the feature, and it survives a checkpoint.
func TestOccupancyClasses(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "red")...)
	w.connect("red", "node-report", "node-contents")
	w.run(Second)
	i, _ := w.c.world.Inventory.Find("red-000")
	last := -1
	for _, x := range []*NodeContents{{}, {Pods: 1, CostCents: 1}, {Pods: 9, CostCents: 9}, {Pods: 9, CostCents: 1 << 62}, {Pods: 1, Protected: 1}} {
		w.holds("red", "red-000", x)
		if r := w.c.world.Inventory.Occupancy(i).Rank(); r <= last {
			t.Errorf("%+v has rank %d, not above %d", x, r, last)
		} else {
			last = r
		}
	}
	w.holds("red", "red-000", &NodeContents{Pods: 2, CostCents: 17})
	version := w.c.world.Inventory.Version()
	w.holds("red", "red-000", &NodeContents{Pods: 3, CostCents: 60})
	if w.c.world.Inventory.Version() != version {
		t.Error("a cost of the same class changes the inventory")
	}
	back, _ := Restore(nil, w.c.live().Snapshot())
	at, _ := back.world.Inventory.Find("red-000")
	if got, want := back.world.Inventory.Occupancy(at), w.c.world.Inventory.Occupancy(i); got != want {
		t.Errorf("a checkpoint keeps %d of %d", got, want)
	}
	w.connect("red", "node-report")
	if o := w.c.world.Inventory.Occupancy(i); o != inventory.OccupancyUnknown {
		t.Errorf("a session that does not say it leaves %d", o)
	}
}
