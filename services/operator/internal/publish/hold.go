package publish

import (
	"math"
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
	heldSuffix    = "/held"         // no object's name contains a slash
	newcomerKept  = 2 * time.Minute // a Pod older than this does not replace one that is deleted now
	heldMax       = 100_000         // demand beyond it is not held
	clockGranular = time.Second     // of timestamps in Kubernetes
	unclearFor    = 5 * time.Second // the watch of requests may be ahead of that of Pods
	leavingGrace  = 600             // seconds; a Pod with a longer deletion grace keeps its request until it is gone (OP-15.8)
)

// holds keeps the demand of deleted Pods of controllers until their replacements ask, so that demand does not dip during a rollout (OP-5.23).
// Each Pod that a workload creates after a deletion replaces one deleted Pod. It is guarded by the Publisher's lock.
type holds struct {
	workloads map[string]*workload
	until     map[aggregate.Key]time.Time // by the key of the held demand
	extras    map[aggregate.Key]*extra    // requests that do not count yet
}

type workload struct {
	held      []heldPod // oldest first
	newcomers []newcomer
	replaced  []replaced // oldest first, for as long as newcomers are kept
	extras    []*extra   // oldest first
}

// newcomer is a new Pod that is not paired with a deleted one yet.
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

// replaces reports whether a Pod was created after the other one was deleted: by the order of changes if it is known, else by timestamps,
// which have a resolution of one second.
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
	over     bool // its demand was held or replaced before the request was deleted
}

func newHolds() holds {
	return holds{workloads: map[string]*workload{}, until: map[aggregate.Key]time.Time{}, extras: map[aggregate.Key]*extra{}}
}

// arrived pairs a new Pod of a workload with a deleted one. It returns the key of the demand that is no longer held. One that is extra takes the
// demand of any Pod that left, before or after it was created, and waits if there is none.
func (h *holds) arrived(name string, n newcomer, x *extra, now time.Time) (released aggregate.Key, ok bool) {
	if name == "" || now.Sub(n.created) > newcomerKept {
		return aggregate.Key{}, false
	}
	w := h.workload(name)
	d, ok := w.release(n, map[types.UID]bool{})
	switch {
	case ok:
	case x != nil && len(w.held) > 0:
		d = w.held[0]
		w.held = w.held[1:]
		w.replaced = append(w.replaced, replaced{d, n})
	case x != nil:
		h.wait(x)
		return aggregate.Key{}, false
	default:
		w.newcomers = append(w.newcomers, n)
		return aggregate.Key{}, false
	}
	delete(h.until, d.key)
	return d.key, true
}

// left reports whether to hold the demand of a deleted Pod under a key: its replacement has not arrived yet. An extra Pod takes it instead.
func (h *holds) left(name string, d heldPod, until, now time.Time) (held bool, instead *extra) {
	w := h.workload(name)
	w.newcomers = slices.DeleteFunc(w.newcomers, func(n newcomer) bool { return n.uid == d.uid || now.Sub(n.created) > newcomerKept })
	if w.replace(d, map[types.UID]bool{}) {
		return false, nil
	}
	if len(w.extras) > 0 {
		instead = w.extras[0]
		w.replaced = append(w.replaced, replaced{d, instead.pod})
		h.drop(instead)
		return false, instead
	}
	if len(h.until) >= heldMax {
		h.trim(name)
		return false, nil
	}
	w.held = append(w.held, d)
	h.until[d.key] = until
	return true, nil
}

// clear records the deletion of a Pod whose request was deleted before the Pod was known.
func (h *holds) clear(name string, uid types.UID, deleted time.Time, ended uint64, until time.Time) {
	w := h.workloads[name]
	if w == nil {
		return
	}
	if i := slices.IndexFunc(w.held, func(d heldPod) bool { return d.uid == uid && d.ended == math.MaxUint64 }); i >= 0 {
		w.held[i].deleted, w.held[i].ended = deleted, ended
		h.until[w.held[i].key] = until
	}
}

// replaced pairs a deleted Pod with its replacement. Events of requests arrive in another order than those of Pods, so a later event may show
// that the pairs are wrong.
type replaced struct {
	gone heldPod
	by   newcomer
}

// repairMax bounds how many pairs are searched to correct one.
const repairMax = 1000

