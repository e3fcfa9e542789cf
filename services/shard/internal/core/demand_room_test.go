package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-11.16, SHARD-6.3: the report that Pods of a covered row found no place starts a Create within a fraction of a second, and says
// nothing while a machine that they could use is still joining.
func TestPodsWithoutAPlaceBuyAtOnce(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(1, "red"), slot("s1"), slot("s2"), slot("s3"))...)
	w.connect("red", "node-report", "unplaced-pods", "drain-report", "reclaim-cancel", "released")
	rows := needs(0, 4, 4)
	report := func(pods int64) {
		w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"], Rows: []UnplacedRow{{RowID: rows[0].RowID, Pods: pods}}})
	}
	w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
	w.run(Second)
	w.holds("red", "red-000", nil)
	w.rollup("red", rows)
	w.run(30 * Second)
	if n := w.state(inventory.Configured); n != 2 {
		t.Fatalf("%d machines for two rows", n)
	}
	creates := len(w.called(RPCCreate))
	report(1) // of the machine that was bought no Node is known yet
	w.run(5 * Second)
	if n := len(w.called(RPCCreate)) - creates; n != 0 {
		t.Fatalf("%d Creates while a Node is joining", n)
	}
	for id, m := range w.provider {
		if m.State == inventory.Configured && id != "red-000" {
			w.holds("red", id, nil)
		}
	}
	w.run(Second)
	if n := len(w.called(RPCCreate)) - creates; n != 0 {
		t.Fatalf("%d Creates by a report from before the Node was Ready", n)
	}
	report(2)
	w.run(300 * Millisecond)
	if n := len(w.called(RPCCreate)) - creates; n != 1 {
		t.Fatalf("%d Creates after the report, want 1", n)
	}
}
