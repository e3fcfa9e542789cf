package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// kinds are what the operator reads or writes.
func kinds() []apiaccess.Kind {
	core := corev1.SchemeGroupVersion
	return []apiaccess.Kind{
		{GVK: v1alpha1.GroupVersion().WithKind("CapacityRequest"), Resource: "capacityrequests"},
		{GVK: v1alpha1.GroupVersion().WithKind("UpcomingNode"), Resource: "upcomingnodes", Cluster: true},
		{GVK: v1alpha1.GroupVersion().WithKind("AvailableCapacity"), Resource: "availablecapacities", Cluster: true},
		{GVK: core.WithKind("Node"), Resource: "nodes", Cluster: true},
		{GVK: core.WithKind("Pod"), Resource: "pods"},
		{GVK: core.WithKind("Event"), Resource: "events"},
		{GVK: core.WithKind("Secret"), Resource: "secrets"},
		{GVK: core.WithKind("ConfigMap"), Resource: "configmaps"},
		{GVK: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), Resource: "daemonsets"},
	}
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, request.Register} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	// All but CapacityRequest, which request reads more tolerantly.
	s.AddKnownTypes(v1alpha1.GroupVersion(), &v1alpha1.UpcomingNode{}, &v1alpha1.UpcomingNodeList{}, &v1alpha1.AvailableCapacity{}, &v1alpha1.AvailableCapacityList{})
	return s, nil
}

func (p *parts) connect() (*apiaccess.Access, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	return apiaccess.Connect(apiaccess.Config{
		REST: p.REST, Scheme: s, Kinds: kinds(), QPS: p.QPS, Burst: p.Burst,
		Objects: map[client.Object]cache.ByObject{
			&request.Request{}:            {Transform: request.Strip},
			&corev1.Node{}:                {Transform: machine.Strip},
			&corev1.Pod{}:                 {Transform: pods.Strip},
			&v1alpha1.UpcomingNode{}:      {Transform: cache.TransformStripManagedFields()},
			&v1alpha1.AvailableCapacity{}: {Transform: cache.TransformStripManagedFields()},
		},
		OnWatchError: func(kind string, err error) {
			p.log.Warn("a watch of the API server is broken; what was known stays in force", "kind", kind, "err", err)
			p.freshness.broken(kind)
		},
	})
}

// watch connects the parts with the cache.
func (p *parts) watch(ctx context.Context) error {
	return errors.Join(
		handle(ctx, p, &request.Request{}, func(r *request.Request) {
			p.freshness.alive()
			p.demand.Set(r)
		}, func(r *request.Request) { p.demand.Delete(aggregate.KeyOf(r)) }),
		handle(ctx, p, &corev1.Node{}, func(n *corev1.Node) {
			p.machines.SetNode(n)
			p.drains.Wake(n.Name)
		}, func(n *corev1.Node) {
			p.machines.DeleteNode(n.Name)
			p.drains.Wake(n.Name)
		}),
		handle(ctx, p, &corev1.Pod{}, p.pods.Set, p.pods.Delete),
		handle(ctx, p, &v1alpha1.UpcomingNode{}, p.upcoming.SetObject, p.upcoming.DeleteObject),
		handle(ctx, p, &v1alpha1.AvailableCapacity{}, p.hints.SetObject, func(o *v1alpha1.AvailableCapacity) { p.hints.DeleteObject(o.Name) }),
	)
}

// handle calls set and gone for the objects of one kind, one after the other.
func handle[T client.Object](ctx context.Context, p *parts, kind T, set, gone func(T)) error {
	informer, err := p.access.Cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if o, ok := o.(T); ok {
				set(o)
			}
		},
		UpdateFunc: func(_, o any) {
			if o, ok := o.(T); ok {
				set(o)
			}
		},
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
		return fmt.Errorf("cache: %w", err)
	}
	p.freshness.watch(registration.HasSynced)
	return nil
}

// sync waits until every handler has seen everything that exists.
func (p *parts) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.CacheSyncTimeout, fmt.Errorf(
		"the caches were not complete within %v: are the CustomResourceDefinitions installed, may this service account list and watch?", p.CacheSyncTimeout))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !p.freshness.synced() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// freshness knows whether the cache can be believed (OP-5.3).
type freshness struct {
	mu      sync.Mutex
	all     []func() bool
	brokeAt time.Time // zero: the watch of CapacityRequests works
}

func (f *freshness) watch(synced func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, synced)
}

func (f *freshness) synced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.all {
		if !s() {
			return false
		}
	}
	return true
}

func (f *freshness) broken(string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.brokeAt.IsZero() {
		f.brokeAt = time.Now()
	}
}

func (f *freshness) alive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.brokeAt = time.Time{}
}

func (f *freshness) age() float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.brokeAt.IsZero() {
		return 0
	}
	return time.Since(f.brokeAt).Seconds()
}
