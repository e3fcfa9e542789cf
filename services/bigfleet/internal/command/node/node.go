// Package node is `bigfleet machines cordon|uncordon|drain`: what a person does to the Nodes of one cluster, chosen by machine, zone, type
// or label.
//
// It talks to the cluster's API server, as kubectl does, and to no shard: the operator reports cordoned Nodes, and the shard then
// replaces what they held. Pods are evicted only within their disruption budgets.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	typedauthenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

const (
	machineLabel = "bigfleet.lucy.sh/machine-id" // WIRE-11
	withinUsual  = 10 * time.Minute
)

// choice is what selects Nodes. All of it has to fit.
type choice struct {
	machines                     []string
	zone, instanceType, selector string
	within                       time.Duration
	who                          string // the person
}

// Verbs returns the verbs for the group `machines`.
func Verbs(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		verb(a, "drain", "Cordon Nodes and evict their Pods within their disruption budgets",
			"\nBigFleet buys replacements for what the Pods need, and releases the machines when they are empty. No cluster gets such a machine for an hour;\n`bigfleet explain machine/ID` shows until when, and `bigfleet machines retry ID` offers it earlier. A shard keeps at most a twentieth of\nits machines out so, and at least 8; more are released as usual. For longer, take it out at its provider. With\n`bigfleet pause --kind reclaim --cluster NAME` before, the Nodes stay, cordoned and empty.\nExits with 4 if Pods are left after --within.",
			"  bigfleet machines drain m-0001 --reason 'disk errors' --kube-context red\n  bigfleet machines drain --zone eu-1a --reason 'power work' --dry-run --kube-context red\n"+
				"  bigfleet machines drain -l topology.kubernetes.io/rack=r7 --reason 'switch replacement' --kube-context red", drain),
		verb(a, "cordon", "Keep new Pods off Nodes; running Pods stay", "\nA machine whose Pods have all left is released, and no cluster gets it for an hour, as after `bigfleet machines drain`.", "  bigfleet machines cordon --zone eu-1a --reason 'network trouble' --kube-context red", cordon),
		verb(a, "uncordon", "Let new Pods on cordoned Nodes again", "", "  bigfleet machines uncordon --zone eu-1a --reason 'repaired' --kube-context red", uncordon),
	}
}

// action is what a verb does to the chosen Nodes.
type action func(context.Context, *app.App, typedcorev1.CoreV1Interface, []corev1.Node, choice) error

func verb(a *app.App, name, short, more, example string, do action) *cobra.Command {
	var by choice
	c := &cobra.Command{
		Use: name + " [MACHINE...]", Short: short, Example: example,
		Long: strings.TrimSpace(short + ".\n\nActs on the Nodes of one cluster, which --kube-context names, and only on those that BigFleet created." + more),
		RunE: func(c *cobra.Command, args []string) error {
			for _, m := range args {
				by.machines = append(by.machines, strings.TrimPrefix(strings.TrimPrefix(m, "machine/"), "node/"))
			}
			return run(c.Context(), a, name, by, do)
		},
	}
	c.ValidArgsFunction = func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.Complete(map[string]string{"machine": ""})(c, nil, typed) // another one, too
	}
	c.Flags().StringVar(&by.zone, "zone", "", "Nodes in this zone")
	c.Flags().StringVar(&by.instanceType, "type", "", "Nodes of this instance type")
	c.Flags().StringVarP(&by.selector, "selector", "l", "", "Nodes that match this label selector, for example topology.kubernetes.io/rack=r7")
	if name == "drain" {
		c.Flags().DurationVar(&by.within, "within", withinUsual, "stop waiting after this long; the Nodes stay cordoned")
	}
	c = a.Mutates(c)
	c.Flags().Lookup("reason").Usage = "reason for the change; kept as an annotation of the Node"
	c.Flags().Lookup("dry-run").Usage = "show the Nodes without changing anything"
	return c
}

func run(ctx context.Context, a *app.App, name string, by choice, do action) error {
	if len(by.machines) == 0 && by.zone == "" && by.instanceType == "" && by.selector == "" {
		return exit.Usagef("no machine is selected: name machines, or use --zone, --type or -l")
	}
	cfg, err := a.Kube()
	if err != nil {
		return err
	}
	core, err := typedcorev1.NewForConfig(cfg)
	if err != nil {
		return exit.Usagef("kubeconfig: %v", err)
	}
	nodes, err := by.find(ctx, core)
	if err != nil {
		return err
	}
	if err := a.Confirm("%s %s of %s: %s.", strings.ToUpper(name[:1])+name[1:]+"s", output.Count(len(nodes), "Node"), clusterOf(a), strings.Join(names(nodes), ", ")); err != nil {
		return err
	}
	if !a.DryRun && name != "uncordon" {
		by.who = who(ctx, cfg)
	}
	return do(ctx, a, core, nodes, by)
}

func clusterOf(a *app.App) string {
	if name := a.KubeContext(); name != "" {
		return "context " + name
	}
	return "this cluster"
}

