package inclusters

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/bigfleet-dev/bigfleet/services/operator"
)

// requestsMax bounds the CapacityRequests that one question reads.
const requestsMax = 100_000

// Rows says which namespaces request each row of a cluster's demand, and with how many CapacityRequests.
type Rows map[string]map[string]int

// RowsOf reads the CapacityRequests of some namespaces, or of all when there are none. whole is false if there are more than it reads.
func RowsOf(ctx context.Context, d dynamic.Interface, namespaces []string) (rows Rows, whole bool, err error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	rows, left := Rows{}, requestsMax
	for _, ns := range namespaces {
		options := metav1.ListOptions{Limit: pageSize}
		for {
			list, err := d.Resource(Requests).Namespace(ns).List(ctx, options)
			if err != nil {
				return nil, false, err
			}
			for i := range list.Items {
				if left--; left < 0 {
					return rows, false, nil
				}
				raw, err := list.Items[i].MarshalJSON()
				if err != nil {
					return nil, false, err
				}
				ids, _, err := operator.RowsOf(raw)
				if err != nil {
					continue // the operator cannot read it either, and says so in its status
				}
				for _, id := range ids {
					if rows[id] == nil {
						rows[id] = map[string]int{}
					}
					rows[id][list.Items[i].GetNamespace()]++
				}
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	return rows, true, nil
}

// Teams says which team each namespace of a cluster belongs to, by a label that names it; "" where a namespace has none.
func Teams(ctx context.Context, c typedcorev1.NamespacesGetter, label string) (map[string]string, error) {
	out, options := map[string]string{}, metav1.ListOptions{Limit: pageSize}
	for {
		list, err := c.Namespaces().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			out[list.Items[i].Name] = list.Items[i].Labels[label]
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// Team is the team of one namespace, by a label that names it, and whether the namespace exists. A caller who may not read it gets neither.
func Team(ctx context.Context, c typedcorev1.NamespacesGetter, label, namespace string) (team string, exists bool) {
	got, err := c.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return "", !apierrors.IsNotFound(err)
	}
	return got.Labels[label], true
}

// Requester is a namespace that requests a row.
type Requester struct {
	Namespace string `json:"namespace"`
	Requests  int    `json:"requests"` // CapacityRequests of it that the row counts
	Team      string `json:"team,omitempty"`
}

// Requesters are the namespaces that request a row, the largest first.
func (r Rows) Requesters(row string) []Requester {
	out := make([]Requester, 0, len(r[row]))
	for ns, n := range r[row] {
		out = append(out, Requester{Namespace: ns, Requests: n})
	}
	slices.SortFunc(out, func(a, b Requester) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), strings.Compare(a.Namespace, b.Namespace))
	})
	return out
}

// namespacesShown is how many namespaces of a row are named.
const namespacesShown = 3

// Namespaces names those that request a row, the largest first: `web (12), batch (3), 4 more`.
func (r Rows) Namespaces(row string) string {
	all := r.Requesters(row)
	var out []string
	for _, of := range all[:min(len(all), namespacesShown)] {
		out = append(out, fmt.Sprintf("%s (%d)", of.Namespace, of.Requests))
	}
	if more := len(all) - namespacesShown; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
