package simcluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a cluster and returns a real client of it.
func start(t *testing.T) kubernetes.Interface {
	t.Helper()
	_, c := run(t)
	return c
}

func run(t *testing.T) (*kubesim.Store, kubernetes.Interface) {
	t.Helper()
	c, err := simcluster.New(simcluster.Config{ID: "red", Log: slog.New(slog.DiscardHandler), PodStart: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	client, err := kubernetes.NewForConfig(c.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c.Store(), client
}

func addNode(t *testing.T, c kubernetes.Interface, name, cpu string, labels map[string]string, taints ...corev1.Taint) {
	t.Helper()
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("110")}},
	}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deploy(t *testing.T, c kubernetes.Interface, name string, replicas int32, spec corev1.PodSpec) {
	t.Helper()
	spec.Containers = []corev1.Container{{
		Name: "main", Image: "none",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
	}}
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
	if _, err := c.AppsV1().Deployments("default").Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// byNode counts the running Pods of a Deployment on each Node; "" counts those that wait.
func byNode(t *testing.T, c kubernetes.Interface, app string) map[string]int {
	t.Helper()
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, p := range pods.Items {
		switch {
		case p.Status.Phase == corev1.PodRunning:
			out[p.Spec.NodeName]++
		case p.Spec.NodeName == "":
			out[""]++
		default:
			out["starting"]++
		}
	}
	return out
}

func wantPods(t *testing.T, c kubernetes.Interface, app string, want map[string]int) {
	t.Helper()
	var got map[string]int
	for range 500 {
		if got = byNode(t, c, app); fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("Pods of %s by Node are %v, want %v", app, got, want)
}

// Pods fill one Node before the next, wait when there is no room, say so as kube-scheduler does, and go when scaled down.
func TestPackWaitAndScaleDown(t *testing.T) {
	c := start(t)
	addNode(t, c, "a", "4", nil)
	addNode(t, c, "b", "2", nil)
	deploy(t, c, "web", 7, corev1.PodSpec{})
	wantPods(t, c, "web", map[string]int{"": 1, "a": 4, "b": 2})

	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("unbound Pods: %v, %v", pods, err)
	}
	cond := pods.Items[0].Status.Conditions
	if len(cond) != 1 || cond[0].Reason != corev1.PodReasonUnschedulable || cond[0].Message != "0/2 nodes are available: 2 Insufficient cpu." {
		t.Errorf("the waiting Pod says %+v", cond)
	}

	zero := []byte(`{"spec":{"replicas":0}}`) // a patch: its controller writes the status meanwhile
	if _, err := c.AppsV1().Deployments("default").Patch(t.Context(), "web", types.MergePatchType, zero, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	wantPods(t, c, "web", map[string]int{})
}

// No Pod outlives its Deployment, however the two watches of the controller race.
func TestDeletedDeploymentLeavesNoPods(t *testing.T) {
	c := start(t)
	addNode(t, c, "a", "64", nil)
	for i := range 60 {
		deploy(t, c, "web", 20, corev1.PodSpec{})
		time.Sleep(time.Duration(i%30) * time.Millisecond)
		if err := c.AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // a late round would create what is never collected
	wantPods(t, c, "web", map[string]int{})
}

// A Node that goes takes its Pods with it, and their replacements find room elsewhere.
func TestNodeLoss(t *testing.T) {
	c := start(t)
	addNode(t, c, "a", "4", nil)
	deploy(t, c, "web", 3, corev1.PodSpec{})
	wantPods(t, c, "web", map[string]int{"a": 3})
	addNode(t, c, "b", "8", nil)
	if err := c.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wantPods(t, c, "web", map[string]int{"b": 3})
}

// A Pod that is bound to a Node in the moment in which the Node goes does not stay behind, whichever the kubelets see first.
func TestNoPodStaysOnANodeThatIsGone(t *testing.T) {
	store, c := run(t)
	for i := range 100 {
		node, name := fmt.Sprint("n", i), fmt.Sprint("p", i)
		addNode(t, c, node, "4", nil)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "late"}}, Spec: corev1.PodSpec{
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "by-hand"}}, Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		if _, err := c.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := store.Update(kubesim.Pods, "default", name, kubesim.Whole, func(o *kubesim.Object) error {
				unstructured.RemoveNestedField(o.Object, "spec", "schedulingGates")
				return unstructured.SetNestedField(o.Object, node, "spec", "nodeName")
			}); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := store.Delete(kubesim.Nodes, "", node, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
	}
	wantPods(t, c, "late", map[string]int{})
}

// A Pod of the name of one that is gone says why it waits, too.
func TestASecondPodOfANameSaysWhyItWaits(t *testing.T) {
	c := start(t)
	for range 20 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
		made, err := c.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for tries := 0; len(made.Status.Conditions) == 0; tries++ {
			if tries == 500 {
				t.Fatal("the Pod never says why it waits")
			}
			time.Sleep(10 * time.Millisecond)
			if made, err = c.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Where a Pod may run at all is decided by the rules of a real scheduler.
func TestConstraints(t *testing.T) {
	c := start(t)
	gpu := corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}
	addNode(t, c, "plain", "8", map[string]string{"zone": "x", "rack": "1"})
	addNode(t, c, "other", "8", map[string]string{"zone": "y", "rack": "2"})
	addNode(t, c, "tainted", "8", map[string]string{"zone": "x", "rack": "3", "kind": "gpu"}, gpu)

	deploy(t, c, "picky", 2, corev1.PodSpec{NodeSelector: map[string]string{"zone": "y"}})
	wantPods(t, c, "picky", map[string]int{"other": 2})

	deploy(t, c, "train", 1, corev1.PodSpec{
		NodeSelector: map[string]string{"kind": "gpu"},
		Tolerations:  []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
	})
	wantPods(t, c, "train", map[string]int{"tainted": 1})
	deploy(t, c, "refused", 1, corev1.PodSpec{NodeSelector: map[string]string{"kind": "gpu"}})
	wantPods(t, c, "refused", map[string]int{"": 1})

	same := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "gang"}}
	deploy(t, c, "gang", 5, corev1.PodSpec{Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: same, TopologyKey: "rack"}},
	}}})
	wantPods(t, c, "gang", map[string]int{"other": 5})

	spread := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "even"}}
	deploy(t, c, "even", 2, corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: spread,
	}}})
	wantPods(t, c, "even", map[string]int{"other": 1, "plain": 1})
}
