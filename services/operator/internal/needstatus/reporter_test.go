package needstatus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is a StatusReporter over demand made by a test, without an API server. It applies planned writes to the requests.
type table struct {
	*StatusReporter
	t      *testing.T
	demand *aggregate.Aggregate
	now    time.Time
}

func newTable(t *testing.T) *table {
	x := &table{t: t, demand: aggregate.New(0), now: time.Now()}
	var none struct{ client.Client }
	reporter, err := New(Config{
		Client: none, Demand: func(f func(*aggregate.Aggregate)) { f(x.demand) }, PodPending: func(types.UID) bool { return true },
		Record: func(events.Event) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	x.StatusReporter = reporter
	reporter.begin()
	x.Session(true)
	return x
}

// ask adds the request of a Pod. Requests with equal cpus share a row.
func (x *table) ask(name string, cpus int) *request.Request {
	yes := true
	return x.write(name, cpus, metav1.OwnerReference{Kind: "Pod", Name: name, UID: types.UID(name), Controller: &yes})
}

// write adds a request that no Pod owns.
func (x *table) write(name string, cpus int, owners ...metav1.OwnerReference) *request.Request {
	r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owners}}
	if err := json.Unmarshal(fmt.Appendf(nil, `{"resources":{"cpu":"%d"}}`, cpus), &r.Spec); err != nil {
		x.t.Fatal(err)
	}
	x.demand.Set(r)
	x.Changed(aggregate.KeyOf(r))
	return r
}

// say applies a need status to the row of a request.
func (x *table) say(r *request.Request, s *pb.NeedStatus) {
	s.RowId = x.demand.Row(aggregate.KeyOf(r))
	x.Status(s)
	x.rows[s.RowId].since = x.now
}

// after advances the clock, collects due writes and applies them to the requests, as the cache would show them.
func (x *table) after(d time.Duration, budget int) (writes []write, records []events.Event) {
	x.now = x.now.Add(d)
	writes, records = x.due(x.now, budget)
	for _, w := range writes {
		conditions, _ := w.status["conditions"].([]metav1.Condition)
		w.request.Status.Conditions = conditions
	}
	return writes, records
}

var noMatch = &pb.NeedStatus{Reason: pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY, Detail: pb.NeedDetail_NEED_DETAIL_NO_MATCH, Text: "no such shape"}

func status(s *pb.NeedStatus) *pb.NeedStatus {
	return &pb.NeedStatus{Reason: s.Reason, Detail: s.Detail, Text: s.Text, Satisfied: s.Satisfied}
}

// OP-14.1: every detail that leaves a need short maps to a reason, and every reason has a default message.
func TestEveryDetailHasAReason(t *testing.T) {
	satisfied := []pb.NeedDetail{pb.NeedDetail_NEED_DETAIL_UNSPECIFIED, pb.NeedDetail_NEED_DETAIL_UNPLACED, pb.NeedDetail_NEED_DETAIL_SPREAD_IGNORED}
	for n, name := range pb.NeedDetail_name {
		d := pb.NeedDetail(n)
		if reason := byDetail[d]; reason == "" && !slices.Contains(satisfied, d) {
			t.Errorf("%s has no reason", name)
		} else if reason != "" && defaultMessage[reason] == "" {
			t.Errorf("%s: the reason %s has no words", name, reason)
		}
	}
	v := translate(&pb.NeedStatus{Reason: pb.UnmetReason_UNMET_REASON_PRIORITY_STARVED, Detail: pb.NeedDetail_NEED_DETAIL_WITHHELD})
	if v.reason != Withheld {
		t.Errorf("withheld machines read as %s", v.reason)
	}
}

