package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// term picks the expressions of alternative terms, of the required node affinity or of a volume, that stand for them (OP-15.12,
// OP-15.13): of those of a pending Pod that do not merge the one whose turn it is. reduced says in words what was lost. ok is false
// for a pending Pod none of whose terms can be expressed.
func term(terms []corev1.NodeSelectorTerm, turn int, p *corev1.Pod, n *corev1.Node) (out []corev1.NodeSelectorRequirement, reduced []string, ok bool) {
	if len(terms) == 0 {
		return nil, nil, true
	}
	if merged, exact := merge(terms); exact {
		return merged, nil, true
	}
	if p.Spec.NodeName == "" {
		usable := slices.DeleteFunc(slices.Clone(terms), func(t corev1.NodeSelectorTerm) bool { return !expressible(t) })
		if len(usable) == 0 {
			return nil, []string{"No term of the node affinity can be expressed: CapacityRequests select by labels, not by fields"}, false
		}
		if merged, exact := merge(usable); exact {
			return merged, lost(len(terms)-len(usable), "cannot be expressed and %s left out"), true
		}
		i := turn % len(usable)
		at := slices.IndexFunc(terms, func(t corev1.NodeSelectorTerm) bool {
			return slices.EqualFunc(t.MatchExpressions, usable[i].MatchExpressions, equal)
		})
		return usable[i].MatchExpressions, []string{fmt.Sprintf("of %d alternative node affinity terms, number %d is used; while it gets no capacity, the next one is tried", len(terms), at+1)}, true
	}
	i, ok := satisfied(terms, n)
	if len(terms) > 1 {
		why := "which its node satisfies"
		if !ok {
			why = "because its node is not known or satisfies none"
		}
		reduced = []string{fmt.Sprintf("of %d alternative node affinity terms, number %d is used, %s", len(terms), i+1, why)}
	}
	for _, e := range terms[i].MatchExpressions {
		if known(e.Operator) {
			out = append(out, e)
			continue
		}
		reduced = append(reduced, fmt.Sprintf("%s %s cannot be expressed and is left out", e.Key, e.Operator))
	}
	return out, reduced, true
}

// turns is how many alternatives of a pending Pod's node affinity can only be tried one after the other: 0 if one stands for all.
func turns(p *corev1.Pod) int {
	terms := nodeTerms(p)
	if p.Spec.NodeName != "" || len(terms) < 2 {
		return 0
	}
	usable := slices.DeleteFunc(terms, func(t corev1.NodeSelectorTerm) bool { return !expressible(t) })
	if len(usable) < 2 {
		return 0
	}
	if _, exact := merge(usable); exact {
		return 0
	}
	return len(usable)
}

func lost(terms int, format string) []string {
	switch terms {
	case 0:
		return nil
	case 1:
		return []string{"1 alternative node affinity term " + fmt.Sprintf(format, "is")}
	}
	return []string{fmt.Sprintf("%d alternative node affinity terms ", terms) + fmt.Sprintf(format, "are")}
}

func known(op corev1.NodeSelectorOperator) bool {
	switch op {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
		corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return true
	}
	return false
}

// expressible says that a term of a pending Pod can be expressed whole.
func expressible(t corev1.NodeSelectorTerm) bool {
	return len(t.MatchFields) == 0 && !slices.ContainsFunc(t.MatchExpressions, func(e corev1.NodeSelectorRequirement) bool { return !known(e.Operator) })
}

// satisfied is the index of the first term that the node satisfies; 0 and false when the node is not known or satisfies
// none.
func satisfied(terms []corev1.NodeSelectorTerm, n *corev1.Node) (int, bool) {
	if n == nil {
		return 0, false
	}
	for i, t := range terms {
		s, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{t}})
		if err == nil && s.Match(n) {
			return i, true
		}
	}
	return 0, false
}

// merge joins alternative terms exactly: they may differ in the In values of one key only.
func merge(terms []corev1.NodeSelectorTerm) (out []corev1.NodeSelectorRequirement, exact bool) {
	for _, t := range terms {
		if !expressible(t) {
			return nil, false
		}
	}
	first := canonical(terms[0].MatchExpressions)
	differs := -1
	for _, t := range terms[1:] {
		other := canonical(t.MatchExpressions)
		if len(other) != len(first) {
			return nil, false
		}
		for i := range first {
			if equal(first[i], other[i]) {
				continue
			}
			if first[i].Key != other[i].Key || first[i].Operator != corev1.NodeSelectorOpIn || other[i].Operator != corev1.NodeSelectorOpIn ||
				differs >= 0 && differs != i {
				return nil, false
			}
			differs = i
		}
	}
	if differs >= 0 {
		for _, t := range terms[1:] {
			first[differs].Values = append(first[differs].Values, canonical(t.MatchExpressions)[differs].Values...)
		}
	}
	return first, true
}

// canonical sorts requirements and their values and removes repetitions. Contradictions stay as they are.
func canonical(in []corev1.NodeSelectorRequirement) []corev1.NodeSelectorRequirement {
	out := make([]corev1.NodeSelectorRequirement, 0, len(in))
	for _, r := range in {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		if len(r.Values) == 0 {
			r.Values = nil
		}
		out = append(out, r)
	}
	slices.SortFunc(out, compare)
	return slices.CompactFunc(out, equal)
}

func compare(a, b corev1.NodeSelectorRequirement) int {
	if c := strings.Compare(a.Key, b.Key); c != 0 {
		return c
	}
	if c := strings.Compare(string(a.Operator), string(b.Operator)); c != 0 {
		return c
	}
	return slices.Compare(a.Values, b.Values)
}

func equal(a, b corev1.NodeSelectorRequirement) bool { return compare(a, b) == 0 }
