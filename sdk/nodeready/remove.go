package nodeready

import (
	"context"
	"fmt"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answerTime is how long a cluster may take to show its Nodes.
const answerTime = 10 * time.Second

// Of lists the Nodes of a host in a cluster: by spec.providerID alone, because a host may take another name. A cluster that does
// not answer in 10 s is a transient error.
func (s *Source) Of(ctx context.Context, cluster, providerID string) (out []Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	all, err := s.Nodes(ctx, cluster)
	if err != nil {
		return nil, provider.Transient(err)
	}
	for _, n := range all {
		if n.ProviderID == providerID {
			out = append(out, n)
		}
	}
	return out, nil
}

// Remove deletes the Nodes of a host that was reset or is gone, and returns once the watch no longer shows them: the next binding
// must not find them. It evicts nothing.
func (s *Source) Remove(ctx context.Context, cluster, providerID string) error {
	nodes, err := s.Of(ctx, cluster, providerID)
	if err != nil {
		return err
	}
	client, err := s.Client(cluster)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		err := provider.Call(ctx, "kubernetes.DeleteNode", func(ctx context.Context) error {
			err := client.Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // conflict: another Node has the name
				return nil
			}
			return Classify(err)
		})
		if err != nil {
			return fmt.Errorf("delete node %s of cluster %q: %w", n.Name, cluster, err)
		}
		if err := s.Gone(ctx, provider.Node{Cluster: cluster, ProviderID: providerID, Name: n.Name}); err != nil {
			return err
		}
	}
	return nil
}
