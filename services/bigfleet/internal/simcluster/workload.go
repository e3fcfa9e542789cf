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

// workloads keeps each Deployment's Pods in number. It owns Pods directly: a rollout is not what is simulated here. One
// goroutine runs its rounds.
type workloads struct {
	store       *kubesim.Store
	next        int // number of the next Pod: names never repeat
	pods        view[corev1.Pod]
	deployments view[appsv1.Deployment]
}

func (c *Cluster) runWorkloads(ctx context.Context) {
	w := &workloads{
		store: c.store,
		pods:  view[corev1.Pod]{store: c.store, gvr: kubesim.Pods}, deployments: view[appsv1.Deployment]{store: c.store, gvr: Deployments},
	}
	wake := make(chan struct{}, 1)
	var feeds sync.WaitGroup
	feeds.Go(func() { pokes(ctx, c.store, kubesim.Pods, wake) })
	feeds.Go(func() { pokes(ctx, c.store, Deployments, wake) })
	defer feeds.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(workloadPause):
		}
		w.round()
	}
}

// round compares and acts. Its changes wake the next round.
func (w *workloads) round() {
	byOwner := map[string][]*corev1.Pod{}
	for _, p := range w.pods.read() {
		if o := metav1.GetControllerOf(p); o != nil && o.Kind == "Deployment" && p.DeletionTimestamp == nil && !ended(p) {
			byOwner[string(o.UID)] = append(byOwner[string(o.UID)], p)
		}
	}
	for _, d := range w.deployments.read() {
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
	// The Deployment may be gone by now.
	_, _ = w.store.Update(Deployments, d.Namespace, d.Name, kubesim.Status, func(o *kubesim.Object) error {
		if o.GetUID() != d.UID {
			return errReplaced
		}
		o.Object["status"] = raw
		return nil
	})
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
	}
}

// create makes one Pod of d. False means that another try would fail too.
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
	_, err = w.store.Create(kubesim.Pods, &kubesim.Object{Object: raw}) // a Pod of a Deployment that is gone is collected at once
	return err == nil
}
