package translate

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"sigs.k8s.io/yaml"
)

func pod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return StripPod(p) // what the cache holds is what is translated
}

func floor() Defaults {
	return Defaults{Floor: corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("16Mi")}}
}

func node(labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		n.Labels[k] = v
	}
	return n
}

// words writes requirements in one line.
func words(in []corev1.NodeSelectorRequirement) string {
	var out []string
	for _, r := range in {
		out = append(out, strings.TrimSpace(r.Key+" "+string(r.Operator)+" "+strings.Join(r.Values, ",")))
	}
	return strings.Join(out, "; ")
}

const affinity = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: `

// OP-15.11 to OP-15.13, scenarios 44, 46.
func TestRequirements(t *testing.T) {
	for name, c := range map[string]struct {
		spec    string
		node    *corev1.Node
		want    string
		reduced bool
		refused bool
	}{
		"none":     {`{}`, nil, "node.kubernetes.io/instance-type Exists", false, false},
		"selector": {`{nodeSelector: {b: "2", a: "1"}}`, nil, "a In 1; b In 2", false, false},
		"both": {`{nodeSelector: {a: "1"}, ` + affinity + `[{matchExpressions: [{key: z, operator: In, values: [w, x, x]}, {key: a, operator: In, values: ["1"]}]}]}}}}`, nil,
			"a In 1; z In w,x", false, false},
		"contradiction": {`{nodeSelector: {a: "1"}, ` + affinity + `[{matchExpressions: [{key: a, operator: In, values: ["2"]}]}]}}}}`, nil, "a In 1; a In 2", false, false},
		"exact merge": {`{` + affinity + `[{matchExpressions: [{key: z, operator: In, values: [a]}, {key: k, operator: Exists}]}, {matchExpressions: [{key: k, operator: Exists}, {key: z, operator: In, values: [b]}]}]}}}}`, nil,
			"k Exists; z In a,b", false, false},
		"merge of three": {`{` + affinity + `[{matchExpressions: [{key: z, operator: In, values: [a]}]}, {matchExpressions: [{key: z, operator: In, values: [c, b]}]}, {matchExpressions: [{key: z, operator: In, values: [a]}]}]}}}}`, nil,
			"z In a,b,c", false, false},
		"two keys differ":                  {`{` + affinity + `[{matchExpressions: [{key: w, operator: In, values: [a]}]}, {matchExpressions: [{key: z, operator: In, values: [b]}]}]}}}}`, nil, "w In a", true, false},
		"NotIn does not merge":             {`{` + affinity + `[{matchExpressions: [{key: z, operator: NotIn, values: [a]}]}, {matchExpressions: [{key: z, operator: NotIn, values: [b]}]}]}}}}`, nil, "z NotIn a", true, false},
		"bound to a second-term node":      {`{nodeName: n, ` + affinity + `[{matchExpressions: [{key: w, operator: In, values: [a]}]}, {matchExpressions: [{key: z, operator: In, values: [b]}]}]}}}}`, node("z=b"), "z In b", true, false},
		"bound, node not known":            {`{nodeName: n, ` + affinity + `[{matchExpressions: [{key: w, operator: In, values: [a]}]}, {matchExpressions: [{key: z, operator: In, values: [b]}]}]}}}}`, nil, "w In a", true, false},
		"an empty term selects nothing":    {`{` + affinity + `[{}, {matchExpressions: [{key: z, operator: Exists}]}]}}}}`, nil, "z Exists", false, false},
		"Gt pending":                       {`{` + affinity + `[{matchExpressions: [{key: gen, operator: Gt, values: ["4"]}]}]}}}}`, nil, "gen Gt 4", false, false},
		"Gt bound":                         {`{nodeName: n, ` + affinity + `[{matchExpressions: [{key: gen, operator: Gt, values: ["4"]}, {key: z, operator: Exists}]}]}}}}`, node("gen=5", "z=1"), "gen Gt 4; z Exists", false, false},
		"only Gt bound":                    {`{nodeName: n, ` + affinity + `[{matchExpressions: [{key: gen, operator: Lt, values: ["4"]}]}]}}}}`, node("gen=3"), "gen Lt 4", false, false},
		"Gt with an alternative":           {`{` + affinity + `[{matchExpressions: [{key: gen, operator: Gt, values: ["4"]}]}, {matchExpressions: [{key: z, operator: Exists}]}]}}}}`, nil, "gen Gt 4", true, false},
		"alternatives with one Gt":         {`{` + affinity + `[{matchExpressions: [{key: gen, operator: Gt, values: ["4"]}, {key: z, operator: In, values: [a]}]}, {matchExpressions: [{key: z, operator: In, values: [b]}, {key: gen, operator: Gt, values: ["4"]}]}]}}}}`, nil, "gen Gt 4; z In a,b", false, false},
		"only a named node":                {`{` + affinity + `[{matchExpressions: [{key: gen, operator: Exists}], matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}]}}}}`, nil, "", true, true},
		"a named node with an alternative": {`{` + affinity + `[{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}, {matchExpressions: [{key: z, operator: Exists}]}]}}}}`, nil, "z Exists", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := Spec(pod(t, "spec: "+c.spec), c.node, floor())
			if (r.Eligibility == Unsupported) != c.refused || !c.refused && words(r.Spec.Requirements) != c.want || (len(r.Reduced) > 0) != c.reduced {
				t.Errorf("verdict %d, requirements %q, reduced %q; want %q", r.Eligibility, words(r.Spec.Requirements), r.Reduced, c.want)
			}
		})
	}
}

// OP-15.12: alternatives that do not merge are stated one after the other, those that cannot be expressed never, and of a Pod that runs the one
// that its node satisfies whatever was tried.
func TestAlternativesTakeTurns(t *testing.T) {
	const terms = affinity + `[{matchExpressions: [{key: w, operator: In, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [n1]}]}, {matchExpressions: [{key: gen, operator: Gt, values: ["4"]}]}, {matchExpressions: [{key: z, operator: In, values: [b]}]}]}}}`
	for turn, want := range []string{"w In a", "gen Gt 4", "z In b", "w In a"} {
		d := floor()
		d.Turn = func(*corev1.Pod) int { return turn }
		r := Spec(pod(t, `spec: {`+terms+`}`), nil, d)
		if words(r.Spec.Requirements) != want || r.Turns != 3 || len(r.Reduced) != 1 {
			t.Errorf("turn %d of %d: %q, %q", turn, r.Turns, words(r.Spec.Requirements), r.Reduced)
		}
		if r := Spec(pod(t, `spec: {nodeName: n, `+terms+`}`), node("z=b"), d); words(r.Spec.Requirements) != "z In b" || r.Turns != 0 {
			t.Errorf("bound, turn %d of %d: %q", turn, r.Turns, words(r.Spec.Requirements))
		}
	}
}

// OP-15.9, OP-15.10, scenarios 48, 49; OP-15.7, OP-15.8.
func TestWhy(t *testing.T) {
	daemon := `metadata: {ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: x, controller: true}]}`
	for text, want := range map[string]Eligibility{
		`spec: {}`:                   Counted,
		`spec: {nodeName: n}`:        Counted,
		`status: {phase: Succeeded}`: Terminal,
		`status: {phase: Failed}`:    Terminal,
		`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 30}`:  Leaving,
		`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 600}`: Leaving,
		`metadata: {deletionTimestamp: "2026-01-01T00:00:00Z", deletionGracePeriodSeconds: 601}`: Counted,
		`metadata: {annotations: {kubernetes.io/config.mirror: x}}`:                              Excluded,
		`metadata: {annotations: {kubernetes.io/config.source: file}}`:                           Excluded,
		`metadata: {annotations: {kubernetes.io/config.source: api}}`:                            Counted,
		`metadata: {annotations: {bigfleet.lucy.sh/ignore: "true"}}`:                             Excluded,
		`metadata: {annotations: {bigfleet.lucy.sh/ignore: "false"}}`:                            Counted,
		daemon: Excluded,
		strings.Replace(daemon, "controller: true", "controller: false", 1):                                            Counted,
		`spec: {schedulingGates: [{name: quota}]}`:                                                                     Excluded,
		`spec: {` + affinity + `[{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}}`:               Excluded,
		`spec: {nodeName: n1, ` + affinity + `[{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}]}}}}`: Counted,
	} {
		p := pod(t, text)
		got := Eligible(p, Node{}, false)
		if got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		if why := WhyNot(p); p.Spec.NodeName == "" && (why == "") != (got == Counted) { // OPS-4.14: and explain says why
			t.Errorf("%s: %d is explained by %q", text, got, why)
		}
	}
	if Eligible(pod(t, `spec: {nodeName: n}`), Node{Object: node(), Unmanaged: true}, false) != Excluded || Eligible(pod(t, `{}`), Node{}, true) != Excluded {
		t.Error("an unmanaged node or an excluded namespace counts")
	}
}

// OP-15.15, OP-15.16, OP-15.18, OP-15.19, OP-15.20, OP-5.21.
func TestTheRest(t *testing.T) {
	p := pod(t, `
