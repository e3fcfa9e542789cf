package unplaced

import (
	"cmp"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

const (
	fullMax     = 64  // domains of a row on the wire
	fullRowsMax = 100 // rows that say which domains are full; each reads the labels of all Nodes and of the Pods of its namespace
)

// spreads answers under which values of the key of a hard spread kube-scheduler puts no more Pods of a kind. It looks once at all Pods.
type spreads struct {
	nodes  []*corev1.Node
	groups map[string]map[pods.LabelSet]map[string]int64 // by namespace and labels: Pods by node
}

func (w Watcher) spreads() *spreads {
	s := &spreads{nodes: w.AllNodes(), groups: map[string]map[pods.LabelSet]map[string]int64{}}
	w.Pods.All(func(p *pods.Pod) bool {
		if p.Node == "" || p.DeletionTimestamp != nil || p.Phase == corev1.PodSucceeded || p.Phase == corev1.PodFailed {
			return true
		}
		of := s.groups[p.Namespace]
		if of == nil {
			of = map[pods.LabelSet]map[string]int64{}
			s.groups[p.Namespace] = of
		}
		if of[p.LabelSet] == nil {
			of[p.LabelSet] = map[string]int64{}
		}
		of[p.LabelSet][p.Node]++
		return true
	})
	return s
}

// full lists the values of the first hard spread of a Pod under which it may not run now, sorted; none where that is not known. As for
// kube-scheduler, Nodes count that the Pod selects and that have all keys of its hard spreads.
func (s *spreads) full(p *pods.Pod, q *request.Spec) (values []string) {
	hard := slices.DeleteFunc(slices.Clone(q.Spread), func(t v1alpha1.TopologySpread) bool { return t.WhenUnsatisfiable != corev1.DoNotSchedule })
	slices.SortFunc(hard, func(a, b v1alpha1.TopologySpread) int {
		return cmp.Or(cmp.Compare(a.TopologyKey, b.TopologyKey), cmp.Compare(a.MaxSkew, b.MaxSkew), cmp.Compare(b.MinDomains, a.MinDomains))
	})
	if len(hard) == 0 || hard[0].LabelSelector == nil {
		return nil
	}
	first := hard[0]
	selector, err := metav1.LabelSelectorAsSelector(first.LabelSelector)
	if err != nil {
		return nil
	}
	on := map[string]int64{}
	for set, nodes := range s.groups[p.Namespace] {
		if selector.Matches(labels.Set(set.Labels())) {
			for node, n := range nodes {
				on[node] += n
			}
		}
	}
	run := map[string]int64{}
	for _, n := range s.nodes {
		lacks := func(t v1alpha1.TopologySpread) bool { return n.Labels[t.TopologyKey] == "" }
		if !slices.ContainsFunc(hard, lacks) && selects(q.Requirements, n.Labels) {
			run[n.Labels[first.TopologyKey]] += on[n.Name]
		}
	}
	low := int64(math.MaxInt64)
	for _, n := range run {
		low = min(low, n)
	}
	if len(run) < int(first.MinDomains) {
		low = 0
	}
	next := int64(0)
	if selector.Matches(labels.Set(p.LabelSet.Labels())) {
		next = 1
	}
	maps.DeleteFunc(run, func(_ string, n int64) bool { return n+next-low <= int64(first.MaxSkew) })
	if len(run) > fullMax {
		return nil
	}
	return slices.Sorted(maps.Keys(run))
}

// selects reports whether a Node has the labels that a request asks for. Comparisons of numbers are not read.
func selects(all []corev1.NodeSelectorRequirement, of map[string]string) bool {
	return !slices.ContainsFunc(all, func(r corev1.NodeSelectorRequirement) bool {
		v, has := of[r.Key]
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			return !has || !slices.Contains(r.Values, v)
		case corev1.NodeSelectorOpNotIn:
			return has && slices.Contains(r.Values, v)
		case corev1.NodeSelectorOpExists:
			return !has
		case corev1.NodeSelectorOpDoesNotExist:
			return has
		}
		return false
	})
}
