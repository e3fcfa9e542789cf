package shards

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-12.11 to 12.15, 12.1: machines move to the shard that is short within three report intervals of the sweep.
func TestMachinesMove(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		f.intervals(6)
		if n := f.inventory.OwnedBy("needy"); n != 3 {
			t.Fatalf("needy owns %d machines, want 3", n)
		}
		if n := f.inventory.OwnedBy("donor"); n != 297 || f.inventory.Reserved() != 0 {
			t.Fatalf("donor owns %d machines, %d are reserved", n, f.inventory.Reserved())
		}
	})
}

// COORD-12.10, 12.20: slots move with their quota units when nothing is idle.
func TestSlotsMoveWithQuota(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "s", "c5", "eu-1a", coordinatortest.Speculative)
		f.intervals(3)
		f.admin(&pb.Operation{Kind: &pb.Operation_SetQuota{SetQuota: &pb.SetQuota{Quota: &v1.Quota{Provider: "sim:9000", Declared: 10, Slices: map[string]int32{"donor": 10}}}}})
		f.intervals(2)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "8", 61)}
		f.intervals(8)
		if n := f.inventory.OwnedBy("needy"); n != 2 {
			t.Fatalf("needy owns %d slots, want 2", n)
		}
		for _, s := range f.group.State().Quota("sim:9000", "").GetSlices() {
			if want := map[string]int32{"donor": 8, "needy": 2}[s.GetShardId()]; s.GetTarget() != want || s.GetGranted() != want {
				t.Errorf("slice %v, want %d", s, want)
			}
		}
	})
}

// COORD-12.13, COORD-21.52: tier 3 drains what is cheaper than the requester, and nothing else.
func TestDrainTier(t *testing.T) {
	for priority, want := range map[int32]int{50: 1, 100: 0} {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy")
			defer f.stop()
			f.admin(policyOp(func(p *v1.RebalancePolicy) { p.MaxTier = v1.MoveTier_MOVE_TIER_DRAIN }))
			f.inventory.Add(5, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(2)
			f.inventory.Occupy("m-", "red", "donor", priority)
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "4", 181)}
			f.intervals(8)
			if n := f.inventory.OwnedBy("needy"); n != want {
				t.Fatalf("priority %d: needy owns %d machines, want %d", priority, n, want)
			}
		})
	}
}

// COORD-12.2, COORD-21.50: off cancels what is only planned, dry run moves nothing and explains.
func TestKillSwitch(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.admin(policyOp(func(p *v1.RebalancePolicy) { p.Mode = v1.RebalanceMode_REBALANCE_MODE_DRY_RUN }))
		f.intervals(2)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		f.intervals(6)
		if f.group.State().OpenMoveCount() != 0 || len(f.registry.Proposed()) == 0 || !strings.Contains(f.registry.Proposed()[0].GetReason(), "needy has been short") {
			t.Fatalf("dry run: %d moves, %d proposals", f.group.State().OpenMoveCount(), len(f.registry.Proposed()))
		}
		f.admin(policyOp(func(p *v1.RebalancePolicy) {}))
		for f.group.State().OpenMoveCount() == 0 {
			time.Sleep(time.Second) // planned, and no shard reports
		}
		f.admin(policyOp(func(p *v1.RebalancePolicy) { p.Mode = v1.RebalanceMode_REBALANCE_MODE_OFF }))
		time.Sleep(16 * time.Second)
		f.intervals(3)
		for m := range f.group.State().Moves() {
			if m.GetState() != v1.Move_STATE_ABORTED {
				t.Errorf("move %v", m)
			}
		}
		if f.inventory.OwnedBy("needy") != 0 || f.inventory.Reserved() != 0 {
			t.Fatal("something moved")
		}
	})
}

// COORD-12.18, COORD-21.49: demand that disappears at any state ends the move without a stranded machine.
func TestDemandDisappears(t *testing.T) {
	for after := range 8 {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy")
			defer f.stop()
			f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(3)
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
			f.intervals(after)
			f.shards[1].Shortfalls = nil
			f.intervals(20)
			f.settled(300)
		})
	}
}

