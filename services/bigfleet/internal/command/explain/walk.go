package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/inclusters"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

// machineLabel names the machine behind a Node (WIRE-11).
const machineLabel = "bigfleet.lucy.sh/machine-id"

// step is one station of the way from an object in a cluster to a verdict.
type step struct {
	At      string `json:"at"`
	Message string `json:"say"`
}

// walk goes Pod -> CapacityRequest -> row -> verdict, or Node -> machine, and notes what it finds. Target is where it ended;
// nil means that it stopped: Stopped then says at what.
type walk struct {
	Steps   []step
	Target  *subject.Subject
	Stopped string

	a       *app.App
	cluster string // --cluster
	context string // name of the kube context
	core    typedcorev1.CoreV1Interface
	dynamic dynamic.Interface
}

func newWalk(a *app.App, cluster string) (*walk, error) {
	cfg, err := a.Kube()
	if err != nil {
		return nil, err
	}
	w := &walk{a: a, cluster: cluster, context: a.KubeContext()}
	if w.core, err = typedcorev1.NewForConfig(cfg); err != nil {
		return nil, exit.Usagef("kubeconfig: %v", err)
	}
	if w.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, exit.Usagef("kubeconfig: %v", err)
	}
	return w, nil
}

func (w *walk) note(at, format string, args ...any) {
	w.Steps = append(w.Steps, step{at, output.Line(format, args...)})
}

func (w *walk) stop(format string, args ...any) { w.Stopped = output.Line(format, args...) }

// pod walks from a Pod.
func (w *walk) pod(ctx context.Context, s subject.Subject) error {
	p, err := w.core.Pods(s.Scope).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no Pod %s/%s in this cluster", s.Scope, s.Name), Hint: "--kube-context names another cluster"}
	}
	if err != nil {
		return app.KubeError("reading the Pod", err)
	}
	if p.Spec.NodeName != "" {
		w.note("Pod", "%s, on Node %s", p.Status.Phase, p.Spec.NodeName)
		return w.node(ctx, subject.Subject{Kind: subject.Node, Name: p.Spec.NodeName})
	}
	w.note("Pod", "%s, waiting for a Node%s", p.Status.Phase, scheduling(p))
	r, err := inclusters.RequestOf(ctx, w.dynamic, p)
	if apierrors.IsNotFound(err) {
		w.stop("this cluster does not have the CapacityRequest CRD: `bigfleet crds apply` installs it")
		return nil
	}
	if err != nil {
		return app.KubeError("listing CapacityRequests", err)
	}
	if r != nil {
		return w.fromRequest(ctx, r)
	}
	if why := podcontroller.WhyNot(p); why != "" {
		w.stop("%s", why)
		return nil
	}
	if said := w.events(ctx, p); said != "" {
		w.stop("the Pod has no CapacityRequest. The pod controller says: %s", said)
		return nil
	}
	w.stop("the Pod has no CapacityRequest: the pod controller is not running, excludes its namespace, or has not handled it yet")
	return nil
}

// events is what the pod controller last reported about a Pod; empty if it reported nothing, or if the caller may not read events.
func (w *walk) events(ctx context.Context, p *corev1.Pod) (said string) {
	list, err := w.core.Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
	if err != nil {
		return ""
	}
	var latest metav1.Time
	for _, e := range list.Items {
		if (e.ReportingController == podcontroller.Reporter || e.Source.Component == podcontroller.Reporter) && e.InvolvedObject.UID == p.UID && !e.LastTimestamp.Before(&latest) {
			latest, said = e.LastTimestamp, e.Message
		}
	}
	return strings.TrimSuffix(said, ".")
}

// scheduling is what the scheduler says.
func scheduling(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return ": " + c.Message
		}
	}
	return ""
}

// request walks from a CapacityRequest.
func (w *walk) request(ctx context.Context, s subject.Subject) error {
	r, err := w.dynamic.Resource(inclusters.Requests).Namespace(s.Scope).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no CapacityRequest %s/%s in this cluster", s.Scope, s.Name), Hint: "--kube-context names another cluster"}
	}
	if err != nil {
		return app.KubeError("reading the CapacityRequest", err)
	}
	return w.fromRequest(ctx, r)
}

func (w *walk) fromRequest(ctx context.Context, r *unstructured.Unstructured) error {
	phase, _, _ := unstructured.NestedString(r.Object, "status", "phase")
	if phase == "" {
		phase = string(v1alpha1.RequestPending)
	}
	w.note("CapacityRequest", "%s/%s, %s", r.GetNamespace(), r.GetName(), phase)
	raw, err := r.MarshalJSON()
	if err != nil {
		return err
	}
	rows, problem, err := operator.RowsOf(raw)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		w.stop("the request cannot be counted: %s", problem)
		return nil
	}
	if problem != "" {
		w.note("warning", "%s", problem)
	}
	return w.row(ctx, rows, phase == string(v1alpha1.RequestPending))
}

