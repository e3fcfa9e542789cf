package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

const (
	preferencesMax     = 8  // that count
	preferenceTermsMax = 16 // requirements of one
)

// preferences are the preferred node affinity terms of a Pod that say something about machines that do not exist yet (OP-15.31), in one order.
// Those left out are no matter of capacity: a term by field or by hostname names a node that is there.
func preferences(p *corev1.Pod) (out []corev1.PreferredSchedulingTerm) {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil {
		return nil
	}
	for _, t := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
		terms := canonical(t.Preference.MatchExpressions)
		if len(terms) == 0 || len(terms) > preferenceTermsMax || !expressible(t.Preference) ||
			slices.ContainsFunc(terms, func(r corev1.NodeSelectorRequirement) bool { return r.Key == corev1.LabelHostname }) {
			continue
		}
		out = append(out, corev1.PreferredSchedulingTerm{Weight: t.Weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: terms}})
	}
	slices.SortFunc(out, func(a, b corev1.PreferredSchedulingTerm) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), slices.CompareFunc(a.Preference.MatchExpressions, b.Preference.MatchExpressions, compare))
	})
	return out[:min(len(out), preferencesMax)]
}
