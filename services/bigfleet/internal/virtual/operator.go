package virtual

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Operator is one cluster's end of a session, which says what a test wants.
type Operator struct {
	v       *Fleet
	cluster string
	stream  *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	Close   func()

	renders func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse // nil: some text
	Stops   atomic.Bool                                          // drains are stopped by a person, and blocked by a budget
}

// Operator opens a session for a cluster.
func (v *Fleet) Operator(cluster string, renders func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse) *Operator {
	v.T.Helper()
	client := v.client(v.shard)
	ctx, cancel := context.WithCancel(context.Background())
	o := &Operator{v: v, cluster: cluster, renders: renders, stream: rpc.Stub(client, bigfleetv1alpha1connect.NewShardClient).Session(ctx)}
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1",
		Features: []string{"rollup-ack", "node-report", "node-contents", "out-of-service", "drain-report", "unplaced-pods", "need-status", "reclaim-cancel", "released"}}}})
	done := make(chan struct{})
	go func() { defer close(done); o.receive() }()
	closed := false
	o.Close = func() {
		if closed {
			return
		}
		closed = true
		_ = o.stream.CloseRequest()
		cancel()
		<-done
		client.CloseIdle()
	}
	v.ends = append(v.ends, o.Close)
	return o
}

// Send sends one frame.
func (o *Operator) Send(m *pb.OperatorMessage) { _ = o.stream.Send(m) } // a lost session shows in what is explained

func (o *Operator) receive() {
	for {
		m, err := o.stream.Receive()
		if err != nil {
			return
		}
		switch p := m.GetPayload().(type) {
		case *pb.ShardMessage_BootstrapRequest:
			r := p.BootstrapRequest
			a := &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), UserData: []byte("boot data of " + r.GetMachine().GetMachineId())}
			if o.renders != nil {
				a = o.renders(r)
			}
			if a != nil {
				o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: a}})
			}
		case *pb.ShardMessage_ReclaimInstruction:
			r := p.ReclaimInstruction
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: r.GetInstructionId(), NodesStarted: int32(len(r.GetNodes()))}}})
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: o.drained(r)}})
		}
	}
}

// Asks sends a roll-up: the cluster's whole demand.
func (o *Operator) Asks(needs ...*pb.CapacityNeed) {
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: o.cluster, TimestampUnixNanos: time.Now().UnixNano(), Needs: needs}}})
}

// Beats repeats something every 10 s, as a session's heartbeat does, until the test ends.
func (o *Operator) Beats(f func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			f()
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Second):
			}
		}
	}()
	o.v.ends = append(o.v.ends, func() { close(stop); <-done })
}

// Reports says how Nodes are; ready nil means that there is none.
func (o *Operator) Reports(last bool, nodes map[string]bool) {
	for name, ready := range nodes {
		o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: name, NodeName: name, Present: true, Ready: ready, SinceUnixNanos: time.Now().UnixNano()}}})
	}
	if last {
		o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{LastOfFullSet: true}}})
	}
}

// Need is a row that wants units of whole cpus.
func Need(row string, units, cpu int, priority int32, edit ...func(*pb.CapacityNeed)) *pb.CapacityNeed {
	n := &pb.CapacityNeed{RowId: row, Priority: priority, AggregateResources: map[string]string{"cpu": fmt.Sprint(units * cpu)}, MinUnit: map[string]string{"cpu": fmt.Sprint(cpu)}}
	for _, e := range edit {
		e(n)
	}
	return n
}

// In wants a label to have one of some values.
func In(key string, values ...string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Requirements = append(n.Requirements, &pb.NodeSelectorRequirement{Key: key, Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: values})
	}
}

// Same wants one domain.
func Same(key string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Group = n.GetRowId()
		n.Requirements = append(n.Requirements, &pb.NodeSelectorRequirement{Key: key, Operator: pb.NodeSelectorRequirement_OPERATOR_SAME})
	}
}

// Spread wants an even spread over domains.
func Spread(key string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Spread = append(n.Spread, &pb.TopologySpread{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE})
	}
}

// Wants adds a resource.
func Wants(resource, amount string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.AggregateResources[resource], n.MinUnit[resource] = amount, amount
	}
}

// Keys of domains.
const (
	ZoneKey = "topology.kubernetes.io/zone"
	RackKey = "example.com/rack"
)

// Slots are machines of 4 cpu.
func Slots(name, zone string, count int, edit ...func(*provider.Offering)) provider.Offering {
	o := provider.Offering{Name: name, Count: count, Attributes: provider.Attributes{
		InstanceType: "c.4x", Zone: zone, CapacityType: provider.OnDemand, PricePerHour: 0.2, Resources: map[string]string{"cpu": "4"}, Labels: map[string]string{RackKey: name},
	}}
	for _, e := range edit {
		e(&o)
	}
	return o
}

// drained says how a drain ended.
func (o *Operator) drained(r *pb.ReclaimInstruction) *pb.DrainReport {
	if o.Stops.Load() {
		return &pb.DrainReport{InstructionId: r.GetInstructionId(), State: pb.DrainState_DRAIN_STATE_STOPPED, BlockingBudgets: []string{"default/db"}}
	}
	return &pb.DrainReport{InstructionId: r.GetInstructionId(), State: pb.DrainState_DRAIN_STATE_DONE}
}

// Holds reports what the node of a machine holds.
func (o *Operator) Holds(machine string, c *pb.NodeContents) {
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: machine, NodeName: machine, Present: true, Ready: true, Contents: c}}})
}