// OP-14.2: a reason is written when it held for five seconds; one that came and went is never written, and a request that
// was never short gets no condition.
func TestAReasonMustHold(t *testing.T) {
	x := newTable(t)
	r := x.ask("a", 1)
	x.say(r, status(noMatch))
	if w, _ := x.after(4*time.Second, 20); len(w) != 0 {
		t.Fatalf("%d writes after 4 s", len(w))
	}
	x.say(r, &pb.NeedStatus{Satisfied: true})
	for range 5 {
		if w, _ := x.after(10*time.Second, 20); len(w) != 0 {
			t.Fatalf("a request that was short for a moment got %+v", w[0].status)
		}
	}
	x.say(r, status(noMatch))
	x.after(time.Second, 20)
	w, _ := x.after(5*time.Second, 20)
	if len(w) != 1 {
		t.Fatalf("%d writes when the reason has held, want 1", len(w))
	}
	if c := conditionOf(r, v1alpha1.ConditionFulfilled); c == nil || c.Status != metav1.ConditionFalse || c.Reason != NoMatchingSupply || c.Message != "no such shape" {
		t.Fatalf("condition %+v", c)
	}
	for range 5 {
		if w, _ := x.after(30*time.Second, 20); len(w) != 0 {
			t.Fatal("written again without a change of reason")
		}
	}
	x.say(r, &pb.NeedStatus{Satisfied: true})
	x.after(6*time.Second, 20)
	if c := conditionOf(r, v1alpha1.ConditionFulfilled); c == nil || c.Status != metav1.ConditionTrue || c.Reason != Satisfied {
		t.Fatalf("condition after it was met: %+v", c)
	}
}

// OP-14.2: a request that no Pod owns says that it is met although it was never short: `kubectl wait` is for it. It says so once.
func TestARequestWithoutAPodSaysThatItIsMet(t *testing.T) {
	x := newTable(t)
	ofPod, alone := x.ask("pod", 1), x.write("alone", 1)
	x.say(alone, &pb.NeedStatus{Satisfied: true})
	if w, _ := x.after(4*time.Second, 20); len(w) != 0 {
		t.Fatalf("%d writes before it has held", len(w))
	}
	x.after(time.Second, 20)
	if c := conditionOf(alone, v1alpha1.ConditionFulfilled); c == nil || c.Status != metav1.ConditionTrue || c.Reason != Satisfied {
		t.Errorf("condition %+v", c)
	}
	if c := conditionOf(ofPod, v1alpha1.ConditionFulfilled); c != nil {
		t.Errorf("the request of a Pod got %+v", c)
	}
	late := x.write("late", 1)
	x.after(time.Second, 20)
	if c := conditionOf(late, v1alpha1.ConditionFulfilled); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("one that joins a row that is met: %+v", c)
	}
	for range 5 {
		if w, _ := x.after(30*time.Second, 20); len(w) != 0 {
			t.Fatalf("written again: %+v", w[0].status)
		}
	}
}

// OP-14.2: at most the budget at a time and 100 requests of a row a minute, and in the end every request has its condition.
func TestConditionsAreBounded(t *testing.T) {
	x := newTable(t)
	var all []*request.Request
	for i := range 250 {
		all = append(all, x.ask(fmt.Sprintf("p%03d", i), 1))
	}
	x.say(all[0], status(noMatch))
	x.after(stableFor, 0)
	written, minute := 0, x.now
	for x.now.Sub(minute) < 50*time.Second {
		w, _ := x.after(500*time.Millisecond, 10)
		if len(w) > 10 {
			t.Fatalf("%d writes with a budget of 10", len(w))
		}
		written += len(w)
	}
	if written != perRowMinute {
		t.Errorf("%d conditions of one row in a minute, want %d", written, perRowMinute)
	}
	for range 8 {
		x.after(30*time.Second, 1000)
	}
	for _, r := range all {
		if conditionOf(r, v1alpha1.ConditionFulfilled) == nil {
			t.Fatalf("%s never got its condition", r.Name)
		}
	}
}

// OP-14.2: with little budget the rows that are short go first.
func TestShortRowsGoFirst(t *testing.T) {
	x := newTable(t)
	met, short := x.ask("met", 1), x.ask("short", 2)
	x.say(met, status(noMatch))
	x.after(6*time.Second, 20)
	x.after(20*time.Second, 20)
	x.say(met, &pb.NeedStatus{Satisfied: true})
	x.say(short, status(noMatch))
	x.now = x.now.Add(stableFor)
	w, _ := x.after(0, 1)
	if len(w) != 1 || w[0].request != short {
		t.Fatalf("the one write went to %+v, want the row that is short", w)
	}
}