spec:
  priority: 7
  containers: [{name: a}]
  tolerations:
  - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
  - {key: node.kubernetes.io/disk-pressure, operator: Exists, effect: NoSchedule}
  - {key: gpu, operator: Exists, tolerationSeconds: 5}
  topologySpreadConstraints:
  - {topologyKey: zone, maxSkew: 2, whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor}
  - {topologyKey: host, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
      - {topologyKey: rack, labelSelector: {matchLabels: {job: a}}, namespaces: [x], namespaceSelector: {}}
      - {topologyKey: zone, labelSelector: {}}
      preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: host}}]
    podAntiAffinity:
      requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: host, labelSelector: {}}]
`)
	r := Spec(p, nil, floor())
	want := v1alpha1.CapacityRequestSpec{
		Requirements: []corev1.NodeSelectorRequirement{AnyNode()}, Priority: 7,
		Resources:      corev1.ResourceList{"cpu": resource.MustParse("10m"), "memory": resource.MustParse("16Mi")},
		Tolerations:    []corev1.Toleration{{Key: "node.kubernetes.io/disk-pressure", Operator: "Exists", Effect: "NoSchedule"}, {Key: "gpu", Operator: "Exists", TolerationSeconds: new(int64(5))}},
		TopologySpread: []v1alpha1.TopologySpread{{TopologyKey: "zone", MaxSkew: 2, WhenUnsatisfiable: "DoNotSchedule", MinDomains: 3}},
		CoLocation:     &v1alpha1.CoLocation{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job": "a"}}, Namespaces: []string{"x"}, NamespaceSelector: &metav1.LabelSelector{}},
	}
	if !equality.Semantic.DeepEqual(r.Spec, want) {
		a, _ := json.Marshal(r.Spec)
		b, _ := json.Marshal(want)
		t.Errorf("got %s\nwant %s", a, b)
	}
	slices.Sort(r.Ignored)
	if got := strings.Join(r.Ignored, " "); got != "node_inclusion_policy pod_affinity_terms pod_anti_affinity" {
		t.Errorf("ignored %s", got)
	}
	for requests, want := range map[string]string{`{}`: "cpu 10m memory 16Mi", `{cpu: 1}`: "cpu 1", `{memory: 1Gi}`: "memory 1Gi", `{nvidia.com/gpu: 1}`: "cpu 10m memory 16Mi nvidia.com/gpu 1", `{cpu: 0}`: "cpu 10m memory 16Mi"} {
		p := pod(t, "spec: {containers: [{name: a, resources: {requests: "+requests+"}}]}")
		var got []string
		for name, q := range Spec(p, nil, floor()).Spec.Resources {
			got = append(got, string(name)+" "+q.String())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("requests %s count as %v, want %s", requests, got, want)
		}
	}
}

// OP-15.17: each penalty on its own: annotation, PriorityClass, none; an unreadable annotation counts as absent.
func TestPenalties(t *testing.T) {
	q := func(s string) *resource.Quantity { v := resource.MustParse(s); return &v }
	d := floor()
	d.Class = func(name string) Penalties {
		if name == "gold" {
			return Penalties{Interruption: q("64"), Reclamation: q("500m")}
		}
		return Penalties{}
	}
	for text, want := range map[string]string{
		`{}`:                                "- -",
		`{spec: {priorityClassName: gold}}`: "64 500m",
		`{spec: {priorityClassName: lead}}`: "- -",
		`{metadata: {annotations: {bigfleet.lucy.sh/interruption-penalty: "8192"}}, spec: {priorityClassName: gold}}`: "8192 500m",
		`{metadata: {annotations: {bigfleet.lucy.sh/reclamation-penalty: "0"}}, spec: {priorityClassName: gold}}`:     "64 0",
		`{metadata: {annotations: {bigfleet.lucy.sh/interruption-penalty: "lots"}}, spec: {priorityClassName: gold}}`: "64 500m!",
		`{metadata: {annotations: {bigfleet.lucy.sh/interruption-penalty: "lots"}}}`:                                  "- -!",
		`{metadata: {annotations: {bigfleet.lucy.sh/reclamation-penalty: "-1m"}}, spec: {priorityClassName: gold}}`:   "64 500m!",
	} {
		r := Spec(pod(t, text), nil, d)
		say := func(q *resource.Quantity) string {
			if q == nil {
				return "-"
			}
			return q.String()
		}
		got := say(r.Spec.InterruptionPenalty) + " " + say(r.Spec.ReclamationPenalty) + strings.Repeat("!", len(r.Faults))
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// OP-15.14, scenario 45: the number of the scheduler's library, on random Pods, although the cache keeps a part of them.
func TestResourcesAreTheSchedulers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		always := corev1.ContainerRestartPolicyAlways
		list := func(label string) corev1.ResourceList {
			out := corev1.ResourceList{}
			for _, name := range []corev1.ResourceName{"cpu", "memory", "example.com/gpu"} {
				if n := rapid.IntRange(-2, 5).Draw(t, label); n >= 0 {
					out[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
				}
			}
			return out
		}
		containers := func(kind string, sidecars bool) (out []corev1.Container) {
			for i := range rapid.IntRange(0, 3).Draw(t, kind) {
				c := corev1.Container{Name: kind + string(rune('a'+i)), Image: "x", Resources: corev1.ResourceRequirements{Requests: list("requests"), Limits: list("limits")}}
				if sidecars && rapid.Bool().Draw(t, "sidecar") {
					c.RestartPolicy = &always
				}
				out = append(out, c)
			}
			return out
		}
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers("main", false), InitContainers: containers("init", true)}}
		if rapid.Bool().Draw(t, "overhead") {
			p.Spec.Overhead = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("3")}
		}
		if rapid.Bool().Draw(t, "pod level") {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": *resource.NewQuantity(rapid.Int64Range(1, 9).Draw(t, "pod cpu"), resource.DecimalSI)}}
		}
		if rapid.Bool().Draw(t, "resized") {
			for _, c := range p.Spec.Containers {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, AllocatedResources: list("allocated"),
					Resources: &corev1.ResourceRequirements{Requests: list("actual")}})
			}
			if rapid.Bool().Draw(t, "infeasible") {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: "True", Reason: corev1.PodReasonInfeasible}}
			}
		}
		want := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		for name, q := range want {
			if q.IsZero() {
				delete(want, name)
			}
		}
		got := Spec(StripPod(p.DeepCopy()), nil, Defaults{}).Spec.Resources
		if !equality.Semantic.DeepEqual(got, want) {
			t.Fatalf("got %v, the scheduler says %v", got, want)
		}
	})
}

// OP-15.19, OP-15.27: a hard spread says which Pods count together and how many domains there must be; anti-affinity against the Pod's own
// peers over another key than the host is one Pod for each domain.
func TestSpreadOverDomains(t *testing.T) {
	r := Spec(pod(t, `{metadata: {namespace: ns, name: p, uid: u, labels: {app: web, hash: x}}, spec: {
		topologySpreadConstraints: [{topologyKey: zone, maxSkew: 2, minDomains: 3, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [hash, none]}],
		affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {matchLabels: {app: web}}}]}}}}`), nil, floor())
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	hashed := web.DeepCopy()
	hashed.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "hash", Operator: "In", Values: []string{"x"}}}
	want := []v1alpha1.TopologySpread{
		{TopologyKey: "zone", MaxSkew: 2, MinDomains: 3, WhenUnsatisfiable: "DoNotSchedule", LabelSelector: hashed},
		{TopologyKey: "rack", MaxSkew: 1, MinDomains: math.MaxInt32, WhenUnsatisfiable: "DoNotSchedule", LabelSelector: &web},
	}
	if !equality.Semantic.DeepEqual(r.Spec.TopologySpread, want) || len(r.Ignored) > 0 || r.Spec.MaxPerHost != 0 {
		t.Errorf("%+v, ignored %v", r.Spec.TopologySpread, r.Ignored)
	}
}

// OP-15.27: host ports and anti-affinity against its own peers limit a Pod to one per node; other anti-affinity is counted as
// ignored; preemptionPolicy Never is carried.
func TestPerHost(t *testing.T) {
	const anti = `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [`
	for name, c := range map[string]struct {
		spec    string
		perHost int32
		ignored int
	}{
		"nothing":           {`{containers: [{name: c, ports: [{containerPort: 80}]}]}`, 0, 0},
		"a host port":       {`{containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]}`, 1, 0},
		"of a sidecar":      {`{containers: [{name: c}], initContainers: [{name: s, restartPolicy: Always, ports: [{containerPort: 9, hostPort: 9}]}]}`, 1, 0},
		"its own peers":     {`{` + anti + `{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}}`, 1, 0},
		"its namespace":     {`{` + anti + `{topologyKey: kubernetes.io/hostname, namespaces: [ns], labelSelector: {matchLabels: {app: web}}}]}}}`, 1, 0},
		"another namespace": {`{` + anti + `{topologyKey: kubernetes.io/hostname, namespaces: [other], labelSelector: {matchLabels: {app: web}}}]}}}`, 0, 1},
		"other Pods":        {`{` + anti + `{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: db}}}]}}}`, 0, 1},
		"another domain":    {`{` + anti + `{topologyKey: topology.kubernetes.io/zone, labelSelector: {matchLabels: {app: web}}}]}}}`, 0, 0},
		"both":              {`{` + anti + `{topologyKey: kubernetes.io/hostname, labelSelector: {}}, {topologyKey: rack, labelSelector: {}}]}}}`, 1, 0},
	} {
		r := Spec(pod(t, `{metadata: {namespace: ns, name: p, uid: u, labels: {app: web}}, spec: `+c.spec+`}`), nil, floor())
		if r.Spec.MaxPerHost != c.perHost || len(r.Ignored) != c.ignored || r.Spec.PreemptionPolicy != nil {
			t.Errorf("%s: %d per host, ignored %v, preemption %v", name, r.Spec.MaxPerHost, r.Ignored, r.Spec.PreemptionPolicy)
		}
	}
	r := Spec(pod(t, `{spec: {preemptionPolicy: Never}}`), nil, floor())
	if r.Spec.PreemptionPolicy == nil || *r.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("preemption policy %v", r.Spec.PreemptionPolicy)
	}
}

// OP-15.19, OP-15.27: a hard spread over hosts is a limit of its skew per host, the smallest of all limits counts, and spread over zones
// stays beside it.
func TestSpreadOverHosts(t *testing.T) {
	const web = `labelSelector: {matchLabels: {app: web}}`
	const host = `topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule`
	for name, c := range map[string]struct {
		spec               string
		perHost            int32
		terms, approximate int
	}{
		"hosts":            {`{topologySpreadConstraints: [{maxSkew: 2, ` + host + `, ` + web + `}]}`, 2, 0, 0},
		"hosts and zones":  {`{topologySpreadConstraints: [{maxSkew: 1, ` + host + `, ` + web + `}, {maxSkew: 3, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, ` + web + `}]}`, 1, 1, 0},
		"at least so many": {`{topologySpreadConstraints: [{maxSkew: 1, minDomains: 4, ` + host + `, ` + web + `}]}`, 1, 0, 0},
		"hosts, softly":    {`{topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, ` + web + `}]}`, 0, 0, 0},
		"of other Pods":    {`{topologySpreadConstraints: [{maxSkew: 1, ` + host + `, labelSelector: {matchLabels: {app: db}}}]}`, 0, 0, 1},
		"two skews":        {`{topologySpreadConstraints: [{maxSkew: 3, ` + host + `, ` + web + `}, {maxSkew: 2, ` + host + `, labelSelector: {}}]}`, 2, 0, 0},
		"and a host port":  {`{containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}], topologySpreadConstraints: [{maxSkew: 3, ` + host + `, ` + web + `}]}`, 1, 0, 0},
	} {
		r := Spec(pod(t, `{metadata: {namespace: ns, name: p, uid: u, labels: {app: web}}, spec: `+c.spec+`}`), nil, floor())
		if r.Spec.MaxPerHost != c.perHost || len(r.Spec.TopologySpread) != c.terms || len(r.Ignored) != c.approximate {
			t.Errorf("%s: %d per host, terms %v, ignored %v", name, r.Spec.MaxPerHost, r.Spec.TopologySpread, r.Ignored)
		}
	}
}
