package needstatus

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// due returns the conditions and events to write now, and removes them from the pending lists.
func (t *StatusReporter) due(now time.Time, budget int) (writes []write, records []events.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, at := range t.written {
		if now.Sub(at) >= cacheTrustedAfter {
			delete(t.written, key)
			t.validity[key] = struct{}{} // check it again with the settled cache
		}
	}
	t.Demand(func(a *aggregate.Aggregate) {
		records = t.newRequests(a)
		for _, id := range t.dueRows(a, now) {
			r := t.rows[id]
			if !a.HasRow(id) {
				if r.pending = false; r.next.reason == "" || now.Sub(r.since) > rowKept {
					delete(t.rows, id)
				}
				continue
			}
			records = append(records, t.notify(a, id, r, now)...)
			more := t.fanOut(a, id, r, now, budget-len(writes))
			writes = append(writes, more...)
		}
		writes = append(writes, t.validityWrites(a, now, budget-len(writes))...)
		records = append(records, t.arrivals(a, now)...)
	})
	for _, w := range writes {
		t.written[aggregate.KeyOf(w.request)] = now
	}
	return writes, records
}

// newRequests marks the rows of changed requests. A Pod that joins a row known to be unmet gets its event at once.
func (t *StatusReporter) newRequests(a *aggregate.Aggregate) (records []events.Event) {
	for key := range t.validity {
		id := a.Row(key)
		if id == "" {
			continue
		}
		q := a.Request(key)
		r := t.row(id, t.rollup.reason != "" || hasFulfilled(q))
		if r == nil {
			continue
		}
		r.pending = true
		if n, ok := t.podEvent(q); ok && shortFor(r.notified) {
			records = append(records, noCapacity(n, r))
		}
	}
	return records
}

func (t *StatusReporter) row(id string, add bool) *row {
	r := t.rows[id]
	if r == nil && add && len(t.rows) < rowsMax {
		r = &row{}
		t.rows[id] = r
	}
	return r
}

// shortFor reports whether a reason deserves an event: unmet, and no machine in flight.
func shortFor(reason string) bool {
	return reason != "" && reason != Satisfied && reason != Provisioning
}

func noCapacity(n events.Event, r *row) events.Event {
	n.Warning, n.Reason, n.Message = true, "NoCapacity", r.next.reason+": "+r.next.message
	return n
}

func hasFulfilled(r *request.Request) bool {
	return r != nil && conditionOf(r, v1alpha1.ConditionFulfilled) != nil
}

// ownedByNoPod reports whether a request has no Pod, so that its author can only watch its condition.
func ownedByNoPod(r *request.Request) bool {
	_, _, ofPod := r.Pod()
	return !ofPod
}

// dueRows lists rows whose requests may need a write, unmet rows first.
func (t *StatusReporter) dueRows(a *aggregate.Aggregate, now time.Time) []string {
	if !t.disconnectedSince.IsZero() && now.Sub(t.disconnectedSince) >= unreachable && now.Sub(t.disconnectedSince) < unreachable+2*checkEvery {
		t.allRows = true
	}
	if t.allRows && (t.rollup.reason != "" || !t.disconnectedSince.IsZero()) {
		a.Rows(func(id string) { t.row(id, true) })
	}
	var out []string
	for id, r := range t.rows {
		if r.current.reason != r.next.reason && now.Sub(r.since) >= stableFor {
			r.current, r.pending = r.next, true
		}
		if t.allRows {
			r.pending = true
		}
		waiting := r.next.reason != r.notified && now.Sub(r.since) >= eventStableFor
		if r.pending || waiting {
			out = append(out, id)
		}
	}
	t.allRows = false
	slices.SortFunc(out, func(a, b string) int {
		if x, y := t.rows[a].current.satisfied(), t.rows[b].current.satisfied(); x != y {
			if y {
				return -1
			}
			return 1
		}
		if a < b {
			return -1
		}
		return 1
	})
	return out
}

// desired is the condition Fulfilled that a request should have; ok is false if it should have none.
func (t *StatusReporter) desired(r *row, q *request.Request, now time.Time) (v needStatus, ok bool) {
	short := r.current.reason != "" && !r.current.satisfied()
	switch {
	case !t.disconnectedSince.IsZero() && now.Sub(t.disconnectedSince) >= unreachable && (q.Pending() || short):
		return needStatus{reason: ShardUnreachable, message: defaultMessage[ShardUnreachable]}, true
	case t.rollup.reason != "" && q.Pending():
		return t.rollup, true
	case short:
		return r.current, true
	case r.current.satisfied() && (hasFulfilled(q) || ownedByNoPod(q)): // a Pod that was never unmet shows its own state
		return r.current, true
	}
	return needStatus{}, false
}

// fanOut returns writes for the requests of a row whose condition differs (OP-14.2).
func (t *StatusReporter) fanOut(a *aggregate.Aggregate, id string, r *row, now time.Time, budget int) (writes []write) {
	if now.Sub(r.minute) >= time.Minute {
		r.minute, r.count = now, 0
	}
	budget = min(budget, perRowMinute-r.count)
	r.pending = false
	a.Members(id, func(q *request.Request) bool {
		status, differs := t.fulfilled(r, q, now)
		if !differs {
			return true
		}
		if _, recent := t.written[aggregate.KeyOf(q)]; recent || len(writes) >= budget {
			r.pending = true
			return len(writes) < budget
		}
		writes = append(writes, write{request: q, status: status, row: id})
		return true
	})
	r.count += len(writes)
	return writes
}

