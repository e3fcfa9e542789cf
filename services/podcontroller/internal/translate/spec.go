package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/devices"
)

// Penalties are dollars; nil means $0.
type Penalties struct {
	Interruption, Reclamation *resource.Quantity
}

// Defaults are what a Pod does not say itself.
type Defaults struct {
	// Floor is what a Pod without cpu and memory requests counts as (OP-15.15).
	Floor corev1.ResourceList
	// Volumes gives alternative terms for each volume of a Pod that cannot be on every node, and what a pending Pod waits for that no
	// machine gives it; nil means that volumes are not read.
	Volumes func(p *corev1.Pod) (terms [][]corev1.NodeSelectorTerm, waits string)
	// Attaches counts the volumes of each CSI driver that a Pod attaches; nil means that they are not counted.
	Attaches func(p *corev1.Pod) map[string]int32
	// Devices gives the devices that the resource claims of a Pod ask for, or says what of them cannot be counted; read is false while they are not
	// known. nil means that claims are not read.
	Devices func(p *corev1.Pod) (d devices.Demand, why string, read bool)
	// Gang gives the gang of a Pod, or says that the object that defines it is not known; nil means that no Pod has one.
	Gang func(p *corev1.Pod) (gang *v1alpha1.Gang, unread bool)
	// Turn says how many alternatives of a pending Pod's node affinity have been tried in vain; nil means none.
	Turn func(p *corev1.Pod) int
	// Class gives the penalties of a PriorityClass; nil means none has any.
	Class func(name string) Penalties
}

// Result is what a Pod asks for.
type Result struct {
	Spec        v1alpha1.CapacityRequestSpec
	Eligibility Eligibility // Wanted or Unsupported
	Reduced     []string    // what could not be expressed, in words
	Ignored     []string    // kinds of constraints that have no effect on capacity, for the metric
	Faults      []string    // annotations that cannot be read
	Turns       int         // alternatives that are tried one after the other; 0 if one stands for all
}

// Kinds of ignored constraints (OP-15.20).
const (
	KindPodAffinity     = "pod_affinity_terms"
	KindPodAntiAffinity = "pod_anti_affinity"
	KindNodePolicy      = "node_inclusion_policy"
	KindNodeTerms       = "node_affinity_terms"
	KindFieldSelectors  = "match_fields"
	KindSchedulingGroup = "scheduling_group"
	KindResourceClaims  = "resource_claims"
	KindPerHost         = "per_host_limit"
	KindVolumes         = "volumes"
)

// fieldOf names the fields of ignored constraints to the owner of a Pod.
var fieldOf = map[string]string{
	KindPodAffinity:     "required Pod affinity terms after the first",
	KindPodAntiAffinity: "required Pod anti-affinity, except against its own peers",
	KindNodePolicy:      "nodeAffinityPolicy of topologySpreadConstraints",
	KindSchedulingGroup: "the PodGroup or JobSet that the Pod belongs to, which cannot be read",
	KindPerHost:         "host ports and required Pod anti-affinity on kubernetes.io/hostname, unless the shard limits Pods per host",
}

// Approximations names the fields of a Pod that have no effect on the capacity it asks for (OP-15.20).
func (r Result) Approximations() (fields []string) {
	for _, kind := range slices.Compact(slices.Sorted(slices.Values(r.Ignored))) {
		if f := fieldOf[kind]; f != "" {
			fields = append(fields, f)
		}
	}
	return fields
}

// AnyNode is the requirement of a Pod that has none: any node that BigFleet knows the type of (OP-15.11).
func AnyNode() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpExists}
}

