package ingest

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// Scenario 51, SHARD-13.14: each key of the metadata alone: a malformed one is skipped, an unknown one ignored, the others
// are restored.
func TestMetadataIsReadKeyByKey(t *testing.T) {
	g := newGate(t)
	priority, interruption, reclamation, fingerprint, group, owner := core.MetadataKeys()
	good := map[string]string{priority: "7", interruption: "2.5", reclamation: "1", fingerprint: "f1-x", group: "g", owner: "shard-9"}
	read := func(edit func(map[string]string)) core.Fact {
		t.Helper()
		m := &pb.Machine{Id: "m", State: pb.MachineState_MACHINE_STATE_CONFIGURED, Cluster: "red", InstanceType: "m4", Zone: "z", PricePerHour: 1,
			CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND, Host: &pb.HostRef{Provider: "p", Ref: "r"},
			Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}}, ShardMetadata: map[string]string{}}
		for k, v := range good {
			m.ShardMetadata[k] = v
		}
		edit(m.ShardMetadata)
		f, refused := g.Machine(m, "")
		if refused != nil {
			t.Fatal(refused)
		}
		return f
	}
	whole := read(func(map[string]string) {})
	if s := whole.Attribution; !whole.HasAttribution || s.Priority != 7 || s.Interruption != demand.PenaltyOfDollars(2.5) || s.Fingerprint != "f1-x" || s.Group != "g" || whole.Owner != "shard-9" {
		t.Fatalf("read %+v", whole)
	}
	for _, bad := range []string{"", "x", "7.5", "99999999999", "0x7"} {
		f := read(func(m map[string]string) { m[priority], m["somebody.else/key"] = bad, "v" })
		want := whole.Attribution
		want.Priority = 0
		if !f.HasAttribution || f.Attribution != want {
			t.Errorf("priority %q: read %+v", bad, f.Attribution)
		}
	}
	for _, bad := range []string{"x", "NaN", "1,5"} {
		f := read(func(m map[string]string) { m[interruption] = bad })
		if f.Attribution.Interruption != 0 || f.Attribution.Priority != 7 {
			t.Errorf("penalty %q: read %+v", bad, f.Attribution)
		}
	}
	if f := read(func(m map[string]string) { clear(m) }); f.HasAttribution || f.Owner != "" {
		t.Errorf("no metadata: read %+v", f)
	}
}

func newGate(t testing.TB) *Gate {
	t.Helper()
	g, err := New(Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// seeds are messages as peers send them, and the same broken.
func seeds(t testing.TB) (out [][]byte) {
	for _, m := range []proto.Message{
		&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "red", Features: []string{"released"}}}},
		&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{
			{AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "500m"}, Priority: -7, Group: "g", RowId: "r",
				Requirements: []*pb.NodeSelectorRequirement{{Key: "a", Operator: 1, Values: []string{"x"}}, {Key: "b", Operator: 5}}}}}}},
		&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: "r", UserData: []byte("x"), TtlSeconds: 9}}},
		&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "i", NodesStarted: -1}}},
		&pb.MachineList{Machines: []*pb.Machine{{Id: "m", State: 4, Cluster: "red", PricePerHour: 1, CapacityType: 2, Host: &pb.HostRef{Provider: "p", Ref: "r"},
			Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}}}}, RemovedIds: []string{"x"}, Revision: []byte{1}, Complete: true},
		&pb.CoordinatorInstruction{InstructionId: "i"},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, raw)
		if len(raw) > 3 {
			broken := append([]byte(nil), raw...)
			broken[len(raw)/2] ^= 0x55
			out = append(out, raw[:len(raw)/2], broken)
		}
	}
	return out
}

// started is a core with one provider and one session.
func started() (*core.Core, func(core.Event) []core.Effect) {
	c := core.New(nil)
	mono := int64(core.Second)
	step := func(e core.Event) []core.Effect {
		mono += core.Second
		return c.Step(core.At{Mono: mono, Wall: mono}, e)
	}
	for _, x := range step(core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}}, Epoch: 1}) {
		if l, ok := x.(core.ListMachines); ok {
			step(core.ListDone{List: l.List, Complete: true})
		}
	}
	step(core.SessionOpened{Cluster: "red", Session: 1, ProtocolVersion: "v1alpha1"})
	return c, step
}

