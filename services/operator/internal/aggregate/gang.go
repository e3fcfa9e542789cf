package aggregate

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// groupPrefix names the derivation of group names. Another derivation needs another prefix, because a gang's machines
// carry the name for life (OP-5.15).
const (
	groupPrefix = "g1-" // of a co-location term
	namedPrefix = "n1-" // of a gang that its Pods name
	peersPrefix = "p1-" // of the Pods that a spread counts together
)

// Group is the name of the gang that a co-location term forms, seen from a namespace. Equal terms give equal names in
// every cluster and process; the name leaks no label (OP-5.14, OP-5.15).
func Group(namespace string, c *v1alpha1.CoLocation) string {
	var room [512]byte
	h := sha256.Sum256(term(room[:0], namespace, c))
	out := append(room[:0], groupPrefix...)
	return string(hex.AppendEncode(out, h[:16]))
}

// spreadGroup is the name of the Pods that a spread counts together, seen from a namespace, or "" if no constraint selects any (OP-5.28).
func spreadGroup(namespace string, list []v1alpha1.TopologySpread) string {
	var b []byte
	for _, s := range list {
		if s.LabelSelector != nil && s.WhenUnsatisfiable == corev1.DoNotSchedule {
			b = selector(append(strconv.AppendQuote(append(b, "\nover "...), s.TopologyKey), " pods where "...), s.LabelSelector)
		}
	}
	if b == nil {
		return ""
	}
	h := sha256.Sum256(append(strconv.AppendQuote(nil, namespace), b...))
	return peersPrefix + hex.EncodeToString(h[:16])
}

// gangGroup is the name of a gang that its Pods name, seen from a namespace. within is the group that a co-location term of its Pods gives
// them, or "" (OP-5.24).
func gangGroup(within, namespace, name string) string {
	h := sha256.Sum256(strconv.AppendQuote(strconv.AppendQuote(strconv.AppendQuote(nil, within), namespace), name))
	return namedPrefix + hex.EncodeToString(h[:16])
}

// term is the canonical text of a co-location term. As in Kubernetes, the own namespace counts only if the term names
// no namespaces at all.
func term(b []byte, namespace string, c *v1alpha1.CoLocation) []byte {
	b = strconv.AppendQuote(append(b, "topology "...), c.TopologyKey)
	b = append(b, "\nnamespaces"...)
	if len(c.Namespaces) == 0 && c.NamespaceSelector == nil {
		b = strconv.AppendQuote(append(b, ' '), namespace)
	}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(c.Namespaces))) {
		b = strconv.AppendQuote(append(b, ' '), n)
	}
	b = selector(append(b, "\nnamespaces where "...), c.NamespaceSelector)
	return selector(append(b, "\npods where "...), c.LabelSelector)
}

func selector(b []byte, s *metav1.LabelSelector) []byte {
	if s == nil {
		return append(b, "nothing"...)
	}
	var few [4]string
	keys := slices.AppendSeq(few[:0], maps.Keys(s.MatchLabels))
	slices.Sort(keys)
	for _, k := range keys {
		b = strconv.AppendQuote(b, k)
		b = strconv.AppendQuote(append(b, " = "...), s.MatchLabels[k])
		b = append(b, "; "...)
	}
	var expressions []string
	for _, e := range s.MatchExpressions {
		p := strconv.Quote(e.Key) + " " + strconv.Quote(string(e.Operator))
		for _, v := range slices.Compact(slices.Sorted(slices.Values(e.Values))) {
			p += " " + strconv.Quote(v)
		}
		expressions = append(expressions, p)
	}
	slices.Sort(expressions)
	for _, p := range slices.Compact(expressions) {
		b = append(append(b, p...), "; "...)
	}
	return append(b, "all"...)
}
