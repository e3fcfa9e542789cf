package shard_test

import (
	"math"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

func rollupResult(m *pb.ShardMessage) (*pb.Acknowledgement, bool) {
	a := m.GetAck()
	return a, strings.HasPrefix(a.GetEcho(), "rollup")
}

// Scenario 7, WIRE-3.8, WIRE-3.9, SHARD-8.6, 10.2, SHARD-8.7, SHARD-8.8, SHARD-10.3, ENG-4.10: a roll-up that breaks a hard rule is refused whole with its
// reason, the demand in force stays, the session lives, and the reclaim gate does not move.
func TestBadRollupsAreRefusedAndTheLastGoodOneStays(t *testing.T) {
	p := NewProvider(slots(3)...).Serve(t)
	s := start(t, p)
	good := func() *pb.CapacityNeed { return Need("4", 1) }
	for name, c := range map[string]struct {
		reason string
		index  int32
		bad    func(*pb.ClusterCapacityNeeds)
	}{
		"bucket 28":        {"invalid", 0, func(m *pb.ClusterCapacityNeeds) { m.Needs[0].InterruptionPenaltyBucket = 28 }},
		"bucket -1":        {"invalid", 0, func(m *pb.ClusterCapacityNeeds) { m.Needs[0].ReclamationPenaltyBucket = -1 }},
		"garbage quantity": {"quantity", 0, func(m *pb.ClusterCapacityNeeds) { m.Needs[0].AggregateResources["cpu"] = "12x" }},
		"fractional power": {"quantity", 0, func(m *pb.ClusterCapacityNeeds) { m.Needs[0].AggregateResources["cpu"] = "1e1.5" }},
		"garbage overhead": {"quantity", -1, func(m *pb.ClusterCapacityNeeds) { m.NodeOverhead = map[string]string{"cpu": "?"} }},
		"operator 99": {"invalid", 0, func(m *pb.ClusterCapacityNeeds) {
			m.Needs[0].Requirements = []*pb.NodeSelectorRequirement{{Key: "a", Operator: 99}}
		}},
		"foreign cluster": {"foreign_cluster", -1, func(m *pb.ClusterCapacityNeeds) { m.ClusterId = "blue" }},
		"two Same": {"same", 0, func(m *pb.ClusterCapacityNeeds) {
			m.Needs[0].Requirements = []*pb.NodeSelectorRequirement{{Key: "a", Operator: 5}, {Key: "b", Operator: 5}}
		}},
		"an impossible sum": {"quantity", 1, func(m *pb.ClusterCapacityNeeds) {
			m.Needs[0].AggregateResources["cpu"] = "9000000000000000"
			m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "9000000000000000"}, Priority: 7})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := "c-" + strings.NewReplacer(" ", "-").Replace(name)
			o := Connect(t, s.Addr, cluster, AllFeatures...)
			m := &pb.ClusterCapacityNeeds{ClusterId: cluster, TimestampUnixNanos: 42, Needs: []*pb.CapacityNeed{good()}}
			c.bad(m)
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: m}})
			a := Await(t, o, "the rejection", rollupResult)
			r := a.GetRollup()
			if a.Echo != "rollup-rejected:"+c.reason || r.GetDisposition() != pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED ||
				r.Reason != c.reason || r.NeedIndex != c.index || r.TimestampUnixNanos != 42 || r.Message == "" {
				t.Errorf("answered %v", a)
			}
			Eventually(t, "the refusal shows, and changed nothing else", func() bool {
				l, err := s.Read.ListClusters(t.Context(), connect.NewRequest(&pb.ListClustersRequest{ClusterId: cluster}))
				if err != nil {
					t.Fatal(err)
				}
				if len(l.Msg.Clusters) == 0 {
					return false
				}
				v := l.Msg.Clusters[0]
				if v.GateOpen || v.Needs != 0 {
					t.Errorf("the cluster is %v", v)
				}
				return v.Connected && v.LastDisposition == pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED && v.LastRollupReason == c.reason
			})
		})
	}
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(good())
	Eventually(t, "the good one is in force", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
	bad := good()
	bad.AggregateResources["cpu"] = "none"
	o.Rollup(bad)
	Await(t, o, "the rejection", func(m *pb.ShardMessage) (bool, bool) {
		return true, m.GetAck().GetRollup().GetDisposition() == pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED
	})
	_, rows := s.needs(t, &pb.InspectNeedsRequest{ClusterId: "red"})
	if len(rows) != 1 || rows[0].Need.AggregateResources["cpu"] != "4" || o.Err() != nil {
		t.Errorf("demand is %v, session %v", rows, o.Err())
	}
	if n := s.metric(t, `bigfleet_shard_rollups_rejected_total{cluster="red",reason="quantity"}`); n != 1 {
		t.Errorf("counted %v rejections", n)
	}
}

