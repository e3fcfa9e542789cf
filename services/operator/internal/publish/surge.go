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

// A rollout creates Pods beyond the replicas of its Deployment, and their places come free when Pods of the other template leave. Such a Pod is
// extra: it counts once it takes the demand of a Pod that left, or has waited (OP-5.30).

const (
	extraFor = 5 * time.Second // that an extra Pod waits
	extraMax = 100_000         // others count at once
)

// extra is the request of a Pod that waits for the place of another one.
type extra struct {
	request  *request.Request
	key      aggregate.Key
	pod      newcomer
	workload string
	template string
	until    time.Time
}

// templateOf is one template of a workload.
type templateOf struct{ workload, template string }

// templates counts the Pods of Deployments that stay, by workload and by template.
type templates struct {
	all map[string]int
	of  map[templateOf]int
}

func newTemplates() templates { return templates{map[string]int{}, map[templateOf]int{}} }

func stays(pod *pods.Pod) bool {
	return pod != nil && pod.Template != "" && !leaves(pod) && pod.Phase != corev1.PodSucceeded
}

// change takes a change of a Pod.
func (t *templates) change(old, now *pods.Pod) {
	switch was, is := stays(old), stays(now); {
	case was && !is:
		t.add(old, -1)
	case is && !was:
		t.add(now, 1)
	}
}

func (t *templates) add(pod *pods.Pod, n int) {
	of := templateOf{pod.Workload, pod.Template}
	if t.all[pod.Workload] += n; t.all[pod.Workload] == 0 {
		delete(t.all, pod.Workload)
	}
	if t.of[of] += n; t.of[of] == 0 {
		delete(t.of, of)
	}
}

// others says whether a workload has Pods of another template.
func (t *templates) others(workload, template string) bool {
	return t.all[workload] > t.of[templateOf{workload, template}]
}

// extra returns the wait of a new Pod; nil: it counts at once.
func (p *Publisher) extra(r *request.Request, key aggregate.Key, n newcomer, now time.Time) *extra {
	pod := p.pod(n.uid)
	if !r.Pending() || !stays(pod) || !p.templates.others(pod.Workload, pod.Template) || len(p.holds.extras) >= extraMax {
		return nil
	}
	until := now.Add(extraFor)
	if end := n.created.Add(extraFor + clockGranular); end.Before(until) { // it was seen late, as after a restart
		until = end
	}
	if !now.Before(until) {
		return nil
	}
	return &extra{request: r, key: key, pod: n, workload: pod.Workload, template: pod.Template, until: until}
}

// wait lets an extra Pod wait.
func (h *holds) wait(x *extra) {
	w := h.workload(x.workload)
	w.extras = append(w.extras, x)
	h.extras[x.key] = x
}

// drop ends the wait of an extra Pod.
func (h *holds) drop(x *extra) {
	w := h.workloads[x.workload]
	w.extras = slices.DeleteFunc(w.extras, func(e *extra) bool { return e == x })
	delete(h.extras, x.key)
	h.trim(x.workload)
}

// countExtra counts a Pod that waited, beside those that were replaced.
func (p *Publisher) countExtra(x *extra) {
	p.holds.drop(x)
	w := p.holds.workload(x.workload)
	w.newcomers = append(w.newcomers, x.pod)
	p.admit(x)
}

// admit counts the request of an extra Pod, whose owner may have to learn what its row waits for.
func (p *Publisher) admit(x *extra) {
	p.touch(p.demand.Set(x.request))
	p.turned = append(p.turned, x.key)
}

// countExtras counts those that waited long enough, or whose rollout is over, and returns when the next one is due; zero: none.
func (p *Publisher) countExtras(now time.Time) (next time.Time) {
	for _, x := range p.holds.extras {
		switch {
		case !now.Before(x.until) || !p.templates.others(x.workload, x.template):
			p.countExtra(x)
		case next.IsZero() || x.until.Before(next):
			next = x.until
		}
	}
	return next
}

// bound takes an extra Pod that got a node. If another new Pod of its template was counted and has none, it was counted in the place of that one,
// which now waits itself: kube-scheduler does not bind in the order in which we count. Otherwise it waits on: it found room that was there.
func (p *Publisher) bound(pod *pods.Pod) {
	x := p.holds.extras[p.byPod[pod.UID].key]
	if x == nil || x.pod.uid != pod.UID {
		return
	}
	pair, other := p.counted(x, time.Now())
	if other == nil {
		return
	}
	p.holds.drop(x)
	pair.by = x.pod
	p.holds.wait(other)
	p.tracker.forget(other.key) // it is acknowledged when it is counted again
	p.touch(p.demand.Delete(other.key))
	p.admit(x)
}

// counted finds the newest Pod of the same template that took the demand of another one, and has neither a node nor waited as long as an extra Pod.
func (p *Publisher) counted(x *extra, now time.Time) (*replaced, *extra) {
	w := p.holds.workload(x.workload)
	for i := len(w.replaced) - 1; i >= max(0, len(w.replaced)-repairMax); i-- {
		pair := &w.replaced[i]
		known := p.byPod[pair.by.uid]
		r := p.demand.Request(known.key)
		pod := p.pod(pair.by.uid)
		until := pair.by.created.Add(extraFor)
		if r == nil || known.over || pod == nil || pod.Node != "" || !stays(pod) || pod.Template != x.template || !now.Before(until) {
			continue
		}
		return pair, &extra{request: r, key: known.key, pod: pair.by, workload: x.workload, template: x.template, until: until}
	}
	return nil, nil
}

// forgetExtra ends the wait of a Pod that leaves, whose request does not count any more.
func (p *Publisher) forgetExtra(uid types.UID) {
	pr := p.byPod[uid]
	if x := p.holds.extras[pr.key]; x != nil && x.pod.uid == uid {
		p.holds.drop(x)
		pr.over = true
		p.byPod[uid], p.over[pr.key] = pr, uid
	}
}
