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

// TeamNamespaces are the namespaces of a cluster with this label.
func TeamNamespaces(ctx context.Context, c typedcorev1.NamespacesGetter, label, team string) (out []string, err error) {
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: label + "=" + team}
	for {
		list, err := c.Namespaces().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// NamespaceExists reports whether a cluster has a namespace. Who may not read it is not told that it is missing.
func NamespaceExists(ctx context.Context, c typedcorev1.NamespacesGetter, name string) bool {
	_, err := c.Namespaces().Get(ctx, name, metav1.GetOptions{})
	return !apierrors.IsNotFound(err)
}

// namespacesShown is how many namespaces of a row are named.
const namespacesShown = 3

// Namespaces names those that request a row, the largest first: `web (12), batch (3), 4 more`.
func (r Rows) Namespaces(row string) string {
	var names []string
	for ns := range r[row] {
		names = append(names, ns)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(r[row][b], r[row][a]), strings.Compare(a, b))
	})
	more := len(names) - namespacesShown
	var out []string
	for _, ns := range names[:min(len(names), namespacesShown)] {
		out = append(out, fmt.Sprintf("%s (%d)", ns, r[row][ns]))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
