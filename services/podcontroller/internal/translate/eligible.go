package translate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Eligibility says whether a Pod gets a request, or why not.
type Eligibility int

const (
	Counted      Eligibility = iota
	Terminal                 // Succeeded or Failed: it uses nothing (OP-15.7)
	Leaving                  // being deleted: its replacement counts already (OP-15.8)
	Excluded                 // OP-15.9
	Foreign                  // bound to a node that no machine of BigFleet stands behind (OP-15.10)
	Unsupported              // pending, and no term of its node affinity can be expressed (OP-15.13), or no machine would help it
	Undetermined             // what its resource claims ask for is not known yet (OP-15.32): a request that it has stays
)

// graceLong is the deletion grace in seconds beyond which a leaving Pod keeps its request until it is gone (OP-15.8).
const graceLong = 600

// Node is what translation needs of the Node that a Pod is bound to.
type Node struct {
	Object    *corev1.Node // nil: not bound, or not known
	Unmanaged bool         // it matches the selector of nodes that are not BigFleet's
	Foreign   bool         // no machine of BigFleet stands behind it
}

// decideAfter is how long a pending Pod waits for the scheduler's word: not every scheduler writes the condition.
const decideAfter = 30 * time.Second

// Undecided reports whether a pending Pod may still fit on a node of the cluster's own, and for how long to wait at most.
func Undecided(p *corev1.Pod, now time.Time) (left time.Duration, undecided bool) {
	if p.Spec.NodeName != "" {
		return 0, false
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return 0, false
		}
	}
	left = p.CreationTimestamp.Add(decideAfter).Sub(now)
	return left, left > 0
}

// Eligible judges everything but the affinity of a Pod; Spec decides about that.
func Eligible(p *corev1.Pod, n Node, excludedNamespace bool) Eligibility {
	switch {
	case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		return Terminal
	case p.DeletionTimestamp != nil && (p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds <= graceLong):
		return Leaving
	case excludedNamespace, n.Unmanaged, p.Annotations[v1alpha1.AnnotationIgnore] == "true", len(p.Spec.SchedulingGates) > 0, static(p), ofDaemonSet(p):
		return Excluded
	case p.Spec.NodeName == "" && pinned(p):
		return Excluded
	case n.Foreign:
		return Foreign
	}
	return Counted
}

// static says that a kubelet made the Pod by itself: no scheduler places it.
func static(p *corev1.Pod) bool {
	if _, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	source, ok := p.Annotations["kubernetes.io/config.source"]
	return ok && source != "api"
}

// ofDaemonSet says that a DaemonSet controls the Pod; what those take of a node is counted as overhead (OP-5.20).
func ofDaemonSet(p *corev1.Pod) bool {
	for _, o := range p.OwnerReferences {
		if o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller {
			return true
		}
	}
	return false
}

// pinned says that a pending Pod may run only on nodes that it names: no other machine could help it.
func pinned(p *corev1.Pod) bool {
	terms := nodeTerms(p)
	for _, t := range terms {
		if len(t.MatchFields) == 0 {
			return false
		}
	}
	return len(terms) > 0
}

// nodeTerms are the terms of the required node affinity. An empty term selects nothing and is left out.
func nodeTerms(p *corev1.Pod) (out []corev1.NodeSelectorTerm) {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(t.MatchExpressions) > 0 || len(t.MatchFields) > 0 {
			out = append(out, t)
		}
	}
	return out
}
