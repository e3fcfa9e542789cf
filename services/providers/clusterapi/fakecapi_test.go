package clusterapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fakeCAPI is a management cluster in memory: it plays Cluster API's controllers for Machines, and an infrastructure that
// launches at once.
type fakeCAPI struct {
	client *fake.FakeDynamicClient
	mapper meta.RESTMapper

	mu     sync.Mutex
	refuse string // what the infrastructure says instead of launching
}

var (
	infraMachines  = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakemachines"}
	infraTemplates = schema.GroupVersionResource{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Resource: "fakemachinetemplates"}
)

const fakeNamespace = "fleet"

// fakeSettings names clusters a and b by the default rule, and one template for all instance types.
func fakeSettings(types ...string) settings {
	s := settings{Namespace: fakeNamespace, Templates: map[string]template{}}
	for _, t := range types {
		s.Templates[t] = template{APIVersion: infraTemplates.GroupVersion().String(), Kind: "FakeMachineTemplate", Name: "shape"}
	}
	return s
}

func newFakeCAPI(ctx context.Context, clusterNames ...string) *fakeCAPI {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(infraMachines.GroupVersion().WithKind("FakeMachine"), meta.RESTScopeNamespace)
	mapper.Add(infraTemplates.GroupVersion().WithKind("FakeMachineTemplate"), meta.RESTScopeNamespace)
	var there []runtime.Object
	for _, name := range clusterNames {
		there = append(there, object(clusters.GroupVersion().String(), "Cluster", name, map[string]any{
			"status": map[string]any{"initialization": map[string]any{"infrastructureProvisioned": true}},
		}))
	}
	there = append(there, object(infraTemplates.GroupVersion().String(), "FakeMachineTemplate", "shape", map[string]any{
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"size": "large"}}},
	}))
	f := &fakeCAPI{mapper: mapper, client: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		machines: "MachineList", clusters: "ClusterList", secrets: "SecretList",
		infraMachines: "FakeMachineList", infraTemplates: "FakeMachineTemplateList",
	}, there...)}
	f.client.PrependReactor("create", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if o, ok := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured); ok {
			o.SetUID(uuid.NewUUID())
		}
		return false, nil, nil
	})
	go f.run(ctx)
	return f
}

// outlives makes the management cluster one that a killed provider leaves behind: what is changed is in a file before it is answered.
func (f *fakeCAPI) outlives(file string) error {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		var kept []*unstructured.Unstructured
		if err := json.Unmarshal(text, &kept); err != nil {
			return err
		}
		for _, o := range kept {
			resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
			if err := f.client.Tracker().Create(resource, o, o.GetNamespace()); err != nil {
				return err
			}
		}
	}
	react := clienttesting.ObjectReaction(f.client.Tracker())
	changes := func(a clienttesting.Action) (bool, runtime.Object, error) {
		if o, ok := a.(clienttesting.CreateAction); ok && a.GetVerb() == "create" {
			if u, ok := o.GetObject().(*unstructured.Unstructured); ok {
				u.SetUID(uuid.NewUUID())
			}
		}
		done, answer, err := react(a)
		if err == nil {
			err = f.keep(file)
		}
		return done, answer, err
	}
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		f.client.PrependReactor(verb, "*", changes)
	}
	return nil
}

// keep writes what the provider made. It is called by one change at a time.
func (f *fakeCAPI) keep(file string) error {
	var all []unstructured.Unstructured
	for resource, kind := range map[schema.GroupVersionResource]string{machines: "Machine", secrets: "Secret", infraMachines: "FakeMachine"} {
		list, err := f.client.Tracker().List(resource, resource.GroupVersion().WithKind(kind), fakeNamespace)
		if err != nil {
			return err
		}
		if u, ok := list.(*unstructured.UnstructuredList); ok {
			all = append(all, u.Items...)
		}
	}
	text, err := json.Marshal(all)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return err
}

func object(apiVersion, kind, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(fakeNamespace)
	o.SetName(name)
	o.SetUID(types.UID(kind + "/" + name))
	return o
}

// run looks at all Machines every few milliseconds, as simple as a controller can be.
func (f *fakeCAPI) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
		list, err := f.machines().List(ctx, metav1.ListOptions{})
		if err != nil {
			return
		}
		live := map[string]bool{}
		for i := range list.Items {
			live[list.Items[i].GetName()] = true
			f.reconcile(ctx, &list.Items[i])
		}
		f.collect(ctx, live)
	}
}

func (f *fakeCAPI) machines() dynamic.ResourceInterface {
	return f.client.Resource(machines).Namespace(fakeNamespace)
}

func (f *fakeCAPI) reconcile(ctx context.Context, m *unstructured.Unstructured) {
	f.mu.Lock()
	refuse := f.refuse
	f.mu.Unlock()
	if yes, _ := ready(m); yes {
		return
	}
	conditions := []any{map[string]any{"type": conditionInfraReady, "status": "False", "reason": "NotReady", "message": refuse}}
	if refuse == "" {
		conditions = []any{
			map[string]any{"type": conditionInfraReady, "status": "True"}, map[string]any{"type": conditionNodeHealthy, "status": "True"},
		}
		if err := unstructured.SetNestedField(m.Object, "node-"+m.GetName(), "status", "nodeRef", "name"); err != nil {
			panic(err)
		}
	}
	if err := unstructured.SetNestedSlice(m.Object, conditions, "status", "conditions"); err != nil {
		panic(err)
	}
	if _, err := f.machines().Update(ctx, m, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		panic(fmt.Sprintf("fake Cluster API: %v", err))
	}
}

// collect removes what belonged to a Machine that is gone: infrastructure machine and boot Secret with an owner.
func (f *fakeCAPI) collect(ctx context.Context, live map[string]bool) {
	list, err := f.client.Resource(secrets).Namespace(fakeNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		s := &list.Items[i]
		if len(s.GetOwnerReferences()) == 0 || live[s.GetName()] {
			continue
		}
		for _, r := range []schema.GroupVersionResource{secrets, infraMachines} {
			_ = f.client.Resource(r).Namespace(fakeNamespace).Delete(ctx, s.GetName(), metav1.DeleteOptions{}) // gone is gone
		}
	}
}

func (f *fakeCAPI) refuseWith(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = text
}
