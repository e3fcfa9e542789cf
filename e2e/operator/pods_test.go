package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// requestOf is the request of a Pod; nil when it has none.
func (w *world) requestOf(pod string) *v1alpha1.CapacityRequest {
	w.Helper()
	p, ok := get(w, "default", pod, &corev1.Pod{})
	if !ok {
		return nil
	}
	list := w.requests(client.MatchingLabels{v1alpha1.LabelOwnedByPod: string(p.UID)})
	if len(list) != 1 {
		return nil
	}
	return &list[0]
}

func annotated(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// The life of Pods as the scheduler, kubelets and users shape it, and what becomes of their requests.
func TestPods(t *testing.T) {
	t.Parallel()
	w := newWorldOf(t, controlplane.Config{Args: map[controlplane.Component][]string{controlplane.APIServer: {
		"--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true",
	}}})
	s := startShard(t, allFeatures...)
	w.operator(s)
	w.podController()
	c := w.census()
	w.node("n1", "n1")

	// Scenario 42, OP-15.1, OP-15.2, OP-15.5 to OP-15.8: created, bound, resized, finished.
	t.Run("a life", func(t *testing.T) {
		w := w.with(t)
		w.create(pod("default", "life", "500m"))
		w.until("it has a request", func() bool { return w.requestOf("life") != nil })
		first := w.requestOf("life")
		p, _ := get(w, "default", "life", &corev1.Pod{})
		if !strings.HasPrefix(first.Name, "life-") || !metav1.IsControlledBy(first, p) || first.Spec.Resources.Cpu().MilliValue() != 500 ||
			first.Spec.Requirements[0].Key != "node.kubernetes.io/instance-type" {
			t.Errorf("request %+v", first)
		}
		w.until("it runs", func() bool {
			p, _ := get(w, "default", "life", &corev1.Pod{})
			return p.Status.Phase == corev1.PodRunning && w.requestOf("life").Status.Phase == v1alpha1.RequestAcknowledged
		})
		if after := w.requestOf("life"); after.Generation != first.Generation || after.UID != first.UID {
			t.Error("the request was written when its Pod was bound")
		}
		// A kubelet that can resize says what each container has.
		p, _ = get(w, "default", "life", &corev1.Pod{})
		before := p.DeepCopy()
		p.Status.ContainerStatuses[0].Resources = &p.Spec.Containers[0].Resources
		p.Status.ContainerStatuses[0].AllocatedResources = p.Spec.Containers[0].Resources.Requests
		w.must(w.client.Status().Patch(t.Context(), p, client.StrategicMergeFrom(before)))
		// An in-place resize, through the Pod's own subresource.
		mark := w.calls.mark()
		w.until("kwok does not write the Pod meanwhile", func() bool {
			p, _ = get(w, "default", "life", &corev1.Pod{})
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("750m")
			err := w.client.SubResource("resize").Update(t.Context(), p)
			if !apierrors.IsConflict(err) {
				w.must(err)
			}
			return err == nil
		})
		w.until("the resize counts", func() bool { return w.requestOf("life").Spec.Resources.Cpu().MilliValue() == 750 })
		// The penalties of a running Pod change.
		p, _ = get(w, "default", "life", &corev1.Pod{})
		w.must(w.client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"bigfleet.lucy.sh/interruption-penalty":"500m"}}}`))))
		s.needs(t, "the penalty reaches the shard", func(n []*pb.CapacityNeed) bool {
			return slices.ContainsFunc(n, func(n *pb.CapacityNeed) bool {
				return n.InterruptionPenaltyBucket == pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR && n.AggregateResources["cpu"] == "750m"
			})
		})
		if got := w.calls.of(mark, "patch", "capacityrequests"); got != 2 {
			t.Errorf("%d patches for a resize and a penalty, want 2", got)
		}
		// OP-15.17: what cannot be read counts as absent, and the owner gets an event.
		w.must(w.client.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"bigfleet.lucy.sh/interruption-penalty":"lots"}}}`))))
		w.until("the owner gets an event", func() bool { return w.event("Pod", "life", "PenaltyUnreadable") != nil })
		w.until("it counts as absent", func() bool { return w.requestOf("life").Spec.InterruptionPenalty == nil })
		// OP-15.7: a finished Pod uses nothing, however long it lingers.
		w.must(w.client.Status().Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))))
		w.until("the request is withdrawn", func() bool { return w.requestOf("life") == nil })
		if !w.exists(p) {
			t.Error("the Pod is gone")
		}
	})

	// Scenario 45, OP-15.14, OP-15.15: sidecars, init containers, overhead, and Pods that state nothing.
	t.Run("resources", func(t *testing.T) {
		w := w.with(t)
		always := corev1.ContainerRestartPolicyAlways
		container := func(name, cpu string, policy *corev1.ContainerRestartPolicy) corev1.Container {
			return corev1.Container{Name: name, Image: "test", RestartPolicy: policy, Resources: corev1.ResourceRequirements{Requests: resources("cpu", cpu)}}
		}
		heavy := pod("default", "heavy", "300m", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{container("sidecar", "200m", &always), container("migrate", "900m", nil)}
		})
		bare := pod("default", "bare", "1", func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} })
		// Overhead is what the API server takes from the Pod's RuntimeClass.
		w.create(&nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "boxed"}, Handler: "boxed", Overhead: &nodev1.Overhead{PodFixed: resources("cpu", "250m", "memory", "100Mi")}})
		boxed := pod("default", "boxed", "300m", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("boxed") })
		w.create(heavy, bare)
		w.until("the API server knows the class", func() bool { return w.client.Create(t.Context(), boxed.DeepCopy()) == nil })
		w.until("all count", func() bool {
			return w.requestOf("heavy") != nil && w.requestOf("bare") != nil && w.requestOf("boxed") != nil
		})
		if got := w.requestOf("boxed").Spec.Resources; got.Cpu().MilliValue() != 550 || got.Memory().Value() != 164<<20 {
			t.Errorf("a Pod with overhead counts as %v", got)
		}
		if got := w.requestOf("heavy").Spec.Resources.Cpu().MilliValue(); got != 1100 { // max(300 + 200, 200 + 900)
			t.Errorf("cpu %dm, want 1100m", got)
		}
		if got := w.requestOf("bare").Spec.Resources; got.Cpu().MilliValue() != 10 || got.Memory().Value() != 16<<20 {
			t.Errorf("a Pod that states nothing counts as %v", got)
		}
	})

	// Scenarios 14, 15 and 17, OP-15.18, OP-15.19: a gang on a rack; hard spread counts and soft does not.
	t.Run("placement", func(t *testing.T) {
		w := w.with(t)
		gang := func(p *corev1.Pod) {
			p.Labels = map[string]string{"job": "train"}
			p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "topology.bigfleet/rack", LabelSelector: metav1.SetAsLabelSelector(map[string]string{"job": "train"}),
			}}}}
		}
		spread := func(when corev1.UnsatisfiableConstraintAction) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 1, WhenUnsatisfiable: when}}
				p.Spec.PriorityClassName = "placement"
			}
		}
		w.create(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "placement"}, Value: 77, PreemptionPolicy: new(corev1.PreemptNever)})
		w.create(pod("default", "gang-0", "2", gang), pod("default", "gang-1", "2", gang), pod("default", "gang-2", "2", gang))
		w.create(pod("default", "plain", "3", func(p *corev1.Pod) { p.Spec.PriorityClassName = "placement" }),
			pod("default", "soft", "3", spread(corev1.ScheduleAnyway)), pod("default", "hard", "3", spread(corev1.DoNotSchedule)))
		needs := s.needs(t, "all of them count", func(n []*pb.CapacityNeed) bool {
			cpu := int64(0)
			for _, need := range n {
				q := resource.MustParse(need.AggregateResources["cpu"])
				cpu += q.MilliValue()
			}
			return cpu == 3*2000+3*3000+1110+550
		})
		var gangs, spreads, plain int
		for _, n := range needs {
			switch {
			case strings.HasPrefix(n.Group, "g1-"):
				gangs++
				same := n.Requirements[len(n.Requirements)-1]
				if n.AggregateResources["cpu"] != "6" || n.MinUnit["cpu"] != "2" || same.Operator != pb.NodeSelectorRequirement_OPERATOR_SAME || same.Key != "topology.bigfleet/rack" {
					t.Errorf("the gang's row: %v", n)
				}
			case len(n.Spread) > 0:
				spreads++
				if n.AggregateResources["cpu"] != "3" || n.Priority != 77 {
					t.Errorf("the row with the hard spread: %v", n)
				}
			case n.Priority == 77:
				plain++
				if n.AggregateResources["cpu"] != "6" {
					t.Errorf("a soft spread split a row: %v", n)
				}
			}
		}
		if gangs != 1 || spreads != 1 || plain != 1 {
			t.Errorf("%d gangs, %d with spread, %d without in %v", gangs, spreads, plain, needs)
		}
	})

	// Scenario 46, OP-15.12, OP-15.13: what cannot be expressed is noted on the request, and the owner gets an event.
	t.Run("reductions", func(t *testing.T) {
		w := w.with(t)
		terms := func(list ...corev1.NodeSelectorRequirement) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				var out []corev1.NodeSelectorTerm
				for _, r := range list {
					out = append(out, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}})
				}
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: out}}}
			}
		}
		in := func(key, value string) corev1.NodeSelectorRequirement {
			return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
		}
		w.create(pod("default", "either", "10m", terms(in("zone", "a"), in("disk", "ssd"))),
			pod("default", "zones", "10m", terms(in("zone", "a"), in("zone", "b"))),
			pod("default", "newer", "10m", terms(corev1.NodeSelectorRequirement{Key: "generation", Operator: corev1.NodeSelectorOpGt, Values: []string{"5"}})))
		w.until("the owners get events", func() bool {
			return w.event("Pod", "either", "CapacityReduced") != nil && w.requestOf("either") != nil && w.requestOf("newer") != nil && w.requestOf("zones") != nil
		})
		if r := w.requestOf("either"); r == nil || r.Annotations[v1alpha1.AnnotationReduced] == "" || r.Spec.Requirements[0].Key != "zone" {
			t.Errorf("request %+v", r)
		}
		if r := w.requestOf("zones"); r.Annotations[v1alpha1.AnnotationReduced] != "" || !slices.Equal(r.Spec.Requirements[0].Values, []string{"a", "b"}) {
			t.Errorf("request %+v", r)
		}
		if r := w.requestOf("newer"); r.Annotations[v1alpha1.AnnotationReduced] != "" || r.Spec.Requirements[0].Operator != corev1.NodeSelectorOpGt {
			t.Errorf("request %+v", r)
		}
	})

	// Scenario 48, OP-15.9: Pods that no machine of BigFleet's is for.
	t.Run("exclusions", func(t *testing.T) {
		w := w.with(t)
		w.node("control", "", func(n *corev1.Node) {
			n.Labels["node-role.kubernetes.io/control-plane"] = ""
			n.Spec.Taints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
		})
		gated := pod("default", "gated", "10m", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} })
		w.create(gated, pod("default", "ignored", "10m", annotated(v1alpha1.AnnotationIgnore, "true")), pod("default", "on-control", "10m", onNode("control")),
			pod("default", "counted", "10m"))
		w.until("the other one counts", func() bool { return w.requestOf("counted") != nil })
		for _, name := range []string{"gated", "ignored", "on-control"} {
			if r := w.requestOf(name); r != nil {
				t.Errorf("%s has a request", name)
			}
		}
		w.must(w.client.Patch(t.Context(), gated, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"schedulingGates":null}}`))))
		w.until("it counts once the gate is lifted", func() bool { return w.requestOf("gated") != nil })
	})

	// OP-15.3: a request of our name that is there before the cache knows is met, not doubled; a foreign one is left alone.
	t.Run("a name that is taken", func(t *testing.T) {
		w := w.with(t)
		before := w.requestOf("counted")
		w.calls.once("post", "capacityrequests", func() {
			p, _ := get(w, "default", "race", &corev1.Pod{})
			r := request("default", "race-"+hash(string(p.UID))[:10], `{"resources":{"cpu":"10m"},"priority":0}`)
			r.Labels = map[string]string{v1alpha1.LabelOwnedByPod: string(p.UID)}
			w.create(r)
		})
		w.create(pod("default", "race", "20m"))
		w.until("the request is taken over", func() bool {
			r := w.requestOf("race")
			return r != nil && r.Spec.Resources.Cpu().MilliValue() == 20
		})
		if after := w.requestOf("counted"); after.UID != before.UID || after.Generation != before.Generation {
			t.Error("another Pod's request was written")
		}
	})
	// OP-15.30, OP-5.24: gangs as Kubernetes itself and three projects write them reach the shard as one row each.
	t.Run("gangs", func(t *testing.T) {
		w := w.with(t)
		for _, kind := range [][3]string{{"scheduling.x-k8s.io", "v1alpha1", "PodGroup"}, {"scheduling.volcano.sh", "v1beta1", "PodGroup"}, {"jobset.x-k8s.io", "v1alpha2", "JobSet"}} {
			plural := strings.ToLower(kind[2]) + "s"
			w.must(w.cp.ApplyYAML(t.Context(), []byte(fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[4]s.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, plural: %[4]s, singular: %[5]s, listKind: %[3]sList}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, kind[0], kind[1], kind[2], plural, strings.ToLower(kind[2])))))
		}
		for _, o := range []string{`
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: native, namespace: default}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  schedulingConstraints: {topology: [{key: topology.kubernetes.io/zone}]}`, `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: plugin, namespace: default}
spec: {minMember: 2}`, `
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: volcano, namespace: default}
spec: {minMember: 2}`, `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: default}
spec: {replicatedJobs: [{name: workers, replicas: 1, template: {spec: {parallelism: 2}}}]}`} {
			w.until("the definition is served", func() bool { return w.cp.ApplyYAML(t.Context(), []byte(o)) == nil })
		}
		shapes := map[string]func(p *corev1.Pod){
			"native":  func(p *corev1.Pod) { p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("native")} },
			"plugin":  func(p *corev1.Pod) { p.Labels["scheduling.x-k8s.io/pod-group"] = "plugin" },
			"volcano": annotated("scheduling.k8s.io/group-name", "volcano"),
			"set":     func(p *corev1.Pod) { p.Labels["jobset.sigs.k8s.io/jobset-name"] = "set" },
		}
		at := int64(0)
		for name, shape := range shapes {
			at++
			for i, cpu := range []int64{30 + at, 130 + at} {
				w.create(pod("default", fmt.Sprint(name, "-", i), fmt.Sprint(cpu, "m"), shape))
			}
			s.needs(t, name+" is one row", func(n []*pb.CapacityNeed) bool {
				return slices.ContainsFunc(n, func(n *pb.CapacityNeed) bool {
					same := slices.ContainsFunc(n.Requirements, func(r *pb.NodeSelectorRequirement) bool {
						return r.Operator == pb.NodeSelectorRequirement_OPERATOR_SAME && r.Key == "topology.kubernetes.io/zone"
					})
					return n.MinMembers == 2 && n.AggregateResources["cpu"] == fmt.Sprint(160+2*at, "m") && n.MinUnit["cpu"] == fmt.Sprint(130+at, "m") && same == (name == "native")
				})
			})
		}
	})
	// OP-15.32: devices of a class that Pods claim are an amount of their row, with the attributes that they select; what says more is refused.
	t.Run("devices", func(t *testing.T) {
		w := w.with(t)
		for _, o := range []string{`
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}`, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: two, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 2,
  selectors: [{cel: {expression: 'device.attributes["gpu.example.com"].model == "big"'}}]}}]}}}`, `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: choice, namespace: default}
spec: {devices: {requests: [{name: gpu, firstAvailable: [{name: any, deviceClassName: gpu.example.com}]}]}}`} {
			w.must(w.cp.ApplyYAML(t.Context(), []byte(o)))
		}
		claims := func(c corev1.PodResourceClaim) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{c} }
		}
		w.create(pod("default", "device-two", "71m", claims(corev1.PodResourceClaim{Name: "gpu", ResourceClaimTemplateName: new("two")})),
			pod("default", "device-choice", "72m", claims(corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: new("choice")})))
		s.needs(t, "two devices of the model", func(n []*pb.CapacityNeed) bool {
			return slices.ContainsFunc(n, func(n *pb.CapacityNeed) bool {
				return n.MinUnit["cpu"] == "71m" && n.MinUnit["deviceclass.resource.kubernetes.io/gpu.example.com"] == "2" &&
					slices.ContainsFunc(n.Requirements, func(r *pb.NodeSelectorRequirement) bool {
						return r.Key == "gpu.example.com/model" && slices.Equal(r.Values, []string{"big"})
					})
			})
		})
		w.until("the owner of the other gets an event", func() bool {
			e := w.event("Pod", "device-choice", "CapacityReduced")
			return e != nil && strings.Contains(e.Message, "firstAvailable")
		})
		if r := w.requestOf("device-choice"); r != nil {
			t.Errorf("it has a request: %+v", r.Spec)
		}
	})
	c.check(t)
}
