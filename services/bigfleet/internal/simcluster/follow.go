package simcluster

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// cache is the typed view of one resource that one loop keeps for itself.
type cache[T any] struct {
	byKey   map[string]*T
	changed func(key string, old, now *T) // now is nil for a deletion
}

// follow keeps the cache until ctx ends, and starts over when the store ends a watch that fell behind.
func follow[T any](ctx context.Context, s *kubesim.Store, gvr schema.GroupVersionResource, c *cache[T], do func(func())) {
	for ctx.Err() == nil {
		watcher, _, _, err := s.Watch(ctx, gvr, kubesim.Filter{}, 0, true)
		if err != nil {
			return // the resource is not served: a defect that the tests of this package would show
		}
		do(func() { clear(c.byKey) })
		for e := range watcher.Events {
			do(func() { c.apply(e) })
		}
	}
}

func (c *cache[T]) apply(e kubesim.Event) {
	key := e.Object.GetNamespace() + "/" + e.Object.GetName()
	old := c.byKey[key]
	var now *T
	if e.Type == watch.Deleted {
		delete(c.byKey, key)
	} else {
		now = new(T)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(e.Object.Object, now) != nil {
			return // an object that is not of its kind: nobody runs it
		}
		c.byKey[key] = now
	}
	c.changed(key, old, now)
}
