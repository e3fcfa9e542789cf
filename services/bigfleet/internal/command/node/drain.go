package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// evictEvery is how often Pods that a budget holds back are tried again.
const evictEvery = 2 * time.Second

// drain cordons all Nodes first, so that no Pod goes from one to the next, and evicts until nothing is left.
func drain(ctx context.Context, a *app.App, core typedcorev1.CoreV1Interface, nodes []corev1.Node, by choice) error {
	if a.DryRun {
		return foretell(ctx, a, core, nodes)
	}
	t := &telling{a: a, who: by.who}
	if err := mark(ctx, t, core, nodes, true); err != nil {
		return err
	}
	said := map[string]string{}
	for end := a.Now().Add(by.within); ; {
		left := 0
		for i := range nodes {
			n := &nodes[i]
			state, pods, err := empty(ctx, core, n.Name)
			if err != nil {
				return err
			}
			left += pods
			if said[n.Name] != state { // progress: only what changed
				said[n.Name] = state
				if err := t.node(n, state, pods); err != nil {
					return err
				}
			}
		}
		if left == 0 {
			return t.end()
		}
		if a.Now().After(end) {
			return cmp.Or(t.end(), error(&exit.Error{Code: exit.Problems, Reason: "pods_left", Message: fmt.Sprintf("%s left after %s; the Nodes stay cordoned", output.Count(left, "Pod"), by.within),
				Hint: "`kubectl get poddisruptionbudgets --all-namespaces` shows which budgets allow no disruption; `bigfleet machines uncordon` undoes the cordon"}))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(evictEvery):
		}
	}
}

// empty evicts what may leave a Node now, and says what is left.
func empty(ctx context.Context, core typedcorev1.CoreV1Interface, node string) (state string, left int, err error) {
	pods, err := movable(ctx, core, node)
	if err != nil {
		return "", 0, err
	}
	blocked, why := 0, ""
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue // on its way
		}
		err := core.Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}})
		switch {
		case err == nil, apierrors.IsNotFound(err):
		case apierrors.IsTooManyRequests(err):
			blocked++
			why = p.Namespace + "/" + p.Name + ": " + cause(err)
		default:
			return "", 0, app.KubeError("evicting Pod "+p.Namespace+"/"+p.Name, err)
		}
	}
	switch {
	case len(pods) == 0:
		return "drained", 0, nil
	case blocked > 0:
		return fmt.Sprintf("%s left, %d blocked by a disruption budget, for example %s", output.Count(len(pods), "Pod"), blocked, why), len(pods), nil
	}
	return output.Count(len(pods), "Pod") + " left", len(pods), nil
}

// cause is the budget that an API server names.
func cause(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, c := range status.Status().Details.Causes {
			if c.Type == policyv1.DisruptionBudgetCause {
				return c.Message
			}
		}
	}
	return err.Error()
}

// movable are the Pods of a Node that a drain has to evict: those of DaemonSets and static Pods come back at once, and others have ended.
func movable(ctx context.Context, core typedcorev1.CoreV1Interface, node string) (out []corev1.Pod, err error) {
	list, err := core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, app.KubeError("listing the Pods of Node "+node, err)
	}
	for _, p := range list.Items {
		owner := metav1.GetControllerOf(&p)
		if _, static := p.Annotations[corev1.MirrorPodAnnotationKey]; static || owner != nil && owner.Kind == "DaemonSet" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		out = append(out, p)
	}
	return out, nil
}

// foretell says what a drain would evict.
func foretell(ctx context.Context, a *app.App, core typedcorev1.CoreV1Interface, nodes []corev1.Node) error {
	l := output.List{Columns: []output.Column{{Head: "NODE"}, {Head: "ZONE"}, {Head: "TYPE"}, {Head: "PODS TO EVICT"}}}
	for _, n := range nodes {
		pods, err := movable(ctx, core, n.Name)
		if err != nil {
			return err
		}
		l.Rows = append(l.Rows, []string{n.Name, output.Dash(n.Labels[corev1.LabelTopologyZone]), output.Dash(n.Labels[corev1.LabelInstanceTypeStable]), fmt.Sprint(len(pods))})
		l.Names = append(l.Names, "node/"+n.Name)
		l.Objects = append(l.Objects, item{n.Name, n.Labels[machineLabel], n.Labels[corev1.LabelTopologyZone], "would be drained", len(pods)})
	}
	if a.Format.ForPeople() {
		a.Notef("dry run: nothing is changed")
	}
	return a.Format.Write(a.Out, l)
}
