package operator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/overhead"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/status"
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
		{GVK: policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), Resource: "poddisruptionbudgets"},
		{GVK: storagev1.SchemeGroupVersion.WithKind("CSINode"), Resource: "csinodes", Cluster: true},
	}
}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme, storagev1.AddToScheme, request.Register} {
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
		REST: p.REST, Program: "bigfleet-operator/" + telemetry.ReadBuild().Version, Scheme: s, Kinds: kinds(), QPS: p.QPS, Burst: p.Burst,
		Objects: map[client.Object]cache.ByObject{
			&request.Request{}:  {Transform: new(request.SpecInterner).Strip},
			&corev1.Node{}:      {Transform: machine.Strip},
			&corev1.Pod{}:       {Transform: pods.Strip},
			&appsv1.DaemonSet{}: {Transform: overhead.Strip},
			&corev1.ConfigMap{}: {Transform: cache.TransformStripManagedFields(), Namespaces: map[string]cache.Config{p.Namespace: {}},
				Field: fields.OneTermEqualSelector("metadata.name", status.StopName)},
			&storagev1.CSINode{}:            {Transform: cache.TransformStripManagedFields()},
			&policyv1.PodDisruptionBudget{}: {Transform: cache.TransformStripManagedFields()},
			&v1alpha1.UpcomingNode{}:        {Transform: cache.TransformStripManagedFields()},
			&v1alpha1.AvailableCapacity{}:   {Transform: cache.TransformStripManagedFields()},
		},
		OnWatchError: func(kind string, err error) {
			p.log.Warn("a watch of the API server is broken; the last known state stays in force", "kind", kind, "err", err)
		},
		OnRead: func(plural string, err error) {
			switch {
			case plural != "capacityrequests":
			case err != nil:
				p.freshness.broken()
			default:
				p.freshness.alive()
			}
		},
	})
}

// watch connects the parts with the cache.
func (p *parts) watch(ctx context.Context) error {
	return errors.Join(
		follow(ctx, p, &request.Request{}, p.setRequest, p.deleteRequest),
		follow(ctx, p, &policyv1.PodDisruptionBudget{}, p.contents.SetBudget, p.contents.DeleteBudget),
		follow(ctx, p, &corev1.Node{}, func(n *corev1.Node) {
			p.machines.SetNode(n)
			p.drains.Wake(n.Name)
		}, func(n *corev1.Node) {
			p.machines.DeleteNode(n.Name)
			p.contents.Forget(n.Name)
			p.drains.Wake(n.Name)
		}),
		follow(ctx, p, &corev1.Pod{}, p.pods.Set, p.pods.Delete),
		follow(ctx, p, &appsv1.DaemonSet{}, p.overhead.Set, p.overhead.Delete),
		p.followCSINodes(ctx),
		follow(ctx, p, &corev1.ConfigMap{}, p.stop.set, p.stop.gone),
		follow(ctx, p, &v1alpha1.UpcomingNode{}, p.upcoming.SetObject, p.upcoming.DeleteObject),
		follow(ctx, p, &v1alpha1.AvailableCapacity{}, p.hints.SetObject, func(o *v1alpha1.AvailableCapacity) { p.hints.DeleteObject(o.Name) }),
	)
}

func (p *parts) setRequest(r *request.Request) {
	p.demand.Set(r)
	if _, uid, ok := r.Pod(); ok {
		p.contents.SetPenalty(uid, r.Spec.InterruptionPenalty.Milli)
	}
}

func (p *parts) deleteRequest(r *request.Request) {
	p.demand.Delete(aggregate.KeyOf(r))
	if _, uid, ok := r.Pod(); ok {
		p.contents.SetPenalty(uid, 0)
	}
}

func follow[T client.Object](ctx context.Context, p *parts, kind client.Object, set, gone func(T)) error {
	synced, err := apiaccess.Follow(ctx, p.access.Cache, kind, set, gone)
	p.synced = append(p.synced, synced)
	return err
}

// csiNodesWait is how long a start waits for CSINodes.
const csiNodesWait = 10 * time.Second

// followCSINodes reads what is not a condition of a start: an operator runs also with a role that does not have CSINodes yet (OP-5.26).
func (p *parts) followCSINodes(ctx context.Context) (err error) {
	p.csiNodes, err = apiaccess.Follow(ctx, p.access.Cache, &storagev1.CSINode{}, p.overhead.SetCSINode, p.overhead.DeleteCSINode)
	return err
}

// freshness knows whether the cache of CapacityRequests can be believed (OP-5.3): the last attempt to list or watch them
// was answered.
type freshness struct {
	mu      sync.Mutex
	brokeAt time.Time // first failure of this outage; zero: the watch works
}

func (f *freshness) broken() {
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

// since is when the watch broke; zero while it works.
func (f *freshness) since() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.brokeAt
}

func (f *freshness) age() float64 {
	if at := f.since(); !at.IsZero() {
		return time.Since(at).Seconds()
	}
	return 0
}

// stopSwitch is the ConfigMap with which a person stops all evictions at once (OP-9.3).
type stopSwitch struct{ on atomic.Bool }

func (s *stopSwitch) set(m *corev1.ConfigMap) {
	if m.Name == status.StopName {
		s.on.Store(m.Data[status.StopKey] == status.StopText)
	}
}

func (s *stopSwitch) gone(m *corev1.ConfigMap) {
	if m.Name == status.StopName {
		s.on.Store(false)
	}
}