// fulfilled is the status that a request should have, and whether it differs from the present one.
func (t *StatusReporter) fulfilled(r *row, q *request.Request, now time.Time) (status map[string]any, differs bool) {
	v, wanted := t.desired(r, q, now)
	have := conditionOf(q, v1alpha1.ConditionFulfilled)
	conditions := slices.Clone([]metav1.Condition(q.Status.Conditions))
	switch {
	case !wanted && have == nil, wanted && have != nil && have.Reason == v.reason:
		return nil, false
	case !wanted:
		meta.RemoveStatusCondition(&conditions, v1alpha1.ConditionFulfilled)
	default:
		state := metav1.ConditionFalse
		if v.satisfied() {
			state = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: v1alpha1.ConditionFulfilled, Status: state, Reason: v.reason, Message: v.message,
			ObservedGeneration: q.Generation, LastTransitionTime: metav1.NewTime(now)})
	}
	return statusOf(q, conditions), true
}

func statusOf(q *request.Request, conditions []metav1.Condition) map[string]any {
	out := map[string]any{"conditions": conditions, "observedGeneration": q.Generation}
	if len(conditions) == 0 {
		out["conditions"] = nil
	}
	if q.Status.Phase == "" { // the schema requires a phase in a status
		out["phase"] = v1alpha1.RequestPending
	}
	return out
}

// validityWrites keeps condition Valid in step with aggregation (OP-5.12).
func (t *StatusReporter) validityWrites(a *aggregate.Aggregate, now time.Time, budget int) (writes []write) {
	for _, key := range slices.SortedFunc(maps.Keys(t.validity), func(x, y aggregate.Key) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	}) {
		if _, recent := t.written[key]; recent {
			delete(t.validity, key) // checked again when the cache has settled
			continue
		}
		q := a.Request(key)
		if q == nil {
			delete(t.validity, key)
			continue
		}
		want, wanted := validity(a.Problem(key), q)
		have := conditionOf(q, v1alpha1.ConditionValid)
		if !wanted || have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
			delete(t.validity, key)
			continue
		}
		if len(writes) >= budget {
			return writes
		}
		conditions := slices.Clone([]metav1.Condition(q.Status.Conditions))
		want.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&conditions, want)
		writes = append(writes, write{request: q, status: statusOf(q, conditions)})
		delete(t.validity, key)
	}
	return writes
}

// validity is the condition Valid of a request. A request that never had a problem needs none.
func validity(p *aggregate.Problem, q *request.Request) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: aggregate.ReasonValid,
		Message: "The request is counted.", ObservedGeneration: q.Generation}
	if p == nil {
		return c, conditionOf(q, v1alpha1.ConditionValid) != nil
	}
	c.Reason, c.Message = p.Reason, p.Message
	if p.Fatal {
		c.Status = metav1.ConditionFalse
	}
	return c, true
}

// notify returns NoCapacity events for the pending Pods of an unmet row (OP-14.3).
func (t *StatusReporter) notify(a *aggregate.Aggregate, id string, r *row, now time.Time) (records []events.Event) {
	if r.next.reason == r.notified || now.Sub(r.since) < eventStableFor {
		return nil
	}
	if r.notified = r.next.reason; !shortFor(r.notified) {
		return nil
	}
	a.Members(id, func(q *request.Request) bool {
		if n, ok := t.podEvent(q); ok {
			records = append(records, noCapacity(n, r))
		}
		return len(records) < perRowMinute
	})
	return records
}

// podEvent is an event about the Pod of a request, if that Pod is pending.
func (t *StatusReporter) podEvent(q *request.Request) (events.Event, bool) {
	name, uid, ok := q.Pod()
	if !ok || !t.PodPending(uid) {
		return events.Event{}, false
	}
	return events.Event{Regarding: events.Subject{APIVersion: "v1", Kind: "Pod", Namespace: q.Namespace, Name: name, UID: uid}}, true
}

// arrivals returns CapacityOnTheWay events for Pods whose row has a machine in flight.
func (t *StatusReporter) arrivals(a *aggregate.Aggregate, now time.Time) (records []events.Event) {
	for id, m := range t.machines {
		if m.row == "" || now.Sub(m.since) < onTheWayAfter {
			continue
		}
		count := 0
		a.Members(m.row, func(q *request.Request) bool {
			if n, ok := t.podEvent(q); ok {
				n.Reason, n.Message = "CapacityOnTheWay", "A machine is being prepared for Pods like this one: see UpcomingNode "+upcoming.Name(id)+"."
				records = append(records, n)
				count++
			}
			return count < onTheWayPodsMax
		})
		t.machines[id] = machineArrival{"", m.since} // notified
	}
	return records
}

func (t *StatusReporter) patch(ctx context.Context, w write) {
	body, err := json.Marshal(map[string]any{"status": w.status})
	if err != nil {
		panic(err) // conditions and numbers
	}
	q := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: w.request.Namespace, Name: w.request.Name}}
	err = t.Client.Status().Patch(ctx, q, client.RawPatch(types.MergePatchType, body))
	if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
		return
	}
	t.Log.Warn("a condition could not be written", "namespace", q.Namespace, "name", q.Name, "err", err)
	t.Changed(aggregate.KeyOf(w.request))
}
