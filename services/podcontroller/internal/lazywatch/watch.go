// Package lazywatch reads objects of kinds that a cluster may not have, each from the time on at which something refers to it.
//
// It reads them as plain JSON, so that no client of the projects that define them is needed. It decides nothing. Start at New.
package lazywatch

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const askTimeout = 10 * time.Second // of one question to the API server

// Config is what a Watcher needs. The functions must not block.
type Config struct {
	REST  *rest.Config
	Log   *slog.Logger
	Kinds []schema.GroupVersionResource
	Else  string // what happens while a kind cannot be read, for the log

	Strip    cache.TransformFunc                                                                          // of an object before it is kept; nil: whole
	Served   func(kind schema.GroupVersionResource, served bool)                                          // whether the API server has a kind and lets us read it
	Complete func(kind schema.GroupVersionResource)                                                       // all objects were set; may be nil
	Set      func(kind schema.GroupVersionResource, namespace, name string, o *unstructured.Unstructured) // nil: it is gone

	AskEvery time.Duration // while a kind that is referred to is not served; 0: 15 s
}

// Watcher reads the kinds that something refers to.
type Watcher struct {
	Config
	client dynamic.Interface
	needed map[schema.GroupVersionResource]chan struct{} // holds one entry once something refers to the kind
}

// New makes a Watcher. It reads nothing before Run.
func New(c Config) (*Watcher, error) {
	conf := rest.CopyConfig(c.REST)
	conf.AcceptContentTypes, conf.ContentType = "application/json", "application/json" // custom resources have no protobuf
	client, err := dynamic.NewForConfig(conf)
	if err != nil {
		return nil, err
	}
	if c.AskEvery == 0 {
		c.AskEvery = 15 * time.Second
	}
	w := &Watcher{Config: c, client: client, needed: map[schema.GroupVersionResource]chan struct{}{}}
	for _, kind := range c.Kinds {
		w.needed[kind] = make(chan struct{}, 1)
	}
	return w, nil
}

// Need says that something refers to an object of a kind. It does not block.
func (w *Watcher) Need(kind schema.GroupVersionResource) {
	select {
	case w.needed[kind] <- struct{}{}:
	default:
	}
}

// Run watches all kinds until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	var kinds sync.WaitGroup
	for _, kind := range w.Kinds {
		kinds.Go(func() { w.follow(ctx, kind) })
	}
	kinds.Wait()
	return nil
}

// follow watches one kind from the first reference to it on, as long as ctx lives. While the API server does not serve the kind, or does not let
// us read it, it asks again every so often.
func (w *Watcher) follow(ctx context.Context, kind schema.GroupVersionResource) {
	select {
	case <-ctx.Done():
		return
	case <-w.needed[kind]:
	}
	if !w.ask(ctx, kind) {
		return
	}
	w.Served(kind, true)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{ // package dynamicinformer would compile the clients of all API groups
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.client.Resource(kind).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.client.Resource(kind).Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	if w.Strip != nil {
		_ = informer.SetTransform(w.Strip)
	}
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.Log.Debug("a watch of objects that Pods refer to is broken; the last known state stays in force", "kind", kind.GroupResource(), "err", err)
	})
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.set(kind, o) },
		UpdateFunc: func(_, o any) { w.set(kind, o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if u, ok := o.(*unstructured.Unstructured); ok {
				w.Set(kind, u.GetNamespace(), u.GetName(), nil)
			}
		},
	})
	if err != nil {
		w.Log.Error("objects that Pods refer to are not read", "kind", kind.GroupResource(), "err", err)
		return
	}
	var complete sync.WaitGroup
	if w.Complete != nil {
		complete.Go(func() {
			if cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
				w.Complete(kind)
			}
		})
	}
	informer.RunWithContext(ctx)
	complete.Wait()
}

// ask waits until a kind can be listed. It reports false if ctx ended before.
func (w *Watcher) ask(ctx context.Context, kind schema.GroupVersionResource) bool {
	for reported := false; ; {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := w.client.Resource(kind).List(ask, metav1.ListOptions{Limit: 1})
		cancel()
		if err == nil {
			return true
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			w.Served(kind, false)
		}
		if !reported && ctx.Err() == nil {
			reported = true
			w.Log.Warn("Pods refer to objects that cannot be read; "+w.Else, "kind", kind.GroupResource(), "version", kind.Version, "err", err)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(w.AskEvery):
		}
	}
}

func (w *Watcher) set(kind schema.GroupVersionResource, o any) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		w.Set(kind, u.GetNamespace(), u.GetName(), u)
	}
}

// Bare is an object without its content: what a watch needs of it, and its name. Strip functions add the parts that are read.
func Bare(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	return out
}