// Spec translates a Pod. n is the Node that it is bound to, nil if it is not bound or the Node is not known.
func Spec(p *corev1.Pod, n *corev1.Node, d Defaults) Result {
	var r Result
	claimed, ok := r.devices(p, d)
	if !ok {
		return r
	}
	if d.Gang != nil {
		var unread bool
		if r.Spec.Gang, unread = d.Gang(p); unread {
			r.Ignored = append(r.Ignored, KindSchedulingGroup)
		}
	}
	turn := 0
	if r.Turns = turns(p); r.Turns > 0 && d.Turn != nil {
		turn = d.Turn(p)
	}
	terms, reduced, ok := term(nodeTerms(p), turn, p, n)
	if ok && d.Volumes != nil {
		of, waits := d.Volumes(p)
		if waits != "" && p.Spec.NodeName == "" {
			r.Eligibility, r.Ignored, r.Reduced = Unsupported, append(r.Ignored, KindVolumes), []string{waits}
			return r
		}
		for _, alternatives := range of {
			more, lost, fits := term(alternatives, 0, p, n)
			terms, reduced, ok = append(slices.Clone(terms), more...), append(reduced, lost...), ok && fits
		}
	}
	r.Reduced = reduced
	if len(reduced) > 0 {
		r.Ignored = append(r.Ignored, KindNodeTerms)
	}
	if !ok {
		r.Eligibility = Unsupported
		return r
	}
	for key, value := range p.Spec.NodeSelector {
		terms = append(terms, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	terms = append(terms, claimed.Attributes...)
	if terms = canonical(terms); len(terms) == 0 {
		terms = []corev1.NodeSelectorRequirement{AnyNode()}
	}
	r.Spec.Requirements = terms
	r.Spec.Resources = resources(p, d.Floor)
	for class, n := range claimed.Devices {
		r.Spec.Resources[devices.Resource(class)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	if d.Attaches != nil {
		r.Spec.AttachedVolumes = d.Attaches(p)
	}
	if p.Spec.Priority != nil {
		r.Spec.Priority = *p.Spec.Priority
	}
	if p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == corev1.PreemptNever {
		r.Spec.PreemptionPolicy = new(corev1.PreemptNever)
	}
	r.Spec.Tolerations = tolerations(p)
	if r.Spec.Gang == nil { // members that prefer different nodes would be gangs of their own
		r.Spec.Preferences = preferences(p)
	}
	r.penalties(p, d)
	r.spread(p)
	if r.coLocation(p); r.Spec.CoLocation != nil {
		r.Spec.Preferences = nil
	}
	r.perHost(p)
	return r
}

// devices reads the resource claims of a Pod (OP-15.32). ok is false if it asks for nothing because of them, for now or at all; a bound Pod whose claims cannot
// be counted asks for the rest.
func (r *Result) devices(p *corev1.Pod, d Defaults) (out devices.Demand, ok bool) {
	if len(p.Spec.ResourceClaims) == 0 {
		return out, true
	}
	why, read := "spec.resourceClaims cannot be satisfied: ResourceClaims are not read", true
	if d.Devices != nil {
		out, why, read = d.Devices(p)
	}
	switch {
	case !read:
		r.Eligibility = Undetermined
	case why != "" && p.Spec.NodeName == "":
		r.Eligibility, r.Ignored = Unsupported, []string{KindResourceClaims}
		r.Reduced = []string{why + ". Nothing is bought for this Pod, because no machine that BigFleet knows of would help it"}
	default:
		return out, true
	}
	return out, false
}

// resources is the scheduler's own arithmetic (OP-15.14), with a floor for Pods that state neither cpu nor memory.
func resources(p *corev1.Pod, floor corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}) {
		if !q.IsZero() {
			out[name] = q
		}
	}
	_, cpu := out[corev1.ResourceCPU]
	_, memory := out[corev1.ResourceMemory]
	if !cpu && !memory {
		for name, q := range floor {
			out[name] = q.DeepCopy()
		}
	}
	return out
}

// tolerations leaves out what admission gives to every Pod (OP-5.21).
func tolerations(p *corev1.Pod) (out []corev1.Toleration) {
	for _, t := range p.Spec.Tolerations {
		if t.TolerationSeconds != nil && strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			continue
		}
		out = append(out, *t.DeepCopy())
	}
	return out
}

// penalties resolves each on its own: annotation, then PriorityClass, then none (OP-15.17).
func (r *Result) penalties(p *corev1.Pod, d Defaults) {
	var class Penalties
	if d.Class != nil {
		class = d.Class(p.Spec.PriorityClassName)
	}
	for _, x := range []struct {
		key      string
		fallback *resource.Quantity
		out      **resource.Quantity
	}{
		{v1alpha1.AnnotationInterruptionPenalty, class.Interruption, &r.Spec.InterruptionPenalty},
		{v1alpha1.AnnotationReclamationPenalty, class.Reclamation, &r.Spec.ReclamationPenalty},
	} {
		if text, ok := p.Annotations[x.key]; ok {
			q, err := resource.ParseQuantity(text)
			switch {
			case err != nil:
				r.Faults = append(r.Faults, fmt.Sprintf("annotation %s: %q is not a quantity; it counts as absent", x.key, text))
			case q.Sign() < 0: // an admission policy may refuse such a request, and then the Pod would have none
				r.Faults = append(r.Faults, fmt.Sprintf("annotation %s: %q is negative; it counts as absent", x.key, text))
			default:
				*x.out = &q
				continue
			}
		}
		if x.fallback != nil {
			q := x.fallback.DeepCopy()
			*x.out = &q
		}
	}
}

// spread keeps the hard constraints (OP-15.19). One over hosts is a limit per host (OP-15.27).
func (r *Result) spread(p *corev1.Pod) {
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		if overHosts(c) {
			r.spreadOverHosts(p, c)
			continue
		}
		s := v1alpha1.TopologySpread{
			TopologyKey: c.TopologyKey, MaxSkew: c.MaxSkew, WhenUnsatisfiable: c.WhenUnsatisfiable, LabelSelector: peers(p, c),
		}
		if c.MinDomains != nil {
			s.MinDomains = *c.MinDomains
		}
		r.Spec.TopologySpread = append(r.Spec.TopologySpread, s)
		if c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy != corev1.NodeInclusionPolicyHonor {
			r.Ignored = append(r.Ignored, KindNodePolicy)
		}
	}
}

