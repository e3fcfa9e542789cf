package get

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/inclusters"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// teamLabel is the label of a namespace that names its team, unless --team-label names another.
const teamLabel = "team"

// owners says who requests the rows of one cluster. Shards do not know it: a row is the sum of the requests of all namespaces, so the
// cluster itself is asked, with the rights that the caller has there.
type owners struct {
	cluster string // its id, if the caller or the kube context says it
	rows    inclusters.Rows
}

// byOwner says whether the flags select by owner.
func (f filter) byOwner() bool { return f.namespace != "" || f.team != "" }

// owners reads the CapacityRequests of the namespaces that the flags select; nil if none of them does.
func (f filter) owners(ctx context.Context, a *app.App) (*owners, error) {
	if !f.byOwner() {
		if f.label != teamLabel && f.label != "" {
			return nil, exit.Usagef("--team-label needs --team")
		}
		return nil, nil
	}
	if f.at != "" {
		return nil, exit.Usagef("--at shows the past, and a cluster knows only its present requests: leave out --at or --namespace and --team")
	}
	cfg, err := a.Kube()
	if err != nil {
		return nil, err
	}
	core, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return nil, exit.Usagef("kubeconfig: %v", err)
	}
	requests, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, exit.Usagef("kubeconfig: %v", err)
	}
	namespaces, err := f.namespaces(ctx, core)
	if err != nil {
		return nil, err
	}
	rows, whole, err := inclusters.RowsOf(ctx, requests, namespaces)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &exit.Error{Code: exit.NotFound, Message: "this cluster does not have the CapacityRequest CRD", Hint: "`bigfleet crds apply` installs it; --kube-context names another cluster"}
	case err != nil:
		return nil, app.KubeError("listing CapacityRequests", err)
	case !whole:
		a.Notef("the cluster has more CapacityRequests than are read at once; needs of the others are missing here. Select with --namespace")
	}
	o := &owners{cluster: f.cluster, rows: rows}
	if o.cluster == "" {
		o.cluster = a.KubeContext()
	}
	return o, nil
}

// namespaces are those that the flags select.
func (f filter) namespaces(ctx context.Context, core typedcorev1.CoreV1Interface) ([]string, error) {
	if f.team == "" {
		if !inclusters.NamespaceExists(ctx, core, f.namespace) {
			return nil, &exit.Error{Code: exit.NotFound, Message: "there is no namespace " + f.namespace + " in this cluster", Hint: "--kube-context names another cluster"}
		}
		return []string{f.namespace}, nil
	}
	if len(validation.IsQualifiedName(f.label)) > 0 {
		return nil, exit.Usagef("--team-label %s is not a label key", f.label)
	}
	if len(validation.IsValidLabelValue(f.team)) > 0 {
		return nil, exit.Usagef("--team %s is not the value of a label", f.team)
	}
	all, err := inclusters.TeamNamespaces(ctx, core, f.label, f.team)
	if err != nil {
		return nil, app.KubeError("listing namespaces", err)
	}
	if f.namespace != "" {
		all = slices.DeleteFunc(all, func(ns string) bool { return ns != f.namespace })
	}
	if len(all) == 0 {
		return nil, &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("no namespace of this cluster has the label %s=%s", f.label, f.team), Hint: "--team-label names the label that your namespaces carry; --kube-context names another cluster"}
	}
	return all, nil
}

// of reports whether a need is requested by the namespaces, given the cluster that they are in.
func (o *owners) of(n *bigfleetv1alpha1.NeedView) bool {
	return n.GetClusterId() == o.cluster && o.rows[n.GetNeed().GetRowId()] != nil
}

// settle finds out which cluster the kube context leads to: the one of its name, or else the only one that has such rows. Equal Pods
// have equal rows in every cluster.
func (o *owners) settle(items []*bigfleetv1alpha1.NeedView, given bool) error {
	var clusters []string
	for _, n := range items {
		if o.rows[n.GetNeed().GetRowId()] != nil && !slices.Contains(clusters, n.GetClusterId()) {
			clusters = append(clusters, n.GetClusterId())
		}
	}
	if given || len(clusters) == 0 || slices.Contains(clusters, o.cluster) {
		return nil
	}
	if len(clusters) > 1 {
		slices.Sort(clusters)
		return exit.Usagef("clusters %v have needs of the same shape and none has the name of the kube context: name the cluster with --cluster", clusters)
	}
	o.cluster = clusters[0]
	return nil
}

// select leaves the needs of the owners, with the shard of each.
func (o *owners) selects(items []*bigfleetv1alpha1.NeedView, of []string, given bool) ([]*bigfleetv1alpha1.NeedView, []string, error) {
	if err := o.settle(items, given); err != nil {
		return nil, nil, err
	}
	var out []*bigfleetv1alpha1.NeedView
	var shards []string
	for i, n := range items {
		if o.of(n) {
			out, shards = append(out, n), append(shards, of[i])
		}
	}
	return out, shards, nil
}

// column adds who requests each need to a list of them, behind its name.
func (o *owners) column(l *output.List, items []*bigfleetv1alpha1.NeedView) {
	l.Columns = slices.Insert(slices.Clone(l.Columns), 1, output.Column{Head: "REQUESTED BY"})
	for i, n := range items {
		l.Rows[i] = slices.Insert(slices.Clone(l.Rows[i]), 1, o.rows.Namespaces(n.GetNeed().GetRowId()))
	}
}
