package shard_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-19.12: a cluster that states a priority above its ceiling takes nothing from one that states the ceiling, and its operator
// is warned.
func TestPriorityAboveTheCeilingTakesNothing(t *testing.T) {
	p := NewProvider(Host("taken", pb.MachineState_MACHINE_STATE_IDLE, "")).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.ClusterPriorityMax = []string{"50", "green=60"} })
	red, blue := Connect(t, s.Addr, "red", AllFeatures...), Connect(t, s.Addr, "blue", AllFeatures...)
	red.Rollup(Need("4", 50))
	Eventually(t, "red has the machine", func() bool { return p.Machine("taken").GetCluster() == "red" && s.status(t).UnsatisfiedNeeds == 0 })
	blue.Rollup(Need("4", 2147483647))
	ack := Await(t, blue, "the acknowledgement", func(m *pb.ShardMessage) (*pb.Acknowledgement, bool) {
		a := m.GetAck()
		return a, a.GetRollup() != nil
	})
	if w := ack.GetRollup().GetWarnings(); len(w) != 1 || !strings.Contains(w[0], "50") || !strings.Contains(w[0], "--cluster-priority-max") {
		t.Errorf("the operator gets %q", w)
	}
	Eventually(t, "blue is short", func() bool { return s.status(t).UnsatisfiedNeeds == 1 })
	e, err := s.Read.Explain(t.Context(), connect.NewRequest(needRef("blue", "row-4")))
	if err != nil || e.Msg.Need.GetNeed().GetPriority() != 50 {
		t.Errorf("blue's need counts as %v, %v", e.Msg.GetNeed().GetNeed(), err)
	}
	if got := p.Calls("Drain"); len(got) != 0 {
		t.Errorf("drained %v", got)
	}
	Connect(t, s.Addr, "green", AllFeatures...).Rollup(Need("4", 100))
	Eventually(t, "green, with a ceiling of its own, takes it", func() bool { return len(p.Calls("Drain")) == 1 })
}
