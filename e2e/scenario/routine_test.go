package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// Routine harms no Pod. Each story happens on machines of its own type, so that all of them share one control plane, one
// shard and one provider. Only waits of minutes are shortened; nothing else differs from what a shard does by default.
func TestRoutine(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T, *story){
		"rollout": rollout, "jobs": jobsEnd, "cordon": cordon, "budget": budgetBlocks, "lost": nodeLost,
		"labels": labelOfTheNode, "volume": volumeElsewhere, "zones": overZones, "limit": limitOfPods,
		"leaders": leaderWorkers, "kueue": kueueGroups, "attach": volumesAttach, "prefers": prefers, "devices": claimsDevices,
	}
	var offerings strings.Builder
	offerings.WriteString("offerings:\n")
	more := map[string]string{"devices": `, "deviceclass.resource.kubernetes.io/gpu.example.com": "2"}, labels: {gpu.example.com/model: big`}
	for name := range stories {
		fmt.Fprintf(&offerings, "- {name: %s, instance_type: %s, zone: test-1a, capacity_type: on_demand, count: 4, price_per_hour: 0.2, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"%s}}\n", name, typeOf(name), more[name])
	}
	fmt.Fprintf(&offerings, "- {name: dear, instance_type: %s, zone: test-1b, capacity_type: on_demand, count: 1, price_per_hour: 0.9, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"}}\n", typeOf("volume"))
	fmt.Fprintf(&offerings, "- {name: second, instance_type: %s, zone: test-1b, capacity_type: on_demand, count: 4, price_per_hour: 0.2, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"}}\n", typeOf("zones"))
	fmt.Fprintf(&offerings, "- {name: preferred, instance_type: %s, zone: test-1b, capacity_type: on_demand, count: 4, price_per_hour: 0.2, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"}}\n", typeOf("prefers"))
	s := fixture.StartT(t, fixture.Config{
		Offerings:    offerings.String(),
		ShardArgs:    []string{"--drain-deadline", "15s"},
		OperatorArgs: []string{"--demand-hold", "1m", "--node-not-ready-after", "3s"},
	})
	if err := s.Settled(bounded(t)); err != nil {
		t.Fatal(err)
	}
	t.Run("stories", func(t *testing.T) {
		for name, play := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(t, newStory(t, s, name))
			})
		}
	})
}

func typeOf(name string) string { return "type." + name }

// story is one workload on machines of one type, and all that happened to their Nodes and Pods.
type story struct {
	*testing.T
	*fixture.Cluster
	name string

	mu       sync.Mutex
	nodes    map[string]string        // uid of each Node ever seen, by name
	cordoned []string                 // Nodes that were unschedulable at some time
	gone     []string                 // Nodes that were deleted
	deleted  []types.UID              // Pods that were deleted or evicted
	upcoming map[string][]condition   // by Node name: what its UpcomingNode said
	pods     map[string]*corev1.Pod   // by name, as last seen
	checks   []func(*corev1.Pod) bool // called with each change of a Pod, under mu
}

type condition struct{ kind, status, reason string }

func newStory(t *testing.T, s *fixture.Fixture, name string) *story {
	st := &story{T: t, Cluster: s.Clusters[0], name: name, nodes: map[string]string{}, upcoming: map[string][]condition{}, pods: map[string]*corev1.Pod{}}
	of := metav1.ListOptions{LabelSelector: corev1.LabelInstanceTypeStable + "=" + typeOf(name)}
	st.follow("nodes", func(o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = of.LabelSelector
		return st.Client().CoreV1().Nodes().Watch(t.Context(), o)
	}, st.seeNode)
	st.follow("pods", func(o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = "story=" + name
		return st.Client().CoreV1().Pods("default").Watch(t.Context(), o)
	}, st.seePod)
	st.follow("upcomingnodes", func(o metav1.ListOptions) (watch.Interface, error) {
		return st.Dynamic.Resource(fixture.UpcomingNodes).Watch(t.Context(), o)
	}, st.seeUpcoming)
	return st
}

type watchFunc func(metav1.ListOptions) (watch.Interface, error)

func (f watchFunc) WatchWithContext(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return f(o)
}

// follow sees every change of some objects from now on; watches that end are taken up where they ended.
func (s *story) follow(what string, from watchFunc, see func(watch.Event)) {
	s.Helper()
	namespaces, err := s.Client().CoreV1().Namespaces().List(s.Context(), metav1.ListOptions{Limit: 1})
	s.must(err)
	w, err := watchtools.NewRetryWatcherWithContext(s.Context(), namespaces.ResourceVersion, from)
	if err != nil {
		s.Fatalf("watch %s: %v", what, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			see(e)
		}
	}()
	s.Cleanup(func() { w.Stop(); <-done })
}

