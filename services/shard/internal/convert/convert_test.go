package convert_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func gate(t *testing.T) *ingest.Gate {
	g, err := ingest.New(ingest.Limits{RollupBytes: 1 << 20, RollupNeeds: 100})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// SHARD-10.1, 23.1: what the gate took in is shown as it was sent: rows of demand and machines lose nothing on the way to a
// reader.
func TestReadersSeeWhatWasSent(t *testing.T) {
	g := gate(t)
	need := &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "12", "memory": "48Gi"}, MinUnit: map[string]string{"cpu": "1500m"}, Priority: -3, Group: "g", RowId: "r1",
		InterruptionPenaltyBucket: pb.PenaltyBucket(4), ReclamationPenaltyBucket: pb.PenaltyBucket(2), TolerationsStated: true,
		Requirements: []*pb.NodeSelectorRequirement{{Key: "rack", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME}, {Key: "zone", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"a", "b"}}},
		Spread:       []*pb.TopologySpread{{TopologyKey: "zone", MaxSkew: 2, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}},
		Tolerations:  []*pb.Toleration{{Key: "gpu", Operator: "Exists", Effect: "NoSchedule"}}}
	m := &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{need}}
	e := g.Rollup(proto.Clone(m).(*pb.ClusterCapacityNeeds), "red", proto.Size(m), time.Unix(0, 0))
	if e.Reject != nil || len(e.Rows) != 1 {
		t.Fatalf("%+v", e.Reject)
	}
	if d := cmp.Diff(need, convert.Need(&e.Rows[0]), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	machine := &pb.Machine{Id: "m1", State: pb.MachineState_MACHINE_STATE_CONFIGURED, Host: &pb.HostRef{Provider: "p", Ref: "i-1"}, InstanceType: "m5", Zone: "a",
		CapacityType: pb.CapacityType_CAPACITY_TYPE_SPOT, PricePerHour: 0.25, InterruptionProbability: 0.02, Cluster: "red", Labels: map[string]string{"rack": "r1"},
		Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}}, Allocatable: &pb.Resources{Resources: map[string]string{"cpu": "3900m"}},
		Taints: []*pb.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}}
	f, refused := g.Machine(machine, "")
	if refused != nil {
		t.Fatal(refused)
	}
	if d := cmp.Diff(machine, convert.Machine(&f.Machine, nil), protocmp.Transform()); d != "" {
		t.Error(d)
	}
	labels := convert.NodeLabels(&f.Machine) // SHARD-18.3
	if labels["node.kubernetes.io/instance-type"] != "m5" || labels["topology.kubernetes.io/zone"] != "a" || labels["rack"] != "r1" {
		t.Errorf("the node joins with %v", labels)
	}
}

// A count of the wire is named by its state; states without machines are left out.
func TestStatesAreNamed(t *testing.T) {
	got := convert.States([9]int{7, 0, 0, 2, 0, 5})
	if want := map[string]int32{"MACHINE_STATE_IDLE": 2, "MACHINE_STATE_CONFIGURED": 5}; !cmp.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
