package script_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// deploy creates a Deployment in a simulated cluster.
func deploy(t *testing.T, c kubernetes.Interface, name string, replicas int32, requests corev1.ResourceList, shape func(*corev1.PodSpec)) {
	t.Helper()
	labels := map[string]string{"app": name}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "simulated", Resources: corev1.ResourceRequirements{Requests: requests}}}}
	if shape != nil {
		shape(&spec)
	}
	_, err := c.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func requests(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// control calls SubstrateControl of the simulated cloud with plain JSON.
func (w *world) control(t *testing.T, method, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+w.env["CONTROL"]+"/bigfleet.v1alpha1.SubstrateControl/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("SubstrateControl.%s answers %s", method, res.Status)
	}
}

// explanation is what `bigfleet explain pod/…  -o json` says.
type explanation struct {
	Stopped     string
	Explanation struct {
		Verdict    string
		Suggestion string
		Funnel     []struct{ Step string }
		Need       struct{ UnmetReason, Detail, DetailText, Status string }
	}
}

func (w *world) explainPod(t *testing.T, cluster, pod string) (e explanation) {
	t.Helper()
	cmd := exec.Command("bigfleet", "explain", "pod/default/"+pod, "-o", "jsonl", "--kubeconfig", w.env["WORLD_KUBECONFIG"], "--kube-context", cluster, "--shard", w.env["SHARD"])
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("explain pod/default/%s: %v\n%s%s", pod, err, &out, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), &e); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	return e
}

// waiting returns a Pod of the Deployment that has no Node.
func waiting(t *testing.T, c kubernetes.Interface, name string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName == "" {
				return p.Name
			}
		}
	}
	t.Fatalf("no Pod of %s waits", name)
	return ""
}

// user-asks 1, OPS scenario 5: Pods that are stuck for different causes get different reasons, each with a sentence, the funnel
// and one suggestion, starting from the Pod that its owner sees.
func TestExplainEachReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--clusters", "2", "--provider-delay", "20ms", "--scenario", "steady")
	w.command(t, "wait", "--for", "satisfied", "cluster/red")
	w.command(t, "wait", "--for", "satisfied", "cluster/blue")
	red, blue := w.cluster(t, "red"), w.cluster(t, "blue")

	w.control(t, "SetStock", `{"selector":{"instanceType":"g.8x"},"stock":0}`)
	w.command(t, "pause", "--kind", "provision", "--cluster", "blue", "--reason", "a trial", "--yes")

	same := func(s *corev1.PodSpec) {
		s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "gang"}}, TopologyKey: "topology.bigfleet/rack",
		}}}}
	}
	for _, c := range []struct {
		name     string
		in       kubernetes.Interface
		cluster  string
		replicas int32
		requests corev1.ResourceList
		shape    func(*corev1.PodSpec)
		priority int32    // of its own: rows of equal shape and priority are one need
		details  []string // any of them: some follow each other while the shard learns
	}{
		{"huge", red, "red", 1, requests("cpu", "64", "memory", "1Gi"), nil, 10, []string{"NEED_DETAIL_TOO_SMALL"}},
		{"mars", red, "red", 1, requests("cpu", "1"), func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{corev1.LabelTopologyZone: "mars-1a"} }, 20, []string{"NEED_DETAIL_NO_MATCH"}},
		{"fpga", red, "red", 1, requests("cpu", "1", "example.com/fpga", "1"), nil, 30, []string{"NEED_DETAIL_DIMENSION_MISSING"}},
		{"gang", red, "red", 40, requests("cpu", "7", "memory", "1Gi"), same, 40, []string{"NEED_DETAIL_DOMAIN_TOO_SMALL", "NEED_DETAIL_PARKED"}},
		{"train", red, "red", 1, requests("cpu", "1", "nvidia.com/gpu", "1"), nil, 50, []string{"NEED_DETAIL_STOCK_OUT"}},
		{"held", blue, "blue", 30, requests("cpu", "7", "memory", "1Gi"), nil, 60, []string{"NEED_DETAIL_PAUSED"}},
		{"flood", red, "red", 200, requests("cpu", "7", "memory", "1Gi"), nil, -10, []string{"NEED_DETAIL_HELD_BY_OTHERS", "NEED_DETAIL_PREEMPTION_SHORT", "NEED_DETAIL_WITHHELD", "NEED_DETAIL_STOCK_OUT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			deploy(t, c.in, c.name, c.replicas, c.requests, func(s *corev1.PodSpec) {
				priority := c.priority
				s.Priority = &priority
				if c.shape != nil {
					c.shape(s)
				}
			})
			var e explanation
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
				e = w.explainPod(t, c.cluster, waiting(t, c.in, c.name))
				for _, d := range c.details {
					if x := e.Explanation; x.Need.Detail == d {
						if x.Verdict == "" || x.Need.DetailText == "" || len(x.Funnel) == 0 {
							t.Errorf("verdict %q, text %q, %d steps of the funnel", x.Verdict, x.Need.DetailText, len(x.Funnel))
						}
						t.Logf("%s: %s | %s", d, x.Verdict, x.Suggestion)
						return
					}
				}
			}
			t.Errorf("the reason is %+v (stopped: %q), want one of %v", e.Explanation.Need, e.Stopped, c.details)
		})
	}
}

