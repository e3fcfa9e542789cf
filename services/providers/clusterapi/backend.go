package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Config is what the backend needs.
type Config struct {
	Name string       // name of the provider; required
	REST *rest.Config // the management cluster; required, unless client and mapper are given
	// OrphanAge is how long a Machine of ours must be unexplained before it is removed. 0 means 2 min.
	OrphanAge time.Duration
	Log       *slog.Logger // required

	settings settings
	client   dynamic.Interface // of tests
	mapper   meta.RESTMapper
}

// backend implements provider.Backend and, of the optional interfaces, Deleter, Readier, Admitter, Attacher, Binder,
// Notifier and Checker.
type backend struct {
	name      string
	settings  settings
	orphanAge time.Duration
	log       *slog.Logger
	client    dynamic.Interface
	mapper    meta.RESTMapper
	seen      *watch
	fleet     provider.Fleet
	orphans   orphans
}

func newBackend(c Config) (*backend, error) {
	if c.Name == "" || c.Log == nil {
		return nil, errors.New("clusterapi: Name and Log are required")
	}
	if c.OrphanAge <= 0 {
		c.OrphanAge = 2 * time.Minute
	}
	if c.client == nil {
		client, err := dynamic.NewForConfig(c.REST)
		if err != nil {
			return nil, fmt.Errorf("client of the management cluster: %w", err)
		}
		discover, err := discovery.NewDiscoveryClientForConfig(c.REST)
		if err != nil {
			return nil, fmt.Errorf("client of the management cluster: %w", err)
		}
		c.client, c.mapper = client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discover))
	}
	b := &backend{
		name: c.Name, settings: c.settings, orphanAge: c.OrphanAge, log: c.Log.With("provider", c.Name),
		client: c.client, mapper: c.mapper,
	}
	b.seen = newWatch(c.client, c.Name, b.log)
	return b, nil
}

// Attach implements provider.Attacher: an idle machine exists in the provider's own books and nowhere else.
func (b *backend) Attach(f provider.Fleet) {
	b.fleet = f
	b.seen.start(f.StoreID())
}

// Close ends the watch.
func (b *backend) Close() error {
	b.seen.stop()
	return nil
}

// Admit implements provider.Admitter (PROV-14.5).
func (b *backend) Admit(k provider.Kind, m provider.Machine, cluster string) error {
	if k != provider.Configure {
		return nil
	}
	_, err := b.settings.find(cluster)
	if _, ok := b.settings.Templates[m.InstanceType]; !ok {
		err = errors.Join(err, fmt.Errorf("templates[%s] is missing: no infrastructure machine template for this instance type", m.InstanceType))
	}
	return errors.Join(err, checkMachine(m))
}

// Check implements provider.Checker: the management cluster answers, and every Cluster and template that is named exists.
func (b *backend) Check(ctx context.Context, _ []provider.Offering) (warnings []error, err error) {
	for id, c := range b.settings.Clusters {
		if c.Name == "" {
			c.Name = id
		}
		if _, failed := b.client.Resource(clusters).Namespace(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{}); failed != nil {
			err = errors.Join(err, fmt.Errorf("clusters[%s]: Cluster %s/%s: %w", id, c.Namespace, c.Name, failed))
			continue
		}
		for kind, t := range b.settings.Templates {
			if _, failed := b.template(ctx, t, c.Namespace); failed != nil {
				warnings = append(warnings, fmt.Errorf("templates[%s] for cluster %q: %w", kind, id, failed))
			}
		}
	}
	return warnings, err
}

// ref is host.ref. The infrastructure gives the server its own name later.
func (b *backend) ref(machine string) string { return "clusterapi://" + b.name + "/" + machine }

// Create reserves a slot: Cluster API makes a server together with its boot data, in Configure.
func (b *backend) Create(_ context.Context, op provider.CreateOp) (provider.Host, error) {
	return provider.Host{Ref: b.ref(op.Machine.ID), MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}, nil
}

