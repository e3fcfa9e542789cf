package kwok

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// writesMax is how many writes one cluster gets at a time (PROV-27.10): enough to keep an apiserver busy, few enough that
// it does not shed load.
const writesMax = 64

// backend implements provider.Backend and, of the optional interfaces, Deleter, Admitter, Attacher, Notifier and Binder.
type backend struct {
	name      string
	clusters  nodeready.Clusters
	delays    Delays
	orphanAge time.Duration
	log       *slog.Logger
	nodes     *nodeready.Source
	fleet     provider.Fleet
	notices   chan provider.Notice
	strays    strays
	// unreadable lists the kubeconfigs that cannot be used, for --check. Nil outside of the program.
	unreadable func() []error

	mu     sync.Mutex
	places map[string]chan struct{} // by cluster
}

func newBackend(c Config) (*backend, error) {
	if c.Name == "" || c.Clusters == nil || c.Log == nil {
		return nil, errors.New("kwok: Name, Clusters and Log are required")
	}
	if err := c.Delays.validate(); err != nil {
		return nil, err
	}
	if c.OrphanAge <= 0 {
		c.OrphanAge = 2 * time.Minute
	}
	b := &backend{
		name: c.Name, clusters: c.Clusters, delays: c.Delays, orphanAge: c.OrphanAge, log: c.Log.With("provider", c.Name),
		notices: make(chan provider.Notice, 1024), places: map[string]chan struct{}{},
	}
	nodes, err := nodeready.NewSource(nodeready.Config{
		Clusters: c.Clusters, Log: b.log, Selector: labelProvider + "=" + c.Name, Deleted: b.deleted,
	})
	b.nodes = nodes
	return b, err
}

// Close ends the watches.
func (b *backend) Close() error {
	b.nodes.Close()
	return nil
}

// Check implements provider.Checker: every configured cluster must answer.
func (b *backend) Check(ctx context.Context, _ []provider.Offering) (warnings []error, err error) {
	if b.unreadable != nil {
		warnings = b.unreadable()
	}
	for _, cluster := range b.clusters.Names() { // the default kubeconfig has no name
		client, failed := b.nodes.Client(cluster)
		if failed != nil {
			continue // unreadable says so
		}
		asked, cancel := context.WithTimeout(ctx, answerTime)
		if _, failed = client.Nodes().List(asked, metav1.ListOptions{Limit: 1}); failed != nil {
			err = errors.Join(err, fmt.Errorf("cluster %q does not answer: %w", cluster, failed))
		}
		cancel()
	}
	return warnings, err
}

// Attach implements provider.Attacher: the virtual hosts exist in the provider's own books and nowhere else.
func (b *backend) Attach(f provider.Fleet) { b.fleet = f }

// Admit implements provider.Admitter (PROV-14.5). The Node's labels and quantities were checked with the offering.
func (b *backend) Admit(k provider.Kind, m provider.Machine, cluster string) error {
	if k != provider.Configure {
		return nil
	}
	return checkNode(m)
}

// Create makes a virtual host.
func (b *backend) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	b.log.Debug("a machine is being created", "machine", op.Machine.ID)
	if err := b.pause(ctx, b.delays.Create); err != nil {
		return provider.Host{}, err
	}
	return provider.Host{Ref: b.ref(op.Machine.ID), MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}, nil
}

// DrainEstimate implements provider.Estimator: the delay of the configuration, and a moment for the Node.
func (b *backend) DrainEstimate(provider.Offering) time.Duration {
	return (b.delays.Drain + time.Second).Round(time.Second)
}

// ref is host.ref and spec.providerID (PROV-27.3).
func (b *backend) ref(machine string) string { return "kwok://" + b.name + "/" + machine }

// Delete gives a virtual host back. A machine that failed while it was bound may have left a Node.
func (b *backend) Delete(ctx context.Context, op provider.DeleteOp) error {
	if err := b.pause(ctx, b.delays.Delete); err != nil {
		return err
	}
	if op.Machine.Cluster == "" {
		return nil
	}
	return b.removeNode(ctx, op.Machine.Cluster, op.Machine.ID)
}

