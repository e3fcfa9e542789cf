package apiaccess

import (
	"context"
	"fmt"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Follow calls set and gone for the objects of one kind, one after the other, from the moment the cache runs. synced says
// whether they have been called for everything that existed at the start. T is the type of the kind, or what the kind's transform
// makes of it.
func Follow[T client.Object](ctx context.Context, c cache.Cache, kind client.Object, set, gone func(T)) (synced func() bool, err error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("cache of %T: %w", kind, err)
	}
	take := func(o any) {
		if o, ok := o.(T); ok {
			set(o)
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, o any) { take(o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if o, ok := o.(T); ok {
				gone(o)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cache of %T: %w", kind, err)
	}
	return registration.HasSynced, nil
}

// Sync waits until all are synced, at most limit. Without everything in view, what is missing would be taken for gone.
func Sync(ctx context.Context, limit time.Duration, synced ...func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf(
		"the caches were not complete within %v: are the CustomResourceDefinitions installed, may this service account list and watch?", limit))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, ok := range synced {
		for !ok() {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-tick.C:
			}
		}
	}
	return nil
}
