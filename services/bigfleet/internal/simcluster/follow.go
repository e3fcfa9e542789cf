package simcluster

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// cache is the typed view of one resource that one loop keeps for itself.
type cache[T any] struct {
	byKey   map[string]*T
	changed func(key string, old, now *T) // old is nil for a new object, now for one that is gone
}

// follow keeps the cache until ctx ends, and starts over when the store ends a watch that fell behind. The first objects of a
// watch are applied in one step, with deletions of those that were missed.
func follow[T any](ctx context.Context, s *kubesim.Store, gvr schema.GroupVersionResource, c *cache[T], do func(func())) {
	for ctx.Err() == nil {
		watcher, first, _, err := s.Watch(ctx, gvr, kubesim.Filter{}, 0, true)
		if err != nil {
			return // the resource is not served: a defect that the tests of this package would show
		}
		do(func() {
			missed := maps.Clone(c.byKey)
			for range first {
				e := <-watcher.Events
				delete(missed, keyOf(e))
				c.apply(e)
			}
			for key, old := range missed {
				delete(c.byKey, key)
				c.changed(key, old, nil)
			}
		})
		for e := range watcher.Events {
			do(func() { c.apply(e) })
		}
	}
}

func keyOf(e kubesim.Event) string { return e.Object.GetNamespace() + "/" + e.Object.GetName() }

func (c *cache[T]) apply(e kubesim.Event) {
	key := keyOf(e)
	old := c.byKey[key]
	if e.Type == watch.Deleted {
		delete(c.byKey, key)
		if old != nil {
			c.changed(key, old, nil)
		}
		return
	}
	now := new(T)
	if runtime.DefaultUnstructuredConverter.FromUnstructured(e.Object.Object, now) != nil {
		return // an object that is not of its kind: it is not run
	}
	c.byKey[key] = now
	c.changed(key, old, now)
}