// release pairs a new Pod with a held one and returns it. If the new Pod replaces none of them, it takes the place of another replacement,
// which is then free for a held one. tried lists the Pods that were searched.
func (w *workload) release(n newcomer, tried map[types.UID]bool) (heldPod, bool) {
	if len(w.held) == 0 {
		return heldPod{}, false
	}
	if i := slices.IndexFunc(w.held, n.replaces); i >= 0 {
		d := w.held[i]
		w.held = slices.Delete(w.held, i, i+1)
		w.replaced = append(w.replaced, replaced{d, n})
		return d, true
	}
	for i := 0; i < len(w.replaced) && i < repairMax; i++ {
		x := w.replaced[i]
		if tried[x.by.uid] || !n.replaces(x.gone) {
			continue
		}
		tried[x.by.uid] = true
		if d, ok := w.release(x.by, tried); ok {
			w.replaced[i].by = n
			return d, true
		}
	}
	return heldPod{}, false
}

// replace pairs a deleted Pod with a new one. If none fits, it takes the replacement of another Pod that finds a new one.
func (w *workload) replace(d heldPod, tried map[types.UID]bool) bool {
	if len(w.newcomers) == 0 {
		return false
	}
	if i := slices.IndexFunc(w.newcomers, func(n newcomer) bool { return n.replaces(d) }); i >= 0 {
		w.replaced = append(w.replaced, replaced{d, w.newcomers[i]})
		w.newcomers = slices.Delete(w.newcomers, i, i+1)
		return true
	}
	for i := 0; i < len(w.replaced) && i < repairMax; i++ {
		x := w.replaced[i]
		if tried[x.gone.uid] || !x.by.replaces(d) {
			continue
		}
		tried[x.gone.uid] = true
		if w.replace(x.gone, tried) {
			w.replaced[i].gone = d
			return true
		}
	}
	return false
}

// expired returns and forgets the keys whose hold has ended. later extends a hold that lasted only until its Pod's state became known,
// and says until when; zero ends it.
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
	w.replaced = slices.DeleteFunc(w.replaced, func(x replaced) bool { return now.Sub(x.by.created) > newcomerKept })
	h.trim(name)
}

func (h *holds) trim(name string) {
	if w := h.workloads[name]; len(w.held)+len(w.newcomers)+len(w.replaced)+len(w.extras) == 0 {
		delete(h.workloads, name)
	}
}

// podArrived notes the Pod of a request that is seen for the first time, which may have to wait.
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
	p.byPod[uid] = podRequest{key: key, workload: name}
	born, _ := p.order(uid)
	n := newcomer{uid, created, born}
	if released, ok := p.holds.arrived(name, n, p.extra(r, key, n, now), now); ok {
		return p.demand.Delete(released)
	}
	return false
}

// hold keeps the demand of a request that goes with its Pod, if a controller will replace the Pod (OP-5.23).
func (p *Publisher) hold(r *request.Request, key aggregate.Key, uid types.UID) (held bool) {
	now, name := time.Now(), p.byPod[uid].workload
	deleted, until := now, now.Add(p.Hold)
	_, ended := p.order(uid)
	if pod := p.pod(uid); pod != nil {
		name = pod.Workload
		switch {
		case pod.Phase == corev1.PodSucceeded:
			return false // its work is done
		case pod.DeletionTimestamp != nil:
			deleted, until = p.deletion(pod)
		case pod.Phase != corev1.PodFailed:
			until = now.Add(unclearFor) // the Pod's deletion may not be known yet; otherwise only the request was withdrawn
			if p.Order != nil {
				ended = math.MaxUint64 // no known Pod was created after it
			}
		}
	}
	if name == "" || p.suspended[key] || p.demand.Row(key) == "" {
		return false
	}
	d := &request.Request{Spec: r.Spec, Held: true}
	d.Namespace, d.Name = r.Namespace, r.Name+heldSuffix
	d.Acknowledge()
	held, instead := p.holds.left(name, heldPod{uid, aggregate.KeyOf(d), deleted, ended}, until, now)
	if held {
		p.demand.Set(d)
	}
	if instead != nil {
		p.admit(instead)
	}
	return held
}

// deletion is when a Pod was deleted or failed, and until when its demand is held.
func (p *Publisher) deletion(pod *pods.Pod) (deleted, until time.Time) {
	if pod.DeletionTimestamp == nil {
		return time.Now(), time.Now().Add(p.Hold)
	}
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
