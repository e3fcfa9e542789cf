package gangs

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// gatherFor is how long the first members of a gang wait for the others, and for its object to be known. Only members that their
// scheduler keeps waiting anyway wait longer.
const gatherFor = 10 * time.Second

// Store knows the gangs of a cluster.
type Store struct {
	changed func([]types.UID)                      // Pods to look at again
	needed  func(kind schema.GroupVersionResource) // a Pod refers to an object of this kind

	mu      sync.Mutex
	of      map[types.UID]id
	members map[id]map[types.UID]bool // true: its scheduler may place it, or it was placed
	own     map[id]definition         // of gangs whose Pods say everything
	objects map[id]definition         // of the others, as far as their objects are known
	served  map[schema.GroupVersionResource]bool
}

// New makes an empty Store. Both functions must not block, and may be called while Pods are set.
func New(changed func([]types.UID), needed func(schema.GroupVersionResource)) *Store {
	return &Store{changed: changed, needed: needed, of: map[types.UID]id{}, members: map[id]map[types.UID]bool{}, own: map[id]definition{},
		objects: map[id]definition{}, served: map[schema.GroupVersionResource]bool{}}
}

// SetPod takes the present form of a Pod. Its peers are looked at again when it makes the gang complete.
func (s *Store) SetPod(p *corev1.Pod) {
	g, own, ok := identify(p)
	if !ok {
		s.DeletePod(p)
		return
	}
	s.mu.Lock()
	if old, known := s.of[p.UID]; known && old != g {
		s.remove(p.UID)
	}
	before := s.ready(g)
	s.of[p.UID] = g
	if s.members[g] == nil {
		s.members[g] = map[types.UID]bool{}
	}
	s.members[g][p.UID] = len(p.Spec.SchedulingGates) == 0 && p.DeletionTimestamp == nil
	if own != nil {
		s.own[g] = *own
	}
	now := s.ready(g)
	var again []types.UID
	if d, known := s.definition(g); known && before < d.min && now >= d.min {
		again = s.peers(g)
	}
	s.mu.Unlock()
	if g.kind.Resource != "" {
		s.needed(g.kind)
	}
	s.changed(again)
}

// DeletePod takes the end of a Pod.
func (s *Store) DeletePod(p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(p.UID)
}

func (s *Store) remove(pod types.UID) {
	g, known := s.of[pod]
	if !known {
		return
	}
	delete(s.of, pod)
	if delete(s.members[g], pod); len(s.members[g]) == 0 {
		delete(s.members, g)
		delete(s.own, g)
	}
}

// setObject takes the present form of an object that defines a gang; nil is its end.
func (s *Store) setObject(kind schema.GroupVersionResource, namespace, name string, o *unstructured.Unstructured) {
	g := id{kind: kind, namespace: namespace, name: name}
	s.mu.Lock()
	old, known := s.objects[g]
	if o == nil {
		delete(s.objects, g)
	} else {
		s.objects[g] = define(kind, o)
	}
	var again []types.UID
	if now, still := s.objects[g]; known != still || old != now {
		again = s.peers(g)
	}
	s.mu.Unlock()
	s.changed(again)
}

// setServed notes whether the API server has a kind. Pods wait for no object of one that it does not have.
func (s *Store) setServed(kind schema.GroupVersionResource, served bool) {
	s.mu.Lock()
	old, known := s.served[kind]
	s.served[kind] = served
	var again []types.UID
	if !known || old != served {
		for g := range s.members {
			if g.kind == kind {
				again = append(again, s.peers(g)...)
			}
		}
	}
	s.mu.Unlock()
	s.changed(again)
}

func (s *Store) peers(g id) (out []types.UID) {
	for uid := range s.members[g] {
		out = append(out, uid)
	}
	return out
}

// ready counts the members that can be placed or were.
func (s *Store) ready(g id) (n int32) {
	for _, ready := range s.members[g] {
		if ready {
			n++
		}
	}
	return n
}

func (s *Store) definition(g id) (d definition, known bool) {
	if g.form != "" {
		d, known = s.own[g]
	} else {
		d, known = s.objects[g]
	}
	return d, known
}

// Of returns the gang of a Pod; nil if it has none. unread says that it may have one, whose object is not known.
func (s *Store) Of(p *corev1.Pod) (gang *v1alpha1.Gang, unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.of[p.UID]
	if !ok {
		return nil, false
	}
	d, known := s.definition(g)
	if !known || d.min <= 1 && d.topology == "" {
		return nil, !known
	}
	return &v1alpha1.Gang{Name: g.text(), MinMembers: d.min, TopologyKey: d.topology}, false
}

// Waits reports whether a pending Pod asks for nothing yet because its gang is not complete: for how long at most, 0 for as long as it is
// so, and in words if only the owner can end it.
func (s *Store) Waits(p *corev1.Pod, now time.Time) (left time.Duration, why string, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok := s.of[p.UID]
	if !ok {
		return 0, "", false
	}
	left = max(0, p.CreationTimestamp.Add(gatherFor).Sub(now))
	d, known := s.definition(g)
	if !known {
		if served, asked := s.served[g.kind]; asked && !served {
			return 0, "", false
		}
		return left, "", left > 0
	}
	if s.ready(g) >= d.min {
		return 0, "", false
	}
	if left > 0 || !d.strict {
		return left, "", left > 0
	}
	return 0, fmt.Sprintf("Fewer than the %d Pods exist that %s %s needs to start. BigFleet provides capacity for them when %d do.", d.min, g.kind.GroupResource(), g.name, d.min), true
}
