// Package explain is `bigfleet explain SUBJECT`: why a need is met or waits, why a machine is kept or goes.
//
// The answer is the shard's own (ShardRead.Explain); this package words it in the order of OPS-4.15 and computes nothing. From
// a Pod, a CapacityRequest or a Node it walks to the need or the machine, and says at which step it stopped (OPS-4.14).
package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/dynamic"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/inclusters"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var cluster, namespace string
	var candidates bool
	c := a.Watchable(&cobra.Command{
		Use: "explain SUBJECT", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.CompleteSubjects("need/", "machine/", "cluster/", "move/", "node/", "pod/", "deployment/", "statefulset/", "job/", "cr/"),
		Short: "Explain why a need is met or unmet, or why a machine is kept",
		Long: "SUBJECT is one of pod/NAME, deployment/NAME, statefulset/NAME, job/NAME, cr/NAME, node/NAME, need/CLUSTER/ROW, machine/ID, cluster/ID, move/ID,\n" +
			"written KIND/NAME or KIND NAME. Pods, workloads, requests and Nodes are traced to their need or machine; the answer says where the trace ends.\n" +
			"For a workload it explains the waiting Pods, once for each cause. Machines and Nodes that are gone are explained from the decision logs.",
		Example: "  bigfleet explain pod web-1 -n team-a --kube-context red\n  bigfleet explain deployment/web\n  bigfleet explain need/red/r-1f2e3d\n  bigfleet explain machine/m-0001\n  bigfleet explain cluster/red",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := subject.Of(args, namespace)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return Run(ctx, a, s, cluster, candidates) })
		},
	})
	c.Flags().StringVar(&cluster, "cluster", "", "cluster of the Pod or request, if its kube context has another name")
	c.Flags().StringVarP(&namespace, "namespace", "n", "default", "namespace of a Pod, request or workload")
	c.Flags().BoolVar(&candidates, "candidates", false, "also show the cheapest candidate machines, at most ten, with their costs")
	return c
}

// Run explains one subject.
func Run(ctx context.Context, a *app.App, s subject.Subject, cluster string, candidates bool) error {
	switch s.Kind {
	case subject.Cluster:
		return explainCluster(ctx, a, s)
	case subject.Move:
		return explainMove(ctx, a, s)
	case subject.Shard:
		return exit.Usagef("shards cannot be explained: `bigfleet describe shard %s` shows the status", s.Name)
	case subject.Pod, subject.Request, subject.Node:
		return explainObject(ctx, a, s, cluster, candidates)
	case subject.Deployment, subject.StatefulSet, subject.Job:
		return explainWorkload(ctx, a, s, cluster, candidates)
	}
	got, err := ask(ctx, a, s)
	if s.Kind == subject.Machine && exit.CodeOf(err) == exit.NotFound {
		return gone(ctx, a, s, err)
	}
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Write(a.Out, output.List{Items: []proto.Message{got}, Say: history.Sentence})
	}
	say(a, a.Out, s, got, candidates)
	return sayOwners(ctx, a, s, got.GetNeed().GetNeed().GetRowId(), cluster)
}

// sayOwners names the namespaces that request the row of a need, if the kube context on the command line is its cluster.
func sayOwners(ctx context.Context, a *app.App, s subject.Subject, row, cluster string) error {
	if s.Kind != subject.Need || !a.HasKube() || s.Scope != cluster && s.Scope != a.KubeContext() {
		return nil
	}
	cfg, err := a.Kube()
	if err != nil {
		return err
	}
	requests, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return exit.Usagef("kubeconfig: %v", err)
	}
	rows, whole, err := inclusters.RowsOf(ctx, requests, nil)
	if err != nil {
		return app.KubeError("listing CapacityRequests", err)
	}
	if who := rows.Namespaces(row); who != "" {
		_, _ = fmt.Fprintln(a.Out, output.Line("Requested by: %s.", who))
	}
	if !whole {
		a.Notef("the cluster has more CapacityRequests than this command reads")
	}
	return nil
}

