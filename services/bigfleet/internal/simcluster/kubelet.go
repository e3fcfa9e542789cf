package simcluster

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// endMax shortens long graceful ends: a simulated container has nothing to finish.
const endMax = time.Second

// errReplaced ends a write to an object that is no longer the one that was read.
var errReplaced = errors.New("another object of that name took its place")

// kubelets run Pods, make Nodes Ready and collect the Pods of Nodes that are gone.
type kubelets struct {
	ctx   context.Context
	cfg   Config
	store *kubesim.Store

	mu    sync.Mutex
	pods  cache[corev1.Pod]
	nodes cache[corev1.Node]
	tasks sync.WaitGroup
}

func (c *Cluster) runKubelets(ctx context.Context) {
	k := &kubelets{ctx: ctx, cfg: c.cfg, store: c.store}
	k.pods = cache[corev1.Pod]{byKey: map[string]*corev1.Pod{}, changed: k.podChanged}
	k.nodes = cache[corev1.Node]{byKey: map[string]*corev1.Node{}, changed: k.nodeChanged}
	locked := func(f func()) { k.mu.Lock(); defer k.mu.Unlock(); f() }
	var feeds sync.WaitGroup
	feeds.Go(func() { follow(ctx, c.store, kubesim.Nodes, &k.nodes, locked) })
	feeds.Go(func() { follow(ctx, c.store, kubesim.Pods, &k.pods, locked) })
	feeds.Wait()
	k.tasks.Wait()
}

// after runs f outside the lock, once d has passed, unless the cluster stops first.
func (k *kubelets) after(d time.Duration, f func()) {
	k.tasks.Go(func() {
		select {
		case <-k.ctx.Done():
		case <-time.After(d):
			f()
		}
	})
}

func (k *kubelets) podChanged(_ string, old, now *corev1.Pod) {
	if now == nil || now.Spec.NodeName == "" {
		return
	}
	switch {
	case now.DeletionTimestamp != nil && (old == nil || old.DeletionTimestamp == nil || !old.DeletionTimestamp.Equal(now.DeletionTimestamp)):
		grace := endMax
		if g := now.DeletionGracePeriodSeconds; g != nil {
			grace = min(grace, time.Duration(*g)*time.Second)
		}
		k.after(grace, func() { k.drop(now) })
	case old == nil || old.UID != now.UID || old.Spec.NodeName == "":
		// It may be bound to a Node whose deletion was seen before the binding. The Pod goes with it then.
		if _, err := k.store.Get(kubesim.Nodes, "", now.Spec.NodeName); err != nil {
			k.after(0, func() { k.drop(now) })
		} else if now.Status.Phase == corev1.PodPending {
			k.after(k.cfg.PodStart, func() { k.start(now) })
		}
	}
}

// drop removes a Pod that has ended.
func (k *kubelets) drop(p *corev1.Pod) {
	_ = k.store.Remove(kubesim.Pods, p.Namespace, p.Name, p.UID) // gone already is as good
}

func (k *kubelets) start(p *corev1.Pod) {
	// A Pod deleted meanwhile needs no start.
	_, _ = k.store.Update(kubesim.Pods, p.Namespace, p.Name, kubesim.Status, func(o *kubesim.Object) error {
		if o.GetUID() != p.UID {
			return errReplaced
		}
		if err := unstructured.SetNestedField(o.Object, string(corev1.PodRunning), "status", "phase"); err != nil {
			return err
		}
		if err := unstructured.SetNestedField(o.Object, time.Now().UTC().Format(time.RFC3339), "status", "startTime"); err != nil {
			return err
		}
		return setCondition(o, corev1.PodReady, "True", "", "")
	})
}

func (k *kubelets) nodeChanged(_ string, old, now *corev1.Node) {
	switch {
	case now == nil:
		k.orphans(old.Name)
	case old == nil && !ready(now):
		k.after(k.cfg.NodeBoot, func() { k.join(now.Name) })
	}
}

// orphans ends the Pods of a Node that is gone, as the Pod garbage collector does.
func (k *kubelets) orphans(node string) {
	for _, p := range k.pods.byKey {
		if p.Spec.NodeName == node {
			k.after(0, func() { k.drop(p) })
		}
	}
}

// join reports a Node Ready with the room it says it has.
func (k *kubelets) join(node string) {
	_, _ = k.store.Update(kubesim.Nodes, "", node, kubesim.Status, func(o *kubesim.Object) error { // the Node may be gone
		if _, ok, _ := unstructured.NestedMap(o.Object, "status", "allocatable"); !ok {
			capacity, _, _ := unstructured.NestedMap(o.Object, "status", "capacity")
			if err := unstructured.SetNestedMap(o.Object, capacity, "status", "allocatable"); err != nil {
				return err
			}
		}
		return setCondition(o, corev1.NodeReady, "True", "KubeletReady", "simulated kubelet")
	})
}
