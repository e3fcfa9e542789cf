package get

import (
	"context"
	"fmt"
	"maps"
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
	teams   map[string]string // by namespace, as far as the caller may read them
}

// byOwner says whether the flags select by owner.
func (f filter) byOwner() bool { return f.namespace != "" || f.team != "" || f.allNamespaces }

// owners reads the CapacityRequests of the namespaces that the flags select; nil if none of them does.
func (f filter) owners(ctx context.Context, a *app.App) (*owners, error) {
	if !f.byOwner() {
		if f.label != teamLabel && f.label != "" {
			return nil, exit.Usagef("--team-label needs --team, --namespace or --all-namespaces")
		}
		return nil, nil
	}
	if f.allNamespaces && (f.namespace != "" || f.team != "") {
		return nil, exit.Usagef("--all-namespaces selects nothing: leave it out, or --namespace and --team")
	}
	if f.at != "" {
		return nil, exit.Usagef("--at shows the past, but a cluster knows only its present requests: leave out --at, or --namespace, --team and --all-namespaces")
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
	teams, err := f.namespaces(ctx, core)
	if err != nil {
		return nil, err
	}
	var of []string // all of them
	if !f.allNamespaces {
		of = slices.Sorted(maps.Keys(teams))
	}
	rows, whole, err := inclusters.RowsOf(ctx, requests, of)
	switch {
	case apierrors.IsNotFound(err):
		return nil, &exit.Error{Code: exit.NotFound, Message: "this cluster does not have the CapacityRequest CRD", Hint: "`bigfleet crds apply` installs it; --kube-context names another cluster"}
	case err != nil:
		return nil, app.KubeError("listing CapacityRequests", err)
	case !whole:
		a.Notef("the cluster has more CapacityRequests than this command reads, so some needs are missing here. Select some with --namespace")
	}
	o := &owners{cluster: f.cluster, rows: rows, teams: teams}
	if o.cluster == "" {
		o.cluster = a.KubeContext()
	}
	return o, nil
}

// namespaces are those that the flags select, with the team of each.
func (f filter) namespaces(ctx context.Context, core typedcorev1.CoreV1Interface) (map[string]string, error) {
	if len(validation.IsQualifiedName(f.label)) > 0 {
		return nil, exit.Usagef("--team-label %s is not a label key", f.label)
	}
	if len(validation.IsValidLabelValue(f.team)) > 0 {
		return nil, exit.Usagef("--team %s is not the value of a label", f.team)
	}
	if f.team == "" && !f.allNamespaces {
		team, exists := inclusters.Team(ctx, core, f.label, f.namespace)
		if !exists {
			return nil, &exit.Error{Code: exit.NotFound, Message: "there is no namespace " + f.namespace + " in this cluster", Hint: "--kube-context names another cluster"}
		}
		return map[string]string{f.namespace: team}, nil
	}
	all, err := inclusters.Teams(ctx, core, f.label)
	if err != nil {
		return nil, app.KubeError("listing namespaces", err)
	}
	if f.allNamespaces {
		return all, nil
	}
	maps.DeleteFunc(all, func(ns, team string) bool { return team != f.team || f.namespace != "" && ns != f.namespace })
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

// selects leaves the needs of the owners, with the shard of each.
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

// column adds who requests each need to a list of them, behind its name; programs get all namespaces, with their teams.
func (o *owners) column(l *output.List, items []*bigfleetv1alpha1.NeedView) {
	l.Columns = slices.Insert(slices.Clone(l.Columns), 1, output.Column{Head: "REQUESTED BY"})
	l.Also = make([]map[string]any, len(items))
	for i, n := range items {
		row := n.GetNeed().GetRowId()
		l.Rows[i] = slices.Insert(slices.Clone(l.Rows[i]), 1, o.rows.Namespaces(row))
		by := o.rows.Requesters(row)
		for j := range by {
			by[j].Team = o.teams[by[j].Namespace]
		}
		l.Also[i] = map[string]any{"requestedBy": by}
	}
}
