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
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Nobody is harmed by routine. Each story happens on machines of its own type, so that all of them share one control plane, one
// shard and one provider. Only waits of minutes are shortened; nothing else differs from what a shard does by default.
func TestRoutine(t *testing.T) {
	t.Parallel()
	stories := map[string]func(*testing.T, *story){
		"rollout": rollout, "jobs": jobsEnd, "cordon": cordon, "budget": budgetBlocks, "lost": nodeLost,
		"labels": labelOfTheNode, "volume": volumeElsewhere,
	}
	var offerings strings.Builder
	offerings.WriteString("offerings:\n")
	for name := range stories {
		fmt.Fprintf(&offerings, "- {name: %s, instance_type: %s, zone: test-1a, capacity_type: on_demand, count: 4, price_per_hour: 0.2, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"}}\n", name, typeOf(name))
	}
	fmt.Fprintf(&offerings, "- {name: dear, instance_type: %s, zone: test-1b, capacity_type: on_demand, count: 1, price_per_hour: 0.9, resources: {cpu: \"4\", memory: 16Gi, pods: \"110\"}}\n", typeOf("volume"))
	s := fixture.StartT(t, fixture.Config{
		Offerings:    offerings.String(),
		ShardArgs:    []string{"--drain-deadline", "15s"},
		OperatorArgs: []string{"--demand-hold", "1m", "--node-not-ready-after", "3s"},
	})
	if err := s.Settled(bounded(t)); err != nil {
		t.Fatal(err)
	}
	t.Run("stories", func(t *testing.T) {
		for name, tell := range stories {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tell(t, newStory(t, s, name))
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

// OP-5.23, SHARD-19.10: two replicas have a machine each. A rolling update, whose Pods take longer to end than any release delay, takes
// down one replica at a time and drains no node.
func rollout(t *testing.T, s *story) {
	const finalizer, ending = "example.com/ends-slowly", 6 * time.Second // beyond --release-delay of the fixture
	tpl := s.template("db", "3")
	tpl.Finalizers = []string{finalizer}
	s.set("db", 2, appsv1.RollingUpdateStatefulSetStrategyType, tpl)
	before := s.run("db-0", "db-1")
	if before[0] == before[1] {
		t.Fatalf("both replicas are on %s", before[0])
	}
	terminating := func() (out []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, p := range s.pods {
			if p.DeletionTimestamp != nil {
				out = append(out, name)
			}
		}
		return out
	}
	s.mu.Lock()
	s.checks = append(s.checks, func(*corev1.Pod) bool {
		up := 0
		for _, name := range []string{"db-0", "db-1"} {
			if s.on(name) != "" {
				up++
			}
		}
		if up == 0 {
			t.Error("no replica is up")
		}
		return true
	})
	s.mu.Unlock()
	_, err := s.Client().AppsV1().StatefulSets("default").Patch(t.Context(), "db", types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`), metav1.PatchOptions{})
	s.must(err)
	for range 2 {
		var ends []string
		for ctx := bounded(t); len(ends) == 0; ends = terminating() {
			select {
			case <-ctx.Done():
				t.Fatalf("no replica ends\n%s", s.account())
			case <-time.After(50 * time.Millisecond):
			}
		}
		time.Sleep(ending)
		_, err := s.Client().CoreV1().Pods("default").Patch(t.Context(), ends[0], types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.must(err)
		s.until(ends[0]+" runs again", func() bool {
			p := s.pods[ends[0]]
			return s.on(ends[0]) != "" && p.Annotations["version"] == "2"
		})
	}
	after := s.run("db-0", "db-1")
	time.Sleep(ending) // what a dip would have begun would be seen by now
	s.kept(before...)
	if !slices.Equal(before, after) || len(s.nodes) != 2 || len(s.deleted) != 2 {
		t.Errorf("replicas moved from %v to %v\n%s", before, after, s.account())
	}
}

// ENG-7.3, OP-11.6: jobs end on the machine that was bought first, while the later one is busy. The empty one goes, which by price and
// id alone would have stayed.
func jobsEnd(t *testing.T, s *story) {
	var first, later []string
	for i := range 4 {
		first, later = append(first, fmt.Sprintf("ends-%d", i)), append(later, fmt.Sprintf("busy-%d", i))
	}
	for _, name := range first {
		s.create(name, s.template("job", "1"))
	}
	empty := s.run(first...)[0]
	for _, name := range later {
		s.create(name, s.template("job", "1"))
	}
	busy := s.run(later...)[0]
	if busy <= empty {
		t.Logf("the later machine is %s, the first %s: the choice by id would be right by chance", busy, empty)
	}
	for _, name := range first {
		_, err := s.Client().CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		s.must(err)
	}
	s.until("the empty node goes", func() bool { return slices.Contains(s.gone, empty) })
	time.Sleep(4 * time.Second) // longer than every release delay here
	s.kept(busy)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range later {
		if s.on(name) != busy {
			t.Errorf("%s does not run on %s any more", name, busy)
		}
	}
}

// OP-11.7, SHARD-18.9: a node that a person cordons keeps its Pods, and is no room for others: a Pod that waits gets another machine.
// Uncordoned, the node is room again.
func cordon(t *testing.T, s *story) {
	s.create("first", s.template("web", "1"))
	closed := s.run("first")[0]
	s.patchNode(closed, `{"spec":{"unschedulable":true}}`)
	s.until("the owner sees it", func() bool {
		return slices.Contains(s.upcoming[closed], condition{"InService", "False", "Cordoned"})
	})
	s.create("waits", s.template("web", "1"))
	other := s.run("waits")[0]
	if other == closed {
		t.Fatalf("the Pod runs on the cordoned node %s", closed)
	}
	s.patchNode(closed, `{"spec":{"unschedulable":null}}`)
	s.until("the node is in service", func() bool {
		return slices.ContainsFunc(s.upcoming[closed], func(c condition) bool { return c.kind == "InService" && c.status == "True" })
	})
	s.create("large", s.template("web", "3")) // fits beside one of the two, and no third machine is needed
	on := s.run("large")[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	if on != closed && on != other || len(s.nodes) != 2 {
		t.Errorf("the Pod runs on %s; nodes %v", on, s.nodes)
	}
	if slices.Contains(s.gone, closed) && s.on("first") == "" {
		t.Errorf("the Pod of the cordoned node is gone with it")
	}
}

// SHARD-17.10, 17.11, OP-8.10, OP-8.17: a drain that a disruption budget blocks is named with the budget, given up at its deadline, and
// evicts nothing beyond the budget. The node takes Pods again.
func budgetBlocks(t *testing.T, s *story) {
	for _, name := range []string{"stays-0", "stays-1", "spare-0", "spare-1"} {
		tpl := s.template("other", "1")
		tpl.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: "true"} // so that this machine is not the one that goes
		s.create(name, tpl)
	}
	stays := s.run("stays-0", "stays-1", "spare-0", "spare-1")[0]
	tpl := s.template("guarded", "1")
	s.set("guarded", 2, appsv1.OnDeleteStatefulSetStrategyType, tpl)
	for _, name := range []string{"spare-2", "spare-3"} {
		s.create(name, s.template("other", "1"))
	}
	drained := s.run("guarded-0", "guarded-1", "spare-2", "spare-3")[0]
	// Whoever is evicted comes back as a Pod that cannot start: from then on the budget allows nothing.
	_, err := s.Client().AppsV1().StatefulSets("default").Patch(t.Context(), "guarded", types.MergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"schedulingGates":[{"name":"example.com/never"}]}}}}`), metav1.PatchOptions{})
	s.must(err)
	one := intstr.FromInt32(1)
	_, err = s.Client().PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: tpl.Labels}},
	}, metav1.CreateOptions{})
	s.must(err)
	for ctx, allowed := bounded(t), false; !allowed; {
		b, err := s.Client().PolicyV1().PodDisruptionBudgets("default").Get(ctx, "guard", metav1.GetOptions{})
		s.must(err)
		allowed = b.Status.DisruptionsAllowed == 1
		time.Sleep(50 * time.Millisecond)
	}
	for i := range 4 { // half of the demand, so that one machine is enough
		s.must(s.Client().CoreV1().Pods("default").Delete(t.Context(), fmt.Sprint("spare-", i), metav1.DeleteOptions{}))
	}
	s.until("the drain begins", func() bool { return slices.Contains(s.cordoned, drained) })
	blocked := func() string {
		events, err := s.Client().CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=DrainBlocked"})
		s.must(err)
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "un-"+drained {
				return e.Message
			}
		}
		return ""
	}
	text := ""
	for ctx := bounded(t); text == "" && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		text = blocked()
	}
	if !strings.Contains(text, "default/guard") {
		t.Errorf("the event says %q, want the name of the budget\n%s", text, s.account())
	}
	uncordoned := func() bool {
		n, err := s.Client().CoreV1().Nodes().Get(t.Context(), drained, metav1.GetOptions{})
		s.must(err)
		return !n.Spec.Unschedulable
	}
	ctx := bounded(t)
	for ; !uncordoned(); time.Sleep(100 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("the drain was not given up\n%s", s.account())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	evicted := 0
	for _, name := range []string{"guarded-0", "guarded-1"} {
		if s.on(name) != drained {
			evicted++
		}
	}
	if evicted != 1 || slices.Contains(s.gone, drained) || slices.Contains(s.cordoned, stays) {
		t.Errorf("%d guarded Pods were evicted; gone %v, cordoned %v", evicted, s.gone, s.cordoned)
	}
}

