package hostile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// records are those that the shard's decision log has of ended operations and of breakers, oldest first.
func (l *look) records() (out []*pb.DecisionRecord) {
	l.t.Helper()
	stream, err := l.read.WatchDecisions(l.t.Context(), connect.NewRequest(&pb.WatchDecisionsRequest{FromSequence: 1,
		Types: []pb.RecordType{pb.RecordType_RECORD_TYPE_STARTED, pb.RecordType_RECORD_TYPE_ENDED, pb.RecordType_RECORD_TYPE_BACKOFF_CHANGED}}))
	if err != nil {
		l.t.Fatal(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if r := stream.Msg().GetRecord(); r != nil {
			out = append(out, r)
		}
	}
	if err := stream.Err(); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// servedAt is when the first operation at a provider began and the last one that succeeded ended, by the shard's clock.
func servedAt(records []*pb.DecisionRecord, provider string) (began, ended time.Time) {
	for _, r := range records {
		at := time.Unix(0, r.GetAtUnixNanos())
		switch {
		case r.GetProvider() != provider:
		case r.GetType() == pb.RecordType_RECORD_TYPE_STARTED && began.IsZero():
			began = at
		case r.GetType() == pb.RecordType_RECORD_TYPE_ENDED && r.GetOutcome() == "success":
			ended = at
		}
	}
	return began, ended
}

// SHARD-14.12, 14.15: the cheapest of three providers accepts connections and answers nothing. What was ordered there counts as on its way until the breaker
// opens, so nothing is bought elsewhere before; within five seconds of it all of that serves from the next cheapest. Both times are the shard's own. Where the machine is so
// busy that as many machines took longer than a second before, the bound is as many times longer.
func TestAProviderThatHangsIsRoutedAround(t *testing.T) {
	const each = 8 // more than the calls that open a breaker
	s := newStageOf(t, []string{"--reconcile-interval", "1s", "--execute-timeout", "3s"}, slots("0.1", 2*each), slots("0.2", each), slots("0.3", each))
	l := s.look()
	red := s.session("red")
	want := func(machines int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		unit := map[string]string{"cpu": "7"}
		ack, _, err := red.rollup(ctx, []*pb.CapacityNeed{{AggregateResources: map[string]string{"cpu": fmt.Sprint(7 * machines)}, MinUnit: unit, RowId: "web"}})
		if err != nil || !accepts(ack) {
			t.Fatalf("the roll-up: %v, %v", ack, err)
		}
	}
	want(each)
	l.eventually("the cheapest provider serves", func() bool { return l.bound("red")["provider"] == each })
	began, ended := servedAt(l.records(), "provider")
	usual := ended.Sub(began)

	if err := s.procs["provider"].Pause(); err != nil {
		t.Fatal(err)
	}
	want(2 * each)
	l.eventually("the next cheapest serves", func() bool { return l.bound("red")["provider-2"] == each })
	records := l.records()
	var open time.Time
	for _, r := range records {
		if r.GetProvider() == "provider" && r.GetType() == pb.RecordType_RECORD_TYPE_BACKOFF_CHANGED && strings.HasPrefix(r.GetDetail(), "Its breaker is open") {
			open = time.Unix(0, r.GetAtUnixNanos())
			break
		}
	}
	if open.IsZero() {
		t.Fatal("no record says that the breaker opened")
	}
	began, ended = servedAt(records, "provider-2")
	t.Logf("%d machines took %.2f s before; the first order elsewhere came %.2f s after the breaker opened, and the last machine served after %.2f s", each, usual.Seconds(),
		began.Sub(open).Seconds(), ended.Sub(open).Seconds())
	if began.Before(open) {
		t.Errorf("the next cheapest was asked %v before the breaker opened: nothing is measured", open.Sub(began))
	}
	if bound := 5 * max(time.Second, usual); ended.Sub(open) > bound {
		t.Errorf("served %v after the breaker opened, at most %v is allowed", ended.Sub(open), bound)
	}
	if b := l.bound("red"); b["provider-3"] > 0 {
		t.Errorf("a dearer provider serves although a cheaper one has room: %v", b)
	}
	met, text := l.explained("red")
	if !met {
		t.Errorf("the need is not met: %s", text)
	}
	if err := s.procs["provider"].Resume(); err != nil {
		t.Fatal(err)
	}
	s.unharmed()
}
