package verdict

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
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// look decides what to write and to tell now. It takes what is due off the lists.
func (t *Teller) look(now time.Time, budget int) (writes []write, events []notes.Note) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, at := range t.written {
		if now.Sub(at) >= settled {
			delete(t.written, key)
			t.validity[key] = struct{}{} // once more, with the cache as it is then
		}
	}
	t.Demand(func(a *aggregate.Aggregate) {
		events = t.notice(a)
		for _, id := range t.due(a, now) {
			r := t.rows[id]
			if !a.HasRow(id) {
				if r.pending = false; r.next.reason == "" || now.Sub(r.since) > rowKept {
					delete(t.rows, id)
				}
				continue
			}
			events = append(events, t.tell(a, id, r, now)...)
			more := t.fan(a, id, r, now, budget-len(writes))
			writes = append(writes, more...)
		}
		writes = append(writes, t.valid(a, now, budget-len(writes))...)
		events = append(events, t.arrivals(a, now)...)
	})
	for _, w := range writes {
		t.written[aggregate.KeyOf(w.request)] = now
	}
	return writes, events
}

// notice finds the rows of requests that changed. A Pod that joins a row which is known to be short is told at once.
func (t *Teller) notice(a *aggregate.Aggregate) (events []notes.Note) {
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
		if n, ok := t.pod(q); ok && shortFor(r.told) {
			events = append(events, noCapacity(n, r))
		}
	}
	return events
}

func (t *Teller) row(id string, add bool) *row {
	r := t.rows[id]
	if r == nil && add && len(t.rows) < rowsMax {
		r = &row{}
		t.rows[id] = r
	}
	return r
}

// shortFor says that a reason is worth an event: nothing is on its way.
func shortFor(reason string) bool {
	return reason != "" && reason != Satisfied && reason != Provisioning
}

func noCapacity(n notes.Note, r *row) notes.Note {
	n.Warning, n.Reason, n.Message = true, "NoCapacity", r.next.reason+": "+r.next.message
	return n
}

func hasFulfilled(r *request.Request) bool {
	return r != nil && conditionOf(r, v1alpha1.ConditionFulfilled) != nil
}

// alone says that no Pod tells of a request: whoever wrote it waits for its condition.
func alone(r *request.Request) bool {
	_, _, ofPod := r.Pod()
	return !ofPod
}

// due lists rows whose requests may have to change, those that are short first.
func (t *Teller) due(a *aggregate.Aggregate, now time.Time) []string {
	if !t.away.IsZero() && now.Sub(t.away) >= unreachable && now.Sub(t.away) < unreachable+2*lookEvery {
		t.everyRow = true
	}
	if t.everyRow && (t.rollup.reason != "" || !t.away.IsZero()) {
		a.Rows(func(id string) { t.row(id, true) })
	}
	var out []string
	for id, r := range t.rows {
		if r.now.reason != r.next.reason && now.Sub(r.since) >= holdFor {
			r.now, r.pending = r.next, true
		}
		if t.everyRow {
			r.pending = true
		}
		waiting := r.next.reason != r.told && now.Sub(r.since) >= eventHold
		if r.pending || waiting {
			out = append(out, id)
		}
	}
	t.everyRow = false
	slices.SortFunc(out, func(a, b string) int {
		if x, y := t.rows[a].now.satisfied(), t.rows[b].now.satisfied(); x != y {
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

// want is the condition Fulfilled that a request should have; ok is false when it should have none.
func (t *Teller) want(r *row, q *request.Request, now time.Time) (v verdict, ok bool) {
	short := r.now.reason != "" && !r.now.satisfied()
	switch {
	case !t.away.IsZero() && now.Sub(t.away) >= unreachable && (q.Pending() || short):
		return verdict{reason: ShardUnreachable, message: says[ShardUnreachable]}, true
	case t.rollup.reason != "" && q.Pending():
		return t.rollup, true
	case short:
		return r.now, true
	case r.now.satisfied() && (hasFulfilled(q) || alone(q)): // a Pod that was never short says the rest itself
		return r.now, true
	}
	return verdict{}, false
}

// fan picks the requests of a row whose condition differs (OP-14.2).
func (t *Teller) fan(a *aggregate.Aggregate, id string, r *row, now time.Time, budget int) (writes []write) {
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

// fulfilled is the status that a request should have instead of the one it has.
func (t *Teller) fulfilled(r *row, q *request.Request, now time.Time) (status map[string]any, differs bool) {
	v, wanted := t.want(r, q, now)
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
	if q.Status.Phase == "" { // the schema requires it, and a status that we fill must have it
		out["phase"] = v1alpha1.RequestPending
	}
	return out
}

// valid keeps the condition Valid true to what aggregation found (OP-5.12).
func (t *Teller) valid(a *aggregate.Aggregate, now time.Time, budget int) (writes []write) {
	for _, key := range slices.SortedFunc(maps.Keys(t.validity), func(x, y aggregate.Key) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	}) {
		if _, recent := t.written[key]; recent {
			delete(t.validity, key) // looked at again when the cache has settled
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

// validity is the condition Valid of a request. One that never had a problem needs none.
func validity(p *aggregate.Problem, q *request.Request) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: aggregate.ReasonValid,
		Message: "the request is counted", ObservedGeneration: q.Generation}
	if p == nil {
		return c, conditionOf(q, v1alpha1.ConditionValid) != nil
	}
	c.Reason, c.Message = p.Reason, p.Message
	if p.Fatal {
		c.Status = metav1.ConditionFalse
	}
	return c, true
}

// tell makes the events of a row's verdict: for each Pod that waits and cannot be given capacity (OP-14.3).
func (t *Teller) tell(a *aggregate.Aggregate, id string, r *row, now time.Time) (events []notes.Note) {
	if r.next.reason == r.told || now.Sub(r.since) < eventHold {
		return nil
	}
	if r.told = r.next.reason; !shortFor(r.told) {
		return nil
	}
	a.Members(id, func(q *request.Request) bool {
		if n, ok := t.pod(q); ok {
			events = append(events, noCapacity(n, r))
		}
		return len(events) < perRowMinute
	})
	return events
}

// pod is an event about the Pod of a request, if that Pod waits for a node.
func (t *Teller) pod(q *request.Request) (notes.Note, bool) {
	name, uid, ok := q.Pod()
	if !ok || !t.Waits(uid) {
		return notes.Note{}, false
	}
	return notes.Note{About: notes.Subject{APIVersion: "v1", Kind: "Pod", Namespace: q.Namespace, Name: name, UID: uid}}, true
}

// arrivals tells Pods of machines that are on their way for their row.
func (t *Teller) arrivals(a *aggregate.Aggregate, now time.Time) (events []notes.Note) {
	for id, m := range t.machines {
		if m.row == "" || now.Sub(m.since) < onTheWayAfter {
			continue
		}
		told := 0
		a.Members(m.row, func(q *request.Request) bool {
			if n, ok := t.pod(q); ok {
				n.Reason, n.Message = "CapacityOnTheWay", "a machine is on its way: see UpcomingNode "+upcoming.Name(id)
				events = append(events, n)
				told++
			}
			return told < onTheWayEach
		})
		t.machines[id] = machineNews{"", m.since} // told
	}
	return events
}

func (t *Teller) patch(ctx context.Context, w write) {
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
