// Package pods keeps the Pods of the cluster, by node, stripped to what the operator reads.
//
// A Store is fed by the handlers of the cache and tells who is interested when the Pods of a node change. It decides
// nothing but which Pods have to leave a node that is drained. Start at Store and Evictable.
package pods

import (
	"maps"
	"slices"
	"sync"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Store holds the Pods of the cluster. It is safe for concurrent use.
type Store struct {
	onNode  func(node string)
	onBound func(p *corev1.Pod)

	mu     sync.RWMutex
	byUID  map[types.UID]*corev1.Pod
	byNode map[string]map[types.UID]*corev1.Pod
	stuck  map[types.UID]*corev1.Pod // the scheduler cannot place them
}

// New returns an empty Store. onNode hears of nodes whose Pods changed, onBound of Pods that waited and got a node. They
// must not block; nil means nobody hears.
func New(onNode func(node string), onBound func(p *corev1.Pod)) *Store {
	if onNode == nil {
		onNode = func(string) {}
	}
	if onBound == nil {
		onBound = func(*corev1.Pod) {}
	}
	return &Store{onNode: onNode, onBound: onBound, byUID: map[types.UID]*corev1.Pod{}, byNode: map[string]map[types.UID]*corev1.Pod{},
		stuck: map[types.UID]*corev1.Pod{}}
}

// Set takes the present form of a Pod.
func (s *Store) Set(p *corev1.Pod) {
	s.mu.Lock()
	old := s.byUID[p.UID]
	s.byUID[p.UID] = p
	if unschedulable(p) {
		s.stuck[p.UID] = p
	} else {
		delete(s.stuck, p.UID)
	}
	if node := p.Spec.NodeName; node != "" {
		if s.byNode[node] == nil {
			s.byNode[node] = map[types.UID]*corev1.Pod{}
		}
		s.byNode[node][p.UID] = p
	}
	s.mu.Unlock()
	if p.Spec.NodeName != "" {
		s.onNode(p.Spec.NodeName)
		if old != nil && old.Spec.NodeName == "" {
			s.onBound(p)
		}
	}
}

func unschedulable(p *corev1.Pod) bool {
	if p.Spec.NodeName != "" || p.DeletionTimestamp != nil {
		return false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}

// Unschedulable returns the Pods that the scheduler says it cannot place, in no order.
func (s *Store) Unschedulable() []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.stuck))
}

// Delete takes the end of a Pod.
func (s *Store) Delete(p *corev1.Pod) {
	s.mu.Lock()
	if known := s.byUID[p.UID]; known != nil {
		p = known
	}
	delete(s.byUID, p.UID)
	delete(s.stuck, p.UID)
	delete(s.byNode[p.Spec.NodeName], p.UID)
	if len(s.byNode[p.Spec.NodeName]) == 0 {
		delete(s.byNode, p.Spec.NodeName)
	}
	s.mu.Unlock()
	if p.Spec.NodeName != "" {
		s.onNode(p.Spec.NodeName)
	}
}

// Get returns a Pod, or nil.
func (s *Store) Get(uid types.UID) *corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byUID[uid]
}

// On returns the Pods of a node, in no order.
func (s *Store) On(node string) []*corev1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.byNode[node]))
}

// All calls f with each Pod until it returns false.
func (s *Store) All(f func(*corev1.Pod) bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, p := range s.byUID {
		if !f(p) {
			return
		}
	}
}

// Evictable says that a Pod has to leave a node that is drained: not a mirror of a static Pod, not owned by the Node, not
// controlled by a DaemonSet, not finished (OP-8.8).
func Evictable(p *corev1.Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	for _, o := range p.OwnerReferences {
		if o.Kind == "Node" || o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller {
			return false
		}
	}
	return p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// Protected says that a Pod asks to be evicted last (OP-9.2).
func Protected(p *corev1.Pod) bool { return p.Annotations[v1alpha1.AnnotationDoNotDisrupt] == "true" }

// Strip drops what is not read of a Pod, before it enters the cache (OP-3.1).
func Strip(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: unique.Make(p.Namespace).Value(), Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: unique.Make(p.Spec.NodeName).Value(), TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	for _, k := range []string{corev1.MirrorPodAnnotationKey, v1alpha1.AnnotationDoNotDisrupt} {
		if v, ok := p.Annotations[k]; ok {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	for _, r := range p.OwnerReferences {
		if r.Kind == "Node" || r.Kind == "DaemonSet" { // what Evictable looks at
			out.OwnerReferences = append(out.OwnerReferences, metav1.OwnerReference{Kind: r.Kind, Controller: r.Controller})
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && p.Spec.NodeName == "" {
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
	}
	return out, nil
}
