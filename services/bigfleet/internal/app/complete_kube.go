package app

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// inCluster are the kinds of subjects that live in the cluster of --kube-context.
var inCluster = map[string]struct {
	resource   schema.GroupVersionResource
	namespaced bool
}{
	"pod":         {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true},
	"deployment":  {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, true},
	"statefulset": {schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, true},
	"job":         {schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, true},
	"cr":          {v1alpha1.GroupVersion().WithResource("capacityrequests"), true},
	"node":        {schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, false},
	"namespace":   {schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, false},
}

// objects are some objects of the cluster of --kube-context; none where it does not answer in time.
func (a *App) objects(ctx context.Context, kind, namespace string) []unstructured.Unstructured {
	cfg, err := a.Kube()
	if err != nil {
		return nil
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil
	}
	of, at := inCluster[kind], client.Resource(inCluster[kind].resource)
	from := dynamic.ResourceInterface(at)
	if of.namespaced {
		from = at.Namespace(namespace)
	}
	list, err := from.List(ctx, metav1.ListOptions{Limit: namesMax})
	if err != nil {
		return nil
	}
	return list.Items
}

// clusterNames are names of objects as people type them: in the namespace of --namespace, or behind another one and a slash.
func (a *App) clusterNames(ctx context.Context, c *cobra.Command, kind, typed string) (out []string) {
	namespace, before := "", ""
	if inCluster[kind].namespaced {
		namespace = metav1.NamespaceDefault
		if f := c.Flags().Lookup("namespace"); f != nil && f.Value.String() != "" {
			namespace = f.Value.String()
		}
		if ns, _, other := strings.Cut(typed, "/"); other {
			namespace, before = ns, ns+"/"
		}
	}
	for _, o := range a.objects(ctx, kind, namespace) {
		out = append(out, before+o.GetName())
	}
	return out
}

// CompleteTeams offers the teams that namespaces of the cluster of --kube-context name in a label.
func (a *App) CompleteTeams(label *string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		const quiet = cobra.ShellCompDirectiveNoFileComp
		if a.Check() != nil {
			return nil, quiet
		}
		ctx, cancel := Completing(c)
		defer cancel()
		var out []string
		for _, ns := range a.objects(ctx, "namespace", "") {
			if team := ns.GetLabels()[*label]; team != "" && strings.HasPrefix(team, typed) {
				out = append(out, team)
			}
		}
		slices.Sort(out)
		return slices.Compact(out), quiet
	}
}

// Completing bounds what a completion may ask for.
func Completing(c *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, completeWithin)
}
