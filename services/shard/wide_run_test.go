package shard_test

import (
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// apart are rows that each exclude another place and rack.
func apart(n int) (out []*pb.CapacityNeed) {
	for i := range n {
		r := Need("1", 0)
		r.RowId, r.Group = fmt.Sprint("apart-", i), fmt.Sprint(i)
		for _, x := range []struct{ key, value string }{{"place", fmt.Sprint("p", i%50)}, {"rack", fmt.Sprint("r", i/50%50)}, {"mark", fmt.Sprint(i / 2500)}} {
			r.Requirements = append(r.Requirements, &pb.NodeSelectorRequirement{Key: x.key, Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN, Values: []string{x.value}})
		}
		out = append(out, r)
	}
	return out
}

// SHARD-10.12: one cluster states more than a plan can hold. It hears why and keeps its machines, also after a restart of the shard, which knows no machine at first; another cluster is served all the time.
func TestDemandThatNoPlanCanHold(t *testing.T) {
	var grid []*pb.Machine
	for i := range 2500 {
		m := Slot(fmt.Sprintf("m%04d", i), 1, "4", "16Gi")
		m.Labels = map[string]string{"place": fmt.Sprint("p", i%50), "rack": fmt.Sprint("r", i/50)}
		grid = append(grid, m)
	}
	p := NewProvider(grid...).Serve(t)
	dir := t.TempDir()
	at := func(c *shard.Config) { c.DataDir, c.ReclaimCapSet = dir, true }
	s := start(t, p, at)
	wide := Connect(t, s.Addr, "wide", AllFeatures...)
	wide.Rollup(Need("4", 0))
	held := func(cluster string) (n int) {
		for _, c := range p.Calls("Configure") {
			if m := p.Machine(c.Machine); m.Cluster == cluster && m.State == pb.MachineState_MACHINE_STATE_CONFIGURED {
				n++
			}
		}
		return n
	}
	Eventually(t, "the cluster has a machine", func() bool { return held("wide") == 1 })

	refused := func(s *running, o *Operator) {
		t.Helper()
		o.Rollup(apart(16_500)...)
		Eventually(t, "the demand is set aside", func() bool {
			l, err := s.Read.ListClusters(t.Context(), connect.NewRequest(&pb.ListClustersRequest{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range l.Msg.GetClusters() {
				if c.GetClusterId() == "wide" {
					return c.GetLastDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED && c.GetLastRollupReason() == "too_wide" && !c.GetGateOpen() && c.GetNeeds() == 0
				}
			}
			return false
		})
		o.Rollup(apart(16_400)...)
		ack := Await(t, o, "the refusal of the next roll-up", func(m *pb.ShardMessage) (*pb.RollupResult, bool) {
			r := m.GetAck().GetRollup()
			return r, r.GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED
		})
		for _, words := range []string{"2500 classes of machines", "this cluster states 16500 different requirements; state at most 8250 for the next ", "the machines of this cluster stay, and none is bought for it"} {
			if !strings.Contains(ack.GetMessage(), words) {
				t.Errorf("the refusal does not say %q: %s", words, ack.GetMessage())
			}
		}
	}
	refused(s, wide)
	Connect(t, s.Addr, "red", AllFeatures...).Rollup(Need("8", 0))
	Eventually(t, "another cluster is served", func() bool { return held("red") == 2 })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}

	s = start(t, p, at)
	refused(s, Connect(t, s.Addr, "wide", AllFeatures...))
	red := Connect(t, s.Addr, "red", AllFeatures...)
	red.Rollup(Need("12", 0))
	Eventually(t, "another cluster is served after a restart", func() bool { return held("red") == 3 })
	if n := held("wide"); n != 1 || len(p.Calls("Drain")) != 0 {
		t.Errorf("%d machines are left, %d drains", n, len(p.Calls("Drain")))
	}
}
