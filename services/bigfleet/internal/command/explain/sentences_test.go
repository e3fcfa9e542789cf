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

// said is a sentence of the catalogue, its code (ENG-19.12), how it comes about, and which command says it.
type said struct {
	code      string
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
		{"HIGHER_PRIORITY", "It has a higher priority.", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1); blueAsks(v, 1, -5) }, blueWeb},
		{"EQUAL_PRIORITY", "It has the same priority; only a strictly higher priority preempts.", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1); blueAsks(v, 1, 0) }, blueWeb},
		{"STARTING", "The machines are still starting.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Configure", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			v.Explains("red", "web", pb.NeedDetail_NEED_DETAIL_STARTING)
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"ALL_OR_NOTHING", "Even the capacity of all machines that could be freed is too small for the whole gang.", onDemand(3), nil, func(v *virtual.Fleet) {
			green := v.Operator("green", nil)
			green.Asks(virtual.Need("vital", 1, 4, 2000))
			v.Configured("green", 1)
			wants(v, 2)
			blueAsks(v, 3, 1000, virtual.Same(virtual.RackKey))
		}, blueWeb},
		{"HELD", "The need is blocked and preempts nothing at the moment.", onDemand(2), nil, func(v *virtual.Fleet) {
			wants(v, 1)
			v.Operator("blue", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "no template", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 2, 4, 1000))
		}, blueWeb},
		{"NOT_NEEDED", "Other machines were sufficient.", onDemand(3), nil, func(v *virtual.Fleet) { wants(v, 2); blueAsks(v, 1, 1000); v.Configured("blue", 1) }, blueWeb},
		{"IN_USE", "It runs Pods of equal or higher priority.", onDemand(1), nil, func(v *virtual.Fleet) {
			red := v.Operator("red", nil)
			red.Asks(virtual.Need("vital", 1, 4, 2000))
			v.Configured("red", 1)
			red.Asks(virtual.Need("web", 1, 4, 0))
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"OWN_CLUSTER", "It is in the same cluster, where the scheduler preempts.", onDemand(1), nil, func(v *virtual.Fleet) {
			blue := v.Operator("blue", nil)
			blue.Asks(virtual.Need("low", 1, 4, 0))
			v.Configured("blue", 1)
			blue.Asks(virtual.Need("low", 1, 4, 0), virtual.Need("web", 2, 4, 1000, virtual.Same(virtual.RackKey)))
		}, blueWeb},
		{"NOT_OWNED", "Another shard owns the machines.", onDemand(1), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{DefaultOwner: true, OwnedClusters: []string{"red", "blue"}})
			ghost(v, "red")
			v.Until("the shard knows whose it is", func() bool {
				_, out := v.Bigfleet("get", "machines", "--flag", "foreign", "-o", "name")
				return strings.HasPrefix(out, "machine/")
			})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"NOT_HEARD", "The shard has not confirmed the demand of its cluster since it started, so nothing is preempted there.", onDemand(20), nil, func(v *virtual.Fleet) {
			wants(v, 20).Close()
			v.Restart()
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0)) // next to nothing beside 20 machines
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"DOMAIN_MOVED", "Once released, the machines belong to another shard.", onDemand(1), coordinated, func(v *virtual.Fleet) {
			movedDomain(v)
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"NEVER_JOINED", "Their Nodes never joined the need's cluster, so they are withheld from it for a while.", onDemand(10), nil, func(v *virtual.Fleet) {
			v.Does("pause", "--kind", "delete", "--reason", "it stays", "--yes")
			oneNeverJoins(v)
			eventually(func() bool {
				_, out := v.Bigfleet("get", "machines", "--state", "idle", "-o", "name")
				return strings.HasPrefix(out, "machine/")
			})
			blueAsks(v, 1, -5)
			v.Configured("blue", 1)
		}, "explain need/red/web"},
	}
}

