package cost

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OPS-4.19: what is asked, bought, unused, idle and stuck, by cluster over all shards, the largest waste first. The resource of which
// most is asked decides how much is used: what another one leaves free cannot be sold apart.
func TestWaste(t *testing.T) {
	got := weigh([]*pb.CostRow{
		{Group: []string{""}, Machines: 1, CostPerHourByState: map[string]float64{"MACHINE_STATE_IDLE": 1}},
		{Group: []string{"blue"}, Machines: 1, Provided: map[string]string{"cpu": "8"}, ServingPerHour: 3, UnusedPerHour: 3},
		{Group: []string{"red"}, Machines: 1, Requested: map[string]string{"cpu": "6", "memory": "1Gi"}, Provided: map[string]string{"cpu": "6", "memory": "4Gi", "pods": "110"}, ServingPerHour: 1},
		{Group: []string{"red"}, Machines: 2, Provided: map[string]string{"cpu": "2", "memory": "4Gi", "pods": "110"}, ServingPerHour: 1, UnusedPerHour: 1, StuckPerHour: 4},
	})
	if len(got) != 3 {
		t.Fatalf("%d rows", len(got))
	}
	for i, want := range []waste{
		{Cluster: "red", Machines: 3, UsedFraction: 0.75, ServingPerHour: 2, UnusedPerHour: 0.5, StuckPerHour: 4, WastePerHour: 4.5},
		{Cluster: "blue", Machines: 1, ServingPerHour: 3, UnusedPerHour: 3, WastePerHour: 3},
		{Cluster: "", Machines: 1, IdlePerHour: 1, WastePerHour: 1},
	} {
		w := *got[i]
		if w.Cluster != want.Cluster || w.Machines != want.Machines || w.UsedFraction != want.UsedFraction || w.ServingPerHour != want.ServingPerHour ||
			w.UnusedPerHour != want.UnusedPerHour || w.IdlePerHour != want.IdlePerHour || w.StuckPerHour != want.StuckPerHour || w.WastePerHour != want.WastePerHour {
			t.Errorf("row %d: %+v, want %+v", i, w, want)
		}
	}
	// What no machine covers uses nothing.
	if w := weigh([]*pb.CostRow{{Group: []string{"red"}, Machines: 1, Requested: map[string]string{"cpu": "506"}, Unmet: map[string]string{"cpu": "500"}, Provided: map[string]string{"cpu": "8"}, ServingPerHour: 2}})[0]; w.UsedFraction != 0.75 || w.UnusedPerHour != 0.5 || w.Asked["cpu"] != "506" {
		t.Errorf("with an unmet Pod of 500 cpu: %+v", w)
	}
	if row := got[0].row(); row[2] != "cpu=6 memory=1Gi" || row[3] != "cpu=8 memory=8Gi" || row[4] != "75%" {
		t.Errorf("row %q", row)
	}
}
