package peers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Term selects Pods whose domains count.
type Term struct {
	Key        string   // topology key
	namespaces []string // nil: all
	selector   labels.Selector
	label      string // that every selected Pod has; empty: none is known
}

// TermOf reads a co-location term, seen from a namespace. ok is false where the domains say nothing, or cannot be known: a host is one machine, and labels of
// namespaces are not read, except for the name that each has.
func TermOf(namespace string, c *v1alpha1.CoLocation) (t Term, ok bool) {
	if c == nil || c.LabelSelector == nil || c.TopologyKey == corev1.LabelHostname {
		return Term{}, false
	}
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return Term{}, false
	}
	t = Term{Key: c.TopologyKey, selector: selector}
	if t.namespaces, ok = namespacesOf(namespace, c); !ok {
		return Term{}, false
	}
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		if op := r.Operator(); (op == selection.Equals || op == selection.DoubleEquals || op == selection.In) && r.Values().Len() == 1 {
			t.label = pair(r.Key(), r.Values().UnsortedList()[0])
			break
		}
	}
	return t, true
}

// namespacesOf lists the namespaces of a term, nil for all. As in Kubernetes, the own one counts only if the term names none.
func namespacesOf(namespace string, c *v1alpha1.CoLocation) (list []string, ok bool) {
	s := c.NamespaceSelector
	switch {
	case s == nil && len(c.Namespaces) == 0:
		return []string{namespace}, true
	case s == nil:
		return c.Namespaces, true
	case len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return nil, true
	}
	list = slices.Clone(c.Namespaces)
	for key, name := range s.MatchLabels {
		if key != corev1.LabelMetadataName || len(s.MatchLabels) > 1 || len(s.MatchExpressions) > 0 {
			return nil, false
		}
		list = append(list, name)
	}
	for _, e := range s.MatchExpressions {
		if e.Key != corev1.LabelMetadataName || e.Operator != metav1.LabelSelectorOpIn || len(s.MatchExpressions) > 1 {
			return nil, false
		}
		list = append(list, e.Values...)
	}
	return list, true
}

func (t *Term) selects(namespace string, of labels.Set) bool {
	return (t.namespaces == nil || slices.Contains(t.namespaces, namespace)) && t.selector.Matches(of)
}

// pair is a label as one text.
func pair(key, value string) string { return key + "\x00" + value }