// find lists the Nodes of BigFleet that fit. A machine that was named and has no Node here is an error, before anything is changed.
func (by choice) find(ctx context.Context, core typedcorev1.CoreV1Interface) ([]corev1.Node, error) {
	selector, err := labels.Parse(by.selector)
	if err != nil {
		return nil, exit.Usagef("-l %s: %v", by.selector, err)
	}
	list, err := core.Nodes().List(ctx, metav1.ListOptions{LabelSelector: machineLabel})
	if err != nil {
		return nil, app.KubeError("listing Nodes", err)
	}
	missing := slices.Clone(by.machines)
	out := slices.DeleteFunc(list.Items, func(n corev1.Node) bool {
		is := func(m string) bool { return m == n.Name || m == n.Labels[machineLabel] }
		if len(by.machines) > 0 && !slices.ContainsFunc(by.machines, is) {
			return true
		}
		missing = slices.DeleteFunc(missing, is)
		return by.zone != "" && n.Labels[corev1.LabelTopologyZone] != by.zone || by.instanceType != "" && n.Labels[corev1.LabelInstanceTypeStable] != by.instanceType ||
			!selector.Matches(labels.Set(n.Labels))
	})
	if len(missing) > 0 {
		return nil, &exit.Error{Code: exit.NotFound, Message: "no Node of this cluster is machine " + strings.Join(missing, ", "), Hint: "`bigfleet get machines NAME` shows the cluster; --kube-context selects it. `bigfleet machines retry NAME` offers a machine again that was drained and released"}
	}
	if len(out) == 0 {
		return nil, &exit.Error{Code: exit.NotFound, Message: "no Node of BigFleet in this cluster matches the selection", Hint: "`kubectl get nodes --show-labels -l " + machineLabel + "` lists them"}
	}
	return out, nil
}

func names(nodes []corev1.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

func cordon(ctx context.Context, a *app.App, core typedcorev1.CoreV1Interface, nodes []corev1.Node, by choice) error {
	return marked(ctx, a, core, nodes, by, true)
}

func uncordon(ctx context.Context, a *app.App, core typedcorev1.CoreV1Interface, nodes []corev1.Node, by choice) error {
	return marked(ctx, a, core, nodes, by, false)
}

func marked(ctx context.Context, a *app.App, core typedcorev1.CoreV1Interface, nodes []corev1.Node, by choice, closed bool) error {
	t := &telling{a: a, who: by.who}
	if err := mark(ctx, t, core, nodes, closed); err != nil {
		return err
	}
	return t.end()
}

// mark changes whether Nodes take new Pods, and notes why.
func mark(ctx context.Context, t *telling, core typedcorev1.CoreV1Interface, nodes []corev1.Node, closed bool) error {
	var note, who, off any
	if closed {
		note, off = t.a.Reason, true
		if t.who != "" {
			who = t.who
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationCordonReason: note, v1alpha1.AnnotationCordonedBy: who}}, "spec": map[string]any{"unschedulable": off}})
	if err != nil {
		return err
	}
	for i := range nodes {
		said := "cordoned"
		if !closed {
			said = "uncordoned"
		}
		if t.a.DryRun {
			said = "would be " + said
		} else if _, err := core.Nodes().Patch(ctx, nodes[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return app.KubeError("changing Node "+nodes[i].Name, err)
		}
		if err := t.node(&nodes[i], said, 0); err != nil {
			return err
		}
	}
	return nil
}

// telling says what happens to each Node: people read it as it comes, programs the last of each Node as one document.
type telling struct {
	a    *app.App
	who  string
	last []item
}

// item is a Node as programs read it.
type item struct {
	Node    string `json:"node"`
	Machine string `json:"machine"`
	Zone    string `json:"zone"`
	State   string `json:"state"`
	Pods    int    `json:"pods"` // that are still to be evicted
}

func (t *telling) node(n *corev1.Node, state string, pods int) error {
	if t.a.Format.ForPeople() {
		_, err := fmt.Fprintf(t.a.Out, "%s: %s\n", output.Text(n.Name), output.Text(state))
		return err
	}
	t.last = append(slices.DeleteFunc(t.last, func(i item) bool { return i.Node == n.Name }), item{n.Name, n.Labels[machineLabel], n.Labels[corev1.LabelTopologyZone], state, pods})
	return nil
}

func (t *telling) end() error {
	if t.a.Format.ForPeople() {
		return nil
	}
	l := output.List{Columns: []output.Column{{Head: "NODE"}, {Head: "MACHINE"}, {Head: "ZONE"}, {Head: "STATE"}, {Head: "PODS"}}}
	for _, i := range t.last {
		l.Objects, l.Names = append(l.Objects, i), append(l.Names, "node/"+i.Node)
		l.Rows = append(l.Rows, []string{i.Node, i.Machine, i.Zone, i.State, fmt.Sprint(i.Pods)})
	}
	return t.a.Format.Write(t.a.Out, l)
}

// who is the person as the API server knows them, "" if it does not say.
func who(ctx context.Context, cfg *rest.Config) string {
	client, err := typedauthenticationv1.NewForConfig(cfg)
	if err != nil {
		return ""
	}
	me, err := client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "" // not every API server has it; the cordon needs no name
	}
	return me.Status.UserInfo.Username
}
