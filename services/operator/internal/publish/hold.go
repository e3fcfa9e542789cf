package publish

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

const (
	holdDefault   = 3 * time.Minute // beyond the Pod's own grace
	heldSuffix    = "/held"         // in the name of no object
	newcomerKept  = 2 * time.Minute // a Pod older than this replaces no Pod that is deleted now
	heldMax       = 100_000         // demand beyond it is not held
	clockGranular = time.Second     // of timestamps in Kubernetes
	unclearFor    = 5 * time.Second // the watch of requests may be ahead of that of Pods
)

// holds keeps the demand of deleted Pods of controllers until their replacements ask, so that a rollout is no dip (OP-5.23).
// Each Pod that a workload creates after a deletion replaces one deleted Pod. It is guarded by the Publisher's lock.
type holds struct {
	workloads map[string]*workload
	until     map[aggregate.Key]time.Time // by the key of the held demand
}

type workload struct {
	held      []heldPod // oldest first
	newcomers []newcomer
}

// newcomer is a Pod that replaces none yet.
type newcomer struct {
	uid     types.UID
	created time.Time
	born    uint64 // in the order of changes of Pods; 0 is unknown
}

type heldPod struct {
	uid     types.UID
	key     aggregate.Key
	deleted time.Time
	ended   uint64 // as newcomer.born
}

// replaces reports whether a Pod was created after the other one was deleted: by the order of changes where it is known, else by timestamps,
// which know seconds alone.
func (n newcomer) replaces(d heldPod) bool {
	if n.born > 0 && d.ended > 0 && n.born < d.ended {
		return false
	}
	return !n.created.Before(d.deleted.Add(-clockGranular))
}

// podRequest is what is known of the Pod of a request.
type podRequest struct {
	key      aggregate.Key
	workload string
}

func newHolds() holds {
	return holds{workloads: map[string]*workload{}, until: map[aggregate.Key]time.Time{}}
}

// arrived lets a new Pod of a workload replace a deleted one. It returns the key of the demand that is held no longer.
func (h *holds) arrived(name string, n newcomer, now time.Time) (released aggregate.Key, ok bool) {
	if name == "" || now.Sub(n.created) > newcomerKept {
		return aggregate.Key{}, false
	}
	w := h.workload(name)
	for i, d := range w.held {
		if n.replaces(d) {
			w.held = slices.Delete(w.held, i, i+1)
			delete(h.until, d.key)
			return d.key, true
		}
	}
	w.newcomers = append(w.newcomers, n)
	return aggregate.Key{}, false
}

// left says whether the demand of a deleted Pod is to be held under a key: no replacement has come before.
func (h *holds) left(name string, d heldPod, until, now time.Time) bool {
	if len(h.until) >= heldMax {
		return false
	}
	w := h.workload(name)
	w.newcomers = slices.DeleteFunc(w.newcomers, func(n newcomer) bool { return n.uid == d.uid || now.Sub(n.created) > newcomerKept })
	for i, n := range w.newcomers {
		if n.replaces(d) {
			w.newcomers = slices.Delete(w.newcomers, i, i+1)
			h.trim(name)
			return false
		}
	}
	w.held = append(w.held, d)
	h.until[d.key] = until
	return true
}

// expired returns the keys whose time is over, and forgets them. later says until when demand is held that was held only until
// its Pod is clear; zero: it is over.
func (h *holds) expired(now time.Time, later func(d heldPod) time.Time) (out []aggregate.Key) {
	if len(h.until) == 0 {
		for name := range h.workloads {
			h.prune(name, now)
		}
		return nil
	}
	for name, w := range h.workloads {
		w.held = slices.DeleteFunc(w.held, func(d heldPod) bool {
			over := !now.Before(h.until[d.key])
			if over {
				if until := later(d); now.Before(until) {
					h.until[d.key], over = until, false
				}
			}
			if over {
				delete(h.until, d.key)
				out = append(out, d.key)
			}
			return over
		})
		h.prune(name, now)
	}
	return out
}

func (h *holds) workload(name string) *workload {
	w := h.workloads[name]
	if w == nil {
		w = &workload{}
		h.workloads[name] = w
	}
	return w
}

func (h *holds) prune(name string, now time.Time) {
	w := h.workloads[name]
	w.newcomers = slices.DeleteFunc(w.newcomers, func(n newcomer) bool { return now.Sub(n.created) > newcomerKept })
	h.trim(name)
}

func (h *holds) trim(name string) {
	if w := h.workloads[name]; len(w.held)+len(w.newcomers) == 0 {
		delete(h.workloads, name)
	}
}

// podArrived notes the Pod of a request that is seen for the first time.
func (p *Publisher) podArrived(r *request.Request, key aggregate.Key, uid types.UID) (changed bool) {
	known, seen := p.byPod[uid]
	pod := p.pod(uid)
	if seen && known.workload != "" || r.DeletionTimestamp != nil {
		return false
	}
	now, created, name := time.Now(), r.CreationTimestamp.Time, ""
	if pod != nil {
		created, name = pod.CreationTimestamp.Time, pod.Workload
	}
	p.byPod[uid] = podRequest{key, name}
	born, _ := p.order(uid)
	if released, ok := p.holds.arrived(name, newcomer{uid, created, born}, now); ok {
		return p.demand.Delete(released)
	}
	return false
}

// hold keeps the demand of a request that goes with its Pod, if a controller will replace the Pod (OP-5.23).
func (p *Publisher) hold(r *request.Request, key aggregate.Key, uid types.UID) {
	now, name := time.Now(), p.byPod[uid].workload
	deleted, until := now, now.Add(p.Hold)
	if pod := p.pod(uid); pod != nil {
		name = pod.Workload
		switch {
		case pod.Phase == corev1.PodSucceeded:
			return // its work is done
		case pod.DeletionTimestamp != nil:
			deleted, until = p.deletion(pod)
		case pod.Phase != corev1.PodFailed:
			until = now.Add(unclearFor) // its deletion may not be known yet; else the request alone is withdrawn
		}
	}
	if name == "" || p.suspended[key] || p.demand.Row(key) == "" {
		return
	}
	held := &request.Request{Spec: r.Spec, Held: true}
	held.Namespace, held.Name = r.Namespace, r.Name+heldSuffix
	held.Acknowledge()
	_, ended := p.order(uid)
	if p.holds.left(name, heldPod{uid, aggregate.KeyOf(held), deleted, ended}, until, now) {
		p.demand.Set(held)
	}
}

// deletion is when a Pod was deleted, and until when its demand is held.
func (p *Publisher) deletion(pod *pods.Pod) (deleted, until time.Time) {
	grace := time.Duration(0)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	return pod.DeletionTimestamp.Add(-grace), pod.DeletionTimestamp.Add(p.Hold)
}

func (p *Publisher) pod(uid types.UID) *pods.Pod {
	if p.Pod == nil {
		return nil
	}
	return p.Pod(uid)
}

func (p *Publisher) order(uid types.UID) (born, ended uint64) {
	if p.Order == nil {
		return 0, 0
	}
	return p.Order(uid)
}

// expireHolds drops the demand of Pods that were not replaced in time.
func (p *Publisher) expireHolds(now time.Time) {
	changed := false
	later := func(d heldPod) (until time.Time) {
		switch pod := p.pod(d.uid); {
		case pod == nil:
			until = d.deleted.Add(p.Hold)
		case pod.DeletionTimestamp != nil:
			_, until = p.deletion(pod)
		}
		return until
	}
	for _, key := range p.holds.expired(now, later) {
		changed = p.demand.Delete(key) || changed
	}
	p.touch(changed)
}
