package devices

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Kinds that are read, of Kubernetes 1.34 and newer.
var (
	claims    = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
	templates = resourcev1.SchemeGroupVersion.WithResource("resourceclaimtemplates")
	classes   = resourcev1.SchemeGroupVersion.WithResource("deviceclasses")
)

// Kinds lists them.
func Kinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{claims, templates, classes}
}

// object names a claim, a template or a class.
type object struct {
	kind schema.GroupVersionResource
	types.NamespacedName
}

// state is what is known of a kind.
type state int

const (
	unknown    state = iota // not read yet
	unreadable              // the API server does not have it, or does not let us read it
	complete                // all of its objects are known
)

// Store knows claims, templates and classes, and which Pods refer to which. Use New.
type Store struct {
	changed func([]types.UID)
	needed  func(schema.GroupVersionResource)

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]state
	known map[object]*resourcev1.ResourceClaimSpec // of a class: not nil and empty
	users map[object]map[types.UID]struct{}
}

// New returns an empty Store. changed hears of Pods whose devices may be others now, needed of kinds that Pods refer to. They must not block.
func New(changed func([]types.UID), needed func(schema.GroupVersionResource)) *Store {
	return &Store{changed: changed, needed: needed, kinds: map[schema.GroupVersionResource]state{}, known: map[object]*resourcev1.ResourceClaimSpec{},
		users: map[object]map[types.UID]struct{}{}}
}

// refers is the object that a claim of a Pod names.
func refers(p *corev1.Pod, c *corev1.PodResourceClaim) (object, bool) {
	switch {
	case c.ResourceClaimTemplateName != nil:
		return object{templates, types.NamespacedName{Namespace: p.Namespace, Name: *c.ResourceClaimTemplateName}}, true
	case c.ResourceClaimName != nil:
		return object{claims, types.NamespacedName{Namespace: p.Namespace, Name: *c.ResourceClaimName}}, true
	}
	return object{}, false
}

// SetPod notes what a Pod refers to: the claims of a Pod never change. Others that share a claim with it are looked at again.
func (s *Store) SetPod(p *corev1.Pod) {
	if len(p.Spec.ResourceClaims) == 0 {
		return
	}
	var again []types.UID
	s.mu.Lock()
	for i := range p.Spec.ResourceClaims {
		if o, ok := refers(p, &p.Spec.ResourceClaims[i]); ok {
			if s.users[o] == nil {
				s.users[o] = map[types.UID]struct{}{}
			}
			if _, is := s.users[o][p.UID]; !is && o.kind == claims && len(s.users[o]) > 0 {
				again = append(again, s.usersOf(o)...)
			}
			s.users[o][p.UID] = struct{}{}
		}
	}
	s.mu.Unlock()
	for _, kind := range Kinds() {
		s.needed(kind)
	}
	s.changed(again)
}

// DeletePod takes the end of a Pod.
func (s *Store) DeletePod(p *corev1.Pod) {
	var again []types.UID
	s.mu.Lock()
	for i := range p.Spec.ResourceClaims {
		if o, ok := refers(p, &p.Spec.ResourceClaims[i]); ok {
			if delete(s.users[o], p.UID); len(s.users[o]) == 0 {
				delete(s.users, o)
			} else if o.kind == claims {
				again = append(again, s.usersOf(o)...)
			}
		}
	}
	s.mu.Unlock()
	s.changed(again)
}

func (s *Store) usersOf(o object) (out []types.UID) {
	for uid := range s.users[o] {
		out = append(out, uid)
	}
	return out
}

func (s *Store) allPods() (out []types.UID) {
	for o := range s.users {
		out = append(out, s.usersOf(o)...)
	}
	return out
}

// setObject takes the present form of an object; nil is its end. A class is rare: every Pod with a claim is looked at again.
func (s *Store) setObject(kind schema.GroupVersionResource, namespace, name string, o *unstructured.Unstructured) {
	at := object{kind, types.NamespacedName{Namespace: namespace, Name: name}}
	s.mu.Lock()
	if o == nil {
		delete(s.known, at)
	} else {
		s.known[at] = specOf(kind, o)
	}
	again := s.usersOf(at)
	if kind == classes {
		again = s.allPods()
	}
	s.mu.Unlock()
	s.changed(again)
}

// specOf reads the devices that a claim, or a claim of a template, asks for; nil if that cannot be read.
func specOf(kind schema.GroupVersionResource, o *unstructured.Unstructured) *resourcev1.ResourceClaimSpec {
	if kind == classes {
		return &resourcev1.ResourceClaimSpec{}
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if kind == templates {
		spec, _, _ = unstructured.NestedMap(spec, "spec")
	}
	out := &resourcev1.ResourceClaimSpec{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, out) != nil {
		return nil
	}
	return out
}

// setServed notes whether the API server has a kind.
func (s *Store) setServed(kind schema.GroupVersionResource, served bool) {
	if served { // its objects come next
		return
	}
	s.turn(kind, unreadable)
}

// setComplete notes that all objects of a kind are known.
func (s *Store) setComplete(kind schema.GroupVersionResource) { s.turn(kind, complete) }

func (s *Store) turn(kind schema.GroupVersionResource, now state) {
	s.mu.Lock()
	var again []types.UID
	if s.kinds[kind] != now {
		s.kinds[kind] = now
		again = s.allPods()
	}
	s.mu.Unlock()
	s.changed(again)
}

// Of returns the devices that a Pod asks for. why says what of its claims BigFleet cannot buy, or what they lack; read is false while what they refer to is
// not known.
func (s *Store) Of(p *corev1.Pod) (d Demand, why string, read bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range Kinds() {
		switch s.kinds[kind] {
		case unreadable:
			return Demand{}, fmt.Sprintf("spec.resourceClaims cannot be satisfied: %s cannot be read", kind.GroupResource()), true
		case unknown:
			return Demand{}, "", false
		}
	}
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		if why := s.claim(&d, p, c); why != "" {
			return Demand{}, fmt.Sprintf("spec.resourceClaims %q cannot be satisfied: %s", c.Name, why), true
		}
	}
	return d, "", true
}

func (s *Store) claim(d *Demand, p *corev1.Pod, c *corev1.PodResourceClaim) (why string) {
	o, ok := refers(p, c)
	if !ok {
		return "it names neither a ResourceClaim nor a template"
	}
	what := "ResourceClaim "
	if o.kind == templates {
		what = "ResourceClaimTemplate "
	}
	what += o.Name
	spec, known := s.known[o]
	switch {
	case !known:
		return what + " does not exist"
	case spec == nil:
		return what + " cannot be read"
	case o.kind == claims && len(s.users[o]) > 1:
		return what + " is shared by several Pods, which have to run where its devices are"
	}
	if why := d.add(spec, func(name string) bool {
		return s.known[object{classes, types.NamespacedName{Name: name}}] != nil
	}); why != "" {
		return what + ": " + why
	}
	return ""
}