// Scenario 72, SHARD-10.8: any bytes as any message from a cluster: decode, gate and Step never panic, no invariant breaks, and
// of a roll-up that is rejected no row reaches the core.
func FuzzOperatorMessage(f *testing.F) {
	for _, raw := range seeds(f) {
		f.Add(raw)
	}
	g := newGate(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &pb.OperatorMessage{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		c, step := started()
		switch p := m.Payload.(type) {
		case *pb.OperatorMessage_Hello:
			if p.Hello != nil && g.Check(p.Hello) == nil {
				step(core.SessionOpened{Cluster: p.Hello.ClusterId, Session: 2, Features: p.Hello.Features, ProtocolVersion: p.Hello.ProtocolVersion})
			}
		case *pb.OperatorMessage_Rollup:
			rollup := p.Rollup
			if rollup == nil {
				rollup = &pb.ClusterCapacityNeeds{}
			}
			e := g.Rollup(rollup, "red", len(raw), time.Unix(1_800_000_000, 0))
			e.Session, e.Arrival = 1, 1
			if e.Reject != nil && len(e.Rows) > 0 {
				t.Errorf("a rejected roll-up still has %d rows", len(e.Rows))
			}
			step(e)
		case *pb.OperatorMessage_ReclaimAck:
			if a := p.ReclaimAck; a != nil {
				step(core.ReclaimAcked{Instruction: a.InstructionId, Cluster: "red", Session: 1, NodesStarted: int64(a.NodesStarted)})
			}
		case *pb.OperatorMessage_NodeReport:
			if r := p.NodeReport; r != nil && g.Check(r) == nil {
				step(core.NodeReported{Cluster: "red", Session: 1, Machine: r.MachineId, Node: r.NodeName, Present: r.Present, Ready: r.Ready})
			}
		}
		if why := c.Broken(); why != "" {
			t.Errorf("broken invariant: %s", why)
		}
	})
}

// Scenario 72 and SHARD-10.6 for providers: any bytes as a page of a List.
func FuzzMachineList(f *testing.F) {
	for _, raw := range seeds(f) {
		f.Add(raw)
	}
	g := newGate(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, batch := Answer{}, g.Batch()
		if l.Unmarshal(raw) != nil {
			return
		}
		c := core.New(nil)
		at := core.At{Mono: core.Second, Wall: 1}
		for _, x := range c.Step(at, core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}}, Epoch: 1}) {
			ask, ok := x.(core.ListMachines)
			if !ok {
				continue
			}
			page := core.ListPage{List: ask.List}
			for _, r := range l.Records {
				switch fact, refused, err := batch.Record(r); {
				case err != nil:
				case refused == nil:
					page.Rows = append(page.Rows, fact)
				default:
					page.Rejected = append(page.Rejected, core.RejectedID{ID: fact.Machine.ID, Reason: refused.Reason, Text: refused.Text})
				}
			}
			at.Mono += core.Second
			c.Step(at, page)
			c.Step(at, core.ListDone{List: ask.List, Complete: l.Complete, Removed: l.Removed, Revision: l.Revision, Seen: int64(len(l.Records))})
			break
		}
		if why := c.Broken(); why != "" {
			t.Errorf("broken invariant: %s", why)
		}
	})
}

// COORD-8.4 to 8.6 for input: any bytes as an instruction of a coordinator.
func FuzzInstruction(f *testing.F) {
	for _, raw := range seeds(f) {
		f.Add(raw)
	}
	g := newGate(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		m := &pb.CoordinatorInstruction{}
		if proto.Unmarshal(raw, m) != nil {
			return
		}
		c := core.New(nil)
		at := core.At{Mono: core.Second, Wall: 1}
		c.Step(at, core.Started{Config: core.Config{ShardID: "s", Providers: []string{"p"}, Coordinated: true}, Epoch: 1})
		at.Mono += core.Second
		c.Step(at, core.CoordinatorReplied{Term: 3, UUID: "u", Instructions: []core.Instruction{g.Instruction(m)}})
		if why := c.Broken(); why != "" {
			t.Errorf("broken invariant: %s", why)
		}
	})
}
