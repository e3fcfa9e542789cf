package publish

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// OP-6.1: a shard without the extension has what was handed to it.
func TestAcknowledgeWithoutExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open()
		time.Sleep(time.Minute)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v before the shard answered Hello", got)
		}
		b.Greeted()
		b.Set(req("b", "1"))
		time.Sleep(2 * time.Second)
		b.Set(req("b", "1")) // seen again, still Pending: one patch for life
		time.Sleep(30 * time.Second)
		if got := b.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

func answer(l *line, d pb.RollupDisposition) *pb.Acknowledgement {
	return &pb.Acknowledgement{Echo: "rollup", Rollup: &pb.RollupResult{Disposition: d, TimestampUnixNanos: l.last().TimestampUnixNanos, Reason: "guard"}}
}

// OP-6.2, scenario 22: with the extension a request is acknowledged when a roll-up that holds it was accepted.
func TestAcknowledgeWithExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		l := b.open(FeatureAck)
		synctest.Wait()
		b.Greeted()
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED))
		time.Sleep(time.Second)
		b.Set(req("b", "1"))
		time.Sleep(3 * time.Second)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v, although the shard refused", got)
		}
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED))
		if got := b.names(); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// OP-11.5: the shard has the request of a Pod from the acknowledgement of a roll-up that holds it, until the request goes.
func TestHasPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		pod := &pods.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
		r := req("p", "1")
		r.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "p", Controller: new(true)}}
		has := func(want bool, when string) {
			t.Helper()
			if got := b.HasPod(pod); got != want {
				t.Errorf("%s: the shard has the request: %v", when, got)
			}
		}
		has(false, "before the request")
		b.Set(r)
		b.Synced()
		has(false, "before a session")
		l := b.open(FeatureAck)
		synctest.Wait()
		b.Greeted()
		has(false, "before the answer")
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED))
		has(false, "after a refusal")
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED))
		has(true, "after the acknowledgement")
		acknowledged := *r
		acknowledged.Acknowledge()
		b.Set(&acknowledged)
		has(true, "once the request shows the acknowledgement")
		b.Delete(aggregate.KeyOf(r))
		has(false, "after the request is gone")
	})
}

// OP-6.2: a shard that named the extension and then says nothing at all for two heartbeats.
func TestAcknowledgeWhenTheShardIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open(FeatureAck)
		b.Greeted()
		time.Sleep(19 * time.Second)
		if got := b.names(); len(got) != 0 {
			t.Fatalf("acknowledged %v too early", got)
		}
		time.Sleep(5 * time.Second)
		if got := b.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// A session that is lost before the answer: the request is in the next session's roll-ups, and its answer counts.
func TestAcknowledgeAcrossSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Set(req("a", "1"))
		b.Synced()
		b.open(FeatureAck)
		synctest.Wait()
		b.Closed()
		time.Sleep(time.Minute)
		l := b.open(FeatureAck)
		synctest.Wait()
		b.Greeted()
		b.Answered(answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_UNCHANGED))
		if got := b.names(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("acknowledged %v", got)
		}
	})
}

// OP-5.6: what the shard says of a roll-up, with the extension, by echo alone, and unknown.
func TestOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Synced()
		l := b.open(FeatureAck)
		synctest.Wait()
		for _, a := range []*pb.Acknowledgement{
			answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_HELD), answer(l, pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED), answer(l, 99),
			{Echo: "rollup-rejected: same"}, {Echo: "rollup-held"}, {Echo: "rollup"}, {Echo: "something-new"}, {Echo: "node-state-resync-complete"},
		} {
			b.Answered(a)
		}
		var got []string
		for _, o := range b.outcomes {
			got = append(got, o.Result)
		}
		if want := []string{"held", "accepted", "unknown", "rejected", "held", "accepted"}; !slices.Equal(got, want) {
			t.Errorf("outcomes %v, want %v", got, want)
		}
	})
}

// Who hears what became of a roll-up may read the demand, or wait for somebody who does: no listener is called under the lock.
func TestOutcomesAreReportedWithoutTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		heard := 0
		b.OnOutcome = func(Outcome) { b.Read(func(*aggregate.Aggregate) { heard++ }) }
		b.Synced()
		l := b.open()
		b.Set(req("a", "1"))
		time.Sleep(time.Second)
		b.Answered(&pb.Acknowledgement{Echo: "rollup", Rollup: &pb.RollupResult{TimestampUnixNanos: l.last().TimestampUnixNanos, Disposition: pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED}})
		if heard != 1 {
			t.Errorf("called %d times", heard)
		}
	})
}
