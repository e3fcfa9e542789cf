package shard_test

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-7.4, 16.2, 16.3, 18.5: what an operator hears first is who answers; then the end of the replay; and a request for boot
// data names the machine, in the requirements for every peer and spelled out for those that read it.
func TestWhatAnOperatorHears(t *testing.T) {
	s := start(t, NewProvider(slots(1)...).Serve(t))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	Await(t, o, "the hello ack", func(m *pb.ShardMessage) (bool, bool) {
		a := m.GetAck()
		if a.GetEcho() != "hello" {
			t.Errorf("the first frame is %v", m)
		}
		if a.GetShardEpoch() == 0 || a.GetShardId() != "shard-0" || a.GetCoordinatorTerm() != 0 || len(a.GetFeatures()) == 0 || a.GetMaxRollupBytes() != 16<<20 {
			t.Errorf("the hello ack is %v", a)
		}
		return true, true
	})
	Await(t, o, "the end of the replay", func(m *pb.ShardMessage) (bool, bool) {
		return true, m.GetAck().GetEcho() == "node-state-resync-complete"
	})
	o.Rollup(Need("4", 1))
	Await(t, o, "a request for boot data", func(m *pb.ShardMessage) (bool, bool) {
		r := m.GetBootstrapRequest()
		if r == nil {
			return true, false
		}
		x := r.GetMachine()
		if r.ClusterId != "red" || x.GetMachineId() == "" || x.GetInstanceType() == "" || x.GetZone() == "" || x.GetCapacityType() == 0 ||
			len(x.GetAllocatable().GetResources()) == 0 {
			t.Errorf("the request is %v", r)
		}
		named := false
		for _, q := range r.Requirements {
			named = named || q.Key == "bigfleet.lucy.sh/machine-id" && len(q.Values) == 1 && q.Values[0] == x.GetMachineId()
		}
		if !named {
			t.Errorf("no requirement names the machine: %v", r.Requirements)
		}
		return true, true
	})
}