// rejects are why a machine is none that a need gets (ENG-19.8).
func rejects() []said {
	return []said{
		{"FAILED", "It failed.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", Fault: pb.FaultKind_FAULT_KIND_ERROR, ErrorClass: "permanent"})
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"LEAVING", "It is being released, or is starting without a need.", onDemand(2), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 600_000})
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
			v.Kept(pb.KeepReason_KEEP_REASON_LEAVING, "")
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"PROMISED", "It is on its way to another need.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 1000))
			v.Kept(pb.KeepReason_KEEP_REASON_PROMISED, "")
			blueAsks(v, 1, 0)
		}, blueWeb},
		{"ELSEWHERE", "It is in use in another cluster.", onDemand(1), nil, func(v *virtual.Fleet) { ghost(v, "ghost"); blueAsks(v, 1, 1000) }, blueWeb},
		{"ELSEWHERE", "1: It is in use in another cluster.", onDemand(1), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{DefaultOwner: true, OwnedClusters: []string{"blue"}})
			ghost(v, "green") // of another shard
			blueAsks(v, 1, 1000)
		}, blueWeb},
		{"OTHER_DOMAIN", "It is outside the domain that the need has chosen.", []provider.Offering{virtual.Slots("a", "a", 1), virtual.Slots("b", "b", 2)}, nil, func(v *virtual.Fleet) {
			blueAsks(v, 2, 0, virtual.Same(virtual.RackKey))
			v.Configured("blue", 2)
		}, blueWeb},
		{"HELD", "The need is blocked for now.", onDemand(2), nil, func(v *virtual.Fleet) {
			v.Operator("blue", func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "no template", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			}).Asks(virtual.Need("web", 1, 4, 0))
		}, blueWeb},
		{"SPREAD", "One more in that domain would violate the spread constraint.", []provider.Offering{virtual.Slots("a", "a", 9), virtual.Slots("b", "b", 1)}, nil, func(v *virtual.Fleet) {
			blueAsks(v, 8, 0, virtual.Spread(virtual.ZoneKey))
		}, blueWeb},
		{"REQUIREMENT", "topology.kubernetes.io/zone in (mars): it has a", onDemand(1), nil, func(v *virtual.Fleet) { blueAsks(v, 1, 0, virtual.In(virtual.ZoneKey, "mars")) }, blueWeb},
		{"TAINT", "taint example.com/only=gpu:NoSchedule", []provider.Offering{virtual.Slots("a", "a", 1, func(o *provider.Offering) {
			o.Taints = []provider.Taint{{Key: "example.com/only", Value: "gpu", Effect: "NoSchedule"}}
		})}, nil, func(v *virtual.Fleet) {
			blueAsks(v, 1, 0, func(n *pb.CapacityNeed) { n.TolerationsStated = true })
		}, blueWeb},
		{"TOO_SMALL", "cpu: it offers 4, one Pod requests 16", onDemand(1), nil, func(v *virtual.Fleet) { v.Operator("blue", nil).Asks(virtual.Need("web", 1, 16, 0)) }, blueWeb},
		{"NOT_OWNED", "Another shard owns it.", bareMetal("a", "b"), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{PartitionKeys: []string{virtual.ZoneKey}, OwnedDomains: []*pb.DomainRef{{TopologyKey: virtual.ZoneKey, TopologyValue: "a"}}, OwnedClusters: []string{"blue"}})
			blueAsks(v, 2, 0)
		}, blueWeb},
		{"NOT_JOINED", "It is configured, but its Node never joined.", onDemand(10), nil, func(v *virtual.Fleet) {
			v.Does("pause", "--kind", "reclaim", "--reason", "nothing goes now", "--yes")
			oneNeverJoins(v)
		}, "explain need/red/web"},
		{"SERVES_ANOTHER", "Another need uses it.", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1); blueAsks(v, 1, 0) }, blueWeb},
		{"WITHHELD", "It is withheld.", onDemand(4), nil, func(v *virtual.Fleet) {
			v.Stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			blueAsks(v, 1, 0)
		}, blueWeb + " --candidates"},
		{"USELESS", "It offers none of the requested resources.", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Operator("blue", nil).Asks(&pb.CapacityNeed{RowId: "web", AggregateResources: map[string]string{"example.com/fpga": "1"}})
		}, blueWeb},
		{"NOT_NEEDED", "It is available; other machines were chosen.", onDemand(3), nil, func(v *virtual.Fleet) { blueAsks(v, 1, 0); v.Configured("blue", 1) }, blueWeb},
	}
}

