package coordinator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

const twoZones = `
- {name: a, instance_type: t4, zone: zone-a, capacity_type: on_demand, count: 20, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
- {name: b, instance_type: t4, zone: zone-b, capacity_type: on_demand, count: 2, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
`

const largeZones = `
- {name: a, instance_type: t4, zone: zone-a, capacity_type: on_demand, count: 520, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
- {name: b, instance_type: t4, zone: zone-b, capacity_type: on_demand, count: 40, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
`

var ownZones = map[string]string{"zone-a": "shard-0", "zone-b": "shard-1"}

// bound counts the machines that work for a cluster.
func (f *fleet) bound(shard int, cluster string) int {
	n := 0
	for _, m := range f.owned(shard) {
		if m.GetMachine().GetState() == v1.MachineState_MACHINE_STATE_CONFIGURED && m.GetMachine().GetCluster() == cluster {
			n++
		}
	}
	return n
}

// COORD-12.10, 12.11, 21.37: two shards share a provider by zones. The one that is short gets slots of the other one's
// zone, and no machine is ever owned twice or lost on the way.
func TestMachinesMoveToTheShardThatIsShort(t *testing.T) {
	f := newFleet(t, twoZones)
	f.assign(ownZones, 22)
	f.quick(v1.MoveTier_MOVE_TIER_QUOTA)
	f.cluster("red", 1, need("web", "24"))
	start := time.Now()
	var first time.Time
	f.eventually("six machines work for red", func() bool {
		f.single()
		if first.IsZero() && slices.ContainsFunc(f.moves(), func(m *v1.Move) bool { return m.GetState() == v1.Move_STATE_DONE }) {
			first = time.Now()
		}
		return f.bound(1, "red") == 6
	})
	f.whole(22)
	for _, m := range f.moves() {
		if m.GetFromShardId() != "shard-0" || m.GetToShardId() != "shard-1" || m.GetTier() != v1.MoveTier_MOVE_TIER_QUOTA || m.GetReason() == "" || len(m.GetDonors()) == 0 {
			t.Errorf("COORD-12.21: %v", m)
		}
		took := time.Duration(m.GetUpdatedAtUnixNanos() - m.GetStartedAtUnixNanos())
		t.Logf("move of %d: %s, %s, that is %.1f report intervals", len(m.GetMachineIds()), m.GetState(), took.Round(time.Millisecond), float64(took)/float64(f.every))
	}
	t.Logf("demand to machines at work: %s", time.Since(start).Round(time.Millisecond))
}

// fiveMachines are four of shard-0 and one of shard-1.
const fiveMachines = `
- {name: a, instance_type: t4, zone: zone-a, capacity_type: on_demand, count: 4, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
- {name: b, instance_type: t4, zone: zone-b, capacity_type: on_demand, count: 1, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
`

// working lists the machines of a shard that are no slots.
func (f *fleet) working(shard int, state v1.MachineState) map[string]bool {
	out := map[string]bool{}
	for id, m := range f.owned(shard) {
		if m.GetMachine().GetState() == state {
			out[id] = true
		}
	}
	return out
}

// moved waits until all moves ended and returns the machines of those that were done, all of one tier.
func (f *fleet) moved(tier v1.MoveTier) (ids []string) {
	f.t.Helper()
	f.eventually("the moves end", func() bool { return len(f.moves()) > 0 && !slices.ContainsFunc(f.moves(), open) })
	for _, m := range f.moves() {
		if m.GetState() != v1.Move_STATE_DONE {
			continue
		}
		ids = append(ids, m.GetMachineIds()...)
		if m.GetTier() != tier || m.GetFromShardId() != "shard-0" || m.GetToShardId() != "shard-1" {
			f.t.Errorf("%v", m)
		}
	}
	return ids
}

