package kwok

import (
	"context"
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Drain empties the Node as PROV-27.7 says: cordon; evict within the grace, disruption budgets respected; at its end
// delete what is left; delete the Node; wait until it is gone. An operator that evicts at the same time is no problem.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	client, err := b.nodes.Client(op.Cluster)
	if err != nil {
		return err
	}
	if err := b.cordon(ctx, client, op.Cluster, op.Machine.ID); err != nil {
		return err
	}
	graceful, end := context.WithTimeout(ctx, op.Grace)
	defer end()
	emptied, err := b.evictAll(graceful, client, op)
	if err != nil && graceful.Err() == nil {
		return err
	}
	if !emptied && ctx.Err() == nil {
		if err := b.deleteAll(ctx, client, op); err != nil {
			return err
		}
	}
	if err := b.deleteNode(ctx, client, op.Cluster, op.Machine.ID); err != nil {
		return err
	}
	return b.pause(ctx, b.delays.Drain)
}

// evictAll evicts until no Pod that counts is left; false when the context ended first.
func (b *backend) evictAll(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.DrainOp) (emptied bool, err error) {
	const base, most = 50 * time.Millisecond, 2 * time.Second
	for pause := base; ; pause = min(pause*3/2, most) {
		pods, err := b.pods(ctx, client, op)
		if err != nil {
			return false, err
		}
		if len(pods) == 0 {
			return true, nil
		}
		for i := range pods {
			if pods[i].DeletionTimestamp != nil {
				continue // it is leaving already
			}
			if err := b.evict(ctx, client, op.Cluster, &pods[i]); err != nil {
				return false, err
			}
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// evict asks for one Pod. A disruption budget that says no is asked again in the next round.
func (b *backend) evict(ctx context.Context, client typedcorev1.CoreV1Interface, cluster string, p *corev1.Pod) error {
	var blocked bool
	err := b.write(ctx, cluster, "kwok.EvictPod", func(ctx context.Context) error {
		err := client.Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
		})
		// 429 is the budget's answer, and no sign of an overloaded apiserver.
		if blocked = apierrors.IsTooManyRequests(err); blocked {
			return nil
		}
		return err
	})
	if blocked || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// deleteAll uses force after the grace.
func (b *backend) deleteAll(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.DrainOp) error {
	pods, err := b.pods(ctx, client, op)
	if err != nil {
		return err
	}
	now := int64(0)
	for i := range pods {
		p := &pods[i]
		err := b.write(ctx, op.Cluster, "kwok.DeletePod", func(ctx context.Context) error {
			return client.Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
				GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(p.UID)),
			})
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
		b.log.Warn("pod deleted by force at the end of the grace", "cluster", op.Cluster, "machine", op.Machine.ID, "pod", p.Namespace+"/"+p.Name)
	}
	return nil
}

// pods lists what must leave the Node: not what a DaemonSet would put back, not mirrors of static Pods, not what ended.
func (b *backend) pods(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.DrainOp) ([]corev1.Pod, error) {
	var list *corev1.PodList
	err := provider.Call(ctx, "kwok.ListPods", func(ctx context.Context) (err error) {
		list, err = client.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			LabelSelector: labels.Everything().String(), FieldSelector: fields.OneTermEqualSelector("spec.nodeName", op.Machine.ID).String(),
		})
		return classify(err)
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", op.Machine.ID, err)
	}
	var out []corev1.Pod
	for _, p := range list.Items {
		owner := metav1.GetControllerOf(&p)
		daemon := owner != nil && owner.Kind == "DaemonSet"
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		done := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !daemon && !mirror && !done {
			out = append(out, p)
		}
	}
	return out, nil
}
