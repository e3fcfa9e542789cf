package shard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

func follow(c *Coordinator) func(*shard.Config) {
	return func(cfg *shard.Config) {
		cfg.CoordinatorAddr, cfg.CoordinatorHeartbeat, cfg.AdvertiseAddr = c.Addr, 50*time.Millisecond, "shard-0:7780"
	}
}

func viewOf(id string, index uint64, v *pb.ShardView) *pb.CoordinatorInstruction {
	v.Version = &pb.ViewVersion{Term: 1, Index: index}
	return &pb.CoordinatorInstruction{InstructionId: id, Payload: &pb.CoordinatorInstruction_SetView{SetView: v}}
}

// SHARD-21.2, COORD-9.1, 9.10, 8.4: over a real connection the shard reports what it has and lacks, acquires nothing before
// its first view, obeys the view and acks it in the next report, and answers what it does not know.
func TestCoordinatorClientOverTheWire(t *testing.T) {
	c := NewCoordinator().Serve(t)
	p := NewProvider(slots(3)...).Serve(t)
	s := start(t, p, follow(c))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("20", 7))
	Eventually(t, "the shortfall is reported", func() bool { r := c.Last(); return r != nil && len(r.Shortfalls) == 1 && r.ObservedTerm == 1 })
	r := c.Last()
	if r.ShardId != "shard-0" || r.ShardAddress != "shard-0:7780" || r.ShardEpoch == 0 || r.Cycle == 0 || r.ObservedTerm != 1 || r.ClusterUuid != c.UUID ||
		!slices.Contains(r.Capabilities, "moves/1") || r.ViewVersion != nil || r.Summary.GetProviderAddress() != p.Addr {
		t.Errorf("report %v", r)
	}
	if x := r.Shortfalls[0]; x.Priority != 7 || x.Deficit.GetResources()["cpu"] != "20" || x.Fingerprint == "" {
		t.Errorf("shortfall %v", x)
	}
	if n := len(p.Calls()); n != 0 {
		t.Errorf("%d calls before any view", n)
	}
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	if a := c.Acked(t, "v1"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED {
		t.Errorf("the view was answered %v", a)
	}
	Eventually(t, "the machines are used", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	Eventually(t, "the view and the cluster are reported", func() bool {
		last := c.Last()
		return last.ViewVersion.GetIndex() == 1 && last.Summary.TotalMachines == 3 && last.Shortfalls[0].Deficit.GetResources()["cpu"] == "8" &&
			slices.ContainsFunc(c.Reports(), func(r *pb.ShardReport) bool { return len(r.Clusters) == 1 && r.Clusters[0].BoundMachines == 3 })
	})
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "x1", Payload: &pb.CoordinatorInstruction_CrossShardDrain{CrossShardDrain: &pb.CrossShardDrain{}}})
	if a := c.Acked(t, "x1"); a.Outcome != pb.InstructAck_OUTCOME_REJECTED_INVALID {
		t.Errorf("an unknown order was answered %v", a)
	}
	if st := s.status(t).Coordinator; st.Term != 1 || st.ClusterUuid != c.UUID || st.ViewIndex != 1 || st.LastReportAtUnixNanos == 0 {
		t.Errorf("status %v", st)
	}
}

