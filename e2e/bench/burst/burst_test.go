package burst

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
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

// size is how many Pods a burst has, and how many rounds of four control planes are made; 0 rounds: one control plane for all.
func size(t *testing.T) (pods, rounds int) {
	t.Helper()
	text := os.Getenv("BIGFLEET_B6B_PODS")
	if text == "" {
		return 40, 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < podsPerNode || n%podsPerNode != 0 {
		t.Fatalf("BIGFLEET_B6B_PODS=%q: want a multiple of %d", text, podsPerNode)
	}
	text = cmp.Or(os.Getenv("BIGFLEET_B6B_ROUNDS"), "1")
	rounds, err = strconv.Atoi(text)
	if err != nil || rounds < 1 {
		t.Fatalf("BIGFLEET_B6B_ROUNDS=%q: want a number from 1", text)
	}
	return n, rounds
}

// kind is what a burst measures.
type kind int

const (
	floor   kind = iota // P-kube: the Pods and their Nodes, by a plain client
	least               // P-writes: also the objects of ours that a Pod and a machine must have, by a plain client
	subject             // BigFleet
)

// figures are what bursts of each kind took, and what the subject's wrote.
type figures struct {
	of    map[kind][]waits
	made  map[string]int // writes while the subject ran, over all bursts
	pods  int            // of one burst
	turns int            // bursts of the subject
}

// B6b, section 18 of the operator specification (OP-18.1): one create, one acknowledgement for each Pod, no request twice.
//
// The published run has four control planes, one after the other, in the order floor, subject, subject, floor: what slows the
// machine for a while slows both. The small one makes all bursts in one.
func TestB6b(t *testing.T) {
	pods, rounds := size(t)
	f := &figures{of: map[kind][]waits{}, made: map[string]int{}, pods: pods}
	turns := [][]kind{{floor, least, subject}}
	if rounds > 0 {
		turns = nil
		for range rounds {
			turns = append(turns, []kind{floor, least}, []kind{subject}, []kind{subject}, []kind{floor})
		}
	}
	for i, kinds := range turns {
		t.Run(fmt.Sprint("control-plane-", i), func(t *testing.T) { f.bursts(t, kinds) })
	}
	if t.Failed() {
		return
	}
	for i, w := range f.of[floor] {
		t.Logf("P-kube %d:   Pod created to Node Ready, in order %s; as bound %s", i, w.inOrder, w.bound)
	}
	for i, w := range f.of[least] {
		t.Logf("P-writes %d: Pod created to Node Ready, in order %s; as bound %s", i, w.inOrder, w.bound)
	}
	for i, w := range f.of[subject] {
		t.Logf("B6b %d:      Pod created to Node Ready, in order %s; as bound %s", i, w.inOrder, w.bound)
	}
	t.Logf("all: P-kube %s; P-writes %s; B6b %s", f.inOrder(floor), f.inOrder(least), f.inOrder(subject))
	r := f.ratios()
	t.Logf("ratio of the medians to P-kube %.2f (rounds %.2f), to P-writes %.2f", measure.Median(r), r, ratio(f.of[subject], f.of[least]))
	record(t, f)
}

// bursts starts a control plane with BigFleet and makes one burst of each kind.
func (f *figures) bursts(t *testing.T, kinds []kind) {
	pods := f.pods
	s := fixture.StartT(t, fixture.Config{
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
	for _, k := range kinds {
		used := usage(t, ctx, s)
		switch k {
		case floor:
			f.of[k] = append(f.of[k], w.run(t, ctx, red, floorSpace, pods, nil))
			used.explain(t, ctx, s, "P-kube")
			w.explain(t, floorSpace, nil)
			w.clear(t, ctx, red, floorSpace)
		case least:
			f.of[k] = append(f.of[k], w.run(t, ctx, red, writesSpace, pods, strangers))
			used.explain(t, ctx, s, "P-writes")
			w.explain(t, writesSpace, nil)
			w.clear(t, ctx, red, writesSpace)
		case subject:
			f.of[k] = append(f.of[k], w.run(t, ctx, red, userSpace, pods, nil))
			f.turns++
			used.explain(t, ctx, s, "B6b")
			w.until(t, ctx, "every request is acknowledged", func() bool { return w.acknowledged == pods })
			w.explain(t, userSpace, hear(t, ctx, s, w))
			f.check(t, used.made(t, ctx, s), w.requests)
		}
	}
}

// check is the oracle: every Pod has one request, created once and acknowledged once, and runs.
func (f *figures) check(t *testing.T, made map[string]int, requests int) {
	t.Helper()
	pods, machines := f.pods, f.pods/podsPerNode
	if requests != pods {
		t.Errorf("%d requests were created for %d Pods", requests, pods)
	}
	if n := made["POST "+ours+"capacityrequests"]; n != pods {
		t.Errorf("%d creations of requests for %d Pods", n, pods)
	}
	if n := made["PATCH "+ours+"capacityrequests/status"]; n < pods || n > 3*pods { // and at most two conditions while unmet
		t.Errorf("%d patches of requests' status for %d Pods", n, pods)
	}
	if n := made["POST "+ours+"upcomingnodes"]; n > machines+1 {
		t.Errorf("%d UpcomingNodes were created for %d machines", n, machines)
	}
	for what, n := range made {
		f.made[what] += n
	}
}

// inOrder are the waits of all bursts of a kind.
func (f *figures) inOrder(k kind) (out fixture.Latencies) {
	for _, w := range f.of[k] {
		out = append(out, w.inOrder...)
	}
	slices.Sort(out)
	return out
}

// ratios are those of the rounds: of each, the sum of the subject's medians over the sum of the floor's.
func (f *figures) ratios() (out []float64) {
	rounds := len(f.of[floor])
	each := 1
	if rounds > 1 {
		each = 2
	}
	for i := 0; i+each <= rounds; i += each {
		out = append(out, ratio(f.of[subject][i:i+each], f.of[floor][i:i+each]))
	}
	return out
}

func record(t *testing.T, f *figures) {
	t.Helper()
	recorder, err := measure.RecorderFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if recorder == nil {
		return
	}
	mine := 0
	for what, n := range f.made {
		if strings.Contains(what, ours) {
			mine += n
		}
	}
	r := f.ratios()
	median := measure.Median(r)
	of := f.inOrder(subject)
	var bound fixture.Latencies
	for _, w := range f.of[subject] {
		bound = append(bound, w.bound...)
	}
	slices.Sort(bound)
	err = recorder.Record(measure.Result{
		Schema: 1, Bench: "B6b", Size: map[string]any{"pods": f.pods, "nodes": f.pods / podsPerNode}, GOMAXPROCS: runtime.GOMAXPROCS(0),
		Floor: measure.NewSeries("P-kube", nanoseconds(f.inOrder(floor))), Subject: measure.NewSeries("", nanoseconds(of)),
		Ratio: measure.Ratio{Median: median, Low: slices.Min(r), High: slices.Max(r), Rounds: len(r)}, Target: targetRatio, Met: median <= targetRatio,
		Bounds: []measure.Bound{
			measure.AtMost("p50", "ns", float64(of.At(0.5)), float64(boundP50)), measure.AtMost("p99", "ns", float64(of.At(0.99)), float64(boundP99)),
			measure.Shown("p50 as bound by kube-scheduler", "ns", float64(bound.At(0.5))), measure.Shown("p99 as bound by kube-scheduler", "ns", float64(bound.At(0.99))),
			measure.Shown("p50 of the same writes by a plain client (P-writes)", "ns", float64(f.inOrder(least).At(0.5))),
			measure.Shown("p99 of the same writes by a plain client (P-writes)", "ns", float64(f.inOrder(least).At(0.99))),
			measure.AtMost("writes of ours per Pod", "count", float64(mine)/float64(f.pods*f.turns), 4),
		},
		Oracle: measure.Oracle{Name: "one request a Pod", Checks: f.pods * f.turns},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func nanoseconds(l fixture.Latencies) (out []int64) {
	for _, d := range l {
		out = append(out, int64(d))
	}
	return out
}

// ratio is the mean of the medians of some bursts over that of others.
func ratio(subject, floor []waits) float64 {
	mean := func(of []waits) float64 {
		sum := time.Duration(0)
		for _, w := range of {
			sum += w.inOrder.At(0.5)
		}
		return float64(max(sum, time.Millisecond)) / float64(max(1, len(of)))
	}
	return mean(subject) / mean(floor)
}

// run creates Pods in one burst, waits until all are bound to Nodes that are Ready, and returns from when to when. In the
// floor's namespace it creates the Nodes as well; strangers, if there are any, make Nodes for the Pods that they see.
func (w *watches) run(t *testing.T, ctx context.Context, c *fixture.Cluster, namespace string, pods int, strangers *strangers) waits {
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
				name := fmt.Sprintf("burst-%05d", n*podsPerNode+i)
				_, err := c.Client().CoreV1().Pods(namespace).Create(ctx, podOf(name, namespace), metav1.CreateOptions{})
				w.created(namespace, name)
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
func (w *watches) clear(t *testing.T, ctx context.Context, c *fixture.Cluster, namespace string) {
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
