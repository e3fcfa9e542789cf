package explain_test

import (
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// kept is one reason of ENG-19.6, how it comes about, and what the command must say of the machine.
type kept struct {
	reason    pb.KeepReason
	offerings []provider.Offering
	edit      func(*shard.Config)
	cause     func(v *virtual.Fleet)
	says      []string // the first one names the machine that is meant, where several are kept for the reason
}

func onDemand(n int) []provider.Offering { return []provider.Offering{virtual.Slots("a", "a", n)} }

func bareMetal(zones ...string) (out []provider.Offering) {
	for _, z := range zones {
		out = append(out, virtual.Slots(z, z, 1, func(o *provider.Offering) { o.CapacityType = provider.BareMetal }))
	}
	return out
}

func coordinated(c *shard.Config) { c.CoordinatorAddr, c.NoRollupGuard = virtual.Coordinated, true }

func believesAll(c *shard.Config) { c.NoRollupGuard = true }

// idle lets machines serve for a while, in one zone, and be free again.
func idle(v *virtual.Fleet, zone string, n int) {
	v.T.Helper()
	red := v.Operator("red", nil)
	red.Asks(virtual.Need("web", n, 4, 0, virtual.In(virtual.ZoneKey, zone)))
	v.Configured("red", n)
	red.Asks()
	v.Until("the machines are idle", func() bool {
		_, out := v.Bigfleet("get", "machines", "--state", "idle", "-o", "name")
		return strings.Count(out, "machine/") == n
	})
}

// wants asks for machines and waits until the cluster has them.
func wants(v *virtual.Fleet, n int) *virtual.Operator {
	red := v.Operator("red", nil)
	red.Asks(virtual.Need("web", n, 4, 0))
	v.Configured("red", n)
	return red
}

// withdrawn asks for a machine and, once a machine is in the state, for none any more.
func withdrawn(v *virtual.Fleet, call, state string) {
	v.Behaves(&pb.Behaviour{Call: call, LatencyMillis: 600_000})
	red := v.Operator("red", nil)
	red.Asks(virtual.Need("web", 1, 4, 0))
	v.Until("a machine is "+state, func() bool {
		_, out := v.Bigfleet("get", "machines", "--state", state, "-o", "name")
		return strings.HasPrefix(out, "machine/")
	})
	red.Asks()
}

func keptReasons() []kept {
	return []kept{
		{pb.KeepReason_KEEP_REASON_CLAIMED, onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1) },
			[]string{"In use by web of cluster red, priority 0.", "Released when that need requires less."}},
		{pb.KeepReason_KEEP_REASON_CLAIMED_WITH_SHARES, onDemand(2), nil, func(v *virtual.Fleet) {
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 3, 0, virtual.In(virtual.ZoneKey, "a")), virtual.Need("side", 1, 1, 0))
			v.Configured("red", 1)
		}, []string{"and others.", "Needs that use its remaining capacity: 1.", "Released when all of them require less."}},
		{pb.KeepReason_KEEP_REASON_RELEASE_DELAY, onDemand(2), func(c *shard.Config) { c.ReleaseDelay = time.Hour }, func(v *virtual.Fleet) {
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"a machine must be unneeded for a while first", "Released after it has been unneeded for --release-delay"}},
		{pb.KeepReason_KEEP_REASON_PROTECTED_PODS, onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 2)
			for _, name := range v.Configured("red", 2) {
				red.Holds(name, &pb.NodeContents{Pods: 2, PodsProtected: 1})
			}
			time.Sleep(time.Second)
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"Pods that must not be disrupted", "Released once these Pods have left"}},
		{pb.KeepReason_KEEP_REASON_DRAIN_BACKOFF, onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 2)
			red.Stops.Store(true)
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"the last drain was given up", "default/db", "Allow a disruption in the budget"}},
		{pb.KeepReason_KEEP_REASON_OUT_OF_SERVICE, onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 1)
			name := v.Configured("red", 1)[0]
			red.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{virtual.Need("web", 1, 4, 0)},
				OutOfService: []*pb.MachineOutOfService{{MachineId: name, Reason: pb.MachineOutOfService_REASON_CORDONED, Pods: 3}}}}})
		}, []string{"ts node accepts no new Pods (cordoned); it is kept because 3 Pods run on it"}},
		{pb.KeepReason_KEEP_REASON_OUT_OF_SERVICE, onDemand(2), nil, func(v *virtual.Fleet) { personDrains(v, 3) },
			[]string{"ts node accepts no new Pods (cordoned since 08:00 UTC: disk errors, by alice); it is kept because 3 Pods run on it"}},
		{pb.KeepReason_KEEP_REASON_WITHHELD, bareMetal("a", "b"), nil, func(v *virtual.Fleet) { personDrains(v, 0) },
			[]string{"It is withheld: a person drained it. It is offered again at ", "If it is repaired, `bigfleet machines retry ID` offers it at once."}},
		{pb.KeepReason_KEEP_REASON_NOT_HEARD, onDemand(1), nil, func(v *virtual.Fleet) { ghost(v, "ghost") }, []string{"The shard has not confirmed the demand of its cluster since it started.", "Evaluated when the cluster's first roll-up is in force. Bring its operator back, or retire the cluster"}},
		{pb.KeepReason_KEEP_REASON_READINESS_GUARD, onDemand(10), nil, func(v *virtual.Fleet) {
			wants(v, 10).Reports(true, nil) // and not one of them joins
			time.Sleep(20 * time.Minute)
		}, []string{"Too many other Nodes did not join either", "Check the bootstrap template."}},
		{pb.KeepReason_KEEP_REASON_NOT_OWNED, bareMetal("a", "b"), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true})
			idle(v, "b", 1)
			v.Views("v2", 2, &pb.ShardView{PartitionKeys: []string{virtual.ZoneKey}, OwnedDomains: []*pb.DomainRef{{TopologyKey: virtual.ZoneKey, TopologyValue: "a"}}})
		}, []string{"Another shard owns it.", "The owning shard decides about it."}},
		{pb.KeepReason_KEEP_REASON_SURPLUS_MATURES, onDemand(1), believesAll, func(v *virtual.Fleet) { withdrawn(v, "Configure", "configuring") },
			[]string{"No need uses it any more. It finishes starting first.", "No action is needed"}},
		{pb.KeepReason_KEEP_REASON_PROMISED, onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"It is reserved for web of cluster red, priority 0.", "Available to other needs when that need requires less."}},
		{pb.KeepReason_KEEP_REASON_PROMISED_UNUSED, onDemand(1), believesAll, func(v *virtual.Fleet) { withdrawn(v, "Create", "creating") },
			[]string{"It was reserved for a need that no longer requires it.", "No action is needed: once it is ready, any need may use it"}},
		{pb.KeepReason_KEEP_REASON_LEAVING, onDemand(2), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 600_000})
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"It is being released.", "`bigfleet get drains` names what blocks it"}},
		{pb.KeepReason_KEEP_REASON_HOLD, onDemand(2), nil, func(v *virtual.Fleet) { wants(v, 2).Asks(virtual.Need("web", 1, 4, 0)) },
			[]string{"It is Idle and within its hold time, which is shorter for a dearer machine.", "Held until ", "The wait costs ", "Deleted when the hold time ends."}},
		{pb.KeepReason_KEEP_REASON_FIXED, bareMetal("a"), believesAll, func(v *virtual.Fleet) { idle(v, "a", 1) },
			[]string{"Machines of its capacity type are never released", "Any need that fits may use it. To release it, remove it at its provider."}},
		{pb.KeepReason_KEEP_REASON_WITHHELD, onDemand(4), nil, func(v *virtual.Fleet) {
			v.Stock(&pb.MachineSelector{InstanceType: "c.4x"}, 0)
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"It is withheld: its provider is out of stock for its type.", "It is retried automatically. Request more from the provider, or allow other types and zones."}},
		{pb.KeepReason_KEEP_REASON_WITHHELD, onDemand(3), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true, QuotaSlices: []*pb.QuotaSlice{{Provider: "cloud", Machines: 1}}})
			wants(v, 1)
		}, []string{"It is withheld: this shard has used up its slice of the quota.", "Raise the quota, or this shard's slice of it."}},
		{pb.KeepReason_KEEP_REASON_SLOT, onDemand(1), nil, func(*virtual.Fleet) {},
			[]string{"It is available to buy and costs nothing.", "Bought when a need requires it."}},
		{pb.KeepReason_KEEP_REASON_FAILED, onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", Fault: pb.FaultKind_FAULT_KIND_ERROR, ErrorClass: "permanent"})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"It has failed. It must be repaired, retried or forgotten.", "Message from its provider: ", "When the cause is fixed, run `bigfleet machines retry ID`; or `bigfleet machines forget ID`."}},
		{pb.KeepReason_KEEP_REASON_FAILED, onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", LatencyMillis: 600_000})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
			v.Until("a machine is creating", func() bool {
				_, out := v.Bigfleet("get", "machines", "--state", "creating", "-o", "name")
				return strings.HasPrefix(out, "machine/")
			})
			v.StopProvider()
			time.Sleep(10 * time.Minute)
		}, []string{"It is still creating and does not count as capacity: its provider does not answer.", "Check its provider with `bigfleet provider ping ADDRESS`."}},
		{pb.KeepReason_KEEP_REASON_BUDGET, onDemand(12), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Drain", LatencyMillis: 600_000})
			wants(v, 12).Asks(virtual.Need("web", 7, 4, 0))
		}, []string{"No need uses the machine any more. Its reclaim is planned, but the reclaim budget is used up for now.", "Released when the budget has refilled"}},
		{pb.KeepReason_KEEP_REASON_NO_SESSION, onDemand(2), nil, func(v *virtual.Fleet) {
			v.Does("pause", "--kind", "reclaim", "--reason", "not yet", "--yes")
			red := wants(v, 2)
			red.Asks(virtual.Need("web", 1, 4, 0))
			v.Kept(pb.KeepReason_KEEP_REASON_PAUSED, "")
			red.Close()
			_, out := v.Bigfleet("get", "pauses", "-o", "name")
			v.Does("resume", strings.TrimPrefix(strings.TrimSpace(out), "pause/"), "--reason", "now", "--yes")
		}, []string{"but its cluster has not reported in this session", "Released when the operator of its cluster has connected and reported. Bring it back"}},
		{pb.KeepReason_KEEP_REASON_PAUSED, onDemand(2), nil, func(v *virtual.Fleet) {
			v.Does("pause", "--kind", "reclaim", "--reason", "not yet", "--yes")
			wants(v, 2).Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"but actions are paused or in dry run", "`bigfleet get pauses` shows who paused it and why. `bigfleet resume` ends the pause"}},
		{pb.KeepReason_KEEP_REASON_STALE_INVENTORY, onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 2)
			v.StopProvider()
			time.Sleep(10 * time.Minute)
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, []string{"but the inventory is too old to act on", "Released when its provider answers again"}},
		{pb.KeepReason_KEEP_REASON_RESERVED, onDemand(2), coordinated, func(v *virtual.Fleet) {
			v.Views("v1", 1, &pb.ShardView{OnlyShard: true})
			idle(v, "a", 2) // one stays
			v.Instructs(&pb.CoordinatorInstruction{InstructionId: "r1", Payload: &pb.CoordinatorInstruction_ReserveMachines{ReserveMachines: &pb.ReserveMachines{
				MoveId: "m1", ToShardId: "other", Count: 1, Tier: pb.MoveTier_MOVE_TIER_IDLE, InstanceType: "c.4x", CapacityType: pb.CapacityType_CAPACITY_TYPE_ON_DEMAND}}})
		}, []string{"It is withheld: it is reserved for a move to another shard.", "It is handed over when the move completes. To keep it, cancel the move."}},
	}
}

// user-asks 2, ENG-19.6, SHARD-23.1, OPS scenario 7: each reason for which a machine is kept is caused for real, and the command
// says what is so and what would have to change. None is left out.
func TestEachKeepReason(t *testing.T) {
	left := map[int32]string{}
	for n, name := range pb.KeepReason_name {
		left[n] = name
	}
	delete(left, 0)
	for _, k := range keptReasons() {
		delete(left, int32(k.reason))
		t.Run(strings.TrimPrefix(k.reason.String(), "KEEP_REASON_"), func(t *testing.T) {
			virtual.Run(t, k.offerings, k.edit, func(v *virtual.Fleet) {
				k.cause(v)
				out := v.Kept(k.reason, k.says[0])
				for _, want := range append(k.says, "", "Cycle ") {
					if !strings.Contains(out, want) {
						t.Errorf("lacks %q:\n%s", want, out)
					}
				}
			})
		})
	}
	if len(left) > 0 {
		t.Errorf("nothing causes %v", left)
	}
}