func (s *story) seeNode(e watch.Event) {
	n, ok := e.Object.(*corev1.Node)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.Name] = string(n.UID)
	if n.Spec.Unschedulable && !slices.Contains(s.cordoned, n.Name) {
		s.cordoned = append(s.cordoned, n.Name)
	}
	if e.Type == watch.Deleted {
		s.gone = append(s.gone, n.Name)
	}
}

func (s *story) seePod(e watch.Event) {
	p, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods[p.Name] = p; e.Type == watch.Deleted {
		delete(s.pods, p.Name)
	}
	if (p.DeletionTimestamp != nil || e.Type == watch.Deleted) && !slices.Contains(s.deleted, p.UID) {
		s.deleted = append(s.deleted, p.UID)
	}
	for _, check := range s.checks {
		check(p)
	}
}

func (s *story) seeUpcoming(e watch.Event) {
	o, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return
	}
	node, _, _ := unstructured.NestedString(o.Object, "status", "nodeRef", "name")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok {
			is := condition{fmt.Sprint(m["type"]), fmt.Sprint(m["status"]), fmt.Sprint(m["reason"])}
			if !slices.Contains(s.upcoming[node], is) {
				s.upcoming[node] = append(s.upcoming[node], is)
			}
		}
	}
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// until waits until a condition holds; it is asked with what was seen so far, under the lock.
func (s *story) until(what string, done func() bool) {
	s.Helper()
	ctx := bounded(s.T)
	for {
		s.mu.Lock()
		ok := done()
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			s.Fatalf("still not: %s\n%s", what, s.account())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *story) account() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fmt.Sprintf("nodes %v, cordoned %v, gone %v, %d Pods deleted, upcoming %v\n", s.nodes, s.cordoned, s.gone, len(s.deleted), s.upcoming)
	for _, p := range s.pods {
		out += fmt.Sprintf("  %s on %q is %s, deleted %v\n", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
	}
	return out
}

// template is a Pod of this story: on machines of its type alone, with some cpu.
func (s *story) template(role, cpu string) corev1.PodTemplateSpec {
	grace := int64(0)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"story": s.name, "role": role}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace, RestartPolicy: corev1.RestartPolicyAlways,
			NodeSelector: map[string]string{corev1.LabelInstanceTypeStable: typeOf(s.name)},
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}}}},
		},
	}
}

// create makes a single Pod of the template.
func (s *story) create(name string, tpl corev1.PodTemplateSpec) {
	s.Helper()
	p := &corev1.Pod{ObjectMeta: tpl.ObjectMeta, Spec: tpl.Spec}
	p.Name, p.Spec.RestartPolicy = name, corev1.RestartPolicyNever
	_, err := s.Client().CoreV1().Pods("default").Create(s.Context(), p, metav1.CreateOptions{})
	s.must(err)
}

// set makes a StatefulSet.
func (s *story) set(name string, replicas int32, update appsv1.StatefulSetUpdateStrategyType, tpl corev1.PodTemplateSpec) {
	s.Helper()
	_, err := s.Client().AppsV1().StatefulSets("default").Create(s.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: tpl.Labels}, Template: tpl,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: update}, PodManagementPolicy: appsv1.ParallelPodManagement},
	}, metav1.CreateOptions{})
	s.must(err)
}

// on is the Node of a running Pod, or "". It is for use under the lock.
func (s *story) on(pod string) string {
	if p := s.pods[pod]; p != nil && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
		return p.Spec.NodeName
	}
	return ""
}

// run waits for Pods to run and returns their Nodes.
func (s *story) run(pods ...string) (nodes []string) {
	s.Helper()
	s.until(fmt.Sprint(pods, " run"), func() bool {
		nodes = nil
		for _, p := range pods {
			nodes = append(nodes, s.on(p))
		}
		return !slices.Contains(nodes, "")
	})
	return nodes
}

// patch changes a Pod or Node with a merge patch.
func (s *story) patchNode(name, patch string, sub ...string) {
	s.Helper()
	_, err := s.Client().CoreV1().Nodes().Patch(s.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
	s.must(err)
}

// kept says that none of these Nodes was cordoned or deleted.
func (s *story) kept(nodes ...string) {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range nodes {
		if slices.Contains(s.cordoned, n) || slices.Contains(s.gone, n) {
			s.Errorf("node %s was drained: cordoned %v, gone %v", n, s.cordoned, s.gone)
		}
	}
}
