package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

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

// OP-11.7, SHARD-18.9: a node that a person cordons keeps its Pods, and is not room for others: a Pod that waits gets another machine.
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
	// An evicted Pod is replaced by one that cannot start: from then on the budget allows nothing.
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

// OP-11.7, OP-12.5: a node whose kubelet is lost is shown by its UpcomingNode, is replaced for its Pods, and is returned. Another node stays well:
// the controllers of Kubernetes evict nothing while every node of a zone is lost.
func nodeLost(t *testing.T, s *story) {
	s.create("well", s.template("well", "3"))
	well := s.run("well")[0]
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
	s.kept(well)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.nodes) != 3 {
		t.Errorf("nodes %v, want the one that is well, the lost one and its replacement", s.nodes)
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

// OP-5.26, ENG-11.16: the kubelets of the type take five Pods, and their offering does not say so: three machines run 12 Pods that one
// would hold by their size, and no more are bought, though the Pods that found no place were reported as well.
func limitOfPods(t *testing.T, s *story) {
	s.limitPods("5")
	tpl := s.template("web", "300m")
	tpl.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("limit-%d", i)
		s.create(names[i], tpl)
	}
	s.run(names...)
	time.Sleep(4 * time.Second) // what is bought too much comes with the last of them or soon after
	s.mu.Lock()
	bought := len(s.nodes)
	s.mu.Unlock()
	if bought != 3 {
		t.Errorf("%d machines were bought for 12 Pods, 5 a machine: %s", bought, s.account())
	}
}

// limitPods makes every Node of the type that registers from now on report a limit of Pods, whatever its provider says.
func (s *story) limitPods(most string) {
	s.Helper()
	rules := admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes"}},
	}}}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelInstanceTypeStable: typeOf(s.name)}}}
	api := s.Client().AdmissionregistrationV1()
	_, err := api.MutatingAdmissionPolicies().Create(s.Context(), &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &rules, FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{
				Expression: `[JSONPatch{op: "add", path: "/status/allocatable/pods", value: "` + most + `"}]`}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = api.MutatingAdmissionPolicyBindings().Create(s.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: s.name},
	}, metav1.CreateOptions{})
	s.must(err)
	s.until("Nodes have the limit", func() bool { // the API server takes a policy up after a while
		n, err := s.Client().CoreV1().Nodes().Create(s.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{corev1.LabelInstanceTypeStable: typeOf(s.name)}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && n.Status.Allocatable.Pods().String() == most
	})
}

// OP-15.29: a Pod without its claim buys nothing and gets the reason. Once the claim is bound to a volume of a zone, its machine is in that
// zone, although another one is cheaper.
func volumeElsewhere(t *testing.T, s *story) {
	tpl := s.template("db", "1")
	tpl.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.create("db", tpl)
	text := s.event("db", "CapacityReduced")
	if !strings.Contains(text, "PersistentVolumeClaim data does not exist") {
		t.Errorf("the event says %q", text)
	}
	time.Sleep(3 * time.Second)
	s.mu.Lock()
	if len(s.nodes) != 0 {
		t.Errorf("bought %v for a Pod that waits for its claim", s.nodes)
	}
	s.mu.Unlock()
	s.disk("data", corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}}, &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"test-1b"}}},
		}},
	}})
	node := s.run("db")[0]
	n, err := s.Client().CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	s.must(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n.Labels[corev1.LabelTopologyZone] != "test-1b" || len(s.nodes) != 1 {
		t.Errorf("the Pod runs on %s in %s; bought %v", node, n.Labels[corev1.LabelTopologyZone], s.nodes)
	}
}

// OP-11.5, ENG-11.16: two zones have a full node each. Two Pods with a hard spread over zones get a machine that holds both, of which one may
// run there; the other one's zone gets a machine as soon as the scheduler has said so.
func overZones(t *testing.T, s *story) {
	for _, z := range []string{"test-1a", "test-1b"} {
		tpl := s.template("full", "4")
		tpl.Spec.NodeSelector[corev1.LabelTopologyZone] = z
		s.create("full-"+z, tpl)
	}
	if on := s.run("full-test-1a", "full-test-1b"); on[0] == on[1] {
		t.Fatalf("both run on %s", on[0])
	}
	tpl := s.template("spread", "1")
	tpl.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: tpl.Labels},
	}}
	s.create("spread-0", tpl)
	s.create("spread-1", tpl)
	if on := s.run("spread-0", "spread-1"); on[0] == on[1] {
		t.Errorf("both run on %s", on[0])
	}
}
