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
			for _, p := range f.desk.Pending("a") {
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
			ack, err := f.desk.Report(t.Context(), &v1.ShardReport{ShardId: "a", Cycle: cycle, InstructionAcks: acks, Summary: &v1.ShardSummary{ProviderAddress: "sim:9000"}})
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
		pending := f.desk.Pending("a")
		if len(pending) != 1 || !pending[0].GetStuck() || pending[0].GetLastAck().GetReason() != "later" {
			t.Fatalf("got %v", pending)
		}
		if !f.desk.Retry("a", pending[0].GetInstruction().GetInstructionId(), false) || len(report().GetInstructions()) != 1 {
			t.Fatal("the retry is not sent")
		}
		report(&v1.InstructAck{InstructionId: "assign/nobody/1/1", Outcome: v1.InstructAck_OUTCOME_ACCEPTED})
		if testutil.ToFloat64(f.metrics.AcksWithoutWork) != 1 {
			t.Fatal("COORD-8.3: an ack of nothing is not counted")
		}
	})
}