// Scenario 8, SHARD-10.5, SHARD-10.2a, WIRE-3.3, WIRE-3.4: harmless differences are accepted, counted and listed; equal rows add up.
func TestSoftViolationsAreAcceptedWithWarnings(t *testing.T) {
	p := NewProvider(slots(4)...).Serve(t)
	s := start(t, p)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	same := Need("2", 0)
	same.Requirements = []*pb.NodeSelectorRequirement{{Key: "topology.kubernetes.io/zone", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME}}
	negative := Need("1", 3)
	negative.AggregateResources["memory"] = "-5"
	o.Rollup(Need("4", 0), Need("4", 0), same, negative)
	a := Await(t, o, "the ack", rollupResult)
	text := strings.Join(a.GetRollup().GetWarnings(), "\n")
	if a.Echo != "rollup" || !strings.Contains(text, "same_without_group") || !strings.Contains(text, "negative_quantity") {
		t.Errorf("answered %v", a)
	}
	Eventually(t, "the rows are added up", func() bool {
		_, rows := s.needs(t, &pb.InspectNeedsRequest{})
		for _, r := range rows {
			if r.Need.AggregateResources["cpu"] == "8" {
				return true
			}
		}
		return false
	})
	for _, rule := range []string{"equal_rows", "same_without_group", "negative_quantity"} {
		if n := s.metric(t, `bigfleet_shard_rollup_warnings_total{rule="`+rule+`"}`); n != 1 {
			t.Errorf("%s counted %v times", rule, n)
		}
	}
}

// SHARD-7.1, WIRE-6.1: the first frame must be a Hello with an id in the right syntax; otherwise nothing is installed.
func TestFirstFrameMustBeHello(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	for name, first := range map[string]*pb.OperatorMessage{
		"a roll-up":     {Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: "red"}}},
		"nothing":       {},
		"an empty id":   {Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{}}},
		"a blank id":    {Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: " red"}}},
		"an endless id": {Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: strings.Repeat("a", 254)}}},
	} {
		o := Dial(t, s.Addr, "red")
		o.Send(first)
		o.Start()
		if err := o.Ended(t); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := s.status(t).Sessions; n != 0 {
		t.Errorf("%d sessions are installed", n)
	}
}

// SHARD-7.5: a second Hello for the same cluster is acknowledged and replayed; for another one the stream ends.
func TestSecondHello(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	o := Connect(t, s.Addr, "red")
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "red"}}})
	Eventually(t, "two acks and two replays", func() bool {
		n := map[string]int{}
		for _, f := range o.Frames() {
			n[f.GetAck().GetEcho()]++
		}
		return n["hello"] == 2 && n["node-state-resync-complete"] >= 1
	})
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "blue"}}})
	if err := o.Ended(t); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Error(err)
	}
}

// Scenario 41, WIRE-3.6, WIRE-3.7, SHARD-10.6: bad records are skipped by reason, all others of the List are merged, and
// the last good record of a machine stays.
func TestBadMachineRecordsAreSkippedAlone(t *testing.T) {
	bad := func(id string, f func(*pb.Machine)) *pb.Machine {
		m := Slot(id, 1, "4", "8Gi")
		f(m)
		return m
	}
	p := NewProvider(append(slots(2),
		bad("price", func(m *pb.Machine) { m.PricePerHour = -1 }),
		bad("price-nan", func(m *pb.Machine) { m.PricePerHour = math.NaN() }),
		bad("price-inf", func(m *pb.Machine) { m.PricePerHour = math.Inf(1) }),
		bad("probability", func(m *pb.Machine) { m.InterruptionProbability = 1.5 }),
		bad("probability-nan", func(m *pb.Machine) { m.InterruptionProbability = math.NaN() }),
		bad("state", func(m *pb.Machine) { m.State = 0 }),
		bad("state-99", func(m *pb.Machine) { m.State = 99 }),
		bad("unbound", func(m *pb.Machine) {
			m.State, m.Host = pb.MachineState_MACHINE_STATE_CONFIGURED, &pb.HostRef{Provider: "x", Ref: "y"}
		}),
		bad("quantity", func(m *pb.Machine) { m.Resources.Resources["cpu"] = "many" }),
		bad("negative", func(m *pb.Machine) { m.Resources.Resources["cpu"] = "-4" }),
	)...).Serve(t)
	s := start(t, p)
	Eventually(t, "the shard is ready", func() bool { return s.status(t).Ready })
	l, err := s.Read.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Msg.Machines) != 2 {
		t.Errorf("%d machines are known", len(l.Msg.Machines))
	}
	for reason, want := range map[string]float64{"price": 3, "interruption_probability": 2, "structural": 3, "quantity": 2} {
		if n := s.metric(t, `bigfleet_shard_machines_rejected_total{reason="`+reason+`"}`); n < want {
			t.Errorf("%s counted %v times, want %v", reason, n, want)
		}
	}
	p.Edit("m1", func(m *pb.Machine) { m.PricePerHour = -3 })
	before := s.metric(t, `bigfleet_shard_machines_rejected_total{reason="price"}`)
	Eventually(t, "the bad price was seen", func() bool {
		return s.metric(t, `bigfleet_shard_machines_rejected_total{reason="price"}`) > before
	})
	m, err := s.Read.GetMachine(t.Context(), connect.NewRequest(&pb.GetMachineRequest{MachineId: "m1"}))
	if err != nil || m.Msg.Machine.Machine.PricePerHour != 1 {
		t.Errorf("the machine is %v, %v", m, err)
	}
}
