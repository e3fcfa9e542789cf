package cost

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func machine(cluster string, state pb.MachineState, dollars float64, cpu string, flags ...pb.MachineFlag) *pb.MachineView {
	return &pb.MachineView{Flags: flags, Machine: &pb.Machine{Cluster: cluster, State: state, PricePerHour: dollars, Resources: &pb.Resources{Resources: map[string]string{"cpu": cpu, "memory": "8Gi", "pods": "110"}}}}
}

// OPS-4.19: what is asked, bought, unused, idle and stuck, by cluster, the largest waste first. The resource of which most is asked
// decides how much is used: what another one leaves free cannot be sold apart.
func TestWaste(t *testing.T) {
	need := &pb.NeedView{ClusterId: "red", Need: &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "6", "memory": "1Gi"}}}
	got := weigh([]stock{
		{needs: []*pb.NeedView{need}, machines: []*pb.MachineView{machine("red", pb.MachineState_MACHINE_STATE_CONFIGURED, 2, "8"), machine("", pb.MachineState_MACHINE_STATE_IDLE, 1, "8")}},
		{machines: []*pb.MachineView{
			machine("red", pb.MachineState_MACHINE_STATE_CONFIGURED, 4, "4", pb.MachineFlag_MACHINE_FLAG_UNJOINED),
			machine("blue", pb.MachineState_MACHINE_STATE_CONFIGURED, 3, "8"),
		}},
	})
	if len(got) != 3 {
		t.Fatalf("%d rows", len(got))
	}
	for i, want := range []waste{
		{Cluster: "red", Machines: 2, UsedFraction: 0.75, ServingPerHour: 2, UnusedPerHour: 0.5, StuckPerHour: 4, WastePerHour: 4.5},
		{Cluster: "blue", Machines: 1, ServingPerHour: 3, UnusedPerHour: 3, WastePerHour: 3},
		{Cluster: "", Machines: 1, IdlePerHour: 1, WastePerHour: 1},
	} {
		w := *got[i]
		if w.Cluster != want.Cluster || w.Machines != want.Machines || w.UsedFraction != want.UsedFraction || w.ServingPerHour != want.ServingPerHour ||
			w.UnusedPerHour != want.UnusedPerHour || w.IdlePerHour != want.IdlePerHour || w.StuckPerHour != want.StuckPerHour || w.WastePerHour != want.WastePerHour {
			t.Errorf("row %d: %+v, want %+v", i, w, want)
		}
	}
	if row := got[0].row(); row[2] != "cpu=6 memory=1Gi" || row[3] != "cpu=8 memory=8Gi" || row[4] != "75%" {
		t.Errorf("row %q", row)
	}
}

// ENG-5.1, OPS-4.19: a machine costs its price if its shard says that it has a host. Of a shard too old to say it, the state decides.
func TestWhatCosts(t *testing.T) {
	yes, no := true, false
	for _, x := range []struct {
		state pb.MachineState
		host  *bool
		want  bool
	}{
		{pb.MachineState_MACHINE_STATE_FAILED, &yes, true},
		{pb.MachineState_MACHINE_STATE_FAILED, &no, false},
		{pb.MachineState_MACHINE_STATE_IDLE, nil, true},
		{pb.MachineState_MACHINE_STATE_CREATING, nil, false},
		{pb.MachineState_MACHINE_STATE_SPECULATIVE, nil, false},
	} {
		if got := costs(&pb.MachineView{Machine: &pb.Machine{State: x.state}, HasHost: x.host}); got != x.want {
			t.Errorf("%v with host %v costs: %v", x.state, x.host, got)
		}
	}
}
