package request

import (
	"runtime"
	"sync"
	"unique"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// SpecInterner stores each distinct spec text once. The requests of one Deployment share one Spec, which saves most of their
// memory and makes comparison a comparison of pointers. A Spec is dropped with its last request. The zero value is ready to
// use; it is safe for concurrent use.
type SpecInterner struct {
	mu    sync.Mutex
	specs map[unique.Handle[string]]weak.Pointer[Spec]
}

// Strip drops what the operator does not read, before an object enters the cache, and interns its spec.
func (s *SpecInterner) Strip(o any) (any, error) {
	r, ok := o.(*Request)
	if !ok {
		return o, nil
	}
	r.Namespace = unique.Make(r.Namespace).Value()
	if !r.Pending() {
		r.Status.Phase = v1alpha1.RequestAcknowledged
	}
	r.TypeMeta = metav1.TypeMeta{}
	r.ManagedFields, r.Annotations, r.Labels, r.Finalizers = nil, nil, nil, nil
	r.Spec = s.intern(r.Spec)
	return r, nil
}

// intern returns the shared Spec with the text of this one.
func (s *SpecInterner) intern(mine *Spec) *Spec {
	if mine == nil { // the schema demands a spec; an object from before the schema may have none
		mine = &Spec{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.specs[mine.text].Value(); known != nil {
		return known
	}
	if s.specs == nil {
		s.specs = map[unique.Handle[string]]weak.Pointer[Spec]{}
	}
	s.specs[mine.text] = weak.Make(mine)
	runtime.AddCleanup(mine, s.forget, mine.text)
	return mine
}

// forget runs after a Spec was collected. Another Spec with the same text may have replaced it already.
func (s *SpecInterner) forget(text unique.Handle[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.specs[text].Value() == nil {
		delete(s.specs, text)
	}
}

// Len is the number of distinct specs in use.
func (s *SpecInterner) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs)
}
