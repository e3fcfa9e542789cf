package kubesim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi3"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// cluster serves an empty store and returns real clients of it.
func cluster(t *testing.T) (*kubesim.Store, kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	store := kubesim.NewStore()
	server := httptest.NewServer(kubesim.NewServer(store))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	cfg := kubesim.ClientConfig(strings.TrimPrefix(server.URL, "http://"))
	protobuf := rest.CopyConfig(cfg)
	protobuf.ContentType = runtime.ContentTypeProtobuf // as controller-runtime's clients send built-in kinds
	client, err := kubernetes.NewForConfig(protobuf)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return store, client, dyn
}

func pod(name, node string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{
			Name: "main", Image: "none",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}}},
	}
}

func create(t *testing.T, c kubernetes.Interface, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	got, err := c.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// OPS-5.2: a real informer follows creations, changes and deletions, and resumes with a streaming list.
func TestInformerFollowsTheStore(t *testing.T) {
	_, client, _ := cluster(t)
	create(t, client, pod("before", "", nil))

	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	t.Cleanup(factory.Shutdown)
	t.Cleanup(cancel)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer did not sync")
	}
	for i := range 50 {
		create(t, client, pod(fmt.Sprint("p", i), "", nil))
	}
	patch := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
	if _, err := client.CoreV1().Pods("default").Patch(ctx, "p7", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("default").Delete(ctx, "p8", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if n := len(informer.GetStore().List()); n != 50 {
			return fmt.Errorf("the informer holds %d Pods, want 50", n)
		}
		o, ok, _ := informer.GetStore().GetByKey("default/p7")
		if !ok || o.(*corev1.Pod).Labels["seen"] != "yes" {
			return fmt.Errorf("the informer has not seen the patch")
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range 500 {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(err)
}

// A write through one half leaves the other half alone, and an unchanged write makes no new version.
func TestStatusIsASubresource(t *testing.T) {
	_, client, _ := cluster(t)
	created := create(t, client, pod("p", "", nil))
	if created.Status.Phase != corev1.PodPending {
		t.Fatalf("phase of a new Pod is %q, want Pending", created.Status.Phase)
	}
	pods := client.CoreV1().Pods("default")
	main, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Running"},"spec":{"nodeName":"n"}}`), metav1.PatchOptions{})
	if err != nil || main.Status.Phase != corev1.PodPending || main.Spec.NodeName != "n" {
		t.Fatalf("main patch gave phase %q node %q, %v: want Pending, n", main.Status.Phase, main.Spec.NodeName, err)
	}
	status, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Running"},"spec":{"nodeName":"m"}}`), metav1.PatchOptions{}, "status")
	if err != nil || status.Status.Phase != corev1.PodRunning || status.Spec.NodeName != "n" {
		t.Fatalf("status patch gave phase %q node %q, %v: want Running, n", status.Status.Phase, status.Spec.NodeName, err)
	}
	again, err := pods.Patch(t.Context(), "p", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	if err != nil || again.ResourceVersion != status.ResourceVersion {
		t.Fatalf("an unchanged write moved the version from %s to %s, %v", status.ResourceVersion, again.ResourceVersion, err)
	}
}

func TestConflictAlreadyExistsNotFound(t *testing.T) {
	_, client, _ := cluster(t)
	pods := client.CoreV1().Pods("default")
	old := create(t, client, pod("p", "", nil))
	if _, err := pods.Create(t.Context(), pod("p", "", nil), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("second create: %v, want AlreadyExists", err)
	}
	newer := old.DeepCopy()
	newer.Labels = map[string]string{"a": "b"}
	if _, err := pods.Update(t.Context(), newer, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stale := old.DeepCopy()
	stale.Labels = map[string]string{"a": "c"}
	if _, err := pods.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of a stale copy: %v, want Conflict", err)
	}
	if _, err := pods.Get(t.Context(), "q", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of an unknown Pod: %v, want NotFound", err)
	}
}

// A running Pod ends gracefully; what it owned goes with it.
func TestGracefulDeletionAndOwners(t *testing.T) {
	store, client, dyn := cluster(t)
	p := create(t, client, pod("p", "node", nil))
	cr := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
		"metadata": map[string]any{"name": "cr", "namespace": "default"},
		"spec":     map[string]any{"resources": map[string]any{"cpu": "1"}, "priority": int64(0)},
	}}
	cr.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}})
	crs := dyn.Resource(kubesim.CapacityRequests).Namespace("default")
	got, err := crs.Create(t.Context(), cr, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != "Pending" {
		t.Errorf("a new request has phase %q, want Pending", phase)
	}
	pending, err := crs.List(t.Context(), metav1.ListOptions{FieldSelector: "status.phase=Pending"})
	if err != nil || len(pending.Items) != 1 {
		t.Errorf("field selection found %v, %v: want the one request", pending, err)
	}
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || leaving.DeletionTimestamp == nil || *leaving.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("a deleted running Pod is %v, %v: want it terminating with 30 s", leaving, err)
	}
	if err := store.Remove(kubesim.Pods, "default", "p", "another"); !apierrors.IsNotFound(err) {
		t.Errorf("the Pod is removed for another of its name: %v", err)
	}
	if err := store.Remove(kubesim.Pods, "default", "p", p.UID); err != nil {
		t.Fatal(err)
	}
	if _, err := crs.Get(t.Context(), "cr", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the request outlived its Pod: %v", err)
	}
	if _, err := crs.Create(t.Context(), cr, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := crs.Get(t.Context(), "cr", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a request that was created after its Pod was removed stays: %v", err)
	}
}

// An eviction beyond the budget is refused with 429 and the budget's name; within it the Pod goes.
func TestEvictionObeysBudgets(t *testing.T) {
	store, client, _ := cluster(t)
	web := map[string]string{"app": "web"}
	for _, n := range []string{"a", "b"} {
		create(t, client, pod(n, "node", web))
		_, err := store.Update(kubesim.Pods, "default", n, kubesim.Whole, func(o *kubesim.Object) error {
			return unstructured.SetNestedField(o.Object, "Running", "status", "phase")
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "keep-one", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: web}},
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	evict := func(n string) error {
		return client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: n, Namespace: "default"}})
	}
	if err := evict("a"); err != nil {
		t.Fatalf("first eviction: %v", err)
	}
	err := evict("b")
	if !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || !strings.Contains(fmt.Sprint(err), "disruption budget") {
		t.Fatalf("second eviction: %v, want 429 with the budget as cause", err)
	}
}

