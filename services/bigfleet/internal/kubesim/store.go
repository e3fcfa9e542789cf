package kubesim

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is one stored object. Objects handed out are shared: read only, copy before a change.
type Object = unstructured.Unstructured

// eventsMax bounds the watch history of one resource. A watch that asks for older changes gets the error that makes it list again.
const eventsMax = 20_000

type name struct{ namespace, name string }

// change is one entry of the watch history.
type change struct {
	version uint64
	kind    watch.EventType
	object  *Object // after the change; of a deletion the last state, with the version of the deletion
	before  *Object // nil for a creation
}

type table struct {
	resource Resource
	objects  map[name]*Object
	history  []change
	dropped  uint64 // version of the newest change that left the history
	watchers map[*Watcher]struct{}
}

type ref struct {
	resource schema.GroupVersionResource
	name
}

// Store holds the objects of one cluster. Safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	version uint64
	tables  map[schema.GroupVersionResource]*table
	owned   map[types.UID]map[ref]struct{} // owner to dependents
	gone    map[types.UID]struct{}         // of the last removed objects: what names one as its only owner is collected
	removed []types.UID                    // the keys of gone, oldest first
	now     func() time.Time
}

// NewStore makes an empty cluster with the namespaces every cluster has.
func NewStore() *Store {
	s := &Store{tables: map[schema.GroupVersionResource]*table{}, owned: map[types.UID]map[ref]struct{}{}, gone: map[types.UID]struct{}{}, now: time.Now}
	for _, r := range served() {
		s.tables[r.GroupVersionResource] = &table{resource: r, objects: map[name]*Object{}, watchers: map[*Watcher]struct{}{}}
	}
	for _, ns := range []string{"default", "kube-system", "kube-public", "bigfleet-system"} {
		if _, err := s.Create(Namespaces, &Object{Object: map[string]any{"metadata": map[string]any{"name": ns}}}); err != nil {
			panic(fmt.Sprintf("kubesim: a fresh store refuses namespace %s: %v", ns, err)) // no input can cause it
		}
	}
	for class, value := range map[string]int64{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000} {
		if _, err := s.Create(PriorityClasses, &Object{Object: map[string]any{"metadata": map[string]any{"name": class}, "value": value}}); err != nil {
			panic(fmt.Sprintf("kubesim: a fresh store refuses PriorityClass %s: %v", class, err)) // no input can cause it
		}
	}
	return s
}

func (s *Store) table(gvr schema.GroupVersionResource) (*table, error) {
	if t := s.tables[gvr]; t != nil {
		return t, nil
	}
	return nil, apierrors.NewNotFound(gvr.GroupResource(), "")
}

// Get returns one object.
func (s *Store) Get(gvr schema.GroupVersionResource, namespace, object string) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, err
	}
	return t.get(name{namespace, object})
}

func (t *table) get(n name) (*Object, error) {
	if o := t.objects[n]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(t.resource.GroupResource(), n.name)
}

// List returns the objects that match, ordered by namespace and name, and the version the list stands for.
func (s *Store) List(gvr schema.GroupVersionResource, f Filter) ([]*Object, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, 0, err
	}
	return t.list(f), s.version, nil
}

func (t *table) list(f Filter) []*Object {
	var out []*Object
	for _, o := range t.objects {
		if f.matches(o) {
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b *Object) int {
		if a.GetNamespace() != b.GetNamespace() {
			return compare(a.GetNamespace(), b.GetNamespace())
		}
		return compare(a.GetName(), b.GetName())
	})
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Create stores a new object and returns it as stored.
func (s *Store) Create(gvr schema.GroupVersionResource, in *Object) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, err
	}
	o := in.DeepCopy()
	if err := s.prepare(t, o); err != nil {
		return nil, err
	}
	n := name{o.GetNamespace(), o.GetName()}
	if t.objects[n] != nil {
		return nil, apierrors.NewAlreadyExists(gvr.GroupResource(), n.name)
	}
	if t.resource.Namespaced {
		if _, err := s.tables[Namespaces].get(name{"", n.namespace}); err != nil {
			return nil, err
		}
	}
	s.commit(t, n, nil, o)
	if s.orphan(o) {
		s.delete(t, n, o, metav1.DeleteOptions{})
	}
	return o, nil
}

// orphan says that the owners of a new object were removed before it was created. Nothing would collect it later.
func (s *Store) orphan(o *Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool {
		_, gone := s.gone[r.UID]
		return !gone
	})
}

// prepare fills what an API server fills on create.
func (s *Store) prepare(t *table, o *Object) error {
	o.SetGroupVersionKind(t.resource.gvk())
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(o.GetGenerateName() + string(uuid.NewUUID())[:5])
	}
	if o.GetName() == "" {
		return apierrors.NewBadRequest("metadata.name is empty: set it or metadata.generateName")
	}
	if t.resource.GroupVersionResource == Namespaces {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels["kubernetes.io/metadata.name"] = o.GetName()
		o.SetLabels(labels)
	}
	if !t.resource.Namespaced {
		o.SetNamespace("")
	} else if o.GetNamespace() == "" {
		return apierrors.NewBadRequest("metadata.namespace is empty")
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(s.now().Truncate(time.Second)))
	o.SetGeneration(1)
	o.SetDeletionTimestamp(nil)
	switch t.resource.Kind {
	case "Pod":
		return s.admit(o)
	case "CapacityRequest":
		o.Object["status"] = map[string]any{"phase": "Pending"} // the CRD's default
	case "AvailableCapacity", "UpcomingNode":
		delete(o.Object, "status")
	}
	return nil
}

// Update replaces an object by what edit makes of a copy of it. Part says which half edit may change; the rest is kept.
// An edit that changes nothing writes nothing.
func (s *Store) Update(gvr schema.GroupVersionResource, namespace, object string, part Part, edit func(*Object) error) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, err
	}
	n := name{namespace, object}
	old, err := t.get(n)
	if err != nil {
		return nil, err
	}
	next := old.DeepCopy()
	if err := edit(next); err != nil {
		return nil, err
	}
	if v := next.GetResourceVersion(); v != "" && v != old.GetResourceVersion() {
		return nil, apierrors.NewConflict(gvr.GroupResource(), object, fmt.Errorf("resourceVersion is %s, not %s: read it again", old.GetResourceVersion(), v))
	}
	next = merge(t.resource, old, next, part)
	if same(old, next) {
		return old, nil
	}
	if next.GetDeletionTimestamp() != nil && len(next.GetFinalizers()) == 0 && len(old.GetFinalizers()) > 0 {
		return s.remove(t, n, next), nil
	}
	s.commit(t, n, old, next)
	return next, nil
}

// commit makes o the current object of its name and tells the watchers. Called with the lock held.
func (s *Store) commit(t *table, n name, old, o *Object) {
	s.version++
	o.SetResourceVersion(strconv.FormatUint(s.version, 10))
	t.objects[n] = o
	s.index(t, n, old, o)
	kind := watch.Modified
	if old == nil {
		kind = watch.Added
	}
	t.publish(change{version: s.version, kind: kind, object: o, before: old})
}

// index keeps the map from owner to dependents.
func (s *Store) index(t *table, n name, old, o *Object) {
	at := ref{t.resource.GroupVersionResource, n}
	if old != nil {
		for _, r := range old.GetOwnerReferences() {
			delete(s.owned[r.UID], at)
		}
	}
	if o == nil {
		return
	}
	for _, r := range o.GetOwnerReferences() {
		if s.owned[r.UID] == nil {
			s.owned[r.UID] = map[ref]struct{}{}
		}
		s.owned[r.UID][at] = struct{}{}
	}
}
