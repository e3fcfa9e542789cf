package inspect

import (
	"maps"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// OPS-4.19: costs by cluster say what the cluster requests, what its machines provide, and what of it is paid for and not used. The
// resource of which most is used decides: what another one leaves free cannot be sold apart. What no machine covers uses nothing.
func TestCostsOfClustersSayWhatIsUsed(t *testing.T) {
	amount := func(cpu, memory int64) []resource.Quantity {
		return []resource.Quantity{{Name: "cpu", Milli: cpu * 1000}, {Name: "memory", Milli: memory << 30 * 1000}}
	}
	machine := func(cluster string, state inventory.State, price int64, flags ...core.MachineFlag) *core.MachineView {
		return &core.MachineView{Flags: flags, Machine: inventory.Machine{ID: "m", Cluster: cluster, State: state, Price: price * 1_000_000, HostRef: "h", Resources: amount(8, 32)}}
	}
	all := []*core.MachineView{
		machine("red", inventory.Configured, 2),
		machine("red", inventory.Configured, 4, core.FlagUnjoined),
		machine("red", inventory.Configured, 8, core.FlagStuck),
		machine("red", inventory.Failed, 16),
		machine("red", inventory.Draining, 32),
		machine("", inventory.Idle, 64),
		machine("blue", inventory.Configured, 3),
	}
	needs := []*core.NeedBlock{
		{Cluster: "red", Rows: []core.NeedRow{{Aggregate: amount(4, 1)}, {Aggregate: amount(2, 1)}, {Aggregate: amount(500, 1), Residual: amount(500, 1)}}},
		{Cluster: "green", Rows: []core.NeedRow{{Aggregate: amount(1, 1)}}},
		{Cluster: "white"},
	}
	bill := NewBill([]string{"cluster"})
	for _, m := range all {
		bill.Add(m)
	}
	bill.request(needs)
	rows := map[string]*pb.CostRow{}
	for _, r := range bill.Point(1).Rows {
		rows[r.Group[0]] = r
	}
	for cluster, want := range map[string]*pb.CostRow{
		"red":   {Machines: 5, Requested: map[string]string{"cpu": "506", "memory": "3Gi"}, Unmet: map[string]string{"cpu": "500", "memory": "1Gi"}, Provided: map[string]string{"cpu": "8", "memory": "32Gi"}, ServingPerHour: 2, UnusedPerHour: 0.5, StuckPerHour: 28},
		"blue":  {Machines: 1, Provided: map[string]string{"cpu": "8", "memory": "32Gi"}, ServingPerHour: 3, UnusedPerHour: 3},
		"green": {Requested: map[string]string{"cpu": "1", "memory": "1Gi"}},
		"":      {Machines: 1},
	} {
		got := rows[cluster]
		if got.GetMachines() != want.Machines || !maps.Equal(got.GetRequested(), want.Requested) || !maps.Equal(got.GetProvided(), want.Provided) || !maps.Equal(got.GetUnmet(), want.Unmet) ||
			got.GetServingPerHour() != want.ServingPerHour || got.GetUnusedPerHour() != want.UnusedPerHour || got.GetStuckPerHour() != want.StuckPerHour {
			t.Errorf("%q: %v, want %v", cluster, got, want)
		}
	}
	if len(rows) != 4 {
		t.Errorf("%d rows: %v", len(rows), rows)
	}
	zones := NewBill([]string{"zone"})
	zones.Add(all[0])
	zones.request(needs)
	if got := zones.Point(1).Rows; len(got) != 1 || got[0].ServingPerHour != 0 || len(got[0].Provided) != 0 {
		t.Errorf("by zone: %v", got)
	}
}
