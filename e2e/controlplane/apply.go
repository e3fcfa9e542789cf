package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

const (
	// fieldManager owns the fields of what ApplyYAML writes.
	fieldManager = "bigfleet-e2e"

	applyTimeout = 2 * time.Minute // for a new CRD to be served
	applyPoll    = 20 * time.Millisecond
)

// ApplyYAML applies every document of manifest as the administrator, by server-side apply: create or update, and take
// over fields that others own. Custom resource definitions and namespaces go first whatever their place, and it
// returns when each definition is served. Objects without a namespace go to "default".
func (cp *ControlPlane) ApplyYAML(ctx context.Context, manifest []byte) error {
	objects, err := parseManifest(manifest)
	if err != nil {
		return err
	}
	return cp.apply(ctx, objects)
}

// ApplyFile is ApplyYAML of a file.
func (cp *ControlPlane) ApplyFile(ctx context.Context, path string) error {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := cp.ApplyYAML(ctx, manifest); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ApplyDir applies all .yaml, .yml and .json files in dir and below it, in the order of their paths except that
// definitions and namespaces go first.
func (cp *ControlPlane) ApplyDir(ctx context.Context, dir string) error {
	var objects []*unstructured.Unstructured
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		manifest, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := parseManifest(manifest)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, parsed...)
		return nil
	})
	if err != nil {
		return err
	}
	if len(objects) == 0 {
		return fmt.Errorf("%s holds no manifest", dir)
	}
	return cp.apply(ctx, objects)
}

// parseManifest reads YAML or JSON documents; empty ones are skipped and lists are flattened.
func parseManifest(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for n := 1; ; n++ {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", n, err)
		case len(object.Object) == 0:
			continue
		case object.GetKind() == "" || object.GetAPIVersion() == "":
			return nil, fmt.Errorf("document %d has no kind or no apiVersion", n)
		case object.IsList():
			err = object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("document %d: %w", n, err)
			}
		default:
			objects = append(objects, object)
		}
	}
}

func (cp *ControlPlane) apply(ctx context.Context, objects []*unstructured.Unstructured) error {
	a, err := cp.newApplier()
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(x, y *unstructured.Unstructured) int { return rank(x) - rank(y) })
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), strings.TrimPrefix(object.GetNamespace()+"/"+object.GetName(), "/"), err)
		}
	}
	return nil
}

// rank orders what others depend on first.
func rank(object *unstructured.Unstructured) int {
	switch object.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: crdGroup, Kind: "CustomResourceDefinition"}:
		return 0
	case schema.GroupKind{Kind: "Namespace"}:
		return 1
	default:
		return 2
	}
}

const crdGroup = "apiextensions.k8s.io"

// applier is one call of apply.
type applier struct {
	objects dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func (cp *ControlPlane) newApplier() (*applier, error) {
	objects, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		return nil, err
	}
	found, err := discovery.NewDiscoveryClientForConfig(cp.RESTConfig())
	if err != nil {
		return nil, err
	}
	return &applier{objects, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(found))}, nil
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resource(ctx, object)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	applied, err := resource.Apply(ctx, object.GetName(), object, options)
	if err != nil {
		return err
	}
	if rank(applied) != 0 {
		return nil
	}
	return wait.PollUntilContextTimeout(ctx, applyPoll, applyTimeout, true, func(ctx context.Context) (bool, error) {
		crd, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		return err == nil && established(crd), err
	})
}

// resource finds the endpoint of an object. The discovery of a kind whose definition is new lags behind its
// Established condition, so an unknown kind is asked for again.
func (a *applier) resource(ctx context.Context, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	var mapping *meta.RESTMapping
	var unknown error
	err := wait.PollUntilContextTimeout(ctx, applyPoll, applyTimeout, true, func(context.Context) (bool, error) {
		mapping, unknown = a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if isKindUnknown(unknown) && strings.Contains(gvk.Group, ".") && !strings.HasSuffix(gvk.Group, ".k8s.io") {
			a.mapper.Reset()
			return false, nil
		}
		return true, unknown
	})
	if err != nil {
		return nil, errors.Join(unknown, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return a.objects.Resource(mapping.Resource), nil
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return a.objects.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

func isKindUnknown(err error) bool {
	_, groupFailed := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	return meta.IsNoMatchError(err) || groupFailed || apierrors.IsNotFound(err)
}

// established reads the condition by which a definition says that its kind is served.
func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}