// COORD-12.10, tier 1: machines that stand idle at one shard work for a cluster of the other one. They are the same
// machines, no more than are short, and none is bought.
func TestIdleMachinesMove(t *testing.T) {
	f := newFleet(t, fiveMachines, "--reclaim-cap-fraction", "0")
	f.assign(ownZones, 5)
	f.quick(v1.MoveTier_MOVE_TIER_IDLE)
	blue := f.cluster("blue", 0, need("web", "16"))
	f.eventually("blue has all machines of its zone", func() bool { return f.bound(0, "blue") == 4 })
	blue.want(need("web", "4"))
	f.eventually("three stand idle", func() bool { return len(f.working(0, v1.MachineState_MACHINE_STATE_IDLE)) == 3 })
	idle := f.working(0, v1.MachineState_MACHINE_STATE_IDLE)
	f.cluster("red", 1, need("web", "12"))
	f.eventually("red has its own machine and two idle ones", func() bool {
		f.single()
		return f.bound(1, "red") == 3
	})
	ids := f.moved(v1.MoveTier_MOVE_TIER_IDLE)
	if len(ids) != 2 {
		t.Errorf("moved: %v", ids)
	}
	for _, id := range ids {
		if !idle[id] {
			t.Errorf("machine %s was not idle before", id)
		}
	}
	if n := len(f.working(0, v1.MachineState_MACHINE_STATE_IDLE)); n != 1 {
		t.Errorf("COORD-12.8: %d idle machines stay with the donor", n)
	}
	f.whole(5)
}

// COORD-12.10, 12.13, tier 3: nothing is idle and no slot is left. A cheaper machine of the other shard is drained and
// moves; without a cheaper one nothing is drained (COORD-21.52), and neither before an admin allowed this tier.
func TestAMachineIsDrainedForAnotherShard(t *testing.T) {
	f := newFleet(t, fiveMachines, "--reclaim-cap-fraction", "0")
	f.assign(ownZones, 5)
	f.quick(v1.MoveTier_MOVE_TIER_QUOTA)
	want := func(row, cpu string, priority int32, bucket v1.PenaltyBucket) *v1.CapacityNeed {
		n := need(row, cpu)
		n.Priority, n.InterruptionPenaltyBucket = priority, bucket
		return n
	}
	const low, high = v1.PenaltyBucket_PENALTY_BUCKET_ZERO, v1.PenaltyBucket_PENALTY_BUCKET_8
	f.cluster("blue", 0, want("web", "12", 1000, high), want("batch", "4", 1, low))
	f.eventually("blue has all machines of its zone", func() bool { return f.bound(0, "blue") == 4 })
	f.cluster("red", 1, want("db", "12", 500, high))
	f.eventually("red has its own machine", func() bool { return f.bound(1, "red") == 1 })
	f.eventually("the shortfall is older than every gate", func() bool {
		got := retry(f, f.core.ListShardReports, &v1.ListShardReportsRequest{ShardId: "shard-1"})
		return len(got.GetReports()) == 1 && slices.ContainsFunc(got.GetReports()[0].GetShortfalls(), func(s *v1.Shortfall) bool { return s.GetAgeSeconds() >= 3 })
	})
	if moves := f.moves(); len(moves) != 0 || f.bound(0, "blue") != 4 {
		t.Fatalf("drained before it was allowed: %v", moves)
	}
	f.quick(v1.MoveTier_MOVE_TIER_DRAIN)
	f.eventually("red has a machine that worked for batch", func() bool {
		f.single()
		return f.bound(1, "red") == 2
	})
	if ids := f.moved(v1.MoveTier_MOVE_TIER_DRAIN); len(ids) != 1 {
		t.Errorf("moved: %v", ids)
	}
	time.Sleep(2 * time.Second) // red is still short: some sweeps more
	if n := f.bound(0, "blue"); n != 3 {
		t.Errorf("blue's dearer machines are %d", n)
	}
	f.whole(5)
}

