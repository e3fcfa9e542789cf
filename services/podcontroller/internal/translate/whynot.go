package translate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// WhyNot says why a Pod that has no node requests nothing, as far as the Pod itself shows it; empty if nothing in it prevents a request.
// Eligible decides; a test compares both.
func WhyNot(p *corev1.Pod) string {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return "the Pod has ended, so it requests nothing"
	case p.DeletionTimestamp != nil && (p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds <= graceLong):
		return "the Pod is being deleted, so it requests nothing; its replacement has a request of its own"
	case len(p.Spec.SchedulingGates) > 0:
		gates := make([]string, len(p.Spec.SchedulingGates))
		for i, g := range p.Spec.SchedulingGates {
			gates[i] = g.Name
		}
		return "the Pod has scheduling gates (" + strings.Join(gates, ", ") + "): it requests capacity when their owners have removed them"
	case p.Annotations[v1alpha1.AnnotationIgnore] == "true":
		return "the annotation " + v1alpha1.AnnotationIgnore + "=true of the Pod excludes it from BigFleet"
	case static(p):
		return "a kubelet runs this Pod without the scheduler, so it requests nothing"
	case ofDaemonSet(p):
		return "the Pod belongs to a DaemonSet; BigFleet counts such Pods as a part of every node and buys nothing for them"
	case pinned(p):
		return "the Pod may run only on the nodes that it names, so no new machine would help it"
	}
	return ""
}