// OP-11.7, OP-12.5: a node whose kubelet is lost is told by its UpcomingNode, is replaced for its Pods, and goes.
func nodeLost(t *testing.T, s *story) {
	tpl := s.template("web", "2")
	soon := int64(1)
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		tpl.Spec.Tolerations = append(tpl.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon})
	}
	s.set("lost", 1, appsv1.RollingUpdateStatefulSetStrategyType, tpl)
	lost := s.run("lost-0")[0]
	s.patchNode(lost, `{"metadata":{"annotations":{"`+controlplane.StatusByTest+`":"custom"}}}`)
	s.patchNode(lost, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"played by the test"}]}}`, "status")
	s.until("its UpcomingNode says so", func() bool {
		return slices.Contains(s.upcoming[lost], condition{"InService", "False", "NodeLost"})
	})
	s.until("its Pod runs on another machine", func() bool { return s.on("lost-0") != "" && s.on("lost-0") != lost })
	s.until("the lost node goes", func() bool { return slices.Contains(s.gone, lost) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.nodes) != 2 {
		t.Errorf("nodes %v, want the lost one and its replacement", s.nodes)
	}
}

// SHARD-18.10: a label that an agent sets on the Node, and that no offering knows, holds the machine of the Pod that selects it.
func labelOfTheNode(t *testing.T, s *story) {
	s.create("plain", s.template("plain", "1"))
	node := s.run("plain")[0]
	s.patchNode(node, `{"metadata":{"labels":{"feature.example.com/fast":"true"}}}`)
	tpl := s.template("picky", "1")
	tpl.Spec.NodeSelector["feature.example.com/fast"] = "true"
	s.create("picky", tpl)
	if on := s.run("picky")[0]; on != node {
		t.Fatalf("picky runs on %s", on)
	}
	s.must(s.Client().CoreV1().Pods("default").Delete(t.Context(), "plain", metav1.DeleteOptions{}))
	time.Sleep(8 * time.Second) // several release delays
	s.kept(node)
}

// OP-15.29: a Pod without its claim buys nothing and is told why. Once the claim is bound to a volume of a zone, its machine is in that
// zone, although another one is cheaper.
func volumeElsewhere(t *testing.T, s *story) {
	tpl := s.template("db", "1")
	tpl.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.create("db", tpl)
	text := ""
	for ctx := bounded(t); text == "" && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		events, err := s.Client().CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=db,reason=CapacityReduced"})
		s.must(err)
		for _, e := range events.Items {
			text = e.Message
		}
	}
	if !strings.Contains(text, "PersistentVolumeClaim data does not exist") {
		t.Errorf("the event says %q", text)
	}
	time.Sleep(3 * time.Second)
	s.mu.Lock()
	if len(s.nodes) != 0 {
		t.Errorf("bought %v for a Pod that waits for its claim", s.nodes)
	}
	s.mu.Unlock()
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes, none := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ""
	_, err := s.Client().CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"test-1b"}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.Client().CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &none, VolumeName: "disk",
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	s.must(err)
	node := s.run("db")[0]
	n, err := s.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	s.must(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Labels[corev1.LabelTopologyZone] != "test-1b" || len(s.nodes) != 1 {
		t.Errorf("the Pod runs on %s in %s; bought %v", node, n.Labels[corev1.LabelTopologyZone], s.nodes)
	}
}
