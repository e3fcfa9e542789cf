package drain

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// attempts is what happened to the Pods of one node. It has a lock of its own, because evictions run in parallel.
type attempts struct {
	mu          *sync.Mutex
	confirmed   time.Time // last live look
	by          map[types.UID]*attempt
	total       int // Pods that had to go when first seen
	evicted     int
	terminating int
	protected   []string
}

type attempt struct {
	running bool
	done    bool      // evicted, or gone
	next    time.Time // not again before
	pause   time.Duration
	tried   bool
	budget  string // that blocks it; with namespace
	blocked bool
}

func newAttempts() attempts { return attempts{mu: &sync.Mutex{}, by: map[types.UID]*attempt{}} }

// observe notes the Pods of the node.
func (a *attempts) observe(waiting []*pods.Pod, terminating int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	present := map[types.UID]bool{}
	a.protected = a.protected[:0]
	for _, p := range waiting {
		present[p.UID] = true
		if a.by[p.UID] == nil {
			a.by[p.UID] = &attempt{}
			a.total++
		}
		if pods.Protected(p) && len(a.protected) < namesMax {
			a.protected = append(a.protected, p.Namespace+"/"+p.Name)
		}
	}
	slices.Sort(a.protected)
	for uid, at := range a.by {
		if !present[uid] && !at.running {
			at.blocked, at.budget = false, ""
		}
	}
	if a.total < terminating {
		a.total = terminating
	}
	a.terminating = terminating
}

// due picks the Pods to evict now: those marked do-not-disrupt never in a voluntary drain, else last and not in the first half
// of the grace (OP-9.2).
func (a *attempts) due(waiting []*pods.Pod, now, half time.Time, voluntary bool) (out []*pods.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	running, othersUntried := 0, false
	for _, p := range waiting {
		if at := a.by[p.UID]; at.running {
			running++
		} else if !pods.Protected(p) && !at.tried {
			othersUntried = true
		}
	}
	for _, p := range waiting {
		at := a.by[p.UID]
		if at.running || at.done || now.Before(at.next) || len(out)+running >= evictPerNode {
			continue
		}
		if pods.Protected(p) && (voluntary || othersUntried || now.Before(half)) {
			continue
		}
		at.running, at.tried = true, true
		out = append(out, p)
	}
	return out
}

// budgets names what blocks, sorted, bounded.
func (a *attempts) budgets() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	set := map[string]struct{}{}
	for _, at := range a.by {
		if at.blocked && at.budget != "" {
			set[at.budget] = struct{}{}
		}
	}
	out := slices.Sorted(maps.Keys(set))
	return out[:min(len(out), namesMax)]
}

func (t *drain) evictDue(ctx context.Context, waiting []*pods.Pod, now, deadline time.Time, voluntary bool, tasks *sync.WaitGroup) {
	half := t.begun.Add(deadline.Sub(t.begun) / 2)
	for _, p := range t.due(waiting, now, half, voluntary) {
		tasks.Go(func() {
			select {
			case t.d.evictions <- struct{}{}:
				t.evict(ctx, p, deadline)
				<-t.d.evictions
			case <-ctx.Done():
				t.recordResult(p, attempt{}, "")
			}
			t.signal()
		})
	}
}

// evict asks for the eviction of one Pod (OP-8.10).
func (t *drain) evict(ctx context.Context, p *pods.Pod, deadline time.Time) {
	left := time.Until(deadline)
	if left <= 0 || t.d.Stopped() {
		t.recordResult(p, attempt{}, "")
		return
	}
	if now := t.d.Pods.Get(p.UID); now == nil || now.DeletionTimestamp != nil {
		t.recordResult(p, attempt{done: true}, "gone") // somebody else deleted it meanwhile
		return
	}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	}
	if own := p.Grace; own == nil || time.Duration(*own)*time.Second > left {
		eviction.DeleteOptions.GracePeriodSeconds = new(max(1, int64(left/time.Second)))
	}
	call, cancel := context.WithTimeout(ctx, evictTimeout)
	defer cancel()
	err := t.d.Client.SubResource("eviction").Create(call, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}}, eviction)
	switch {
	case err == nil:
		t.recordResult(p, attempt{done: true}, "evicted")
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or another Pod has its name
		t.recordResult(p, attempt{done: true}, "gone")
	case ctx.Err() != nil:
		t.recordResult(p, attempt{}, "")
	default:
		if wait, budget, blocked := blockedBy(err); blocked {
			t.recordResult(p, attempt{next: time.Now().Add(wait), blocked: true, budget: p.Namespace + "/" + budget}, "blocked")
			return
		}
		t.d.Log.Warn("a Pod could not be evicted", "namespace", p.Namespace, "pod", p.Name, "node", t.node, "err", err)
		t.recordResult(p, attempt{next: time.Now()}, "error")
	}
}

// recordResult notes how an attempt ended.
func (t *drain) recordResult(p *pods.Pod, result attempt, counted string) {
	t.attempts.mu.Lock()
	at := t.by[p.UID]
	if counted == "error" {
		at.pause = min(max(2*at.pause, errorRetryMin), errorRetryMax)
		result.next = result.next.Add(at.pause)
	}
	at.running, at.done, at.next, at.blocked, at.budget = false, result.done, result.next, result.blocked, result.budget
	if counted == "evicted" {
		t.evicted++
	}
	blocked := 0
	for _, at := range t.by {
		if at.blocked {
			blocked++
		}
	}
	t.attempts.mu.Unlock()
	t.d.mu.Lock()
	t.blocked = blocked
	t.d.mu.Unlock()
	if counted != "" {
		t.d.Instruments.Evictions.WithLabelValues(counted).Inc()
	}
}

// blockedBy says that a disruption budget refuses an eviction, which one, and when to ask again. Several matching budgets
// make the API server answer 500, which means the same.
func blockedBy(err error) (wait time.Duration, budget string, blocked bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0, "", false
	}
	s := status.Status()
	several := s.Code == http.StatusInternalServerError && strings.Contains(s.Message, "more than one PodDisruptionBudget")
	if s.Code != http.StatusTooManyRequests && !several {
		return 0, "", false
	}
	wait, budget = blockedRetry, "unknown"
	if several {
		budget = "several budgets"
	}
	if d := s.Details; d != nil {
		if d.RetryAfterSeconds > 0 {
			wait = time.Duration(d.RetryAfterSeconds) * time.Second
		}
		for _, c := range d.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				if words := strings.Fields(c.Message); len(words) > 3 && words[2] == "budget" {
					budget = words[3] // "The disruption budget <name> needs ..."
				}
			}
		}
	}
	return wait, budget, true
}
