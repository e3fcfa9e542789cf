package inspect

import (
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// present is a core with a few machines and one cluster, and what it shows.
func present(t testing.TB) (*core.Core, *core.Publish) {
	c, at := core.New(nil), core.At{Wall: 1}
	var view *core.Publish
	step := func(e core.Event) {
		at.Mono += core.Second
		for _, x := range c.Step(at, e) {
			if p, ok := x.(*core.Publish); ok {
				view = p
			}
		}
	}
	step(core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}}, Epoch: 1})
	var rows []core.Fact
	for _, id := range []string{"m1", "m2", "m3"} {
		rows = append(rows, core.Fact{Machine: inventory.Machine{ID: id, Provider: "p", State: inventory.Speculative, InstanceType: "m4", Zone: "z",
			CapacityType: inventory.OnDemand, Price: 1000, Resources: []resource.Quantity{{Name: "cpu", Milli: 4000}}}})
	}
	step(core.ListPage{List: 1, Rows: rows})
	step(core.ListDone{List: 1, Complete: true, Seen: 3})
	step(core.SessionOpened{Cluster: "red", Session: 1})
	row := demand.Row{RowID: "row", Aggregate: []resource.Quantity{{Name: "cpu", Milli: 3000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
	row.Seal()
	step(core.RollupArrived{Cluster: "red", Session: 1, Arrival: 1, Rows: []demand.Row{row}, RowCount: 1, Hash: "h"})
	for range 20 {
		step(core.Tick{})
	}
	if view == nil || view.Status.Cycle == 0 {
		t.Fatal("the core has not planned")
	}
	return c, view
}

// SHARD-23.1, ENG-20.1: any request of Plan that passes the rules of the wire, with any constant set to any text, is answered or
// refused. Nothing panics, and the core that was asked stays as it was.
func FuzzPlanEdits(f *testing.F) {
	need := &pb.CapacityNeed{Priority: 5, InterruptionPenaltyBucket: 3, ReclamationPenaltyBucket: 2, AggregateResources: map[string]string{"cpu": "2"}, MinUnit: map[string]string{"cpu": "1"}}
	for _, q := range []*pb.PlanRequest{
		{},
		{Settle: true, Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Add{Add: need}}, {ClusterId: "red", Edit: &pb.DemandEdit_Scale{Scale: 3}}}},
		{LiftHolds: true, ClusterId: "red", Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Remove{Remove: "row"}}, {ClusterId: "blue", Edit: &pb.DemandEdit_Drop{Drop: true}}}},
		{Flags: map[string]string{"dry-run": "x"}, Machines: []*pb.MachineEdit{{Edit: &pb.MachineEdit_Remove{Remove: "m1"}}, {Edit: &pb.MachineEdit_DrainZone{DrainZone: "z"}},
			{Edit: &pb.MachineEdit_Price{Price: &pb.PriceEdit{InstanceType: "m4", Factor: 2}}}, {Edit: &pb.MachineEdit_StockOut{StockOut: &pb.PriceEdit{Zone: "z"}}}}},
	} {
		raw, err := proto.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, "JoinTimeout", "5m")
		f.Add(raw, "", "")
	}
	f.Add([]byte{}, "Sharing", "maybe")
	f.Add([]byte{}, "ReclaimGrace", "-1s")
	gate, err := ingest.New(ingest.Limits{RollupBytes: 1 << 20, RollupNeeds: 1000})
	if err != nil {
		f.Fatal(err)
	}
	c, view := present(f)
	before := c.StateDigest()
	f.Fuzz(func(t *testing.T, raw []byte, name, value string) {
		var q pb.PlanRequest
		if proto.Unmarshal(raw, &q) != nil || protovalidate.Validate(&q) != nil {
			return
		}
		r := Replan{Core: c, View: view, ShardID: "s", Gate: gate, Providers: []string{"p"}}
		if name != "" {
			r.Policy = map[string]string{name: value}
		}
		if out, err := r.Run(&q); (out == nil) == (err == nil) {
			t.Errorf("answered %v and refused %v", out, err)
		}
		if c.StateDigest() != before {
			t.Error("a question changed the core")
		}
	})
}