// Configure makes the Node. The readiness gate waits for it (PROV-27.1, 27.6).
func (b *backend) Configure(ctx context.Context, op provider.ConfigureOp) error {
	if len(op.Blob) == 0 {
		return provider.Bootstrap(errors.New("the bootstrap blob is empty"))
	}
	if err := b.pause(ctx, b.delays.Configure); err != nil {
		return err
	}
	b.log.Debug("a machine is being configured", "cluster", op.Cluster, "machine", op.Machine.ID)
	client, err := b.nodes.Client(op.Cluster)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(op.Blob)
	node, err := nodeFor(op, b.fleet.StoreID(), b.name, hex.EncodeToString(sum[:]))
	if err != nil {
		return err
	}
	err = b.write(ctx, op.Cluster, "kwok.CreateNode", func(ctx context.Context) error {
		_, err := client.Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
	if err == nil {
		b.log.Debug("a node is written", "cluster", op.Cluster, "machine", op.Machine.ID)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return b.claim(ctx, client, op)
}

// claim judges a Node that stands where ours ought to: our own from an earlier try is fine, anything else is not.
func (b *backend) claim(ctx context.Context, client typedcorev1.CoreV1Interface, op provider.ConfigureOp) error {
	there, err := client.Nodes().Get(ctx, op.Machine.ID, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return provider.Transient(fmt.Errorf("node %s was deleted meanwhile", op.Machine.ID))
	case err != nil:
		return nodeready.Classify(err)
	case there.Annotations[annotationOperation] == op.ID && there.DeletionTimestamp == nil:
		return nil
	case there.Labels[labelProvider] != b.name || there.Annotations[annotationStore] != b.fleet.StoreID():
		return fmt.Errorf("cluster %q has a node %s that is not managed by this provider; rename the provider or remove the node", op.Cluster, there.Name)
	}
	// A leftover of ours, from a Configure that failed half-way.
	b.log.Warn("a node of an earlier binding still exists and is removed", "cluster", op.Cluster, "machine", op.Machine.ID)
	if err := b.removeNode(ctx, op.Cluster, op.Machine.ID); err != nil {
		return err
	}
	return provider.RetryAfter(50*time.Millisecond, fmt.Errorf("node %s of an earlier binding is being removed", op.Machine.ID))
}

// Bind implements provider.Binder: Configure has written the binding with the Node.
func (b *backend) Bind(context.Context, provider.Machine, provider.Binding) error { return nil }

// Unbind implements provider.Binder: Drain has deleted the Node, and the binding with it.
func (b *backend) Unbind(context.Context, provider.Machine) error { return nil }

// removeNode cordons and deletes a Node of ours and waits until the watch no longer shows it, so that the next binding
// does not take the old Node for its own.
func (b *backend) removeNode(ctx context.Context, cluster, name string) error {
	client, err := b.nodes.Client(cluster)
	if err != nil {
		return err
	}
	if err := b.cordon(ctx, client, cluster, name); err != nil {
		return err
	}
	return b.deleteNode(ctx, client, cluster, name)
}

// deleteNode is removeNode for a Node that is cordoned already.
func (b *backend) deleteNode(ctx context.Context, client typedcorev1.CoreV1Interface, cluster, name string) error {
	err := b.write(ctx, cluster, "kwok.DeleteNode", func(ctx context.Context) error {
		return client.Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return b.nodes.Gone(ctx, provider.Node{Cluster: cluster, ProviderID: b.ref(name), Name: name})
}

var cordonPatch = []byte(`{"spec":{"unschedulable":true}}`)

func (b *backend) cordon(ctx context.Context, client typedcorev1.CoreV1Interface, cluster, name string) error {
	err := b.write(ctx, cluster, "kwok.CordonNode", func(ctx context.Context) error {
		_, err := client.Nodes().Patch(ctx, name, types.StrategicMergePatchType, cordonPatch, metav1.PatchOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// write makes one call to an apiserver: through the SDK's caller, and at most writesMax at a time per cluster. Errors that
// carry no answer about the object are classified; NotFound and the like come back as they are.
func (b *backend) write(ctx context.Context, cluster, call string, do func(context.Context) error) error {
	b.mu.Lock()
	places := b.places[cluster]
	if places == nil {
		places = make(chan struct{}, writesMax)
		b.places[cluster] = places
	}
	b.mu.Unlock()
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-places }()
	return provider.Call(ctx, call, func(ctx context.Context) error { return nodeready.Classify(do(ctx)) })
}

// pause waits for a delay, drawn around its value by the jitter.
func (b *backend) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	d += time.Duration((rand.Float64()*2 - 1) * b.delays.Jitter * float64(d))
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
