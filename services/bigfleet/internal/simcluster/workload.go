package simcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// Deployments is the resource that the workload model watches.
var Deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

const workloadPause = 20 * time.Millisecond

// workloads keeps each Deployment's Pods in number. It owns Pods directly: a rollout is not what is simulated here.
type workloads struct {
	store *kubesim.Store
	wake  chan struct{}
	next  int // number of the next Pod: names never repeat

	mu          sync.Mutex
	pods        cache[corev1.Pod]
	deployments cache[appsv1.Deployment]
}

func (c *Cluster) runWorkloads(ctx context.Context) {
	w := &workloads{store: c.store, wake: make(chan struct{}, 1)}
	poke := func() {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
	w.pods = cache[corev1.Pod]{byKey: map[string]*corev1.Pod{}, changed: func(string, *corev1.Pod, *corev1.Pod) { poke() }}
	w.deployments = cache[appsv1.Deployment]{byKey: map[string]*appsv1.Deployment{}, changed: func(string, *appsv1.Deployment, *appsv1.Deployment) { poke() }}
	locked := func(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }
	var feeds sync.WaitGroup
	feeds.Go(func() { follow(ctx, c.store, kubesim.Pods, &w.pods, locked) })
	feeds.Go(func() { follow(ctx, c.store, Deployments, &w.deployments, locked) })
	defer feeds.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(workloadPause):
		}
		w.round()
	}
}

// round compares and acts on one consistent view; the store's answers arrive as later changes.
func (w *workloads) round() {
	w.mu.Lock()
	defer w.mu.Unlock()
	byOwner := map[string][]*corev1.Pod{}
	for _, p := range w.pods.byKey {
		if o := metav1.GetControllerOf(p); o != nil && o.Kind == "Deployment" && p.DeletionTimestamp == nil && !ended(p) {
			byOwner[string(o.UID)] = append(byOwner[string(o.UID)], p)
		}
	}
	for _, d := range w.deployments.byKey {
		want := 1
		if d.Spec.Replicas != nil {
			want = int(*d.Spec.Replicas)
		}
		w.scale(d, byOwner[string(d.UID)], want)
		w.publishStatus(d, byOwner[string(d.UID)], want)
	}
}

// publishStatus keeps the status that `kubectl get`, `rollout status` and `wait --for=condition=Available` read.
func (w *workloads) publishStatus(d *appsv1.Deployment, have []*corev1.Pod, want int) {
	ready := int32(0)
	have = have[max(0, len(have)-want):] // scale has deleted the first ones
	for _, p := range have {
		if p.Status.Phase == corev1.PodRunning {
			ready++
		}
	}
	available := metav1.ConditionFalse
	if int(ready) == want {
		available = metav1.ConditionTrue
	}
	status := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: int32(len(have)), UpdatedReplicas: int32(len(have)),
		ReadyReplicas: ready, AvailableReplicas: ready, UnavailableReplicas: int32(want) - ready,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionStatus(available), Reason: "PodsRun"}}}
	if equality.Semantic.DeepEqual(d.Status, status) {
		return
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return // a typed status always converts
	}
	if _, err := w.store.Update(Deployments, d.Namespace, d.Name, kubesim.Status, func(o *kubesim.Object) error {
		o.Object["status"] = raw
		return nil
	}); err == nil {
		d.Status = status // told now; the watch repeats it
	}
}

func (w *workloads) scale(d *appsv1.Deployment, have []*corev1.Pod, want int) {
	for range want - len(have) {
		if !w.create(d) {
			return
		}
	}
	if len(have) <= want {
		return
	}
	// Pods that wait go first, as ReplicaSets do it.
	slices.SortFunc(have, func(a, b *corev1.Pod) int {
		if (a.Spec.NodeName == "") != (b.Spec.NodeName == "") {
			if a.Spec.NodeName == "" {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, p := range have[:len(have)-want] {
		_, _ = w.store.Delete(kubesim.Pods, p.Namespace, p.Name, metav1.DeleteOptions{}) // gone already is as good
		delete(w.pods.byKey, key(p))
	}
}

// create makes one Pod of d; false if there is none, and d is not worth another try with this view of it.
func (w *workloads) create(d *appsv1.Deployment) bool {
	w.next++
	isController := true
	p := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
	p.Name, p.Namespace = fmt.Sprintf("%s-%05d", d.Name, w.next), d.Namespace
	p.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: &isController,
	}}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return false // a typed Pod always converts
	}
	o, err := w.store.Create(kubesim.Pods, &kubesim.Object{Object: raw})
	if err != nil {
		return false
	}
	// The view may be older than the deletion of d. What was created after it has no owner that could take it along.
	if owner, err := w.store.Get(Deployments, d.Namespace, d.Name); err != nil || owner.GetUID() != d.UID {
		_, _ = w.store.Delete(kubesim.Pods, p.Namespace, p.Name, metav1.DeleteOptions{}) // gone already is as good
		return false
	}
	p.UID = o.GetUID()
	w.pods.byKey[key(p)] = p // counted now; the watch repeats it
	return true
}