// user-asks 2: each machine has one keep-reason; from the Node a person comes to it.
func TestExplainMachinesAndNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--clusters", "1", "--provider-delay", "20ms", "--scenario", "steady")
	w.command(t, "wait", "--for", "satisfied", "cluster/red")
	nodes, err := w.cluster(t, "red").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		t.Fatal(nodes, err)
	}
	node := nodes.Items[0].Name
	byNode := w.command(t, "explain", "node/"+node, "--kubeconfig", w.env["WORLD_KUBECONFIG"])
	byMachine := w.command(t, "explain", "machine/"+node)
	for _, want := range []string{"is machine " + node, "In use by "} {
		if !strings.Contains(byNode, want) {
			t.Errorf("explain node/%s lacks %q:\n%s", node, want, byNode)
		}
	}
	if !strings.Contains(byNode, strings.SplitN(byMachine, "\n", 2)[0]) {
		t.Errorf("the Node and the machine have different verdicts:\n%s\n%s", byNode, byMachine)
	}
	kept := 0
	for name := range strings.Lines(w.command(t, "get", "machines", "--all", "-o", "name")) {
		var m struct {
			Machine struct{ KeepReason, KeepText string }
		}
		raw := w.command(t, "explain", strings.TrimSpace(name), "-o", "jsonl")
		if err := json.Unmarshal([]byte(raw), &m); err != nil {
			t.Fatal(err)
		}
		if m.Machine.KeepReason == "" || m.Machine.KeepText == "" {
			t.Errorf("%s has no reason to be kept: %s", strings.TrimSpace(name), raw)
		}
		if kept++; kept == 12 {
			break // slots are all alike
		}
	}
	stray := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stray"}}
	if _, err := w.cluster(t, "red").CoreV1().Nodes().Create(t.Context(), stray, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if out := w.command(t, "explain", "node/stray", "--kubeconfig", w.env["WORLD_KUBECONFIG"]); !strings.Contains(out, "BigFleet did not create it and never changes it") {
		t.Errorf("a Node that is not ours: %s", out)
	}
	if out := fmt.Sprint(w.command(t, "explain", "cluster/red")); !strings.Contains(out, "all of its demand is met or on the way") {
		t.Errorf("explain cluster/red: %s", out)
	}
	explainsPodsWithoutDemand(t, w)
	explainsCordons(t, w, node)
}

// OPS-4.14: a Pod that requests nothing is explained by its true cause, in any namespace, also where only the pod controller knows it.
func explainsPodsWithoutDemand(t *testing.T, w *world) {
	t.Helper()
	red := w.cluster(t, "red")
	if _, err := red.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := red.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Value: 500}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlled := true
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want string
	}{
		"gated":   {func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }, "has scheduling gates (quota)"},
		"ignored": {func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationIgnore: "true"} }, "excludes it from BigFleet"},
		"daemon": {func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "x", Controller: &controlled}}
		}, "belongs to a DaemonSet"},
		"claim": {func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "missing"}}}}
		}, "PersistentVolumeClaim missing does not exist"},
		"classy": {func(p *corev1.Pod) {
			p.Spec.PriorityClassName = "gold"
			p.Spec.NodeSelector = map[string]string{"zone": "mars"}
		}, "No machine matches the requirements"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"zone": "mars"}, // no Node of the cluster's own
			Containers: []corev1.Container{{Name: "main", Image: "simulated", Resources: corev1.ResourceRequirements{Requests: requests("cpu", "1")}}}}}
		c.edit(p)
		if _, err := red.CoreV1().Pods("team-a").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		said := ""
		for deadline := time.Now().Add(patience); !strings.Contains(said, c.want); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("explain pod %s -n team-a lacks %q:\n%s", name, c.want, said)
				break
			}
			said = w.command(t, "explain", "pod", name, "-n", "team-a", "--kubeconfig", w.env["WORLD_KUBECONFIG"], "--kube-context", "red")
		}
	}
	if out := w.command(t, "get", "needs", "--namespace", "team-a", "--kubeconfig", w.env["WORLD_KUBECONFIG"], "--kube-context", "red"); !strings.Contains(strings.Join(strings.Fields(out), " "), "team-a (1) 500 short") {
		t.Errorf("the need of a Pod with a PriorityClass:\n%s", out)
	}
	if out := w.command(t, "doctor", "--kubeconfig", w.env["WORLD_KUBECONFIG"], "--kube-context", "red"); strings.Contains(out, "fail ") || !strings.Contains(out, "CRD capacityrequests.bigfleet.lucy.sh: installed, of this version") ||
		!strings.Contains(out, "ok    instance type") {
		t.Errorf("doctor on a simulated cluster:\n%s", out)
	}
}

// OPS-4.15: a cordoned Node is shown as cordoned, and its machine counts again when it is uncordoned.
func explainsCordons(t *testing.T, w *world, node string) {
	t.Helper()
	nodes := w.cluster(t, "red").CoreV1().Nodes()
	for _, c := range []struct{ unschedulable, want string }{{"true", "accepts no new Pods (cordoned since"}, {"false", "In use by "}} {
		if _, err := nodes.Patch(t.Context(), node, types.MergePatchType, []byte(`{"spec":{"unschedulable":`+c.unschedulable+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		said := ""
		for deadline := time.Now().Add(patience); !strings.Contains(said, c.want); time.Sleep(200 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("explain node/%s with unschedulable %s lacks %q:\n%s", node, c.unschedulable, c.want, said)
				break
			}
			said = w.command(t, "explain", "node/"+node, "--kubeconfig", w.env["WORLD_KUBECONFIG"])
		}
	}
}
