// Package inclusters reads Pods, workloads and CapacityRequests of managed clusters, for the console and for explain. It only gets and lists, and it never
// guesses: a cluster that does not answer is named. Start at New.
package inclusters

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/console/clusters"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

const (
	fresh    = 10 * time.Second // names younger than this are not read again
	timeout  = 10 * time.Second // of one question to an API server
	pageSize = 1000
	namesMax = 100_000 // Pods of one cluster that are searched; a search says when there are more
)

// Requests is the resource of CapacityRequests.
var Requests = schema.GroupVersionResource{Group: v1alpha1.GroupVersion().Group, Version: v1alpha1.GroupVersion().Version, Resource: "capacityrequests"}

var workloads = map[string]schema.GroupVersionResource{
	"deployment":  {Group: "apps", Version: "v1", Resource: "deployments"},
	"statefulset": {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"job":         {Group: "batch", Version: "v1", Resource: "jobs"},
}

// Reader is a clusters.Reader. Safe for concurrent use.
type Reader struct {
	ids  []string // in their order
	byID map[string]*cluster
}

// cluster is the way to one, and the names last read in it.
type cluster struct {
	id      string
	core    typedcorev1.CoreV1Interface
	dynamic dynamic.Interface

	reading sync.Mutex // held while the names are read, so that many searches are one list
	names   []clusters.Object
	cut     bool
	at      time.Time

	summing  sync.Mutex // held while the requests are read
	requests summed
}

// New makes clients. It dials nothing.
func New(configs map[string]*rest.Config, order []string) (*Reader, error) {
	r := &Reader{ids: order, byID: map[string]*cluster{}}
	for _, id := range order {
		cfg := rest.CopyConfig(configs[id])
		cfg.Timeout, cfg.UserAgent = timeout, "bigfleet-console"
		c := &cluster{id: id}
		var err error
		if c.core, err = typedcorev1.NewForConfig(cfg); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", id, err)
		}
		if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
			return nil, fmt.Errorf("cluster %s: %w", id, err)
		}
		r.byID[id] = c
	}
	return r, nil
}

// Find looks in all clusters at once. What was found is returned beside the error that names the clusters which did not answer.
func (r *Reader) Find(ctx context.Context, part string, limit int) (out []clusters.Object, err error) {
	found, errs := make([][]clusters.Object, len(r.ids)), make([]error, len(r.ids))
	var all sync.WaitGroup
	for i, id := range r.ids {
		all.Go(func() {
			names, err := r.byID[id].list(ctx)
			for _, o := range names {
				if len(found[i]) < limit && strings.Contains(strings.ToLower(o.Namespace+"/"+o.Name), part) {
					found[i] = append(found[i], o)
				}
			}
			errs[i] = err
		})
	}
	all.Wait()
	for _, f := range found {
		out = append(out, f...)
	}
	return out[:min(len(out), limit)], errors.Join(errs...)
}

// list is the names of a cluster's Pods and workloads, not older than fresh.
func (c *cluster) list(ctx context.Context) ([]clusters.Object, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if time.Since(c.at) < fresh {
		return c.names, c.more()
	}
	names, cut := []clusters.Object{}, false
	for _, kind := range []string{"deployment", "statefulset", "job"} {
		list, err := c.dynamic.Resource(workloads[kind]).List(ctx, metav1.ListOptions{Limit: pageSize})
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // Pods are what counts
			continue
		}
		if err != nil {
			return nil, c.failed(err)
		}
		for i := range list.Items {
			names = append(names, clusters.Object{Kind: kind, Cluster: c.id, Namespace: list.Items[i].GetNamespace(), Name: list.Items[i].GetName()})
		}
		cut = cut || list.GetContinue() != ""
	}
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		list, err := c.core.Pods("").List(ctx, options)
		if err != nil {
			return nil, c.failed(err)
		}
		for i := range list.Items {
			names = append(names, clusters.Object{Kind: "pod", Cluster: c.id, Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
		if len(names) >= namesMax {
			cut = true
			break
		}
	}
	c.names, c.cut, c.at = names, cut, time.Now()
	return names, c.more()
}

func (c *cluster) more() error {
	if c.cut {
		return fmt.Errorf("cluster %s has more names than this search reads", c.id)
	}
	return nil
}

func (c *cluster) failed(err error) error { return fmt.Errorf("cluster %s: %w", c.id, err) }

func (r *Reader) cluster(id string) (*cluster, error) {
	if c := r.byID[id]; c != nil {
		return c, nil
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("this console does not read cluster %q: --kubeconfig and --contexts name the clusters that it reads (%s)", id, strings.Join(r.ids, ", ")))
}

// Pod reads a Pod, its CapacityRequest and its Node.
func (r *Reader) Pod(ctx context.Context, id, namespace, name string) (clusters.Pod, error) {
	c, err := r.cluster(id)
	if err != nil {
		return clusters.Pod{}, err
	}
	p, err := c.core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return clusters.Pod{}, c.refused("the Pod", err)
	}
	out := clusters.Pod{Created: p.CreationTimestamp.Time, Node: p.Spec.NodeName}
	for _, condition := range p.Status.Conditions {
		switch {
		case condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue:
			out.Ready = condition.LastTransitionTime.Time
		case condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse:
			out.Waits = condition.Message
		}
	}
	if err := c.request(ctx, p, &out); err != nil {
		return clusters.Pod{}, err
	}
	if out.Node == "" {
		return out, nil
	}
	n, err := c.core.Nodes().Get(ctx, out.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return out, nil
	}
	if err != nil {
		return clusters.Pod{}, c.refused("the Node", err)
	}
	out.Joined = n.CreationTimestamp.Time
	return out, nil
}

// request notes what the Pod's CapacityRequest says.
func (c *cluster) request(ctx context.Context, p *corev1.Pod, out *clusters.Pod) error {
	r, err := RequestOf(ctx, c.dynamic, p)
	switch {
	case apierrors.IsNotFound(err):
		out.Waits = "This cluster does not have the CapacityRequest CRD: `bigfleet crds apply` installs it."
		return nil
	case err != nil:
		return c.refused("its CapacityRequest", err)
	case r == nil:
		return nil
	}
	return said(r, out)
}

// RequestOf finds the CapacityRequest of a Pod, page by page; nil if it has none. A cluster without the CRD answers NotFound.
func RequestOf(ctx context.Context, d dynamic.Interface, p *corev1.Pod) (*unstructured.Unstructured, error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := d.Resource(Requests).Namespace(p.Namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			for _, owner := range list.Items[i].GetOwnerReferences() {
				if owner.UID == p.UID {
					return &list.Items[i], nil
				}
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil, nil
		}
	}
}

func said(r *unstructured.Unstructured, out *clusters.Pod) error {
	out.Requested = r.GetCreationTimestamp().Time
	raw, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	rows, problem, err := operator.RowsOf(raw)
	if err != nil {
		return connect.NewError(connect.CodeDataLoss, err)
	}
	out.Rows = rows
	if problem != "" {
		out.Waits = problem
	}
	if at, _, _ := unstructured.NestedString(r.Object, "status", "acknowledgedAt"); at != "" {
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			out.Acknowledged = t
		}
	}
	return nil
}

// refused is an error of an API server for the console.
func (c *cluster) refused(what string, err error) error {
	code := connect.CodeUnavailable
	switch {
	case apierrors.IsNotFound(err):
		code = connect.CodeNotFound
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		code = connect.CodePermissionDenied
	case errors.Is(err, context.Canceled):
		code = connect.CodeCanceled
	}
	return connect.NewError(code, fmt.Errorf("reading %s in cluster %s: %w", what, c.id, err))
}
