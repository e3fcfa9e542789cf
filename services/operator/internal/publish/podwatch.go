package publish

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// The watches of requests and of Pods run independently, but each shows its own changes in order: a cache that has a Pod has also seen
// every deletion before that Pod was created. So a request counts once its Pod is known. It then replaces a Pod that leaves,
// even if the request of the leaving Pod still exists (OP-5.23).

// unclear is a request whose Pod is not known yet.
type unclear struct {
	request *request.Request
	pod     types.UID
	until   time.Time
}

// unclearMax bounds the requests that wait for their Pods; others count at once.
const unclearMax = 100_000

// waits makes a request wait until its Pod is known, and reports whether it has to.
func (p *Publisher) waits(r *request.Request, key aggregate.Key, uid types.UID) bool {
	if p.Pod == nil || !p.synced || r.DeletionTimestamp != nil || p.demand.Request(key) != nil || p.pod(uid) != nil {
		return false
	}
	u, waited := p.unclear[key]
	if !waited {
		if len(p.unclear) >= unclearMax {
			return false
		}
		u.until = time.Now().Add(unclearFor)
	}
	u.request, u.pod = r, uid
	p.unclear[key], p.byPod[uid] = u, podRequest{key: key}
	p.signal()
	return true
}

// count counts a request that waited for its Pod.
func (p *Publisher) count(key aggregate.Key, u unclear) {
	delete(p.unclear, key)
	p.add(u.request, key, u.pod)
}

// add counts the request of a Pod. If the Pod is already leaving, its replacement may have arrived.
func (p *Publisher) add(r *request.Request, key aggregate.Key, uid types.UID) {
	changed := p.podArrived(r, key, uid)
	if x := p.holds.extras[key]; x != nil {
		x.request = r
		if pod := p.pod(uid); pod != nil && pod.Node != "" {
			p.bound(pod)
		}
		p.touch(changed)
		p.signal() // it may be due before the next turn
		return
	}
	changed = p.demand.Set(r) || changed
	if pod := p.pod(uid); pod != nil && leaves(pod) {
		changed = p.end(uid) || changed
	}
	p.touch(changed)
}

// countUnclear counts the requests whose Pods did not come in time, and returns when the next one is due; zero: none.
func (p *Publisher) countUnclear(now time.Time) (next time.Time) {
	for key, u := range p.unclear {
		switch {
		case !now.Before(u.until):
			p.count(key, u)
		case next.IsZero() || u.until.Before(next):
			next = u.until
		}
	}
	return next
}

// PodChanged takes a change of a Pod, before or after the change of its request. old is nil for a new Pod, now for a deleted one.
func (p *Publisher) PodChanged(old, now *pods.Pod) {
	over := now == nil && old.Phase == corev1.PodSucceeded
	same := now != nil && old != nil && leaves(old) == leaves(now)
	bound := same && old.Node == "" && now.Node != ""
	if (over || same) && !bound && stays(old) == stays(now) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.templates.change(old, now)
	switch {
	case bound:
		p.bound(now)
		return
	case over || same:
		return
	case now == nil:
		p.podLeaves(old, time.Now(), time.Now().Add(p.Hold))
	case leaves(now):
		deleted, until := p.deletion(now)
		p.podLeaves(now, deleted, until)
	}
	if now != nil {
		key := p.byPod[now.UID].key
		if u, waits := p.unclear[key]; waits && u.pod == now.UID {
			p.count(key, u)
		}
	}
}

// podLeaves ends the demand of a Pod, or records when a Pod was deleted whose request was deleted first.
func (p *Publisher) podLeaves(pod *pods.Pod, deleted, until time.Time) {
	if _, known := p.byPod[pod.UID]; known {
		p.forgetExtra(pod.UID)
		p.touch(p.end(pod.UID))
		return
	}
	_, ended := p.order(pod.UID)
	p.holds.clear(pod.Workload, pod.UID, deleted, ended, until)
}

// leaves reports whether the request of a Pod is about to be deleted.
func leaves(pod *pods.Pod) bool {
	short := pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds <= leavingGrace
	return pod.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil && short
}

// end ends the demand of a leaving Pod as if its request were deleted: it is held, or already replaced. It reports whether demand changed.
func (p *Publisher) end(uid types.UID) (changed bool) {
	pr := p.byPod[uid]
	r := p.demand.Request(pr.key)
	if r == nil || pr.workload == "" || pr.over || p.suspended[pr.key] {
		return false
	}
	held := p.hold(r, pr.key, uid)
	changed = p.demand.Delete(pr.key) && !held
	p.tracker.forget(pr.key)
	pr.over = true
	p.byPod[uid], p.over[pr.key] = pr, uid
	return changed
}
