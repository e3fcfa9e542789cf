package request

import (
	"runtime"
	"sync"
	"unique"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Shelf keeps each way to write a spec once: the requests of one Deployment share one Spec, which saves most of their
// memory and makes "says the same" a comparison of pointers. A Spec leaves the shelf with its last request. The zero value
// is ready; it is safe for concurrent use.
type Shelf struct {
	mu    sync.Mutex
	specs map[unique.Handle[string]]weak.Pointer[Spec]
}

// Strip drops what the operator does not read, before an object enters the cache, and takes its spec from the shelf.
func (s *Shelf) Strip(o any) (any, error) {
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
	r.Spec = s.share(r.Spec)
	return r, nil
}

// share returns the Spec that is written like this one.
func (s *Shelf) share(mine *Spec) *Spec {
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

// forget hears that a Spec is gone. Another one with the same text may have taken its place already.
func (s *Shelf) forget(text unique.Handle[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.specs[text].Value() == nil {
		delete(s.specs, text)
	}
}

// Len is the number of ways to write a spec that are in use.
func (s *Shelf) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.specs)
}
