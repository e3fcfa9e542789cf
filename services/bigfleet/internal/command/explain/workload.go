package explain

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// Bounds of an answer about a workload: waiting Pods that are traced, and causes that are printed.
const (
	tracedPods    = 50
	printedCauses = 5
)

var workloads = map[subject.Kind]schema.GroupVersionResource{
	subject.Deployment:  {Group: "apps", Version: "v1", Resource: "deployments"},
	subject.StatefulSet: {Group: "apps", Version: "v1", Resource: "statefulsets"},
	subject.Job:         {Group: "batch", Version: "v1", Resource: "jobs"},
}

// cause is what some waiting Pods of a workload have in common: the need they belong to, or where their traces end.
type cause struct {
	walk *walk
	pods int
}

// explainWorkload explains the Pods of a workload that wait, those of equal cause once.
func explainWorkload(ctx context.Context, a *app.App, s subject.Subject, cluster string, candidates bool) error {
	w, err := newWalk(a, cluster)
	if err != nil {
		return err
	}
	pods, err := w.podsOf(ctx, s)
	if err != nil {
		return err
	}
	var waiting []*corev1.Pod
	running := 0
	for i := range pods {
		switch p := &pods[i]; {
		case p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded:
			running++
		case p.Spec.NodeName == "" && p.DeletionTimestamp == nil:
			waiting = append(waiting, p)
		}
	}
	causes, err := w.causes(ctx, s, waiting[:min(len(waiting), tracedPods)])
	if err != nil {
		return err
	}
	if a.Format.ForPeople() {
		_, _ = fmt.Fprintln(a.Out, output.Line("%s has %s: %d run, %d wait for a Node, %d on a Node do not run yet.", s, output.Count(len(pods), "Pod"), running, len(waiting), len(pods)-running-len(waiting)))
		switch {
		case len(pods) == 0:
			_, _ = fmt.Fprintln(a.Out, "It requests none, or its controller could not create them: `kubectl describe` shows its events.")
		case len(waiting) > tracedPods:
			_, _ = fmt.Fprintln(a.Out, output.Line("The first %d waiting Pods are explained, %d more %s not.", tracedPods, len(waiting)-tracedPods, output.Are(len(waiting)-tracedPods, "Pod")))
		}
	}
	var objects []any
	for i, c := range causes {
		if i == printedCauses && a.Format.ForPeople() {
			_, _ = fmt.Fprintln(a.Out, output.Line("\n%s more: `bigfleet get needs --unmet` lists all.", output.Count(len(causes)-i, "cause")))
			break
		}
		var got *bigfleetv1alpha1.ExplainResponse
		if c.walk.Target != nil {
			if got, err = ask(ctx, a, *c.walk.Target); err != nil {
				return err
			}
		}
		if !a.Format.ForPeople() {
			object, err := c.walk.object(got)
			if err != nil {
				return err
			}
			object["pods"] = c.pods
			objects = append(objects, object)
			continue
		}
		c.say(a, got, candidates)
	}
	if a.Format.ForPeople() {
		return nil
	}
	return printed(a, map[string]any{"subject": s.String(), "pods": len(pods), "running": running, "waiting": len(waiting), "explained": min(len(waiting), tracedPods), "causes": objects})
}

func (c *cause) say(a *app.App, got *bigfleetv1alpha1.ExplainResponse, candidates bool) {
	like := ", for example"
	if c.pods == 1 {
		like = ""
	}
	_, _ = fmt.Fprintln(a.Out, output.Line("\n%s%s:", output.Count(c.pods, "waiting Pod"), like))
	for _, step := range c.walk.Steps {
		_, _ = fmt.Fprintf(a.Out, "%-16s %s\n", step.At, step.Message)
	}
	if got == nil {
		_, _ = fmt.Fprintf(a.Out, "The trace ends here: %s.\n", c.walk.Stopped)
		return
	}
	say(a, a.Out, *c.walk.Target, got, candidates)
}

// causes traces Pods and joins those that come to the same end. Pods of one workload are alike, so there are few.
func (w *walk) causes(ctx context.Context, s subject.Subject, pods []*corev1.Pod) ([]*cause, error) {
	ends := map[string]*cause{}
	var order []string
	for _, p := range pods {
		one := &walk{a: w.a, cluster: w.cluster, context: w.context, core: w.core, dynamic: w.dynamic}
		one.note("Pod", "%s/%s", s.Scope, p.Name)
		err := one.pod(ctx, subject.Subject{Kind: subject.Pod, Scope: s.Scope, Name: p.Name})
		if exit.CodeOf(err) == exit.NotFound {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		end := one.Stopped
		if one.Target != nil {
			end = one.Target.String()
		}
		if ends[end] == nil {
			ends[end] = &cause{walk: one}
			order = append(order, end)
		}
		ends[end].pods++
	}
	out := make([]*cause, len(order))
	for i, end := range order {
		out[i] = ends[end]
	}
	return out, nil
}

// podsOf lists the Pods that a workload selects, by name.
func (w *walk) podsOf(ctx context.Context, s subject.Subject) ([]corev1.Pod, error) {
	o, err := w.dynamic.Resource(workloads[s.Kind]).Namespace(s.Scope).Get(ctx, s.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no %s %s/%s in this cluster", s.Kind, s.Scope, s.Name), Hint: "--kube-context names another cluster, and -n another namespace"}
	}
	if err != nil {
		return nil, app.KubeError("reading "+s.String(), err)
	}
	raw, _, _ := unstructured.NestedMap(o.Object, "spec", "selector")
	var selects metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &selects); err != nil {
		return nil, exit.Usagef("the selector of %s cannot be read: %v", s, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&selects)
	if err != nil {
		return nil, exit.Usagef("the selector of %s cannot be read: %v", s, err)
	}
	list, err := w.core.Pods(s.Scope).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, app.KubeError("listing the Pods of "+s.String(), err)
	}
	byName := map[string]corev1.Pod{}
	for _, p := range list.Items {
		byName[p.Name] = p
	}
	out := make([]corev1.Pod, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, byName[name])
	}
	return out, nil
}
