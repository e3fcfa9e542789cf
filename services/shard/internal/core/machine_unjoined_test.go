package core

import (
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-17.7: a machine that drains because its node did not join is withheld from its cluster from then on. Otherwise a need
// of that cluster takes over the promise that a lower one of another cluster has on it, and gets it straight back.
func TestUnjoinedMachineDoesNotComeBack(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.connect("red", "node-report")
	w.connect("blue")
	w.run(Second)
	w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
	w.rollup("red", needs(9, 4))
	w.run(Minute)
	w.rollup("blue", needs(1, 4))
	w.dwell = Minute
	for range 30 * 60 { // until the join timeout is over and the drain has ended
		if w.run(Second); w.provider["h1"].Cluster != "red" {
			break
		}
	}
	w.run(5 * Minute)
	var bound []string
	for _, x := range w.calls {
		if x.RPC == RPCConfigure {
			bound = append(bound, x.Cluster)
		}
	}
	if !slices.Equal(bound, []string{"red", "blue"}) {
		t.Errorf("configured for %v", bound)
	}
	if m := w.provider["h1"]; m.State != inventory.Configured || m.Cluster != "blue" {
		t.Errorf("the machine is %s for %q", m.State, m.Cluster)
	}
}