// Configure makes the boot Secret, the infrastructure machine and the Machine, in this order: a reader that finds a Machine finds
// the others too. Repeated with the same operation id it continues where it ended.
func (b *backend) Configure(ctx context.Context, op provider.ConfigureOp) error {
	if len(op.Blob) == 0 {
		return provider.Bootstrap(errors.New("the boot data is empty"))
	}
	c, err := b.settings.find(op.Cluster)
	if err != nil {
		return err
	}
	if err := b.awaitCluster(ctx, c); err != nil {
		return err
	}
	t := b.settings.Templates[op.Machine.InstanceType]
	from, err := b.template(ctx, t, c.Namespace)
	if err != nil {
		return err
	}
	infra, err := infraMachine(from, b.name, b.fleet.StoreID(), op, c)
	if err != nil {
		return err
	}
	machine, err := machineFor(infra, b.name, b.fleet.StoreID(), op, c)
	if err != nil {
		return err
	}
	infraResource, err := b.resource(infra.GroupVersionKind())
	if err != nil {
		return err
	}
	boot, err := b.make(ctx, secrets, bootSecret(b.name, b.fleet.StoreID(), op, c))
	if err != nil {
		return err
	}
	if _, err = b.make(ctx, infraResource, infra); err != nil {
		return err
	}
	owner, err := b.make(ctx, machines, machine)
	if err != nil {
		return err
	}
	b.log.Debug("a Machine is created", "machine", op.Machine.ID, "cluster", op.Cluster, "template", t.Name)
	return b.own(ctx, boot, owner)
}

// awaitCluster returns an error that is repeated until Cluster API can make machines for the cluster.
func (b *backend) awaitCluster(ctx context.Context, c cluster) error {
	o, err := b.client.Resource(clusters).Namespace(c.Namespace).Get(ctx, c.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the management cluster has no Cluster %s/%s", c.Namespace, c.Name)
	}
	if err != nil {
		return nodeready.Classify(err)
	}
	if done, _, _ := unstructured.NestedBool(o.Object, "status", "initialization", "infrastructureProvisioned"); !done {
		return provider.Transient(fmt.Errorf("Cluster %s/%s has no infrastructure yet", c.Namespace, c.Name))
	}
	return nil
}

func (b *backend) template(ctx context.Context, t template, namespace string) (*unstructured.Unstructured, error) {
	gv, err := schema.ParseGroupVersion(t.APIVersion)
	if err != nil {
		return nil, err
	}
	resource, err := b.resource(gv.WithKind(t.Kind))
	if err != nil {
		return nil, err
	}
	o, err := b.client.Resource(resource).Namespace(namespace).Get(ctx, t.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the management cluster has no %s %s/%s", t.Kind, namespace, t.Name)
	}
	return o, nodeready.Classify(err)
}

// resource finds the plural name of a kind. A kind that the API server does not serve may be installed later.
func (b *backend) resource(kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	m, err := b.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return schema.GroupVersionResource{}, provider.Transient(fmt.Errorf("the management cluster does not serve %s: %w", kind, err))
	}
	return m.Resource, nil
}

// make creates one object. An object of the same operation is the one of an earlier try. One of an earlier operation is
// removed first, and one of somebody else is left alone.
func (b *backend) make(ctx context.Context, resource schema.GroupVersionResource, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	api := b.client.Resource(resource).Namespace(o.GetNamespace())
	var made *unstructured.Unstructured
	err := provider.Call(ctx, "clusterapi.Create", func(ctx context.Context) (err error) {
		made, err = api.Create(ctx, o, metav1.CreateOptions{FieldManager: "bigfleet-provider-clusterapi"})
		return nodeready.Classify(err)
	})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	there, err := api.Get(ctx, o.GetName(), metav1.GetOptions{})
	what := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
	switch {
	case apierrors.IsNotFound(err):
		return nil, provider.Transient(fmt.Errorf("%s was deleted meanwhile", what))
	case err != nil:
		return nil, nodeready.Classify(err)
	case !b.ours(there):
		return nil, fmt.Errorf("%s is not managed by this provider; rename the provider or remove the object", what)
	case there.GetAnnotations()[annotationOperation] == o.GetAnnotations()[annotationOperation] && there.GetDeletionTimestamp() == nil:
		return there, nil
	}
	b.log.Warn("an object of an earlier binding still exists; it is removed", "object", what)
	if err := b.remove(ctx, resource, there.GetNamespace(), there.GetName()); err != nil {
		return nil, err
	}
	return nil, provider.RetryAfter(500*time.Millisecond, fmt.Errorf("%s of an earlier binding is being removed", what))
}

