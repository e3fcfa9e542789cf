// Package crds compares the CustomResourceDefinitions of a cluster with those of this version, and applies these (OPS-7.6).
//
// It is what `bigfleet crds`, `bigfleet doctor` and `bigfleet up --install-crds` share. It never deletes a definition: with one,
// every request would go, and demand would be zero. Start at Compare.
package crds

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	definitions "github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
)

var resource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// fieldManager owns what Apply writes.
const fieldManager = "bigfleet"

// Change is one definition and how the cluster's differs from this version's.
type Change struct {
	Name    string // of the definition
	Missing bool
	Lines   []string // path: theirs -> ours; empty when nothing differs
	want    *unstructured.Unstructured
}

// Stale says whether applying it would change anything.
func (c Change) Stale() bool { return c.Missing || len(c.Lines) > 0 }

// Stale names the definitions that are missing or differ.
func Stale(all []Change) (out []string) {
	for _, c := range all {
		if c.Stale() {
			out = append(out, c.Name)
		}
	}
	return out
}

// Compare reads the cluster's definitions.
func Compare(ctx context.Context, client dynamic.Interface) ([]Change, error) {
	var out []Change
	for _, file := range definitions.All() {
		want := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(file.YAML, &want.Object); err != nil {
			return nil, fmt.Errorf("this binary contains a broken definition %s: %w", file.Name, err)
		}
		c := Change{Name: want.GetName(), want: want}
		got, err := client.Resource(resource).Get(ctx, want.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			c.Missing = true
		case err != nil:
			return nil, fmt.Errorf("reading definition %s: %w", want.GetName(), err)
		default:
			c.Lines = differ("spec", got.Object["spec"], want.Object["spec"])
		}
		out = append(out, c)
	}
	return out, nil
}

// Print writes changes for people.
func Print(w io.Writer, all []Change) {
	for _, c := range all {
		switch {
		case c.Missing:
			_, _ = fmt.Fprintf(w, "+ %s\n", c.Name)
		case len(c.Lines) == 0:
			_, _ = fmt.Fprintf(w, "  %s\n", c.Name)
		default:
			_, _ = fmt.Fprintf(w, "~ %s\n", c.Name)
		}
		for _, l := range c.Lines {
			_, _ = fmt.Fprintf(w, "    %s\n", l)
		}
	}
}

// establishedWithin bounds the wait for an API server to serve what was applied.
const establishedWithin = 30 * time.Second

// Apply writes what is stale, by server-side apply, and waits until it is served.
func Apply(ctx context.Context, client dynamic.Interface, all []Change) error {
	for _, c := range all {
		if !c.Stale() {
			continue
		}
		if _, err := client.Resource(resource).Apply(ctx, c.Name, c.want, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("applying definition %s: %w", c.Name, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, establishedWithin)
	defer cancel()
	for _, c := range all {
		for c.Stale() && !established(ctx, client, c.Name) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("definition %s was applied, but is not served yet after %s", c.Name, establishedWithin)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	return nil
}

func established(ctx context.Context, client dynamic.Interface, name string) bool {
	got, err := client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			return true
		}
	}
	return false
}

// differ lists what of want is not in got. What got has beyond want is not a difference: an API server adds defaults.
func differ(path string, got, want any) []string {
	switch want := want.(type) {
	case map[string]any:
		have, ok := got.(map[string]any)
		if !ok {
			return []string{path + ": absent here"}
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(want)) {
			out = append(out, differ(path+"."+k, have[k], want[k])...)
		}
		return out
	case []any:
		have, ok := got.([]any)
		if !ok || len(have) != len(want) {
			return []string{fmt.Sprintf("%s: %d entries here, %d in this version", path, len(have), len(want))}
		}
		var out []string
		for i, v := range want {
			out = append(out, differ(fmt.Sprintf("%s[%d]", path, i), have[i], v)...)
		}
		return out
	}
	if number, ok := asNumber(want); ok {
		if have, ok := asNumber(got); ok && have == number {
			return nil
		}
	} else if got == want || got == nil && zero(want) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v here, %v in this version", path, got, want)}
}

// zero says whether a scalar is one that API servers leave out.
func zero(v any) bool { return v == nil || v == "" || v == false }

func asNumber(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