// COORD-12.3, 21.48: a shortfall that must be met in one place never moves machines, however old it gets.
func TestSameNeverMoves(t *testing.T) {
	f := newFleet(t, twoZones)
	f.assign(ownZones, 22)
	f.quick(v1.MoveTier_MOVE_TIER_QUOTA)
	f.cluster("red", 1, need("gang", "24", &v1.NodeSelectorRequirement{Key: zoneKey, Operator: v1.NodeSelectorRequirement_OPERATOR_SAME}))
	f.eventually("the shortfall is reported and older than every gate", func() bool {
		got := retry(f, f.core.ListShardReports, &v1.ListShardReportsRequest{ShardId: "shard-1"})
		return len(got.GetReports()) == 1 && slices.ContainsFunc(got.GetReports()[0].GetShortfalls(), func(s *v1.Shortfall) bool { return s.GetAgeSeconds() >= 3 })
	})
	time.Sleep(2 * time.Second) // some sweeps more
	if moves := f.moves(); len(moves) != 0 {
		t.Fatalf("%v", moves)
	}
	f.whole(22)
}

// COORD-21.45: the donor, the recipient and the leader are killed in each state of a move. Whatever the state, in the end
// every machine has exactly one owner, nothing stays reserved, and the cluster has its machine.
func TestEachSideKilledAtEachStep(t *testing.T) {
	f := newFleet(t, twoZones)
	f.assign(ownZones, 22)
	f.quick(v1.MoveTier_MOVE_TIER_QUOTA)
	red := f.cluster("red", 1, need("web", "8"))
	want := 2
	f.eventually("red has the machines of its own zone", func() bool { return f.bound(1, "red") == want })
	caught := map[string]int{}
	for _, state := range []v1.Move_State{v1.Move_STATE_PLANNED, v1.Move_STATE_RESERVED, v1.Move_STATE_ADOPTED} {
		for name, victims := range map[string][]*proc.Process{"recipient": {f.shards[1]}, "leader": {f.coordinator},
			// A donor that restarted gives nothing for two minutes (COORD-12.7), as far as the leader knows.
			"donor and leader": {f.shards[0], f.coordinator}} {
			want++
			before := map[string]bool{}
			for _, m := range f.moves() {
				before[m.GetMoveId()] = true
			}
			red.want(need("web", fmt.Sprint(4*want)))
			var hit bool
			for end := time.Now().Add(60 * time.Second); !hit && time.Now().Before(end); {
				moves := f.moves()
				hit = slices.ContainsFunc(moves, func(m *v1.Move) bool { return !before[m.GetMoveId()] && m.GetState() == state })
				if !hit && slices.ContainsFunc(moves, func(m *v1.Move) bool { return !before[m.GetMoveId()] && !open(m) }) {
					break // it went through between two looks
				}
			}
			for _, victim := range victims {
				victim.Kill()
			}
			if hit {
				caught[state.String()]++
			}
			for _, victim := range victims {
				if err := victim.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f.eventually(fmt.Sprintf("red has %d machines after %s died in %s", want, name, state), func() bool {
				f.single()
				return f.bound(1, "red") == want
			})
			f.whole(22)
			t.Logf("%s killed in %s: %v", name, state, hit)
		}
	}
	t.Logf("killed in: %v", caught)
	for shard := range 2 {
		for id, m := range f.owned(shard) {
			if slices.Contains(m.GetFlags(), v1.MachineFlag_MACHINE_FLAG_RESERVED) {
				t.Errorf("machine %s is still reserved", id)
			}
		}
	}
}

// COORD-10.5, 9.9e, 21.42, SHARD-12.7: a cluster dials another shard as soon as its machines are at work, so some of them are
// younger than that shard's last reading of the provider. Nothing is bought a second time and none
// of its machines is reclaimed while they change hands.
func TestClusterRebound(t *testing.T) {
	const machines = 500
	f := newFleet(t, largeZones)
	f.assign(ownZones, 560)
	red := f.cluster("red", 0, need("web", fmt.Sprint(4*machines)))
	f.eventually("red has its machines", func() bool { return f.bound(0, "red") == machines })
	f.eventually("the coordinator knows where red is", func() bool {
		got := retry(f, f.admin.ListClusterBindings, &v1.ListClusterBindingsRequest{ShardId: "shard-0"}).GetBindings()
		return len(got) == 1 && got[0].GetBoundMachines() == machines
	})
	red.end()
	f.cluster("red", 1, need("web", fmt.Sprint(4*machines)))
	retry(f, f.admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-1", Rebind: true})
	hosts := func() int { // machines that are not slots any more, at either shard
		ids := map[string]bool{}
		for shard := range 2 {
			for id, m := range f.owned(shard) {
				if m.GetMachine().GetState() != v1.MachineState_MACHINE_STATE_SPECULATIVE {
					ids[id] = true
				}
			}
		}
		return len(ids)
	}
	f.eventually("red's machines are shard-1's", func() bool {
		f.single()
		if n := hosts(); n > machines {
			t.Fatalf("%d machines were bought for a demand of %d", n, machines)
		}
		return f.bound(1, "red") == machines
	})
	time.Sleep(3 * time.Second) // some cycles, in which both sides could still do something wrong
	if n := f.bound(1, "red"); n != machines {
		t.Errorf("%d machines are left of %d", n, machines)
	}
	if n := hosts(); n != machines {
		t.Errorf("%d machines are bought", n)
	}
	f.whole(560)
}

// COORD-12.16, 21.46: the recipient and the coordinator go away once the donor reserved. The donor keeps its hands off the
// reserved machines whatever its own need; the order AbandonReservation frees them.
func TestReservationOutlivesTheCoordinator(t *testing.T) {
	f := newFleet(t, twoZones)
	f.assign(ownZones, 22)
	f.quick(v1.MoveTier_MOVE_TIER_QUOTA)
	red := f.cluster("red", 1, need("web", "8"))
	f.eventually("red has the machines of its own zone", func() bool { return f.bound(1, "red") == 2 })
	var held *v1.Move
	for tries := 3; held == nil && tries <= 8; tries++ {
		red.want(need("web", fmt.Sprint(4*tries)))
		f.eventually("a move, or what one brings", func() bool { return slices.ContainsFunc(f.moves(), open) || f.bound(1, "red") == tries })
		if err := f.shards[1].Pause(); err != nil {
			t.Fatal(err)
		}
		f.eventually("the donor reserved, or the move was faster", func() bool {
			for _, m := range f.moves() {
				if m.GetState() == v1.Move_STATE_RESERVED {
					held = m
				}
			}
			return held != nil || !slices.ContainsFunc(f.moves(), open)
		})
		if held == nil {
			if err := f.shards[1].Resume(); err != nil {
				t.Fatal(err)
			}
			f.eventually("the next try", func() bool { return f.bound(1, "red") == tries })
		}
	}
	if held == nil {
		t.Fatal("no move could be stopped between reservation and adoption")
	}
	f.coordinator.Kill()
	f.shards[1].Kill()
	free := 0
	for _, m := range f.owned(0) {
		if m.GetMachine().GetState() == v1.MachineState_MACHINE_STATE_SPECULATIVE && !slices.Contains(m.GetFlags(), v1.MachineFlag_MACHINE_FLAG_RESERVED) {
			free++
		}
	}
	reserved := len(held.GetMachineIds())
	f.cluster("blue", 0, need("all", fmt.Sprint(4*(free+reserved))))
	f.eventually("blue has all that is free", func() bool { return f.bound(0, "blue") == free })
	time.Sleep(2 * time.Second)
	if n := f.bound(0, "blue"); n != free {
		t.Fatalf("the donor took %d reserved machines back", n-free)
	}
	orders := stub(t, f.addrs["shard-0"], api.NewShardAdminClient)
	retry(f, orders.AbandonReservation, &v1.AbandonReservationRequest{MoveId: held.GetMoveId(), Reason: "the recipient is gone"})
	f.eventually("blue has the freed machines too", func() bool { return f.bound(0, "blue") == free+reserved })
}
