package ingest

import (
	"sync"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-8.3, 10.2: one gate serves all workers at a time, from its first message on.
func TestGateServesManyWorkers(t *testing.T) {
	for range 10 {
		g := newGate(t)
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-begin
				for range 5 {
					if e := g.Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "1"},
						Requirements: []*pb.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"a"}}}}}}, "red", 100, time.Unix(1, 0)); e.Reject != nil {
						t.Errorf("rejected: %+v", e.Reject)
					}
					if err := g.Check(&pb.Hello{ClusterId: "red", ProtocolVersion: "v1alpha1"}); err != nil {
						t.Error(err)
					}
					if _, refused := g.Machine(&pb.Machine{Id: "m", State: pb.MachineState_MACHINE_STATE_SPECULATIVE, InstanceType: "m4", Zone: "z", PricePerHour: 1,
						CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND, Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}}}, ""); refused != nil {
						t.Error(refused)
					}
					_ = g.Check(&pb.NodeReport{MachineId: "m", NodeName: "n"})
				}
			})
		}
		close(begin)
		wg.Wait()
	}
}