// COORD-7.8, 12.11: what was instructed is answered when it is done, not an interval later; others wait for it.
func TestAnInstructionIsAnsweredAtOnce(t *testing.T) {
	c := NewCoordinator().Serve(t)
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	start(t, NewProvider(slots(1)...).Serve(t), follow(c), func(cfg *shard.Config) { cfg.CoordinatorHeartbeat = time.Hour })
	if a := c.Acked(t, "v1"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED {
		t.Errorf("the view was answered %v", a)
	}
}

// SHARD-2.2, 2.5, 21.3, scenario 63: a coordinator that hangs, fails, speaks with an old term or is of another group changes
// no decision: the shard continues with its view, also after a restart with the coordinator gone.
func TestShardDoesNotNeedItsCoordinator(t *testing.T) {
	c := NewCoordinator().Serve(t)
	p := NewProvider(slots(6)...).Serve(t)
	s := start(t, p, follow(c))
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	c.Acked(t, "v1")
	o := Connect(t, s.Addr, "red", AllFeatures...)
	served := 0
	serve := func(what string) {
		t.Helper()
		served++
		o.Rollup(Need([]string{"", "4", "8", "12", "16", "20", "24"}[served], 1))
		Eventually(t, what, func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == served })
	}
	serve("served with a coordinator")
	answer := func(f func(*pb.ShardReport) (*pb.ReportAck, error)) { c.Set(func(c *Coordinator) { c.Answer = f }) }
	answer(func(*pb.ShardReport) (*pb.ReportAck, error) {
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no leader"))
	})
	serve("served while it fails")
	foreign := viewOf("v9", 9, &pb.ShardView{})
	foreign.CoordinatorTerm = 9
	answer(func(*pb.ShardReport) (*pb.ReportAck, error) {
		return &pb.ReportAck{CoordinatorTerm: 9, ClusterUuid: "22222222-2222-4222-8222-222222222222", Instructions: []*pb.CoordinatorInstruction{foreign}}, nil
	})
	serve("served while another group answers")
	if st := s.status(t).Coordinator; st.ViewIndex != 1 || st.ClusterUuid != c.UUID {
		t.Errorf("another group was followed: %v", st)
	}
	o.Close()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, p, func(cfg *shard.Config) {
		follow(c)(cfg)
		cfg.DataDir, cfg.CoordinatorAddr = s.Dir, "127.0.0.1:1" // nothing listens there
	})
	o = Connect(t, again.Addr, "red", AllFeatures...)
	serve("served after a restart without any coordinator")
	if st := again.status(t); !st.Ready || st.Coordinator.ViewIndex != 1 {
		t.Errorf("status %v", st)
	}
	Eventually(t, "the failure is shown", func() bool { return again.status(t).Coordinator.LastError != "" })
}

