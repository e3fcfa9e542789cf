package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// answerTime is how long a cluster may take to show its Nodes.
const answerTime = 10 * time.Second

// nodesOf lists the Nodes that a machine has in a cluster: by spec.providerID alone, because a host may take another name.
func (b *backend) nodesOf(ctx context.Context, cluster string, m provider.Machine) (out []nodeready.Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	all, err := b.nodes.Nodes(ctx, cluster)
	if err != nil {
		return nil, provider.Transient(err)
	}
	for _, n := range all {
		if n.ProviderID == m.HostRef {
			out = append(out, n)
		}
	}
	return out, nil
}

// removeNodes deletes the Nodes of a host that is reset, and waits until the watch no longer shows them: the next binding must
// not find them.
func (b *backend) removeNodes(ctx context.Context, cluster string, m provider.Machine) error {
	if b.nodes == nil { // no real cluster
		return nil
	}
	nodes, err := b.nodesOf(ctx, cluster, m)
	if err != nil {
		return err
	}
	client, err := b.nodes.Client(cluster)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		err := provider.Call(ctx, "hosts.DeleteNode", func(ctx context.Context) error {
			err := client.Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // conflict: another Node has the name
				return nil
			}
			return classify(err)
		})
		if err != nil {
			return fmt.Errorf("delete node %s of cluster %q: %w", n.Name, cluster, err)
		}
		if err := b.nodes.Gone(ctx, provider.Node{Cluster: cluster, ProviderID: m.HostRef, Name: n.Name}); err != nil {
			return err
		}
	}
	return nil
}

// unused says that no workload can be on a machine that failed: it has no Node, or none of its Nodes holds a Pod of a user.
func (b *backend) unused(ctx context.Context, m provider.Machine) error {
	if b.nodes == nil {
		return nil
	}
	nodes, err := b.nodesOf(ctx, m.Cluster, m)
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
			return classify(err)
		})
		if err != nil {
			return fmt.Errorf("list the pods of node %s: %w", n.Name, err)
		}
		for i := range list.Items {
			if p := &list.Items[i]; counts(p) {
				return fmt.Errorf("node %s of cluster %q holds pod %s/%s: look first, then RetireMachine with force resets the host", n.Name, m.Cluster, p.Namespace, p.Name)
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

// classify says what an error of an apiserver means (PROV-15.6).
func classify(err error) error {
	if err == nil {
		return nil
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return provider.RetryAfter(time.Duration(seconds)*time.Second, err)
	}
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return provider.Credentials(err)
	case !errors.As(err, &status), apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		return provider.Transient(err)
	}
	return err
}