// settled checks that no move is open and every machine has one owner and none is reserved.
func (f *fixture) settled(machines int) {
	f.t.Helper()
	owned := 0
	for id, owners := range f.inventory.Owners() {
		if len(owners) != 1 {
			f.t.Errorf("machine %s has owners %v", id, owners)
		}
		owned += len(owners)
	}
	if owned != machines || f.inventory.Reserved() != 0 || f.group.State().OpenMoveCount() != 0 {
		f.t.Errorf("%d of %d machines owned, %d reserved, moves %v", owned, machines, f.inventory.Reserved(), slices.Collect(f.group.State().OpenMoves()))
	}
}

// COORD-12.17, COORD-21.45: donor, recipient or leader die before and after every step, with and without their disks; no
// machine has two owners, and none stays reserved.
func TestMoveSurvivesEveryCrash(t *testing.T) {
	steps := []string{"before report", "after report", "before instruction", "after instruction"}
	for _, who := range []int{0, 1} {
		for _, step := range steps {
			for nth := range 9 {
				for _, wipe := range []bool{false, true} {
					within(t, func(t *testing.T) {
						f := newFixture(t, "donor", "needy")
						defer f.stop()
						f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
						f.intervals(3)
						f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
						victim, seen := f.shards[who], 0
						victim.Crash = func(at string) bool {
							if at != step {
								return false
							}
							seen++
							return seen == nth+1
						}
						for range 25 {
							for _, s := range f.shards {
								if err := s.Report(t.Context(), f.send); errors.Is(err, coordinatortest.ErrCrashed) {
									if wipe {
										s.Wipe()
									} else {
										s.Restart()
									}
									if nth%2 == 1 {
										f.lead()
									}
								} else if err != nil {
									t.Fatal(err)
								}
								f.single()
							}
							time.Sleep(ReportInterval)
						}
						f.shards[1].Shortfalls = nil
						f.intervals(15)
						f.settled(300)
						if t.Failed() {
							t.Fatalf("%s dies %s, time %d, wiped %v", victim.ID, step, nth, wipe)
						}
					})
				}
			}
		}
	}
}

// COORD-21.51: a manual domain move during a transfer of its machines: the exception wins and both finish.
func TestDomainMovesDuringATransfer(t *testing.T) {
	for after := range 6 {
		within(t, func(t *testing.T) {
			f := newFixture(t, "donor", "needy", "third")
			defer f.stop()
			f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
			f.intervals(3)
			f.admin(assignOp("eu-1a", "donor"))
			f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
			f.intervals(after)
			f.admin(moveOp("eu-1a", "third"))
			f.intervals(12)
			f.shards[1].Shortfalls = nil
			f.intervals(10)
			f.settled(300)
			// The shortfall lasts on, so the new owner may give machines too.
			if n, needy := f.inventory.OwnedBy("third"), f.inventory.OwnedBy("needy"); n+needy != 300 || after > 3 && needy < 3 {
				t.Errorf("after %d intervals third owns %d, needy %d, donor %d", after, n, needy, f.inventory.OwnedBy("donor"))
			}
		})
	}
}

// COORD-12.9, COORD-21.47: two shards that are short in turn: no machine moves twice within an hour.
func TestNoPingPong(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(200, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.inventory.Add(200, "n", "c5", "eu-1b", coordinatortest.Idle)
		f.intervals(2)
		f.admin(assignOp("eu-1a", "a"), assignOp("eu-1b", "b"))
		f.intervals(2)
		moved := map[string][]time.Time{}
		counted := map[string]bool{}
		for round := range 60 {
			needy, other := f.shards[round%2], f.shards[(round+1)%2]
			other.Shortfalls = nil
			needy.Shortfalls = []*v1.Shortfall{shortfall("x", "8", 100)}
			f.intervals(12)
			for m := range f.group.State().Moves() {
				if m.GetState() == v1.Move_STATE_DONE && !counted[m.GetMoveId()] {
					counted[m.GetMoveId()] = true
					for _, id := range m.GetMachineIds() {
						moved[id] = append(moved[id], time.Unix(0, m.GetUpdatedAtUnixNanos()))
					}
				}
			}
		}
		if len(moved) == 0 {
			t.Fatal("nothing moved: the test tests nothing")
		}
		for id, times := range moved {
			for i := 1; i < len(times); i++ {
				if gap := times[i].Sub(times[i-1]).Abs(); gap < time.Hour {
					t.Errorf("machine %s moved again after %s", id, gap)
				}
			}
		}
	})
}
