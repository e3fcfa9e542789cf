package hosts

import (
	"context"
	"fmt"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// removeNodes deletes the Nodes of a host that is reset.
func (b *backend) removeNodes(ctx context.Context, cluster string, m provider.Machine) error {
	if b.nodes == nil { // no real cluster
		return nil
	}
	return b.nodes.Remove(ctx, cluster, m.HostRef)
}

// unused says that no workload can be on a machine that failed: it has no Node, or none of its Nodes holds a Pod of a user.
func (b *backend) unused(ctx context.Context, m provider.Machine) error {
	if b.nodes == nil {
		return nil
	}
	nodes, err := b.nodes.Of(ctx, m.Cluster, m.HostRef)
	if err != nil {
		return err
	}
	client, err := b.nodes.Client(m.Cluster)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		var list *corev1.PodList
		err := provider.Call(ctx, "hosts.ListPods", func(ctx context.Context) (err error) {
			list, err = client.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", n.Name).String()})
			return nodeready.Classify(err)
		})
		if err != nil {
			return fmt.Errorf("list the pods of node %s: %w", n.Name, err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; counts(p) {
				return fmt.Errorf("node %s of cluster %q still has pod %s/%s: check it; RetireMachine with force then resets the host", n.Name, m.Cluster, p.Namespace, p.Name)
			}
		}
	}
	return nil
}

// counts leaves out Pods that come and go with their node, and finished ones.
func counts(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	done := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	return !mirror && !done && (owner == nil || owner.Kind != "DaemonSet")
}
