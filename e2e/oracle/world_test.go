package oracle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	diskLabel       = "example.com/disk"
	generationLabel = "example.com/generation"
	dedicated       = "example.com/dedicated" // key of a taint and of the label beside it
	stock           = 30                      // machines of each offering
)

var zones = []string{"z-a", "z-b", "z-c"}

// offering is one line of the catalogue: a type in a zone.
type offering struct {
	Name         string            `json:"name"`
	InstanceType string            `json:"instance_type"`
	Zone         string            `json:"zone"`
	CapacityType string            `json:"capacity_type"`
	Count        int               `json:"count"`
	Price        float64           `json:"price_per_hour"`
	Resources    map[string]string `json:"resources"`
	Labels       map[string]string `json:"labels,omitempty"`
	Taints       []taint           `json:"taints,omitempty"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// app is a ReplicaSet of equal Pods.
type app struct {
	name     string
	replicas int
	wave     int
	gated    bool
	features []string // what was drawn, for the report
	pod      corev1.PodTemplateSpec
	claim    string // zone of the volume that its Pods mount, or ""
}

type world struct {
	seed      uint64
	offerings []*offering
	foreign   []*corev1.Node
	apps      []*app
	overhead  string // cpu of a DaemonSet on every node, or ""
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 18))
	w := &world{seed: seed}
	w.drawOfferings(r)
	for i := range r.IntN(3) {
		w.foreign = append(w.foreign, foreignNode(i, pick(r, zones)))
	}
	if r.IntN(4) == 0 {
		w.overhead = "150m"
	}
	for i := range 6 + r.IntN(8) {
		w.apps = append(w.apps, w.drawApp(r, i))
	}
	return w
}

// drawOfferings makes four to six types of different shapes. The first has no label or taint of its own and is large, so that plain
// Pods always have a machine; a type is in two or three zones.
func (w *world) drawOfferings(r *rand.Rand) {
	for i := range 4 + r.IntN(3) {
		cpu := []int{16, 4, 8, 2, 32, 16}[i]
		memory := cpu * pick(r, []int{2, 4, 8})
		price := float64(cpu)*0.03 + float64(memory)*0.004
		price = float64(int(price*(0.85+r.Float64()*0.3)*1000)) / 1000
		pods, labels := "110", map[string]string{generationLabel: fmt.Sprint(1 + r.IntN(5))}
		var taints []taint
		if i > 0 {
			switch r.IntN(4) {
			case 0:
				labels[diskLabel] = pick(r, []string{"ssd", "hdd"})
			case 1:
				pods = "8"
			case 2:
				if i > 2 {
					taints, labels[dedicated] = []taint{{dedicated, "batch", "NoSchedule"}}, "batch"
				}
			}
		}
		in := slices.Clone(zones)
		if i > 0 && r.IntN(4) == 0 {
			in = slices.Delete(in, 0, 1)
		}
		for _, zone := range in {
			w.offerings = append(w.offerings, &offering{
				Name: fmt.Sprintf("t%d-%s", i, zone), InstanceType: fmt.Sprintf("t%d.%dx", i, cpu), Zone: zone, CapacityType: "on_demand",
				Count: stock, Price: price, Labels: labels, Taints: taints,
				Resources: map[string]string{"cpu": fmt.Sprint(cpu), "memory": fmt.Sprint(memory, "Gi"), "pods": pods},
			})
		}
	}
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

func foreignNode(i int, zone string) *corev1.Node {
	name := fmt.Sprintf("own-%d", i)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

func (w *world) drawApp(r *rand.Rand, i int) *app {
	a := &app{name: fmt.Sprintf("app-%d", i), replicas: 1 + r.IntN(10), wave: r.IntN(2)}
	cpu, memory := pick(r, []string{"100m", "250m", "500m", "500m", "1", "1", "2", "3", "6"}), pick(r, []string{"128Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"})
	a.pod = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": a.name}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}}}},
		},
	}
	for range []int{0, 0, 1, 1, 1, 2, 2}[r.IntN(7)] {
		f := pick(r, features)
		if slices.Contains(a.features, f.name) {
			continue
		}
		a.features = append(a.features, f.name)
		f.apply(r, w, a)
	}
	return a
}

// feature is one use of what kube-scheduler reads.
type feature struct {
	name  string
	apply func(r *rand.Rand, w *world, a *app)
}

var features = []feature{
	{"selector-zone", func(r *rand.Rand, _ *world, a *app) { a.selects(corev1.LabelTopologyZone, pick(r, zones)) }},
	{"selector-type", func(r *rand.Rand, w *world, a *app) {
		a.selects(corev1.LabelInstanceTypeStable, pick(r, w.offerings).InstanceType)
	}},
	{"selector-os", func(_ *rand.Rand, _ *world, a *app) { a.selects(corev1.LabelOSStable, "linux") }},
	{"in", func(r *rand.Rand, w *world, a *app) {
		a.requires(corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, pick(r, w.offerings).InstanceType, pick(r, w.offerings).InstanceType)
	}},
	{"not-in", func(r *rand.Rand, _ *world, a *app) {
		a.requires(corev1.LabelTopologyZone, corev1.NodeSelectorOpNotIn, pick(r, zones))
	}},
	{"exists", func(_ *rand.Rand, _ *world, a *app) { a.requires(diskLabel, corev1.NodeSelectorOpExists) }},
	{"does-not-exist", func(_ *rand.Rand, _ *world, a *app) { a.requires(diskLabel, corev1.NodeSelectorOpDoesNotExist) }},
	{"gt", func(r *rand.Rand, _ *world, a *app) {
		a.requires(generationLabel, corev1.NodeSelectorOpGt, fmt.Sprint(r.IntN(4)))
	}},
	{"lt", func(r *rand.Rand, _ *world, a *app) {
		a.requires(generationLabel, corev1.NodeSelectorOpLt, fmt.Sprint(3+r.IntN(3)))
	}},
	{"or", func(r *rand.Rand, _ *world, a *app) {
		a.nodeAffinity().NodeSelectorTerms = append(a.nodeAffinity().NodeSelectorTerms,
			term(diskLabel, corev1.NodeSelectorOpIn, "ssd"), term(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, pick(r, zones)))
	}},
	{"tolerates", func(r *rand.Rand, w *world, a *app) {
		a.pod.Spec.Tolerations = append(a.pod.Spec.Tolerations, corev1.Toleration{Key: dedicated, Value: "batch", Effect: corev1.TaintEffectNoSchedule})
		if slices.ContainsFunc(w.offerings, func(o *offering) bool { return len(o.Taints) > 0 }) && r.IntN(2) == 0 {
			a.selects(dedicated, "batch")
		}
	}},
	{"spread-zone", func(r *rand.Rand, _ *world, a *app) { a.spreads(corev1.LabelTopologyZone, int32(1+r.IntN(2))) }},
	{"spread-host", func(r *rand.Rand, _ *world, a *app) { a.spreads(corev1.LabelHostname, int32(1+r.IntN(3))) }},
	{"spread-both", func(_ *rand.Rand, _ *world, a *app) {
		a.spreads(corev1.LabelTopologyZone, 1)
		a.spreads(corev1.LabelHostname, 2)
	}},
	{"apart-host", func(_ *rand.Rand, _ *world, a *app) { a.apart(corev1.LabelHostname, a.name) }},
	{"apart-zone", func(_ *rand.Rand, _ *world, a *app) {
		a.replicas = min(a.replicas, len(zones))
		a.apart(corev1.LabelTopologyZone, a.name)
	}},
	{"apart-from", func(r *rand.Rand, w *world, a *app) {
		if len(w.apps) > 0 {
			a.apart(corev1.LabelHostname, pick(r, w.apps).name)
		}
	}},
	{"together-zone", func(_ *rand.Rand, _ *world, a *app) { a.together(corev1.LabelTopologyZone, a.name) }},
	{"together-host", func(_ *rand.Rand, _ *world, a *app) {
		a.replicas = min(a.replicas, 2)
		a.together(corev1.LabelHostname, a.name)
	}},
	{"beside", func(r *rand.Rand, w *world, a *app) {
		if len(w.apps) > 0 {
			other := pick(r, w.apps)
			a.wave = max(a.wave, other.wave)
			a.together(corev1.LabelTopologyZone, other.name)
		}
	}},
	{"port", func(r *rand.Rand, _ *world, a *app) {
		port := int32(9000 + r.IntN(2))
		a.replicas = min(a.replicas, 6)
		a.pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: port, ContainerPort: port, Protocol: corev1.ProtocolTCP}}
	}},
	{"volume", func(r *rand.Rand, _ *world, a *app) {
		a.claim = pick(r, zones)
		a.pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: a.name}}}}
	}},
	{"urgent", func(_ *rand.Rand, _ *world, a *app) { a.pod.Spec.PriorityClassName = "urgent" }},
	{"patient", func(_ *rand.Rand, _ *world, a *app) { a.pod.Spec.PriorityClassName = "patient" }},
	{"gated", func(_ *rand.Rand, _ *world, a *app) {
		a.gated = true
		a.pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/later"}}
	}},
	{"prefers", func(r *rand.Rand, _ *world, a *app) {
		a.affinity().NodeAffinity = cmpOr(a.affinity().NodeAffinity)
		a.affinity().NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{
			{Weight: 10, Preference: term(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, pick(r, zones))}}
	}},
	{"anyway", func(_ *rand.Rand, _ *world, a *app) {
		a.spreads(corev1.LabelHostname, 1)
		a.pod.Spec.TopologySpreadConstraints[len(a.pod.Spec.TopologySpreadConstraints)-1].WhenUnsatisfiable = corev1.ScheduleAnyway
	}},
	{"min-domains", func(_ *rand.Rand, _ *world, a *app) {
		a.spreads(corev1.LabelTopologyZone, 1)
		a.pod.Spec.TopologySpreadConstraints[len(a.pod.Spec.TopologySpreadConstraints)-1].MinDomains = new(int32(2))
	}},
}

func cmpOr(n *corev1.NodeAffinity) *corev1.NodeAffinity {
	if n == nil {
		return &corev1.NodeAffinity{}
	}
	return n
}

func (a *app) selects(key, value string) {
	if a.pod.Spec.NodeSelector == nil {
		a.pod.Spec.NodeSelector = map[string]string{}
	}
	a.pod.Spec.NodeSelector[key] = value
}

func (a *app) affinity() *corev1.Affinity {
	if a.pod.Spec.Affinity == nil {
		a.pod.Spec.Affinity = &corev1.Affinity{}
	}
	return a.pod.Spec.Affinity
}

func (a *app) nodeAffinity() *corev1.NodeSelector {
	a.affinity().NodeAffinity = cmpOr(a.affinity().NodeAffinity)
	n := a.affinity().NodeAffinity
	if n.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		n.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	return n.RequiredDuringSchedulingIgnoredDuringExecution
}

func term(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// requires adds an expression to every term.
func (a *app) requires(key string, op corev1.NodeSelectorOperator, values ...string) {
	s := a.nodeAffinity()
	if len(s.NodeSelectorTerms) == 0 {
		s.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range s.NodeSelectorTerms {
		t := &s.NodeSelectorTerms[i]
		t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values})
	}
}

// spreads replaces a constraint on the same key: the API server takes one.
func (a *app) spreads(key string, skew int32) {
	a.pod.Spec.TopologySpreadConstraints = slices.DeleteFunc(a.pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.TopologyKey == key
	})
	a.pod.Spec.TopologySpreadConstraints = append(a.pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
		MaxSkew: skew, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}},
	})
}

func podTerm(key, app string) corev1.PodAffinityTerm {
	return corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
}

func (a *app) apart(key, app string) {
	if a.affinity().PodAntiAffinity == nil {
		a.affinity().PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	anti := a.affinity().PodAntiAffinity
	anti.RequiredDuringSchedulingIgnoredDuringExecution = append(anti.RequiredDuringSchedulingIgnoredDuringExecution, podTerm(key, app))
}

func (a *app) together(key, app string) {
	if a.affinity().PodAffinity == nil {
		a.affinity().PodAffinity = &corev1.PodAffinity{}
	}
	with := a.affinity().PodAffinity
	with.RequiredDuringSchedulingIgnoredDuringExecution = append(with.RequiredDuringSchedulingIgnoredDuringExecution, podTerm(key, app))
}

// catalogue is the provider's file.
func (w *world) catalogue() (string, error) {
	text, err := yaml.Marshal(map[string]any{"offerings": w.offerings})
	return string(text), err
}

// node is what the provider makes of a machine of the offering.
func (o *offering) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: o.Zone, corev1.LabelInstanceTypeStable: o.InstanceType,
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	}}}
	for k, v := range o.Labels {
		n.Labels[k] = v
	}
	for _, t := range o.Taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	n.Status.Allocatable = corev1.ResourceList{}
	for k, v := range o.Resources {
		n.Status.Allocatable[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// limits are the features that BigFleet refuses or reduces, as docs/clusters.md says.
var limits = map[string]string{
	"apart-zone": "required anti-affinity over zones is not counted",
}

// known is the documented limit that an app runs into, or "".
func (a *app) known() string {
	for _, f := range a.features {
		if l := limits[f]; l != "" {
			return l
		}
	}
	return ""
}

func (a *app) String() string {
	req := a.pod.Spec.Containers[0].Resources.Requests
	return fmt.Sprintf("%s: %d x %s cpu, %s (%s)", a.name, a.replicas, req.Cpu(), req.Memory(), strings.Join(a.features, ", "))
}