func (b *backend) ours(o *unstructured.Unstructured) bool {
	return o.GetLabels()[labelProvider] == b.name && o.GetAnnotations()[annotationStore] == b.fleet.StoreID()
}

// own makes the boot Secret go with the Machine.
func (b *backend) own(ctx context.Context, boot, owner *unstructured.Unstructured) error {
	patch := fmt.Appendf(nil, `{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"Machine","name":%q,"uid":%q}]}}`,
		owner.GetAPIVersion(), owner.GetName(), string(owner.GetUID()))
	return provider.Call(ctx, "clusterapi.Patch", func(ctx context.Context) error {
		_, err := b.client.Resource(secrets).Namespace(boot.GetNamespace()).Patch(ctx, boot.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		return nodeready.Classify(err)
	})
}

// Ready implements provider.Readier: Cluster API sees the Node and calls it healthy. When the context ends, the error says
// what Cluster API was waiting for.
func (b *backend) Ready(ctx context.Context, m provider.Machine) error {
	why := "no Machine has been seen yet"
	err := b.seen.wait(ctx, m.ID, func(o *unstructured.Unstructured) (bool, error) {
		if o == nil {
			return false, nil
		}
		var yes bool
		if yes, why = ready(o); yes {
			return true, nil
		}
		return false, refusal(why)
	})
	if ctx.Err() != nil {
		return fmt.Errorf("the Node is not Ready: %s: %w", why, context.Cause(ctx))
	}
	return err
}

// Bind implements provider.Binder: Configure has written the binding with the Machine.
func (b *backend) Bind(context.Context, provider.Machine, provider.Binding) error { return nil }

// Unbind implements provider.Binder: Drain has deleted the Machine, and the binding with it.
func (b *backend) Unbind(context.Context, provider.Machine) error { return nil }

// Drain deletes the Machine with its server and waits until Cluster API says that nothing is left. It evicts no Pod.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	return b.clear(ctx, op.Machine, op.Cluster)
}

// Delete gives the slot back. After a Configure that failed half-way, objects may be left.
func (b *backend) Delete(ctx context.Context, op provider.DeleteOp) error {
	if op.Machine.Cluster == "" {
		return nil
	}
	return b.clear(ctx, op.Machine, op.Machine.Cluster)
}

// clear removes everything that Configure makes and returns once it is gone. A Machine takes its infrastructure machine
// with it; the other two are removed by name for the case that there was no Machine yet.
func (b *backend) clear(ctx context.Context, m provider.Machine, id string) error {
	c, err := b.settings.find(id)
	if err != nil {
		return err
	}
	if err := b.remove(ctx, machines, c.Namespace, m.ID); err != nil {
		return err
	}
	if t, ok := b.settings.Templates[m.InstanceType]; ok {
		gv, err := schema.ParseGroupVersion(t.APIVersion)
		if err != nil {
			return err
		}
		infra, err := b.resource(gv.WithKind(t.Kind[:len(t.Kind)-len(templateSuffix)]))
		if err != nil {
			return err
		}
		if err := b.remove(ctx, infra, c.Namespace, m.ID); err != nil {
			return err
		}
	}
	return b.remove(ctx, secrets, c.Namespace, m.ID)
}

// removePoll is how often a deletion is looked up. Servers take seconds to minutes to go.
const removePoll = 500 * time.Millisecond

// remove deletes one object of ours and returns once it is gone.
func (b *backend) remove(ctx context.Context, resource schema.GroupVersionResource, namespace, name string) error {
	api := b.client.Resource(resource).Namespace(namespace)
	for asked := false; ; {
		var there *unstructured.Unstructured
		err := provider.Call(ctx, "clusterapi.Get", func(ctx context.Context) (err error) {
			there, err = api.Get(ctx, name, metav1.GetOptions{})
			return nodeready.Classify(err)
		})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !b.ours(there):
			return nil
		}
		if !asked {
			uid := there.GetUID()
			err = provider.Call(ctx, "clusterapi.Delete", func(ctx context.Context) error {
				return nodeready.Classify(api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
			})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			asked = true
			continue
		}
		select {
		case <-ctx.Done():
			_, text := condition(there, "Deleting")
			return fmt.Errorf("%s %s/%s is still being deleted (%s): %w", there.GetKind(), namespace, name, text, context.Cause(ctx))
		case <-time.After(removePoll):
		}
	}
}
