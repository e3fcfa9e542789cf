package burst

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bigfleet-dev/bigfleet/e2e/stack"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const (
	ours        = "bigfleet.lucy.sh/" // the group of BigFleet's own kinds
	podsPerNode = 4
	parallel    = 32 // creations at once, of the subject's Pods and the floor's Pods and Nodes alike
	patience    = 4 * time.Minute
	floorSpace  = "floor"  // the pod controller leaves its Pods alone
	writesSpace = "writes" // and these
	userSpace   = "default"
	targetRatio = 3.0
	boundP50    = 1500 * time.Millisecond
	boundP99    = 3 * time.Second
)

func size(t *testing.T) int {
	t.Helper()
	text := os.Getenv("BIGFLEET_B6B_PODS")
	if text == "" {
		return 40
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < podsPerNode || n%podsPerNode != 0 {
		t.Fatalf("BIGFLEET_B6B_PODS=%q: want a multiple of %d", text, podsPerNode)
	}
	return n
}

// B6b, section 18 of the operator specification: one create, one acknowledgement for each Pod, no request twice.
func TestB6b(t *testing.T) {
	pods := size(t)
	s := stack.StartT(t, stack.Config{
		Offerings: fmt.Sprintf("offerings:\n- {name: small, instance_type: test.4x, zone: test-1a, capacity_type: spot, count: %d, price_per_hour: 0.08,"+
			" interruption_probability: 0.01, resources: {cpu: \"4\", memory: 16Gi}}\n", pods/podsPerNode+4),
		PodControllerArgs: append([]string{"--exclude-namespaces", floorSpace + "," + writesSpace}, telling...), OperatorArgs: telling, ProviderArgs: telling,
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("patience ended"))
	defer cancel()
	red := s.Clusters[0]
	for _, name := range []string{floorSpace, writesSpace} {
		if _, err := red.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	strangers := strangersOf(t, ctx, red)
	if err := s.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	w, err := watchAll(ctx, red)
	if err != nil {
		t.Fatal(err)
	}

	used := usage(t, ctx, s)
	floor := w.run(t, ctx, red, floorSpace, pods, nil)
	used.explain(t, ctx, s, "P-kube")
	w.clear(t, ctx, red, floorSpace)
	used = usage(t, ctx, s)
	least := w.run(t, ctx, red, writesSpace, pods, strangers)
	used.explain(t, ctx, s, "P-writes")
	w.clear(t, ctx, red, writesSpace)
	used = usage(t, ctx, s)
	subject := w.run(t, ctx, red, userSpace, pods, nil)
	used.explain(t, ctx, s, "B6b")
	w.until(t, ctx, "every request is acknowledged", func() bool { return w.acknowledged == pods })
	made := used.made(t, ctx, s)
	t.Logf("P-kube:   Pod created to Node Ready, in order %s; as bound %s", floor.inOrder, floor.bound)
	t.Logf("P-writes: Pod created to Node Ready, in order %s; as bound %s", least.inOrder, least.bound)
	t.Logf("B6b:      Pod created to Node Ready, in order %s; as bound %s", subject.inOrder, subject.bound)
	t.Logf("ratio of the medians to P-kube %.2f, to P-writes %.2f", ratio(subject, floor), ratio(subject, least))
	w.explain(t, floorSpace, nil)
	w.explain(t, writesSpace, nil)
	w.explain(t, userSpace, hear(t, ctx, s, w))

	// The oracle: every Pod has one request, created once and acknowledged once, and runs.
	if w.requests != pods {
		t.Errorf("%d requests were created for %d Pods", w.requests, pods)
	}
	if n := made["POST "+ours+"capacityrequests"]; n != pods {
		t.Errorf("%d creations of requests for %d Pods", n, pods)
	}
	if n := made["PATCH "+ours+"capacityrequests/status"]; n < pods || n > 3*pods { // and at most two conditions while unmet
		t.Errorf("%d patches of requests' status for %d Pods", n, pods)
	}
	machines := pods / podsPerNode
	if n := made["POST "+ours+"upcomingnodes"]; n > machines+1 {
		t.Errorf("%d UpcomingNodes were created for %d machines", n, machines)
	}
	record(t, pods, subject, floor, least, made)
}

func record(t *testing.T, pods int, subject, floor, least waits, made map[string]int) {
	t.Helper()
	recorder, err := measure.RecorderFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if recorder == nil || t.Failed() {
		return
	}
	mine := 0
	for what, n := range made {
		if strings.Contains(what, ours) {
			mine += n
		}
	}
	r := ratio(subject, floor)
	err = recorder.Record(measure.Result{
		Schema: 1, Bench: "B6b", Size: map[string]any{"pods": pods, "nodes": pods / podsPerNode}, GOMAXPROCS: runtime.GOMAXPROCS(0),
		Floor: measure.NewSeries("P-kube", nanoseconds(floor.inOrder)), Subject: measure.NewSeries("", nanoseconds(subject.inOrder)),
		Ratio: measure.Ratio{Median: r, Low: r, High: r, Rounds: 1}, Target: targetRatio, Met: r <= targetRatio,
		Bounds: []measure.Bound{
			measure.AtMost("p50", "ns", float64(subject.inOrder.At(0.5)), float64(boundP50)), measure.AtMost("p99", "ns", float64(subject.inOrder.At(0.99)), float64(boundP99)),
			measure.Shown("p50 as bound by kube-scheduler", "ns", float64(subject.bound.At(0.5))), measure.Shown("p99 as bound by kube-scheduler", "ns", float64(subject.bound.At(0.99))),
			measure.Shown("p50 of the same writes by a plain client (P-writes)", "ns", float64(least.inOrder.At(0.5))),
			measure.Shown("p99 of the same writes by a plain client (P-writes)", "ns", float64(least.inOrder.At(0.99))),
			measure.AtMost("writes of ours per Pod", "count", float64(mine)/float64(pods), 4),
		},
		Oracle: measure.Oracle{Name: "one request a Pod", Checks: pods},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func nanoseconds(l stack.Latencies) (out []int64) {
	for _, d := range l {
		out = append(out, int64(d))
	}
	return out
}

func ratio(subject, floor waits) float64 {
	return float64(subject.inOrder.At(0.5)) / float64(max(floor.inOrder.At(0.5), time.Millisecond))
}

// run creates Pods in one burst, waits until all are bound to Nodes that are Ready, and returns from when to when. In the
// floor's namespace it creates the Nodes as well; strangers, if there are any, make Nodes for the Pods that they see.
func (w *watches) run(t *testing.T, ctx context.Context, c *stack.Cluster, namespace string, pods int, strangers *strangers) waits {
	t.Helper()
	var wait sync.WaitGroup
	failed := make(chan error, 2*pods)
	reacted := make(chan error, 1)
	if strangers != nil {
		go func() { reacted <- strangers.react(ctx, c, namespace, pods) }()
	} else {
		close(reacted)
	}
	places := make(chan struct{}, parallel)
	for n := range pods / podsPerNode {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			for i := range podsPerNode {
				_, err := c.Client().CoreV1().Pods(namespace).Create(ctx, podOf(fmt.Sprintf("burst-%05d", n*podsPerNode+i), namespace), metav1.CreateOptions{})
				failed <- err
			}
			if namespace == floorSpace {
				_, err := c.Client().CoreV1().Nodes().Create(ctx, nodeOf(fmt.Sprintf("%s-%04d", namespace, n), namespace), metav1.CreateOptions{})
				failed <- err
			}
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-reacted; err != nil {
		t.Fatal(err)
	}
	w.until(t, ctx, "every Pod in "+namespace+" is bound to a Ready Node", func() bool { return w.placed(namespace) == pods })
	return w.waits(namespace)
}

func podOf(name, namespace string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.PodSpec{
		AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
		}}},
	}}
	if namespace != userSpace { // the scheduler must not give the subject's Nodes to them, nor the other way round
		p.Spec.NodeSelector = map[string]string{"space": namespace}
	}
	return p
}

func nodeOf(name, namespace string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"space": namespace, "kubernetes.io/hostname": name}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// clear deletes what a floor made.
func (w *watches) clear(t *testing.T, ctx context.Context, c *stack.Cluster, namespace string) {
	t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	err := errors.Join(c.Client().CoreV1().Pods(namespace).DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.Client().CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{LabelSelector: "space=" + namespace}))
	if err != nil {
		t.Fatal(err)
	}
	w.until(t, ctx, "the floor is gone", func() bool { return w.nodes == 0 })
}

var capacityRequests = schema.GroupVersionResource{Group: "bigfleet.lucy.sh", Version: "v1alpha1", Resource: "capacityrequests"}
