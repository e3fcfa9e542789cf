package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-11.16, 11.17: Pods that find no place get a machine more; what the row has then beyond its demand serves first when
// it asks for more, in the very plan of that roll-up, so that nothing is bought for units that are there.
func TestRoomServesWhenMoreIsAskedFor(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.connect("red", "unplaced-pods", "reclaim-cancel")
	rows := needs(0, 3)
	w.rollup("red", rows)
	w.run(30 * Second)
	for range 20 { // the one machine does not take them, whatever it has room for
		w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"], Rows: []UnplacedRow{{RowID: rows[0].RowID, Pods: 3}}})
		w.run(10 * Second)
		if w.state(inventory.Configured) == 2 {
			break
		}
	}
	w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"]})
	if w.run(30 * Second); w.state(inventory.Configured) != 2 {
		t.Fatalf("%d machines serve the Pods that had found no place", w.state(inventory.Configured))
	}
	w.rollup("red", needs(0, 5)) // of the 8 units there are, 7 were room and demand
	w.run(5 * Minute)
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d machines were bought for 5 units where 8 are", n)
	}
}
