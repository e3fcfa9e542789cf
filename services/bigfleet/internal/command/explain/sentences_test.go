package explain_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// said is a sentence of the catalogue, how it comes about, and which command says it.
type said struct {
	sentence  string
	offerings []provider.Offering
	edit      func(*shard.Config)
	by        func(v *virtual.Fleet)
	command   string
}

const (
	blueWeb      = "explain need/blue/web"
	firstMachine = "explain machine/cloud-a-0"
)

// blueAsks lets another cluster ask for whole machines.
func blueAsks(v *virtual.Fleet, units int, priority int32, edit ...func(*pb.CapacityNeed)) {
	v.Operator("blue", nil).Asks(virtual.Need("web", units, 4, priority, edit...))
}

// standings are why a holder keeps its machines though a need wants them (ENG-19.8).
func standings() []said {
	return []said{
		{"It has a higher priority.", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1); blueAsks(v, 1, -5) }, blueWeb},
		{"It has the same priority; only a strictly higher priority preempts.", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1); blueAsks(v, 1, 0) }, blueWeb},
		{"The machines are still starting.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Configure", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			v.Explains("red", "web", pb.NeedDetail_NEED_DETAIL_STARTING)
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"Even the capacity of all machines that could be freed is too small for the whole gang.", onDemand(3), nil, func(v *virtual.Fleet) {
			green := v.Operator("green", nil)
			green.Asks(virtual.Need("vital", 1, 4, 2000))
			v.Configured("green", 1)
			wants(v, 2)
			blueAsks(v, 3, 1000, virtual.Same(virtual.RackKey))
		}, blueWeb},
		{"The need is blocked and preempts nothing at the moment.", onDemand(2), nil, func(v *virtual.Fleet) {
			wants(v, 1)
			v.Operator("blue", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "no template", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 2, 4, 1000))
		}, blueWeb},
		{"Other machines were sufficient.", onDemand(3), nil, func(v *virtual.Fleet) { wants(v, 2); blueAsks(v, 1, 1000); v.Configured("blue", 1) }, blueWeb},
	}
}

// rejects are why a machine is none that a need gets (ENG-19.8).
func rejects() []said {
	return []said{
		{"It failed.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", Fault: pb.FaultKind_FAULT_KIND_ERROR, ErrorClass: "permanent"})
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"It is being released, or is starting without a need.", onDemand(2), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 600_000})
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
			v.Kept(pb.KeepReason_KEEP_REASON_LEAVING, "")
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"It is on its way to another need.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 1000))
			v.Kept(pb.KeepReason_KEEP_REASON_PROMISED, "")
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"It is bound in another cluster.", onDemand(1), nil, func(v *virtual.Fleet) { ghost(v); blueAsks(v, 1, 1000) }, blueWeb},
		{"It is outside the domain that the need has chosen.", []provider.Offering{virtual.Slots("a", "a", 1), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) {
			blueAsks(v, 2, 0, virtual.Same(virtual.RackKey))
			v.Configured("blue", 2)
		}, blueWeb},
		{"The need is blocked for now.", onDemand(2), nil, func(v *virtual.Fleet) {
			v.Operator("blue", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "no template", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 1, 4, 0))
		}, blueWeb},
		{"One more in that domain would violate the spread constraint.", []provider.Offering{virtual.Slots("a", "a", 9), virtual.Slots("b", "b", 1)}, nil, func(v *virtual.Fleet) {
			blueAsks(v, 8, 0, virtual.Spread(virtual.ZoneKey))
		}, blueWeb},
		{"It is available; other machines were chosen.", onDemand(3), nil, func(v *virtual.Fleet) { blueAsks(v, 1, 0); v.Configured("blue", 1) }, blueWeb},
	}
}

// marks are why a machine is offered to nobody, or not to one cluster. Those of stock, quotas and moves are keep reasons, too.
func marks() []said {
	return []said{
		{"it never became a Node of its cluster", onDemand(10), nil, oneNeverJoins, firstMachine},
		{"its provider does not answer", onDemand(2), nil, func(v *virtual.Fleet) { v.StopProvider(); time.Sleep(10 * time.Minute) }, firstMachine},
	}
}

// ghost lets another shard make a machine, for a cluster of which this one has not heard.
func ghost(v *virtual.Fleet) {
	v.T.Helper()
	if _, err := v.Machines.Create(context.Background(), connect.NewRequest(&pb.CreateRequest{MachineId: "cloud-a-0", ShardId: "shard-9", ShardEpoch: 1, SequenceNumber: 1})); err != nil {
		v.T.Fatal(err)
	}
	v.Until("it is idle", func() bool {
		m, err := v.Machines.Get(context.Background(), connect.NewRequest(&pb.MachineRef{Id: "cloud-a-0"}))
		return err == nil && m.Msg.GetState() == pb.MachineState_MACHINE_STATE_IDLE
	})
	if _, err := v.Machines.Configure(context.Background(), connect.NewRequest(&pb.ConfigureRequest{MachineId: "cloud-a-0", ClusterId: "ghost", ShardId: "shard-9", ShardEpoch: 1, SequenceNumber: 2})); err != nil {
		v.T.Fatal(err)
	}
}

// user-asks 1 and 2, ENG-19.8: each sentence about what stands between a need and a machine is caused for real, and a command says it.
func TestEachSentence(t *testing.T) {
	for _, list := range [][]said{standings(), rejects(), marks()} {
		for _, s := range list {
			t.Run(s.sentence, func(t *testing.T) {
				virtual.Run(t, s.offerings, s.edit, func(v *virtual.Fleet) {
					s.by(v)
					out := ""
					if !eventually(func() bool {
						_, out = v.Bigfleet(strings.Fields(s.command)...)
						return strings.Contains(out, s.sentence)
					}) {
						t.Errorf("never said; last:\n%s", out)
					}
				})
			})
		}
	}
}