// A watch that lost its place gets the error that makes it list again.
func TestExpiredWatch(t *testing.T) {
	store, client, _ := cluster(t)
	create(t, client, pod("p", "", nil))
	for i := range 30_000 {
		_, err := store.Update(kubesim.Pods, "default", "p", kubesim.Whole, func(o *kubesim.Object) error {
			o.SetLabels(map[string]string{"i": fmt.Sprint(i)})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("watch from version 1: %v, want Expired", err)
	}
}

// OPS-5.2: `kubectl scale` reads and patches the subresource scale, and so do autoscalers of Pods, which replace it.
func TestScale(t *testing.T) {
	_, client, _ := cluster(t)
	replicas := int32(2)
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web := client.AppsV1().Deployments("default")
	s, err := web.GetScale(t.Context(), "web", metav1.GetOptions{})
	if err != nil || s.Spec.Replicas != 2 || s.Status.Selector != "app=web" {
		t.Fatalf("scale %+v, %v", s, err)
	}
	s.Spec.Replicas = 5
	if s, err = web.UpdateScale(t.Context(), "web", s, metav1.UpdateOptions{}); err != nil || s.Spec.Replicas != 5 {
		t.Fatalf("replaced: %+v, %v", s, err)
	}
	if _, err := web.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":7}}`), metav1.PatchOptions{}, "scale"); err != nil {
		t.Fatal(err)
	}
	d, err := web.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 7 || d.Generation != 3 {
		t.Errorf("the Deployment has %d replicas in generation %d, %v", *d.Spec.Replicas, d.Generation, err)
	}
	if _, err := web.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":-1}}`), metav1.PatchOptions{}, "scale"); !apierrors.IsBadRequest(err) {
		t.Errorf("fewer than none: %v", err)
	}
	if _, err := web.GetScale(t.Context(), "unknown", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of an unknown one: %v", err)
	}
}

// OPS-5.2: kubectl asks, before it creates or applies an object, whether the server judges fields itself. Without that word it refuses.
func TestTheServerSaysThatItJudgesFields(t *testing.T) {
	_, client, _ := cluster(t)
	root := openapi3.NewRoot(openapi.NewClient(client.Discovery().RESTClient()))
	versions, err := root.GroupVersions()
	if err != nil {
		t.Fatal(err)
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Node"}, {Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "bigfleet.lucy.sh", Version: "v1alpha1", Kind: "CapacityRequest"},
	} {
		if !slices.Contains(versions, gvk.GroupVersion()) {
			t.Errorf("%s is not among %v", gvk.GroupVersion(), versions)
			continue
		}
		doc, err := root.GVSpec(gvk.GroupVersion())
		if err != nil {
			t.Fatal(err)
		}
		judged := false
		for _, path := range doc.Paths.Paths {
			if path.Patch == nil {
				continue
			}
			var of schema.GroupVersionKind
			if err := path.Patch.Extensions.GetObject("x-kubernetes-group-version-kind", &of); err != nil {
				t.Fatal(err)
			}
			judged = judged || of == gvk && slices.ContainsFunc(path.Patch.Parameters, func(p *spec3.Parameter) bool { return p.Name == "fieldValidation" })
		}
		if !judged {
			t.Errorf("nothing says that the fields of a %s are judged", gvk.Kind)
		}
	}
}

// OPS-5.2: `kubectl get` asks for a table and prints what the server puts into it.
func TestTables(t *testing.T) {
	store, client, _ := cluster(t)
	create(t, client, pod("web-1", "node-1", nil))
	_, err := store.Update(kubesim.Pods, "default", "web-1", kubesim.Status, func(o *kubesim.Object) error {
		o.Object["status"] = map[string]any{"phase": "Running"}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, list := range map[string]bool{"/api/v1/namespaces/default/pods": true, "/api/v1/namespaces/default/pods/web-1": false} {
		raw, err := client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got metav1.Table
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range got.ColumnDefinitions {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, []string{"Name", "Ready", "Status", "Node", "Age"}) || len(got.Rows) != 1 {
			t.Fatalf("list %v: columns %v, %d rows", list, names, len(got.Rows))
		}
		if cells := got.Rows[0].Cells; !slices.Equal(cells[:4], []any{"web-1", "1/1", "Running", "node-1"}) {
			t.Errorf("list %v: %v", list, cells)
		}
	}
}
