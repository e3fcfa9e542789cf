package controlplane_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two control planes side by side, each a whole cluster: Nodes become Ready, the scheduler binds, Pods run, and what
// happens in one is not seen in the other. Stop leaves no process, file or listener.
func TestTwoControlPlanesRunPodsAndLeaveNothing(t *testing.T) {
	began := time.Now()
	all := controlplane.StartAllT(t, controlplane.Config{Name: "red"}, controlplane.Config{Name: "blue"})
	t.Logf("two control planes up in %s", time.Since(began).Round(10*time.Millisecond))
	red, blue := all[0], all[1]

	createNode(t, red, "red-node", "4")
	deploy(t, red, "web", 3)
	waitForRunning(t, red, "app=web", 3)

	// kube-controller-manager calls a Node without a renewed lease NotReady after 50 s, longer than this test lasts.
	lease, err := red.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "red-node", metav1.GetOptions{})
	if err != nil || lease.Spec.RenewTime == nil {
		t.Fatalf("kwok keeps no lease for its Node: %v", err)
	}

	deploy(t, blue, "web", 1) // no Node in blue: its scheduler must say so
	waitFor(t, "the Pod in blue to be unschedulable", func(ctx context.Context) (bool, error) {
		pods, err := blue.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		for _, c := range pods.Items[0].Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return c.Reason == corev1.PodReasonUnschedulable, nil
			}
		}
		return false, nil
	})
	if nodes, err := blue.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil || len(nodes.Items) != 0 {
		t.Fatalf("blue has %d Nodes, %v; want none", len(nodes.Items), err)
	}

	scale(t, red, "web", 0)
	waitForRunning(t, red, "app=web", 0)

	for _, cp := range all {
		logMemory(t, cp)
		dir, endpoint := cp.Dir(), strings.TrimPrefix(cp.Endpoint(), "https://")
		if err := cp.Stop(); err != nil {
			t.Fatal(err)
		}
		wantNothingLeft(t, dir, endpoint)
	}
}

// kube-apiserver is restarted politely and killed; the rest of the cluster and its state survive both, and so does the
// death of each other component.
func TestComponentsSurviveEachOther(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{})
	createNode(t, cp, "node", "100")
	deploy(t, cp, "before", 1)
	waitForRunning(t, cp, "app=before", 1)

	began := time.Now()
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver restarted in %s", time.Since(began).Round(10*time.Millisecond))
	waitForRunning(t, cp, "app=before", 1)
	deploy(t, cp, "restarted", 1)
	waitForRunning(t, cp, "app=restarted", 1)

	for _, c := range controlplane.Components() {
		cp.Component(c).Kill()
		if err := cp.Component(c).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c == controlplane.Kwok { // the new kwok manages what appears; "node" is the old one's until its lease ends
			createNode(t, cp, "another-node", "100")
			continue
		}
		name := "killed-" + string(c)
		deploy(t, cp, name, 1)
		waitForRunning(t, cp, "app="+name, 1)
	}
	waitForRunning(t, cp, "app=before", 1)
}

// A start that fails names the component and shows why, and leaves nothing.
func TestFailedStartNamesTheComponent(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for _, c := range []controlplane.Component{controlplane.APIServer, controlplane.Kwok} {
		_, err := controlplane.Start(t.Context(), controlplane.Config{
			Name: "broken",
			Args: map[controlplane.Component][]string{c: {"--no-such-flag"}},
		})
		if err == nil {
			t.Fatalf("%s started with a flag that it does not have", c)
		}
		for _, want := range []string{`"broken"`, string(c) + ":", "unknown flag: --no-such-flag", string(c) + ".log"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not mention %q: %v", want, err)
			}
		}
		left, err := os.ReadDir(tmp)
		if err != nil || len(left) != 0 {
			t.Errorf("%d files left behind, %v", len(left), err)
		}
		wantNoProcess(t, tmp)
	}
}

func TestConfigIsChecked(t *testing.T) {
	occupied := t.TempDir()
	if err := os.WriteFile(filepath.Join(occupied, "precious"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]controlplane.Config{
		"DNS label":         {Name: "Not A Label"},
		"cannot be omitted": {Omit: []controlplane.Component{controlplane.Etcd}},
		"no component":      {Args: map[controlplane.Component][]string{"kubelet": nil}},
		"not empty":         {Dir: occupied},
	} {
		if _, err := controlplane.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start(%+v) = %v; want an error with %q", c, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(occupied, "precious")); err != nil {
		t.Error(err)
	}
}

func createNode(t *testing.T, cp *controlplane.ControlPlane, name, cpu string) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
		}},
	}
	node.Status.Capacity = node.Status.Allocatable
	if _, err := cp.Client().CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Node "+name+" to be Ready without taints", func(ctx context.Context) (bool, error) {
		node, err := cp.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return len(node.Spec.Taints) == 0, nil
			}
		}
		return false, nil
	})
}

// deploy creates a Deployment of Pods of 1 cpu each.
func deploy(t *testing.T, cp *controlplane.ControlPlane, name string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Image: "example.invalid/none",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
				}}},
			},
		},
	}
	if _, err := cp.Client().AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func scale(t *testing.T, cp *controlplane.ControlPlane, name string, replicas int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := cp.Client().AppsV1().Deployments("default").Patch(t.Context(), name, "application/merge-patch+json", patch, metav1.PatchOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
}

// waitForRunning waits until exactly n Pods match the selector, all bound, Running and Ready.
func waitForRunning(t *testing.T, cp *controlplane.ControlPlane, selector string, n int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d running Pods of %s", n, selector), func(ctx context.Context) (bool, error) {
		pods, err := cp.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, err
		}
		running := 0
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" {
				running++
			}
		}
		return running == n && len(pods.Items) == n, nil
	})
}

func waitFor(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		last = err
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return false, err
		}
		return ok && err == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v; last answer: %v", what, err, last)
	}
}

func logMemory(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	var total int64
	var each []string
	for _, c := range controlplane.Components() {
		rss, err := cp.Component(c).ResidentBytes()
		if err != nil {
			t.Log(err)
			return
		}
		total += rss
		each = append(each, fmt.Sprintf("%s %d MB", c, rss>>20))
	}
	t.Logf("%s: resident %d MB (%s)", cp.Name(), total>>20, strings.Join(each, ", "))
}

func wantNothingLeft(t *testing.T, dir, address string) {
	t.Helper()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir, err)
	}
	wantNoProcess(t, dir)
	if c, err := net.Dial("tcp", address); err == nil {
		_ = c.Close()
		t.Errorf("something still listens on %s", address)
	}
	claim, err := net.ListenPacket("udp4", address)
	if err != nil {
		t.Errorf("the port of %s is still reserved: %v", address, err)
		return
	}
	_ = claim.Close()
}

// wantNoProcess looks for a process with text, a path of ours, on its command line.
func wantNoProcess(t *testing.T, text string) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "ps", "-Aww", "-o", "pid=,args=").Output()
	if err != nil {
		t.Fatalf("ps: %v", err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.Contains(line, text) {
			t.Errorf("left behind: %s", line)
		}
	}
}
