package simcluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// schedulePause gathers a burst of changes into one round.
const schedulePause = 20 * time.Millisecond

// scheduler binds Pods. One goroutine runs its rounds.
type scheduler struct {
	store *kubesim.Store
	pods  view[corev1.Pod]
	nodes view[corev1.Node]

	// The picture of one round.
	byNode map[string]*corev1.Node
	all    []*corev1.Pod
	free   map[string]resources // by node name: allocatable minus bound Pods
}

type resources map[corev1.ResourceName]int64 // milli-units

func (c *Cluster) runScheduler(ctx context.Context) {
	s := &scheduler{
		store: c.store,
		pods:  view[corev1.Pod]{store: c.store, gvr: kubesim.Pods}, nodes: view[corev1.Node]{store: c.store, gvr: kubesim.Nodes},
	}
	wake := make(chan struct{}, 1)
	var feeds sync.WaitGroup
	feeds.Go(func() { pokes(ctx, c.store, kubesim.Pods, wake) })
	feeds.Go(func() { pokes(ctx, c.store, kubesim.Nodes, wake) })
	defer feeds.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		select { // let a burst arrive
		case <-ctx.Done():
			return
		case <-time.After(schedulePause):
		}
		for _, v := range s.round() {
			s.write(v)
		}
	}
}

// verdict is what a round says of one pending Pod.
type verdict struct {
	pod  *corev1.Pod
	node string // "" when it fits nowhere
	why  string
}

// round places every pending Pod it can, highest priority first.
func (s *scheduler) round() []verdict {
	s.look()
	var out []verdict
	for _, i := range s.pending() {
		p := s.all[i]
		node, why := s.place(p)
		if node == nil {
			if reported(p) != why {
				out = append(out, verdict{pod: p, why: why})
			}
			continue
		}
		s.take(node.Name, p)
		bound := p.DeepCopy() // later Pods of this round see it there
		bound.Spec.NodeName = node.Name
		s.all[i] = bound
		out = append(out, verdict{pod: p, node: node.Name})
	}
	return out
}

// reported is the reason that a Pod shows.
func reported(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// key is the store's name of an object.
func key(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// pending lists the places of Pods that wait.
func (s *scheduler) pending() []int {
	var out []int
	for i, p := range s.all {
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) == 0 {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(i, j int) int {
		a, b := s.all[i], s.all[j]
		return cmp.Or(cmp.Compare(priority(b), priority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(key(a), key(b)))
	})
	return out
}

func priority(p *corev1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// look reads Pods and Nodes, and sums what bound Pods use.
func (s *scheduler) look() {
	s.all, s.byNode, s.free = s.pods.read(), map[string]*corev1.Node{}, map[string]resources{}
	for _, n := range s.nodes.read() {
		s.byNode[n.Name] = n
		free := resources{}
		for r, q := range n.Status.Allocatable {
			free[r] = q.MilliValue()
		}
		s.free[n.Name] = free
	}
	for _, p := range s.all {
		if p.Spec.NodeName != "" && !ended(p) {
			s.take(p.Spec.NodeName, p)
		}
	}
}

func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

func (s *scheduler) take(node string, p *corev1.Pod) {
	free := s.free[node]
	if free == nil {
		return
	}
	for r, v := range requests(p) {
		free[r] -= v
	}
}

func requests(p *corev1.Pod) resources {
	out := resources{corev1.ResourcePods: 1000}
	for r, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		out[r] = q.MilliValue()
	}
	return out
}

// place finds the fitting Node with the least cpu left over, so that Nodes fill up one after the other.
func (s *scheduler) place(p *corev1.Pod) (*corev1.Node, string) {
	want := requests(p)
	var best *corev1.Node
	lost := map[string]int{}
	for _, n := range s.byNode {
		if why := s.refuses(n, p, want); why != "" {
			lost[why]++
			continue
		}
		if best == nil || s.tighter(n, best) {
			best = n
		}
	}
	if best != nil {
		return best, ""
	}
	return nil, explain(len(s.byNode), lost)
}

func (s *scheduler) tighter(a, b *corev1.Node) bool {
	x, y := s.free[a.Name][corev1.ResourceCPU], s.free[b.Name][corev1.ResourceCPU]
	return cmp.Or(cmp.Compare(x, y), strings.Compare(a.Name, b.Name)) < 0
}

// explain words a refusal as kube-scheduler does: tools read the prefix.
func explain(nodes int, lost map[string]int) string {
	reasons := make([]string, 0, len(lost))
	for why, n := range lost {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, why))
	}
	slices.Sort(reasons)
	if len(reasons) == 0 {
		reasons = []string{"no nodes"}
	}
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(reasons, ", "))
}

// write binds the Pod or says why not, in the condition PodScheduled.
func (s *scheduler) write(v verdict) {
	status, reason := "True", ""
	if v.node == "" {
		status, reason = "False", corev1.PodReasonUnschedulable
	}
	// The Pod may be gone or changed by now; then there is nothing to write, and the next round sees it.
	_, _ = s.store.Update(kubesim.Pods, v.pod.Namespace, v.pod.Name, kubesim.Whole, func(o *kubesim.Object) error {
		if o.GetUID() != v.pod.UID || boundTo(o) != "" || o.GetDeletionTimestamp() != nil {
			return errReplaced
		}
		if v.node != "" {
			if err := unstructured.SetNestedField(o.Object, v.node, "spec", "nodeName"); err != nil {
				return err
			}
		}
		return setCondition(o, corev1.PodScheduled, status, reason, v.why)
	})
}

func boundTo(pod *kubesim.Object) string {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	return node
}

// setCondition writes one condition of an object's status. The transition time moves only when the status does.
func setCondition[T ~string](o *kubesim.Object, kind T, status, reason, message string) error {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	next := map[string]any{"type": string(kind), "status": status, "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)}
	if reason != "" {
		next["reason"] = reason
	}
	if message != "" {
		next["message"] = message
	}
	for i, c := range list {
		if c, ok := c.(map[string]any); ok && c["type"] == string(kind) {
			if c["status"] == status {
				next["lastTransitionTime"] = c["lastTransitionTime"]
			}
			list[i] = next
			return unstructured.SetNestedSlice(o.Object, list, "status", "conditions")
		}
	}
	return unstructured.SetNestedSlice(o.Object, append(list, next), "status", "conditions")
}
