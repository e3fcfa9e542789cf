package shards

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-7.2, 4.8, 1.6, 3.5, COORD-21.32: 4,000 unknown shards in 10 s become at most 64 entries, and a report that brings
// nothing new writes nothing.
func TestRegistrationStorm(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		before := f.group.entries
		var group sync.WaitGroup
		for i := range 4000 {
			group.Go(func() {
				time.Sleep(rand.N(10 * time.Second))
				ack, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: fmt.Sprint("shard-", i), Cycle: 1, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
				if err != nil || !ack.GetAcknowledged() || ack.GetClusterUuid() != "group-1" {
					t.Errorf("%v %v", ack, err)
				}
			})
		}
		group.Wait()
		if n := f.group.State().ShardCount(); n != 4000 {
			t.Fatalf("%d shards are registered", n)
		}
		for i := range 4000 {
			if id := fmt.Sprint("shard-", i); !f.registry.SoftState(id, false).Heard {
				t.Fatalf("the report that registered %s is lost", id)
			}
		}
		if n := f.group.entries - before; n > 64 {
			t.Fatalf("%d log entries", n)
		}
		before = f.group.entries
		for i := range 100 {
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: fmt.Sprint("shard-", i), Cycle: 2, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}}); err != nil {
				t.Fatal(err)
			}
		}
		if f.group.entries != before {
			t.Fatalf("COORD-1.6: reports without news wrote %d entries", f.group.entries-before)
		}
	})
}

// COORD-7.4, 7.6, 8.3, COORD-21.28, 21.33: reordered and repeated reports change no soft state; an empty list empties.
func TestReportsAreOrdered(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(epoch, cycle int64, shorts ...*v1.Shortfall) {
			t.Helper()
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", ShardEpoch: epoch, Cycle: cycle, Shortfalls: shorts, Summary: &v1.ShardSummary{TotalMachines: int32(cycle)}}); err != nil {
				t.Fatal(err)
			}
		}
		look := func(machines int32, shorts int) {
			t.Helper()
			got := f.registry.SoftState("a", true)
			if got.Summary.GetTotalMachines() != machines || len(got.Shortfalls) != shorts {
				t.Fatalf("%d machines, %d shortfalls; want %d, %d", got.Summary.GetTotalMachines(), len(got.Shortfalls), machines, shorts)
			}
		}
		report(5, 10, shortfall("x", "4", 1))
		report(5, 9)
		report(5, 10)
		look(10, 1)
		report(5, 11)
		look(11, 0)
		report(6, 1, shortfall("y", "4", 1))
		look(1, 1)
	})
}

// COORD-7.5, COORD-21.29: an epoch that went back is refused and counted; the healthy process continues; an admin can accept
// the lower epoch.
func TestEpochRegression(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(epoch, cycle int64) error {
			_, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", ShardEpoch: epoch, Cycle: cycle})
			return err
		}
		if err := report(7, 1); err != nil {
			t.Fatal(err)
		}
		var refusal *fleet.Refusal
		if err := report(6, 50); !errors.As(err, &refusal) || refusal.Reason != "epoch-regressed" || !strings.Contains(refusal.Say, "6") || !strings.Contains(refusal.Say, "7") {
			t.Fatalf("got %v", err)
		}
		if err := report(7, 2); err != nil || testutil.ToFloat64(f.metrics.EpochRegressed) != 1 {
			t.Fatal(err)
		}
		f.admin(&pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{ShardId: "a", Epoch: proto.Int64(3), ResetEpoch: true}}})
		if err := report(3, 1); err != nil || f.registry.SoftState("a", false).Epoch != 3 {
			t.Fatalf("%v, epoch %d", err, f.registry.SoftState("a", false).Epoch)
		}
	})
}

// COORD-7.9, COORD-21.33: a removed shard is refused with that reason until it is readmitted.
func TestDecommissioned(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a")
		defer f.stop()
		f.interval()
		f.admin(&pb.Operation{Kind: &pb.Operation_RemoveShard{RemoveShard: &pb.RemoveShard{ShardId: "a", Force: true}}})
		var gone *Decommissioned
		if err := f.shards[0].Report(t.Context(), f.send); !errors.As(err, &gone) || gone.Row.GetRemovedBy() != "bigfleet://admin" {
			t.Fatalf("got %v", err)
		}
		f.admin(&pb.Operation{Kind: &pb.Operation_ReadmitShard{ReadmitShard: &pb.ReadmitShard{ShardId: "a"}}})
		f.interval()
	})
}

// COORD-6.1.3, COORD-21.23: a shard that saw a higher term lifts the group above it; an implausible one is refused.
func TestObservedTerm(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		ack, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", ObservedTerm: 900})
		if err != nil || ack.GetCoordinatorTerm() <= 900 {
			t.Fatalf("%v %v", ack, err)
		}
		var refusal *fleet.Refusal
		_, err = f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", ObservedTerm: 900 + 2*termJumpMax})
		if !errors.As(err, &refusal) || refusal.Kind != fleet.Invalid || testutil.ToFloat64(f.metrics.TermJumps) != 1 {
			t.Fatalf("got %v", err)
		}
		_, err = f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", ClusterUuid: "somebody else"})
		if !errors.As(err, &refusal) || refusal.Reason != "other-group" {
			t.Fatalf("got %v", err)
		}
	})
}

// COORD-7.3: an address that changes too often is counted and not written.
func TestAddressFlaps(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		for i := range 10 {
			if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: int64(i), ShardAddress: fmt.Sprintf("host-%d:7780", i%2)}); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.ToFloat64(f.metrics.AddressFlaps); n < 3 {
			t.Fatalf("%v flaps counted", n)
		}
		time.Sleep(addressEvery)
		if _, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: 11, ShardAddress: "host-9:7780"}); err != nil || f.group.State().Shard("a").GetAddress() != "host-9:7780" {
			t.Fatalf("%v %v", err, f.group.State().Shard("a"))
		}
	})
}

// COORD-7.13: acks whose commit failed are not lost: the call fails, and the shard sends them again.
func TestAcksSurviveAFailedCommit(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		for f.inventory.Reserved() == 0 {
			f.interval()
		}
		f.group.mu.Lock()
		f.group.broken = replica.ErrOutcomeUnknown
		f.group.mu.Unlock()
		if err := f.shards[0].Report(t.Context(), f.send); err == nil {
			t.Fatal("an ack that was not committed was taken")
		}
		f.group.mu.Lock()
		f.group.broken = nil
		f.group.mu.Unlock()
		f.intervals(5)
		if n := f.inventory.OwnedBy("needy"); n != 3 {
			t.Fatalf("needy owns %d machines", n)
		}
	})
}
