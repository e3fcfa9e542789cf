package simcluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corehelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// refuses says in kube-scheduler's words why a Node cannot take the Pod, or nothing.
func (s *scheduler) refuses(n *corev1.Node, p *corev1.Pod, want resources) string {
	if n.Spec.Unschedulable {
		return "node(s) were unschedulable"
	}
	if !ready(n) {
		return "node(s) were not ready"
	}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n); err != nil || !ok {
		return "node(s) didn't match Pod's node affinity/selector"
	}
	taint, bad := corehelper.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if bad {
		return "node(s) had untolerated taint {" + taint.Key + ": " + taint.Value + "}"
	}
	for r, v := range want {
		if s.free[n.Name][r] < v {
			return "Insufficient " + string(r)
		}
	}
	if !s.nearPeers(n, p) {
		return "node(s) didn't match pod affinity rules"
	}
	if !s.spreads(n, p) {
		return "node(s) didn't match pod topology spread constraints"
	}
	return ""
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// nearPeers holds required Pod affinity: a peer runs in the Node's domain, or there is no peer yet and the Pod is its own.
func (s *scheduler) nearPeers(n *corev1.Node, p *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAffinity == nil {
		return true
	}
	for _, term := range p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		domain, ok := n.Labels[term.TopologyKey]
		if !ok {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err != nil {
			return false
		}
		counts, any := s.peers(p.Namespace, selector, term.TopologyKey)
		if counts[domain] == 0 && (any || !selector.Matches(labels.Set(p.Labels))) {
			return false
		}
	}
	return true
}

// spreads holds hard topology spread.
func (s *scheduler) spreads(n *corev1.Node, p *corev1.Pod) bool {
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		domain, ok := n.Labels[c.TopologyKey]
		if !ok {
			return false
		}
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return false
		}
		counts, _ := s.peers(p.Namespace, selector, c.TopologyKey)
		lowest := -1
		for _, other := range s.byNode {
			if d, ok := other.Labels[c.TopologyKey]; ok && ready(other) && !other.Spec.Unschedulable && (lowest < 0 || counts[d] < lowest) {
				lowest = counts[d]
			}
		}
		if counts[domain]+1-max(lowest, 0) > int(c.MaxSkew) {
			return false
		}
	}
	return true
}

// peers counts bound Pods that a selector matches, by domain.
func (s *scheduler) peers(namespace string, selector labels.Selector, topologyKey string) (counts map[string]int, any bool) {
	counts = map[string]int{}
	for _, p := range s.all {
		n := s.byNode[p.Spec.NodeName]
		if n == nil || p.Namespace != namespace || p.DeletionTimestamp != nil || !selector.Matches(labels.Set(p.Labels)) {
			continue
		}
		any = true
		if d, ok := n.Labels[topologyKey]; ok {
			counts[d]++
		}
	}
	return counts, any
}
