// Package pods keeps the Pods of the cluster, by node, with what the operator reads of them.
//
// A Store is fed by the handlers of the cache and notifies subscribers when the Pods of a node change. It decides
// nothing but which Pods have to leave a node that is drained. Start at Store and Evictable.
package pods

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Pod is a Pod with what the operator reads of it, a quarter of the size of the API's type. It is never changed.
type Pod struct {
	metav1.ObjectMeta
	Node      string // name; empty until it is bound
	Phase     corev1.PodPhase
	Grace     *int64               // the termination grace of its spec, seconds
	Scheduled *corev1.PodCondition // of a Pod without a node: what the scheduler says; nil: nothing yet
	LabelSet  LabelSet             // for the selectors of disruption budgets
	Workload  string               // that controls it and will replace it; empty: none
	Template  string               // which of its templates a Pod of a Deployment is of; empty: another kind of Pod
	Domains   bool                 // required anti-affinity keeps it from whole domains, not from hosts alone
	Hosts     bool                 // required anti-affinity keeps it from hosts
}

// GetObjectKind implements runtime.Object.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. What is never changed is shared.
func (p *Pod) DeepCopyObject() runtime.Object {
	out := *p
	p.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// Of reads a Pod of the API.
func Of(p *corev1.Pod) *Pod {
	out := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: unique.Make(p.Namespace).Value(), Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp, DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		},
		Node: unique.Make(p.Spec.NodeName).Value(), Phase: phase(p.Status.Phase), Grace: p.Spec.TerminationGracePeriodSeconds,
		LabelSet: NewLabelSet(p.Labels),
	}
	out.Domains, out.Hosts = keepsFrom(p)
	out.Workload, out.Template = workload(p)
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
			out.Scheduled = &c
		}
	}
	return out
}

// workload names what controls a Pod: with a ReplicaSet of a Deployment the Deployment, whose next ReplicaSet replaces the Pod
// in a rollout; with a StatefulSet this replica of it, because no other replaces the Pod. template tells the ReplicaSets of a Deployment apart.
func workload(p *corev1.Pod) (name, template string) {
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind == "DaemonSet" || owner.Kind == "Node" {
		return "", ""
	}
	kind, name := owner.Kind, owner.Name
	if hash := p.Labels["pod-template-hash"]; kind == "ReplicaSet" && hash != "" {
		kind, name, template = "Deployment", strings.TrimSuffix(name, "-"+hash), unique.Make(hash).Value()
	}
	if kind == "StatefulSet" {
		name += "/" + p.Name
	}
	return unique.Make(p.Namespace + "/" + kind + "/" + name).Value(), template
}

// keepsFrom says of what required anti-affinity keeps a Pod away.
func keepsFrom(p *corev1.Pod) (domains, hosts bool) {
	a := p.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return false, false
	}
	for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		domains, hosts = domains || t.TopologyKey != corev1.LabelHostname, hosts || t.TopologyKey == corev1.LabelHostname
	}
	return domains, hosts
}

// phase is the text of a phase that all Pods share.
func phase(p corev1.PodPhase) corev1.PodPhase { return corev1.PodPhase(unique.Make(string(p)).Value()) }

// Unschedulable is what the scheduler says of a Pod that it cannot place; nil: it does not say so.
func (p *Pod) Unschedulable() *corev1.PodCondition {
	if c := p.Scheduled; c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return c
	}
	return nil
}

// Store holds the Pods of the cluster. It is safe for concurrent use.
type Store struct {
	onNode   func(node string)
	onBound  func(p *Pod)
	onChange func(old, now *Pod)

	mu     sync.RWMutex
	byUID  map[types.UID]*Pod
	byNode map[string]map[types.UID]*Pod
	stuck  map[types.UID]*Pod // the scheduler cannot place them
	free   map[types.UID]*Pod // without a node yet
	ending map[types.UID]*Pod // deleted, and still on their nodes
	ended  []Ended            // oldest first
	orders map[types.UID]order
}

// order is when a Pod was first seen, and first seen to end, in the order of all changes of Pods. 0 is unknown.
type order struct{ born, ended uint64 }

// New returns an empty Store. onNode is called with nodes whose Pods changed, onBound with Pods that waited and got a node,
// onChange with the old and the new form of each Pod that changed, nil where there is none. They must not block; all may be nil.
func New(onNode func(node string), onBound func(p *Pod), onChange func(old, now *Pod)) *Store {
	if onNode == nil {
		onNode = func(string) {}
	}
	if onBound == nil {
		onBound = func(*Pod) {}
	}
	if onChange == nil {
		onChange = func(_, _ *Pod) {}
	}
	return &Store{onNode: onNode, onBound: onBound, onChange: onChange, byUID: map[types.UID]*Pod{}, byNode: map[string]map[types.UID]*Pod{},
		stuck: map[types.UID]*Pod{}, free: map[types.UID]*Pod{}, ending: map[types.UID]*Pod{}, orders: map[types.UID]order{}}
}