// row finds the need of the first of these rows that a shard has. Rows of equal shape have the same id in every cluster, so
// the cluster matters.
//
// Acknowledgements are paced, so a pending request may have its row already.
func (w *walk) row(ctx context.Context, rows []string, pending bool) error {
	f, shards, err := w.a.Shards(ctx)
	if err != nil {
		return err
	}
	type at struct{ cluster, row string }
	found, failed := fleet.Each(ctx, f, shards, "looking for the row", func(ctx context.Context, s fleet.Shard) (out []at, err error) {
		for _, row := range rows {
			stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{RowId: row, ClusterId: w.cluster}))
			if err != nil {
				return nil, err
			}
			for stream.Receive() {
				if n := stream.Msg().GetNeed(); n != nil {
					out = append(out, at{n.GetClusterId(), row})
				}
			}
			err = stream.Err()
			_ = stream.Close()
			if err != nil {
				return nil, err
			}
		}
		return out, nil
	})
	inCluster := map[string]string{} // the first of the rows that it has
	for _, row := range rows {
		for _, list := range found {
			if list == nil {
				continue
			}
			for _, x := range *list {
				if _, known := inCluster[x.cluster]; !known && x.row == row {
					inCluster[x.cluster] = row
				}
			}
		}
	}
	clusters := slices.Sorted(maps.Keys(inCluster))
	cluster := w.owner(clusters, pending)
	switch {
	case cluster == "" && pending:
		w.stop("no shard has received the request yet: the operator is not running, has no session, or its roll-up is held (`bigfleet get clusters`)")
		return failed
	case cluster == "" && len(clusters) > 1:
		return exit.Usagef("clusters %v have the same row and none has the name of the kube context: name the cluster with --cluster", clusters)
	case cluster == "":
		w.note("row", "%s", rows[0])
		w.stop("no shard has the row now: its roll-up is in transit or held (`bigfleet get clusters` shows the last one)")
		return failed
	}
	row := inCluster[cluster]
	w.note("row", "need/%s/%s", cluster, row)
	w.Target = &subject.Subject{Kind: subject.Need, Scope: cluster, Name: row}
	return nil
}

// owner is the one of the clusters with such a row that the request is in: the cluster of the kube context or of --cluster, else the only
// one. A request that is not acknowledged yet proves no row, so that the row of another cluster is none of its own.
func (w *walk) owner(clusters []string, pending bool) string {
	for _, id := range clusters {
		if id == w.context || id == w.cluster {
			return id
		}
	}
	if len(clusters) == 1 && !pending {
		return clusters[0]
	}
	return ""
}

// node walks from a Node.
func (w *walk) node(ctx context.Context, s subject.Subject) error {
	if w.core == nil {
		return w.gone(ctx, s, "no kubeconfig names a cluster; this is what the shards know")
	}
	n, err := w.core.Nodes().Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return w.gone(ctx, s, "this cluster has no such Node now")
	}
	if err != nil {
		return app.KubeError("reading the Node", err)
	}
	id := n.Annotations[machineLabel] // the whole id, where it is not a legal label
	if id == "" {
		id = n.Labels[machineLabel]
	}
	if id == "" {
		w.note("Node", "%s", s.Name)
		w.stop("the Node has no label %s: BigFleet did not create it and never changes it", machineLabel)
		return nil
	}
	w.note("Node", "%s is machine %s", s.Name, id)
	if why := n.Annotations[v1alpha1.AnnotationCordonReason]; why != "" && n.Spec.Unschedulable {
		by := ""
		if who := n.Annotations[v1alpha1.AnnotationCordonedBy]; who != "" {
			by = " by " + who
		}
		w.note("Node", "cordoned with `bigfleet machines`%s: %s", by, why)
	}
	w.Target = &subject.Subject{Kind: subject.Machine, Name: id}
	return nil
}

// gone finds the machine that was behind a Node which the cluster does not have.
func (w *walk) gone(ctx context.Context, s subject.Subject, why string) error {
	f, shards, err := w.a.Shards(ctx)
	if err != nil {
		return err
	}
	machines, _, err := history.MachinesOf(ctx, f, shards, s.Name)
	if err != nil {
		return err
	}
	records, _, err := history.Of(ctx, w.a, f, shards, machines[0])
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return &exit.Error{Code: exit.NotFound, Message: "there is no Node " + s.Name + " in this cluster, and no decision log names it", Hint: "--kube-context names another cluster; `bigfleet get machines -o wide` lists Nodes"}
	}
	w.note("Node", "%s: %s", s.Name, why)
	w.note("decision log", "%s was machine %s", s.Name, machines[0])
	w.Target = &subject.Subject{Kind: subject.Machine, Name: machines[0]}
	return nil
}
