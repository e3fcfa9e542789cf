package operator

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

// OP-4.4, OP-4.11: what the operator does not know is counted and ignored, and a full queue holds up no reader.
func TestFramesThatAreIgnored(t *testing.T) {
	none := func() float64 { return 0 }
	registry := prometheus.NewRegistry()
	i, err := instruments.New(registry, instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	r := newRouter(&parts{instruments: i})
	r.Receive(nil, &pb.ShardMessage{})
	r.Receive(nil, &pb.ShardMessage{Payload: &pb.ShardMessage_NodeStateUpdate{NodeStateUpdate: &pb.NodeStateUpdate{}}})
	for range reclaimQueue + 3 { // no consumer takes them
		r.Receive(nil, &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimInstruction{ReclaimInstruction: &pb.ReclaimInstruction{}}})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "bigfleet_operator_frames_ignored_total" {
				got[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{"unknown_payload": 1, "node_state_without_machine": 1, "reclaim_lane_full": 3}; !maps.Equal(got, want) {
		t.Errorf("ignored %v, want %v", got, want)
	}
}