// peers is the selector of the Pods that a constraint counts for p, with the labels of matchLabelKeys.
func peers(p *corev1.Pod, c corev1.TopologySpreadConstraint) *metav1.LabelSelector {
	if c.LabelSelector == nil {
		return nil
	}
	out := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if v, has := p.Labels[key]; has {
			out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{v}})
		}
	}
	return out
}

func overHosts(c corev1.TopologySpreadConstraint) bool {
	return c.TopologyKey == corev1.LabelHostname && c.WhenUnsatisfiable == corev1.DoNotSchedule
}

// spreadOverHosts limits the Pods on one node to the skew. There may always be one more node that takes Pods and has none of these, a
// full one for instance; then kube-scheduler puts no more on any other.
func (r *Result) spreadOverHosts(p *corev1.Pod, c corev1.TopologySpreadConstraint) {
	if !selects(p, c.LabelSelector) { // what it selects are other Pods
		r.Ignored = append(r.Ignored, KindPerHost)
		return
	}
	if skew := max(1, c.MaxSkew); r.Spec.MaxPerHost == 0 || skew < r.Spec.MaxPerHost {
		r.Spec.MaxPerHost = skew
	}
}

// perHost limits the Pods of this kind on one node (OP-15.27): host ports are free once a node, and required anti-affinity on the
// hostname that selects the Pod itself keeps its peers apart. On another key it is a spread with one Pod for each value. Other required
// anti-affinity has no effect.
func (r *Result) perHost(p *corev1.Pod) {
	if hostPorts(p) {
		r.Spec.MaxPerHost = 1
	}
	a := p.Spec.Affinity
	if a == nil || a.PodAntiAffinity == nil {
		return
	}
	for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		switch {
		case !selectsItself(p, t), t.TopologyKey != corev1.LabelHostname && r.Spec.CoLocation != nil: // which wants all of them under one value
			r.Ignored = append(r.Ignored, KindPodAntiAffinity)
		case t.TopologyKey == corev1.LabelHostname:
			r.Spec.MaxPerHost = 1
		default: // one Pod for each value
			r.Spec.TopologySpread = append(r.Spec.TopologySpread, v1alpha1.TopologySpread{TopologyKey: t.TopologyKey, MaxSkew: 1,
				WhenUnsatisfiable: corev1.DoNotSchedule, MinDomains: math.MaxInt32, LabelSelector: t.LabelSelector.DeepCopy()})
		}
	}
}

func hostPorts(p *corev1.Pod) bool {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				return true
			}
		}
	}
	return false
}

// selectsItself reports whether a term selects Pods with the labels and the namespace of the Pod.
func selectsItself(p *corev1.Pod, t corev1.PodAffinityTerm) bool {
	if !selects(p, t.LabelSelector) {
		return false
	}
	return len(t.Namespaces) == 0 && t.NamespaceSelector == nil || slices.Contains(t.Namespaces, p.Namespace) ||
		t.NamespaceSelector != nil && len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) == 0
}

// selects reports whether a selector selects Pods with the labels of the Pod.
func selects(p *corev1.Pod, s *metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(labels.Set(p.Labels))
}

// coLocation is the first required Pod affinity term (OP-15.18).
func (r *Result) coLocation(p *corev1.Pod) {
	a := p.Spec.Affinity
	if a == nil {
		return
	}
	if a.PodAffinity == nil || len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return
	}
	terms := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	first := terms[0].DeepCopy()
	r.Spec.CoLocation = &v1alpha1.CoLocation{
		TopologyKey: first.TopologyKey, LabelSelector: first.LabelSelector, Namespaces: first.Namespaces, NamespaceSelector: first.NamespaceSelector,
	}
	if len(terms) > 1 {
		r.Ignored = append(r.Ignored, KindPodAffinity)
	}
}