// marks are why a machine is offered to no cluster, or not to one of them.
func marks() []said {
	return []said{
		{"backoff", "an action on it failed recently", onDemand(1), nil, func(v *virtual.Fleet) { v.StopProvider(); blueAsks(v, 1, 0) }, firstMachine},
		{"stock-out", "its provider is out of stock for its type", onDemand(2), nil, func(v *virtual.Fleet) {
			v.Stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			blueAsks(v, 1, 0)
		}, "explain machine/cloud-a-1"},
		{"quota", "this shard has used up its slice of the quota", onDemand(2), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true, QuotaSlices: []*pb.QuotaSlice{{Provider: "cloud", Machines: 1}}})
			wants(v, 1)
		}, "explain machine/cloud-a-1"},
		{"reserved", "it is reserved for a move to another shard", onDemand(1), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true})
			idle(v, "a", 1)
			v.Instructs(&pb.CoordinatorInstruction{InstructionId: "r1", Payload: &pb.CoordinatorInstruction_ReserveMachines{ReserveMachines: &pb.ReserveMachines{
				MoveId: "m1", ToShardId: "other", Count: 1, Tier: pb.MoveTier_MOVE_TIER_IDLE, InstanceType: "c.4x", CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND}}})
		}, firstMachine},
		{"elsewhere", "Its domain belongs to another shard", onDemand(1), coordinated, movedDomain, firstMachine},
		{"not-joined", "it never became a Node of its cluster", onDemand(10), nil, oneNeverJoins, firstMachine},
		{"drained", "a person drained it. It is offered again at ", bareMetal("a", "b"), nil, func(v *virtual.Fleet) { personDrains(v, 0) }, firstMachine},
		{"provider-down", "its provider does not answer", onDemand(2), nil, func(v *virtual.Fleet) { v.StopProvider(); time.Sleep(10 * time.Minute) }, firstMachine},
	}
}

// ghost lets another shard make a machine for a cluster.
func ghost(v *virtual.Fleet, cluster string) {
	v.T.Helper()
	if _, err := v.Machines.Create(context.Background(), connect.NewRequest(&pb.CreateRequest{MachineId: "cloud-a-0", ShardId: "shard-9", ShardEpoch: 1, SequenceNumber: 1})); err != nil {
		v.T.Fatal(err)
	}
	v.Until("it is idle", func() bool {
		m, err := v.Machines.Get(context.Background(), connect.NewRequest(&pb.MachineRef{Id: "cloud-a-0"}))
		return err == nil && m.Msg.GetState() == pb.MachineState_MACHINE_STATE_IDLE
	})
	bind(v, cluster)
}

// bind lets another shard configure an idle machine for a cluster.
func bind(v *virtual.Fleet, cluster string) {
	v.T.Helper()
	if _, err := v.Machines.Configure(context.Background(), connect.NewRequest(&pb.ConfigureRequest{MachineId: "cloud-a-0", ClusterId: cluster, ShardId: "shard-9", ShardEpoch: 1, SequenceNumber: 2,
		ShardMetadata: map[string]string{"bigfleet.lucy.sh/owner-shard": "shard-9"}})); err != nil {
		v.T.Fatal(err)
	}
}

// user-asks 1 and 2, ENG-19.8: each sentence about what stands between a need and a machine is caused for real, and a command says it.
func TestEachSentence(t *testing.T) {
	for _, list := range [][]said{standings(), rejects(), marks()} {
		for _, s := range list {
			t.Run(s.code+": "+s.sentence, func(t *testing.T) {
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

// movedDomain gives the zone of a machine in use to another shard.
func movedDomain(v *virtual.Fleet) {
	v.Views("v1", 1, &pb.ShardView{OnlyShard: true})
	wants(v, 1)
	v.Views("v2", 2, &pb.ShardView{PartitionKeys: []string{virtual.ZoneKey}, OwnedDomains: []*pb.DomainRef{{TopologyKey: virtual.ZoneKey, TopologyValue: "b"}}, OwnedClusters: []string{"red", "blue"}})
}

// ENG-19.12: none of the codes is left out.
func TestSentencesAreWhole(t *testing.T) {
	clause := clauseOf(t, "engine.md", "ENG-19.12")
	for begin, list := range map[string][]said{"Rejects: ": rejects(), "Holders: ": standings(), "Marks: ": marks()} {
		_, text, found := strings.Cut(clause, begin)
		text, _, _ = strings.Cut(text, ".")
		if !found {
			t.Fatalf("the clause has no %q", begin)
		}
		caused := map[string]bool{}
		for _, s := range list {
			caused[s.code] = true
		}
		for _, code := range strings.Split(strings.ReplaceAll(text, "`", ""), ", ") {
			if !caused[code] {
				t.Errorf("%snothing causes %q", begin, code)
			}
			delete(caused, code)
		}
		if len(caused) > 0 {
			t.Errorf("%sthe specification knows no %v", begin, caused)
		}
	}
}
