package operator

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// The whole line of this package in one test: a Pod becomes a row, is acknowledged, a machine comes and is taken back.
func TestSmoke(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	w.operator(s)
	w.podController()
	w.create(pod("default", "a", "500m"), pod("default", "b", "500m"))
	s.needs(t, "two Pods are one row", func(n []*pb.CapacityNeed) bool { return len(n) == 1 && n[0].AggregateResources["cpu"] == "1" })
	w.until("both are acknowledged", func() bool {
		n := 0
		for _, r := range w.requests() {
			if r.Status.Phase == v1alpha1.RequestAcknowledged {
				n++
			}
		}
		return n == 2
	})
	s.send(t, node("m1", pb.MachineState_MACHINE_STATE_CREATING))
	w.until("Provisioning", func() bool { return w.phase("m1") == v1alpha1.NodeProvisioning })
	w.node("node-1", "m1")
	s.send(t, node("m1", pb.MachineState_MACHINE_STATE_CONFIGURED))
	w.until("Ready", func() bool { return w.phase("m1") == v1alpha1.NodeReady })
	after := s.count()
	s.send(t, reclaim("0000000000000001", 30, "m1"))
	if ack := s.ack(t, "0000000000000001", after); ack.NodesStarted != 1 {
		t.Fatalf("ack %v", ack)
	}
	w.until("Drained", func() bool { return w.phase("m1") == v1alpha1.NodeDrained })
	s.send(t, node("m1", pb.MachineState_MACHINE_STATE_IDLE, released))
	w.until("gone", func() bool { return w.upcoming("m1") == nil })
}