// OP-14.3: pending Pods get one event two seconds after the status. A Pod that joins the row later gets it at once.
func TestPendingPodsGetOneEvent(t *testing.T) {
	x := newTable(t)
	r := x.ask("a", 1)
	x.say(r, status(noMatch))
	if _, e := x.after(time.Second, 20); len(e) != 0 {
		t.Fatalf("event after one second: %+v", e)
	}
	_, e := x.after(2*time.Second, 20)
	if len(e) != 1 || e[0].Reason != "NoCapacity" || e[0].Regarding.Name != "a" || !strings.Contains(e[0].Message, "NoMatchingSupply: no such shape") {
		t.Fatalf("events %+v", e)
	}
	if _, e := x.after(time.Minute, 20); len(e) != 0 {
		t.Fatalf("second event for the same status: %+v", e)
	}
	x.ask("late", 1)
	if _, e := x.after(time.Second, 20); len(e) != 1 || e[0].Regarding.Name != "late" {
		t.Fatalf("events for a Pod that joins: %+v", e)
	}
}

// OP-14.1: without a session for a minute, unserved requests report ShardUnreachable, and the condition goes when the session is back.
func TestUnreachable(t *testing.T) {
	x := newTable(t)
	r := x.ask("a", 1)
	x.Session(false)
	x.disconnectedSince = x.now
	if w, _ := x.after(50*time.Second, 20); len(w) != 0 {
		t.Fatalf("written after 50 s: %+v", w)
	}
	x.after(10500*time.Millisecond, 20)
	if c := conditionOf(r, v1alpha1.ConditionFulfilled); c == nil || c.Reason != ShardUnreachable {
		t.Fatalf("condition after a minute: %+v", c)
	}
	x.Session(true)
	x.after(15*time.Second, 20)
	if c := conditionOf(r, v1alpha1.ConditionFulfilled); c != nil {
		t.Fatalf("condition with a session: %+v", c)
	}
}

// OP-5.6, OP-14.1: a held or refused roll-up shows on requests that were never accepted, and on no others.
func TestHeldRollup(t *testing.T) {
	x := newTable(t)
	pending, served := x.ask("pending", 1), x.ask("served", 1)
	served.Status.Phase = v1alpha1.RequestAcknowledged
	x.Rollup("held", "two more confirmations")
	x.after(time.Second, 20)
	if c := conditionOf(pending, v1alpha1.ConditionFulfilled); c == nil || c.Reason != Held || !strings.Contains(c.Message, "two more confirmations") {
		t.Errorf("pending: %+v", c)
	}
	if c := conditionOf(served, v1alpha1.ConditionFulfilled); c != nil {
		t.Errorf("served: %+v", c)
	}
	x.Rollup("accepted", "")
	x.after(15*time.Second, 20)
	if c := conditionOf(pending, v1alpha1.ConditionFulfilled); c != nil {
		t.Errorf("pending after it was accepted: %+v", c)
	}
}

// OP-3.3: a standby replica records no changes. When it takes over, it checks requests that have a condition or need one.
func TestStandbyKeepsNothing(t *testing.T) {
	x := newTable(t)
	x.running = false
	for i := range 1000 {
		x.ask(fmt.Sprintf("p%d", i), 1)
	}
	if len(x.validity) != 0 {
		t.Fatalf("a standby keeps %d requests", len(x.validity))
	}
	stale := x.ask("stale", 1)
	stale.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFulfilled, Status: metav1.ConditionFalse, Reason: ShardUnreachable}}
	x.begin()
	x.Session(true)
	x.after(15*time.Second, 20)
	if c := conditionOf(stale, v1alpha1.ConditionFulfilled); c != nil {
		t.Errorf("the condition of the predecessor is still there: %+v", c)
	}
}