// explainObject explains something that lives in a cluster.
func explainObject(ctx context.Context, a *app.App, s subject.Subject, cluster string, candidates bool) error {
	w, err := newWalk(a, cluster)
	if err != nil && s.Kind == subject.Node { // the shards know Nodes, too, and those that are gone
		w, err = &walk{a: a, cluster: cluster}, nil
	}
	if err != nil {
		return err
	}
	switch s.Kind {
	case subject.Pod:
		err = w.pod(ctx, s)
	case subject.Request:
		err = w.request(ctx, s)
	default:
		err = w.node(ctx, s)
	}
	if err != nil {
		return err
	}
	if a.Format.ForPeople() { // the way there helps even when the shard cannot be asked
		for _, step := range w.Steps {
			_, _ = fmt.Fprintf(a.Out, "%-16s %s\n", step.At, step.Message)
		}
	}
	var got *bigfleetv1alpha1.ExplainResponse
	if w.Target != nil {
		got, err = ask(ctx, a, *w.Target)
		if w.Target.Kind == subject.Machine && exit.CodeOf(err) == exit.NotFound && a.Format.ForPeople() {
			_, _ = fmt.Fprintln(a.Out)
			return gone(ctx, a, *w.Target, err)
		}
		if err != nil {
			return err
		}
	}
	if !a.Format.ForPeople() {
		return w.data(a, got)
	}
	if got == nil {
		_, _ = fmt.Fprintf(a.Out, "\nThe trace ends here: %s.\n", w.Stopped)
		return nil
	}
	_, _ = fmt.Fprintln(a.Out)
	say(a, a.Out, *w.Target, got, candidates)
	return nil
}

// data is the walk with the shard's answer as one object.
func (w *walk) data(a *app.App, got *bigfleetv1alpha1.ExplainResponse) error {
	out, err := w.object(got)
	if err != nil {
		return err
	}
	return printed(a, out)
}

func (w *walk) object(got *bigfleetv1alpha1.ExplainResponse) (map[string]any, error) {
	out := map[string]any{"path": w.Steps}
	if got == nil {
		out["stopped"] = w.Stopped
		return out, nil
	}
	raw, err := protojson.Marshal(got)
	if err != nil {
		return nil, err
	}
	out["subject"], out["explanation"] = w.Target.String(), json.RawMessage(raw)
	return out, nil
}

func printed(a *app.App, out map[string]any) error {
	return a.Format.Value(a.Out, out)
}

// ask asks the shards until one knows the subject.
func ask(ctx context.Context, a *app.App, s subject.Subject) (*bigfleetv1alpha1.ExplainResponse, error) {
	req := &bigfleetv1alpha1.ExplainRequest{}
	if s.Kind == subject.Need {
		req.Subject = &bigfleetv1alpha1.ExplainRequest_Need{Need: s.NeedRef()}
	} else {
		req.Subject = &bigfleetv1alpha1.ExplainRequest_MachineId{MachineId: s.Name}
	}
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return nil, err
	}
	answers, failed := fleet.Each(ctx, f, shards, "explaining "+s.String(), func(ctx context.Context, sh fleet.Shard) (*bigfleetv1alpha1.ExplainResponse, error) {
		got, err := sh.Read.Explain(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var other *bigfleetv1alpha1.ExplainResponse // of a shard that knows the machine and does not own it
	for _, got := range answers {
		if got == nil || *got == nil {
			continue
		}
		if !slices.Contains((*got).GetMachine().GetMachine().GetFlags(), bigfleetv1alpha1.MachineFlag_MACHINE_FLAG_FOREIGN) {
			return *got, nil
		}
		other = *got
	}
	if other != nil {
		return other, nil
	}
	if s.Kind == subject.Need && failed == nil {
		if whole, ok := begins(ctx, f, shards, s); ok {
			return ask(ctx, a, whole)
		}
	}
	notFound := &exit.Error{Code: exit.NotFound, Message: "no shard knows " + s.String(), Hint: "`bigfleet get " + string(s.Kind) + "s` lists them; `bigfleet history " + s.String() + "` also covers what is gone"}
	if failed != nil {
		return nil, errors.Join(failed, notFound)
	}
	return nil, notFound
}

// begins finds the one need of a cluster whose name begins as s does: names of rows are long, and their first letters do.
func begins(ctx context.Context, f *fleet.Fleet, shards []fleet.Shard, s subject.Subject) (whole subject.Subject, one bool) {
	answers, failed := fleet.Each(ctx, f, shards, "looking for "+s.String(), func(ctx context.Context, sh fleet.Shard) ([]string, error) {
		got, err := sh.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{ClusterId: s.Scope}))
		if err != nil {
			return nil, err
		}
		defer func() { _ = got.Close() }()
		var rows []string
		for got.Receive() {
			if row := got.Msg().GetNeed().GetNeed().GetRowId(); strings.HasPrefix(row, s.Name) {
				rows = append(rows, row)
			}
		}
		return rows, got.Err()
	})
	whole = s
	found := map[string]bool{}
	for _, rows := range answers {
		if rows != nil {
			for _, row := range *rows {
				found[row] = true
				whole.Name = row
			}
		}
	}
	return whole, failed == nil && len(found) == 1 && whole.Name != s.Name
}
