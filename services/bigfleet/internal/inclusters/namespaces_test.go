package inclusters

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

// OPS-4.14: equal requests of several namespaces are one row, and each namespace is named with its number, the largest first and a few of
// them only. Rows of namespaces that are not asked for are left out, and a request that cannot be read hides no other.
func TestNamespacesOfRows(t *testing.T) {
	server := httptest.NewServer(kubesim.NewServer(kubesim.NewStore()))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	client, err := dynamic.NewForConfig(kubesim.ClientConfig(strings.TrimPrefix(server.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"web", "batch", "api", "nightly", "search"} {
		if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	made := 0
	asks := func(namespace string, n int, spec map[string]any) {
		for range n {
			made++
			if _, err := client.Resource(Requests).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": v1alpha1.GroupVersion().String(), "kind": "CapacityRequest",
				"metadata": map[string]any{"name": fmt.Sprintf("r%d", made), "namespace": namespace}, "spec": spec,
			}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cores := func(n string) map[string]any { return map[string]any{"resources": map[string]any{"cpu": n}} }
	asks("web", 3, cores("1"))
	asks("web", 1, map[string]any{"priority": "no number"})
	asks("batch", 1, cores("1"))
	asks("api", 1, cores("1"))
	asks("nightly", 2, cores("1"))
	asks("search", 1, cores("1"))
	asks("search", 1, cores("7"))

	row := func(cpu string) string {
		ids, _, err := operator.RowsOf([]byte(`{"metadata":{"name":"x","namespace":"y"},"spec":{"resources":{"cpu":"` + cpu + `"}}}`))
		if err != nil || len(ids) == 0 {
			t.Fatal(ids, err)
		}
		return ids[0] // its own; the other one is that of all small ones
	}
	for _, c := range []struct {
		of         []string
		one, seven string
	}{
		{nil, "web (3), nightly (2), api (1), 2 more", "search (1)"},
		{[]string{"search"}, "search (1)", "search (1)"},
		{[]string{"web", "batch"}, "web (3), batch (1)", ""},
		{[]string{"unknown"}, "", ""},
	} {
		rows, whole, err := RowsOf(t.Context(), client, c.of)
		if err != nil || !whole {
			t.Fatalf("%v: whole %v, %v", c.of, whole, err)
		}
		if one, seven := rows.Namespaces(row("1")), rows.Namespaces(row("7")); one != c.one || seven != c.seven {
			t.Errorf("of namespaces %v: %q and %q, want %q and %q", c.of, one, seven, c.one, c.seven)
		}
	}
}
