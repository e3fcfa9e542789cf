package core

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
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

// pods is a roll-up of one row of so many Pods of 0.3 cpu, from a cluster whose Nodes take so many Pods each; 0: as a kubelet by default.
func (w *world) pods(cluster string, count, perNode int64) {
	q := func(of int64) []resource.Quantity {
		return []resource.Quantity{{Name: "cpu", Milli: 300 * of}, {Name: "pods", Milli: 1000 * of}}
	}
	r := demand.Row{Aggregate: q(count), MinUnit: q(1), RowID: "web"}
	r.Seal()
	w.arrival++
	e := RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: []demand.Row{r}, RowCount: 1, Hash: fmt.Sprint(count, perNode)}
	if perNode > 0 {
		e.Rooms = []demand.Room{{Type: "m4", Amounts: []resource.Quantity{{Name: "pods", Milli: 1000 * perNode}}}}
	}
	w.step(e)
}

// ENG-3.8, ENG-11.16: Nodes that take fewer Pods than their machines were thought to, and the report of the Pods that found no place on them,
// say the same. It is bought once, whichever comes first.
func TestLimitOfANodeAndUnplacedPodsAreOneLack(t *testing.T) {
	for name, order := range map[string][]string{
		"the report first":         {"report", "limit"},
		"the limit first":          {"limit", "report"},
		"no report":                {"limit"},
		"a report that is renewed": {"report", "report", "limit", "report"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, slotsOf(9)...)
			w.connect("red", "node-report", "unplaced-pods", "drain-report", "reclaim-cancel", "released")
			w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
			w.run(Second)
			w.pods("red", 12, 0)
			join := func() {
				w.run(Second)
				for _, id := range slices.Sorted(maps.Keys(w.provider)) {
					if w.provider[id].State == inventory.Configured {
						w.holds("red", id, nil)
					}
				}
				w.run(Second)
			}
			join()
			if n := w.state(inventory.Configured); n != 1 {
				t.Fatalf("%d machines for 12 Pods of 0.3 cpu", n)
			}
			for _, what := range order {
				if what == "limit" {
					w.pods("red", 12, 5)
				} else {
					var rows []UnplacedRow
					if waiting := 12 - 5*int64(w.state(inventory.Configured)); waiting > 0 { // that the scheduler found no place for, with 5 on a Node
						rows = []UnplacedRow{{RowID: "web", Pods: waiting}}
					}
					w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"], Rows: rows})
				}
				join()
			}
			w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"]})
			w.run(5 * Minute)
			if n := w.state(inventory.Configured); n != 3 {
				t.Errorf("%d machines for 12 Pods, 5 a machine: want 3", n)
			}
		})
	}
}