// Set takes the present form of a Pod.
func (s *Store) Set(p *Pod) {
	s.mu.Lock()
	old := s.byUID[p.UID]
	s.byUID[p.UID] = p
	s.note(p)
	if p.Node == "" && p.DeletionTimestamp == nil && p.Unschedulable() != nil {
		s.stuck[p.UID] = p
	} else {
		delete(s.stuck, p.UID)
	}
	if p.Node == "" && p.DeletionTimestamp == nil && p.Phase != corev1.PodFailed && p.Phase != corev1.PodSucceeded {
		s.free[p.UID] = p
	} else {
		delete(s.free, p.UID)
	}
	if p.Node != "" && p.DeletionTimestamp != nil && Evictable(p) {
		s.ending[p.UID] = p
	} else {
		delete(s.ending, p.UID)
	}
	if node := p.Node; node != "" {
		if s.byNode[node] == nil {
			s.byNode[node] = map[types.UID]*Pod{}
		}
		s.byNode[node][p.UID] = p
	}
	s.mu.Unlock()
	s.onChange(old, p)
	if p.Node != "" {
		s.onNode(p.Node)
		if old != nil && old.Node == "" {
			s.onBound(p)
		}
	}
}

// note keeps the resource versions in which a Pod was new and began to end: those of one kind of object are numbers in the order of
// changes. Of a Pod that a list brought the first may be a later one.
func (s *Store) note(p *Pod) {
	at, err := strconv.ParseUint(p.ResourceVersion, 10, 64)
	if err != nil {
		return
	}
	o, known := s.orders[p.UID]
	if !known {
		o.born = at
	}
	if o.ended == 0 && (p.DeletionTimestamp != nil || p.Phase == corev1.PodFailed) {
		o.ended = at
	}
	s.orders[p.UID] = o
}

// noteEnd keeps when a Pod was gone, if nothing showed before that it ends.
func (s *Store) noteEnd(p *Pod) {
	s.note(p)
	if o := s.orders[p.UID]; o.ended == 0 {
		o.ended, _ = strconv.ParseUint(p.ResourceVersion, 10, 64)
		s.orders[p.UID] = o
	}
}

// Order says when a Pod was new and when it began to end, as numbers that grow with each change of a Pod; 0 where that is not known.
func (s *Store) Order(uid types.UID) (born, ended uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.orders[uid]
	return o.born, o.ended
}

// Unschedulable returns the Pods that the scheduler says it cannot place, in no order.
func (s *Store) Unschedulable() []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.stuck))
}

// Unbound returns the Pods that have no node yet, in no order.
func (s *Store) Unbound() []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.free))
}

// Ended is a Pod of a workload that has left its node.
type Ended struct {
	Workload, Node string
	At             time.Time
}

const (
	endedKept = 10 * time.Second // the longest back-off of kube-scheduler: a Pod that waits for the place may be tried again only then
	endedMax  = 100_000
)

// noteEnded remembers for a while that a Pod has left its node.
func (s *Store) noteEnded(p *Pod, now time.Time) {
	s.ended = s.ended[s.endedBefore(now.Add(-endedKept)):]
	if p.Workload != "" && p.Node != "" && len(s.ended) < endedMax {
		s.ended = append(s.ended, Ended{p.Workload, p.Node, now})
	}
}

// endedBefore is how many of the Pods that left did so before a time.
func (s *Store) endedBefore(t time.Time) int {
	i := slices.IndexFunc(s.ended, func(e Ended) bool { return !e.At.Before(t) })
	if i < 0 {
		return len(s.ended)
	}
	return i
}

// Ended returns the Pods of workloads that left their nodes in the last ten seconds.
func (s *Store) Ended() []Ended {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.ended[s.endedBefore(time.Now().Add(-endedKept)):])
}

// Ending returns the Pods that are deleted and still on their nodes, in no order.
func (s *Store) Ending() []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.ending))
}

// Delete takes the end of a Pod.
func (s *Store) Delete(p *Pod) {
	s.mu.Lock()
	known := s.byUID[p.UID]
	if known != nil {
		s.noteEnd(p)
		p = known
		s.noteEnded(p, time.Now())
	}
	delete(s.byUID, p.UID)
	delete(s.stuck, p.UID)
	delete(s.free, p.UID)
	delete(s.ending, p.UID)
	delete(s.byNode[p.Node], p.UID)
	if len(s.byNode[p.Node]) == 0 {
		delete(s.byNode, p.Node)
	}
	s.mu.Unlock()
	if known != nil {
		s.onChange(known, nil)
	}
	s.mu.Lock()
	delete(s.orders, p.UID) // after the notification, whose receiver may ask for it
	s.mu.Unlock()
	if p.Node != "" {
		s.onNode(p.Node)
	}
}

// Get returns a Pod, or nil.
func (s *Store) Get(uid types.UID) *Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byUID[uid]
}

// On returns the Pods of a node, in no order.
func (s *Store) On(node string) []*Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Collect(maps.Values(s.byNode[node]))
}

// All calls f with each Pod until it returns false.
func (s *Store) All(f func(*Pod) bool) {
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
func Evictable(p *Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	for _, o := range p.OwnerReferences {
		if o.Kind == "Node" || o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller {
			return false
		}
	}
	return p.Phase != corev1.PodSucceeded && p.Phase != corev1.PodFailed
}

// Protected says that a Pod asks to be evicted last (OP-9.2).
func Protected(p *Pod) bool { return p.Annotations[v1alpha1.AnnotationDoNotDisrupt] == "true" }

// Strip makes a Pod of the API server one of ours, before it enters the cache (OP-3.1).
func Strip(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		return Of(p), nil
	}
	return o, nil
}
