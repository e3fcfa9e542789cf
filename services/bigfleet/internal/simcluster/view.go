package simcluster

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// view reads all objects of one resource in their types. It reads the store, not a watch: what a loop has written itself is
// in its next view, and what was deleted is in none.
type view[T any] struct {
	store *kubesim.Store
	gvr   schema.GroupVersionResource
	known map[*kubesim.Object]*T // converted before; the store replaces an object that changes
}

// read lists the objects by namespace and name. The caller may change none of them.
func (v *view[T]) read() []*T {
	objects, _, err := v.store.List(v.gvr, kubesim.Filter{})
	if err != nil {
		return nil // the resource is not served: a defect that the tests of this package would show
	}
	known := make(map[*kubesim.Object]*T, len(objects))
	out := make([]*T, 0, len(objects))
	for _, o := range objects {
		typed := v.known[o]
		if typed == nil {
			typed = new(T)
			if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, typed) != nil {
				continue // an object that is not of its kind: it is not run
			}
		}
		known[o] = typed
		out = append(out, typed)
	}
	v.known = known
	return out
}

// pokes wakes a loop after each change of a resource until ctx ends.
func pokes(ctx context.Context, s *kubesim.Store, gvr schema.GroupVersionResource, wake chan<- struct{}) {
	for ctx.Err() == nil {
		watcher, _, _, err := s.Watch(ctx, gvr, kubesim.Filter{}, 0, true)
		if err != nil {
			return // as for read
		}
		for range watcher.Events {
			poke(wake)
		}
		poke(wake) // what was missed before the watch starts again
	}
}

func poke(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
