package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/coordinatortest"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-8.1, 8.2, 3.6, COORD-21.13, 21.30: lost answers and lost acks lead to one effective execution; a new leader issues
// the same instruction under the same id.
func TestInstructionsAcrossFailures(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "a", "b")
		defer f.stop()
		f.inventory.Add(1, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		f.admin(assignOp("eu-1a", "b"))
		ids := func() []string {
			var out []string
			for _, p := range f.registry.Pending("a") {
				out = append(out, p.GetInstruction().GetInstructionId())
			}
			return out
		}
		before := ids()
		f.lead()
		lost := func(ctx context.Context, r *v1.ShardReport) (*v1.ReportAck, error) {
			_, _ = f.send(ctx, r)
			return nil, errors.New("the answer was lost")
		}
		for range 3 {
			_ = f.shards[0].Report(t.Context(), lost)
		}
		if after := ids(); len(before) != 1 || !slices.Equal(before, after) {
			t.Fatalf("COORD-8.1: %v became %v", before, after)
		}
		executed := f.shards[0].Executed["view"]
		if err := f.shards[0].Report(t.Context(), f.send); err != nil { // executes
			t.Fatal(err)
		}
		for range 3 { // its acks reach the leader, but the shard never learns
			_ = f.shards[0].Report(t.Context(), lost)
		}
		f.shards[0].Restart()
		f.intervals(4)
		if n := f.shards[0].Executed["view"] - executed; n > 2 {
			t.Fatalf("%d effective executions", n)
		}
		if len(ids()) != 0 || f.inventory.OwnedBy("b") != 1 {
			t.Fatalf("pending %v, b owns %d", ids(), f.inventory.OwnedBy("b"))
		}
	})
}

// COORD-8.2, COORD-21.31: FAILED comes back with a backoff; what can be given up is listed as stuck and can be retried.
func TestFailedInstructions(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		cycle := int64(0)
		report := func(acks ...*v1.InstructAck) *v1.ReportAck {
			cycle++
			ack, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle, InstructionAcks: acks, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
			if err != nil {
				t.Fatal(err)
			}
			return ack
		}
		report()
		f.admin(assignOp("eu-1a", "a"))
		attempts, last := 0, time.Now()
		var gaps []time.Duration
		for range 2000 {
			for _, i := range report().GetInstructions() {
				attempts++
				if i.GetAttempt() != int32(attempts) || !strings.HasSuffix(i.GetInstructionId(), fmt.Sprint("/", attempts)) {
					t.Fatalf("attempt %d is %v", attempts, i)
				}
				gaps, last = append(gaps, time.Since(last)), time.Now()
				report(&v1.InstructAck{InstructionId: i.GetInstructionId(), Outcome: 77, Reason: "later"}) // unknown reads as FAILED
			}
			time.Sleep(time.Second)
		}
		if attempts != attemptsMax || gaps[len(gaps)-1] < 4*time.Minute || gaps[1] < retryMin {
			t.Fatalf("%d attempts, gaps %v", attempts, gaps)
		}
		pending := f.registry.Pending("a")
		if len(pending) != 1 || !pending[0].GetStuck() || pending[0].GetLastAck().GetReason() != "later" {
			t.Fatalf("got %v", pending)
		}
		if !f.registry.Retry("a", pending[0].GetInstruction().GetInstructionId(), false) || len(report().GetInstructions()) != 1 {
			t.Fatal("the retry is not sent")
		}
		report(&v1.InstructAck{InstructionId: "assign/unknown/1/1", Outcome: v1.InstructAck_OUTCOME_ACCEPTED})
		if testutil.ToFloat64(f.metrics.AcksWithoutWork) != 1 {
			t.Fatal("COORD-8.3: an ack of nothing is not counted")
		}
	})
}

// COORD-21.28, 8.2: a refusal that arrives again with a repeated report is counted once: neither the backoff nor the number
// of attempts moves on.
func TestRefusalsCountOnce(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t)
		defer f.stop()
		report := func(cycle int64, acks ...*v1.InstructAck) []*v1.CoordinatorInstruction {
			ack, err := f.registry.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle, InstructionAcks: acks, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
			if err != nil {
				t.Fatal(err)
			}
			return ack.GetInstructions()
		}
		report(1)
		f.admin(assignOp("eu-1a", "a"))
		first := report(2)[0]
		for _, outcome := range []v1.InstructAck_Outcome{v1.InstructAck_OUTCOME_FAILED, v1.InstructAck_OUTCOME_REJECTED_INVALID} {
			for range 2 * attemptsMax {
				report(3, &v1.InstructAck{InstructionId: first.GetInstructionId(), Outcome: outcome})
			}
		}
		pending := f.registry.Pending("a")
		if len(pending) != 1 || pending[0].GetInstruction().GetAttempt() != 2 || pending[0].GetStuck() {
			t.Fatalf("%v", pending)
		}
		if n := testutil.ToFloat64(f.metrics.AcksWithoutWork); n != 4*attemptsMax-1 {
			t.Errorf("%v acks were of nothing", n)
		}
		time.Sleep(retryMin)
		second := report(4)
		if len(second) != 1 || second[0].GetAttempt() != 2 {
			t.Fatalf("%v", second)
		}
		report(5, &v1.InstructAck{InstructionId: first.GetInstructionId(), Outcome: v1.InstructAck_OUTCOME_ACCEPTED}) // it worked after all
		if pending := f.registry.Pending("a"); len(pending) != 0 {
			t.Fatalf("%v", pending)
		}
	})
}

// COORD-8.7, 8.8: a refusal that says that it is hopeless ends a move with its first attempt; what was sent and answered is
// counted by kind and outcome.
func TestHopelessRefusal(t *testing.T) {
	within(t, func(t *testing.T) {
		f := newFixture(t, "donor", "needy")
		defer f.stop()
		f.inventory.Add(300, "m", "c5", "eu-1a", coordinatortest.Idle)
		f.intervals(3)
		donor := f.shards[0]
		f.shards[1].Shortfalls = []*v1.Shortfall{shortfall("x", "12", 61)}
		for f.group.State().OpenMoveCount() == 0 {
			if err := f.shards[1].Report(t.Context(), f.send); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ReportInterval)
		}
		r := donor.Build()
		ack, err := f.send(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		reserve := ack.GetInstructions()[len(ack.GetInstructions())-1]
		if reserve.GetReserveMachines() == nil {
			t.Fatalf("%v", ack.GetInstructions())
		}
		r = donor.Build()
		r.InstructionAcks = append(r.InstructionAcks, &v1.InstructAck{InstructionId: reserve.GetInstructionId(), Outcome: v1.InstructAck_OUTCOME_FAILED,
			Reason: "the disk is full", Retryable: proto.Bool(false)})
		if _, err := f.send(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		m := f.group.State().Move(reserve.GetReserveMachines().GetMoveId())
		if m.GetState() != v1.Move_STATE_CANCELLING || !strings.Contains(m.GetReason(), "the disk is full") {
			t.Fatalf("%v", m)
		}
		if n := testutil.ToFloat64(f.metrics.Sent.WithLabelValues(kindReserve)); n != 1 {
			t.Errorf("%v reservations were sent", n)
		}
		if n := testutil.ToFloat64(f.metrics.Acks.WithLabelValues(kindReserve, v1.InstructAck_OUTCOME_FAILED.String())); n != 1 {
			t.Errorf("%v answers were counted", n)
		}
	})
}