// COORD-12.12 to 12.15, 12.13: both sides of a move over the wire: the donor drains for tier 3, reserves, acks the ids and
// lets go; the recipient asks the provider and adopts what is free.
func TestMoveOverTheWire(t *testing.T) {
	c := NewCoordinator().Serve(t)
	p := NewProvider(slots(2)...).Serve(t)
	s := start(t, p, follow(c), func(cfg *shard.Config) { cfg.ReclaimCapSet = true })
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("8", 1))
	Eventually(t, "both machines serve", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 2 })
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "r1", Payload: &pb.CoordinatorInstruction_ReserveMachines{ReserveMachines: &pb.ReserveMachines{
		MoveId: "m1", ToShardId: "other", Count: 1, Tier: 3, RequesterPriority: 100, RequesterInterruptionBucket: 5, InstanceType: "m4"}}})
	a := c.Acked(t, "r1")
	if a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED || len(a.MachineIds) != 1 {
		t.Fatalf("answered %v", a)
	}
	id := a.MachineIds[0]
	if m := p.Machine(id); m.State != pb.MachineState_MACHINE_STATE_IDLE {
		t.Errorf("acked before it was drained: %v", m.State)
	}
	if g, err := s.Read.GetMachine(t.Context(), connect.NewRequest(&pb.GetMachineRequest{MachineId: id})); err != nil ||
		!slices.Contains(g.Msg.Machine.Flags, pb.MachineFlag_MACHINE_FLAG_RESERVED) {
		t.Errorf("the machine is shown as %v, %v", g, err)
	}
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "t1", Payload: &pb.CoordinatorInstruction_TransferOwnership{TransferOwnership: &pb.TransferOwnership{
		MoveId: "m1", FromShardId: "shard-0", ToShardId: "other", MachineIds: []string{id}}}})
	if a := c.Acked(t, "t1"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED {
		t.Errorf("the release was answered %v", a)
	}
	Eventually(t, "it is another shard's", func() bool { return s.status(t).ForeignMachines == 1 })
	c.Instruct(viewOf("v2", 2, &pb.ShardView{})) // other shards have the free machines now
	if a := c.Acked(t, "v2"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED {
		t.Errorf("the second view was answered %v", a)
	}
	p.Add(Host("free", pb.MachineState_MACHINE_STATE_IDLE, ""))
	c.Instruct(&pb.CoordinatorInstruction{InstructionId: "t2", Payload: &pb.CoordinatorInstruction_TransferOwnership{TransferOwnership: &pb.TransferOwnership{
		MoveId: "m2", FromShardId: "other", ToShardId: "shard-0", MachineIds: []string{"free", "nowhere"}}}})
	if a := c.Acked(t, "t2"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED || strings.Join(a.MachineIds, ",") != "free" {
		t.Errorf("the adoption was answered %v", a)
	}
	Eventually(t, "the adopted machine serves red", func() bool { return p.Machine("free").Cluster == "red" })
}

// COORD-9.9g: a shard that comes back with other providers does not obey the view of the old ones.
func TestViewDoesNotFollowToAnotherProvider(t *testing.T) {
	c := NewCoordinator().Serve(t)
	first := start(t, NewProvider(slots(1)...).Serve(t), follow(c))
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	c.Acked(t, "v1")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	p := NewProvider(slots(1)...).Serve(t)
	s := start(t, p, follow(c), func(cfg *shard.Config) { cfg.DataDir = first.Dir })
	Connect(t, s.Addr, "red", AllFeatures...).Rollup(Need("4", 1))
	Eventually(t, "reports go on without a view", func() bool { r := c.Last(); return r.Summary.GetProviderAddress() == p.Addr && len(r.Shortfalls) == 1 })
	if r := c.Last(); r.ViewVersion != nil || len(p.Calls()) != 0 {
		t.Errorf("the old view is in force: %v, calls %v", r.ViewVersion, p.Calls())
	}
	c.Instruct(viewOf("v1", 1, &pb.ShardView{OnlyShard: true}))
	Eventually(t, "the same view, sent again, is obeyed", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
}

// SHARD-21.4, COORD-7.12, 6.1.1: the highest term survives a restart: a leader of before, which answers the next process first, is not
// obeyed, and the report says which term is known. A higher one counts again.
func TestTermMarkSurvivesARestart(t *testing.T) {
	c := NewCoordinator().Serve(t)
	p := NewProvider(slots(2)...).Serve(t)
	s := start(t, p, follow(c))
	Eventually(t, "the first term is known", func() bool { r := c.Last(); return r != nil && r.ObservedTerm == 1 })
	c.Set(func(c *Coordinator) { c.Term = 7 })
	Eventually(t, "a higher term is known", func() bool { return c.Last().ObservedTerm == 7 })
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	c.Set(func(c *Coordinator) { c.Term = 3 })
	c.Instruct(viewOf("old", 1, &pb.ShardView{OnlyShard: true}))
	before := len(c.Reports())
	again := start(t, p, follow(c), func(cfg *shard.Config) { cfg.DataDir = s.Dir })
	Eventually(t, "reports come from the next process", func() bool { return len(c.Reports()) > before })
	if r := c.Reports()[before]; r.ObservedTerm != 7 {
		t.Errorf("the next process reports term %d", r.ObservedTerm)
	}
	Eventually(t, "the old leader is noticed", func() bool { return strings.Contains(again.status(t).Coordinator.LastError, "term 3") })
	if st := again.status(t).Coordinator; st.Term != 7 || st.ViewIndex != 0 {
		t.Errorf("status %v", st)
	}
	c.Set(func(c *Coordinator) { c.Term = 8 })
	c.Instruct(viewOf("new", 2, &pb.ShardView{OnlyShard: true}))
	if a := c.Acked(t, "new"); a.Outcome != pb.InstructAck_OUTCOME_ACCEPTED {
		t.Errorf("the view of the next leader was answered %v", a)
	}
}

// SHARD-21.5, COORD-8.6: instructions are carried out by their sequence numbers, whatever their order in the answer.
func TestInstructionsByNumber(t *testing.T) {
	c := NewCoordinator().Serve(t)
	assign := func(id string, sequence int64) *pb.CoordinatorInstruction {
		return &pb.CoordinatorInstruction{InstructionId: id, CoordinatorTerm: 1, SequenceNumber: sequence, Payload: &pb.CoordinatorInstruction_AssignDomain{
			AssignDomain: &pb.AssignDomain{TopologyKey: "zone", TopologyValue: id}}}
	}
	c.Answer = func(*pb.ShardReport) (*pb.ReportAck, error) {
		return &pb.ReportAck{CoordinatorTerm: 1, Acknowledged: true, ClusterUuid: c.UUID, Instructions: []*pb.CoordinatorInstruction{assign("c", 3), assign("a", 1), assign("b", 2)}}, nil
	}
	start(t, NewProvider(slots(1)...).Serve(t), follow(c))
	c.Acked(t, "a")
	for _, r := range c.Reports() {
		if len(r.InstructionAcks) > 0 {
			var order []string
			for _, a := range r.InstructionAcks {
				order = append(order, a.InstructionId)
			}
			if got := strings.Join(order, ""); got != "abc" {
				t.Errorf("carried out in the order %s", got)
			}
			break
		}
	}
}
