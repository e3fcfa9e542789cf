package gangs

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const askTimeout = 10 * time.Second // of one question to the API server

// Watcher is a Store that reads the objects that define gangs, of the kinds that Pods refer to.
type Watcher struct {
	*Store
	client dynamic.Interface
	log    *slog.Logger
	needed map[schema.GroupVersionResource]chan struct{} // holds one entry once a Pod refers to the kind

	askEvery time.Duration // while a kind that Pods refer to is not served
}

// NewWatcher makes a Watcher for the kinds that define gangs.
func NewWatcher(conf *rest.Config, log *slog.Logger, changed func([]types.UID)) (*Watcher, error) {
	conf = rest.CopyConfig(conf)
	conf.AcceptContentTypes, conf.ContentType = "application/json", "application/json" // custom resources have no protobuf
	client, err := dynamic.NewForConfig(conf)
	if err != nil {
		return nil, err
	}
	w := &Watcher{client: client, log: log, askEvery: 15 * time.Second, needed: map[schema.GroupVersionResource]chan struct{}{}}
	for _, kind := range Kinds() {
		w.needed[kind] = make(chan struct{}, 1)
	}
	w.Store = New(changed, w.need)
	return w, nil
}

// need says that a Pod refers to an object of a kind. It does not block.
func (w *Watcher) need(kind schema.GroupVersionResource) {
	select {
	case w.needed[kind] <- struct{}{}:
	default:
	}
}

// Run watches all kinds until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	var kinds sync.WaitGroup
	for _, kind := range Kinds() {
		kinds.Go(func() { w.follow(ctx, kind) })
	}
	kinds.Wait()
	return nil
}

// follow watches one kind from the first Pod on that refers to it, as long as ctx lives. While the API server does not serve the kind, or
// does not let us read it, it asks again every so often.
func (w *Watcher) follow(ctx context.Context, kind schema.GroupVersionResource) {
	select {
	case <-ctx.Done():
		return
	case <-w.needed[kind]:
	}
	for reported := false; ; {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		_, err := w.client.Resource(kind).List(ask, metav1.ListOptions{Limit: 1})
		cancel()
		if err == nil {
			break
		}
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			w.Store.setServed(kind, false)
		}
		if !reported && ctx.Err() == nil {
			reported = true
			w.log.Warn("Pods refer to objects that cannot be read; each requests capacity on its own", "kind", kind.GroupResource(), "version", kind.Version, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.askEvery):
		}
	}
	w.Store.setServed(kind, true)
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{ // package dynamicinformer would compile the clients of all API groups
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return w.client.Resource(kind).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return w.client.Resource(kind).Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	_ = informer.SetTransform(strip)
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.log.Debug("a watch of objects that define gangs is broken; the last known state stays in force", "kind", kind.GroupResource(), "err", err)
	})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.set(kind, o) },
		UpdateFunc: func(_, o any) { w.set(kind, o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if u, ok := o.(*unstructured.Unstructured); ok {
				w.Store.setObject(kind, u.GetNamespace(), u.GetName(), nil)
			}
		},
	}); err != nil {
		w.log.Error("objects that define gangs are not read", "kind", kind.GroupResource(), "err", err)
		return
	}
	informer.RunWithContext(ctx)
}

func (w *Watcher) set(kind schema.GroupVersionResource, o any) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		w.Store.setObject(kind, u.GetNamespace(), u.GetName(), u)
	}
}

// strip keeps the name and the parts of the spec that define reads: a JobSet holds whole templates of Pods.
func strip(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}}
	out.SetNamespace(u.GetNamespace())
	out.SetName(u.GetName())
	out.SetUID(u.GetUID())
	out.SetResourceVersion(u.GetResourceVersion())
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	jobs, _, _ := unstructured.NestedSlice(spec, "replicatedJobs")
	for _, j := range jobs {
		if job, ok := j.(map[string]any); ok {
			for _, path := range [][]string{{"template", "metadata"}, {"template", "spec", "template"}} {
				unstructured.RemoveNestedField(job, path...)
			}
		}
	}
	if len(jobs) > 0 {
		spec["replicatedJobs"] = jobs
	}
	if spec != nil {
		out.Object["spec"] = spec
	}
	return out, nil
}
