package kwok

import (
	"context"
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Drain resets the machine: it leaves the cluster and its kubelet ends (PROV-27.7). It evicts and deletes no Pod; the
// operator has evicted before, under the budgets of the cluster. Pods that still run may end by themselves within the
// grace. What is left when the Node goes is the garbage collection of the cluster.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	client, err := b.nodes.Client(op.Cluster)
	if err != nil {
		return err
	}
	if err := b.cordon(ctx, client, op.Cluster, op.Machine.ID); err != nil {
		return err
	}
	if op.Grace > 0 {
		graceful, end := context.WithTimeout(ctx, op.Grace)
		defer end()
		if err := b.awaitEmpty(graceful, client, op); err != nil && graceful.Err() == nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := b.deleteNode(ctx, client, op.Cluster, op.Machine.ID); err != nil {
		return err
	}
	return b.pause(ctx, b.delays.Drain)
}

// awaitEmpty returns once no Pod that counts is left on the Node, or with the error of the context.
func (b *backend) awaitEmpty(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.DrainOp) error {
	const base, most = 50 * time.Millisecond, 2 * time.Second
	for pause := base; ; pause = min(pause*3/2, most) {
		left, err := b.pods(ctx, client, op)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			b.log.Warn("the grace period has ended; the machine is reset although it has pods", "cluster", op.Cluster, "machine", op.Machine.ID, "pods", left)
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// pods counts the Pods that end with the machine: not those of a DaemonSet, not mirrors of static Pods, not finished ones.
func (b *backend) pods(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.DrainOp) (left int, err error) {
	var list *corev1.PodList
	err = provider.Call(ctx, "kwok.ListPods", func(ctx context.Context) (err error) {
		list, err = client.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", op.Machine.ID).String(),
		})
		return nodeready.Classify(err)
	})
	if err != nil {
		return 0, fmt.Errorf("list the pods of node %s: %w", op.Machine.ID, err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		owner := metav1.GetControllerOf(p)
		daemon := owner != nil && owner.Kind == "DaemonSet"
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		done := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if !daemon && !mirror && !done {
			left++
		}
	}
	return left, nil
}
