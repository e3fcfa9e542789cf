package gangs

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Labels and annotations of the projects.
const (
	labelCoscheduling     = "scheduling.x-k8s.io/pod-group"
	annotationVolcano     = "scheduling.volcano.sh/group-name"
	annotationVolcanoOld  = "scheduling.k8s.io/group-name"
	labelKueueGroup       = "kueue.x-k8s.io/pod-group-name"
	annotationKueueTotal  = "kueue.x-k8s.io/pod-group-total-count"
	labelLWS              = "leaderworkerset.sigs.k8s.io/name"
	labelLWSGroup         = "leaderworkerset.sigs.k8s.io/group-index"
	annotationLWSSize     = "leaderworkerset.sigs.k8s.io/size"
	annotationLWSTopology = "leaderworkerset.sigs.k8s.io/exclusive-topology"
	labelJobSet           = "jobset.sigs.k8s.io/jobset-name"
	annotationJobSetTopo  = "alpha.jobset.sigs.k8s.io/exclusive-topology"
)

// Kinds whose objects define a gang.
var (
	native       = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1alpha2", Resource: "podgroups"}
	coscheduling = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
	volcano      = schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
	jobSet       = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}
)

// Kinds lists them.
func Kinds() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{native, coscheduling, volcano, jobSet}
}

// id names a gang.
type id struct {
	kind      schema.GroupVersionResource // of the object that defines it; zero if its Pods say everything
	form      string                      // of a gang without an object
	namespace string
	name      string
}

// text is the name of the gang in a request: unique in its namespace.
func (g id) text() string {
	if g.form != "" {
		return g.form + "/" + g.name
	}
	return g.kind.Resource + "." + g.kind.Group + "/" + g.name
}

// definition is what makes a gang of Pods.
type definition struct {
	min      int32  // members that run together or not at all; 0: no gang
	topology string // node label whose value they share, or ""
	strict   bool   // its scheduler binds no Pod before min members exist
}

// identify recognises the gang of a Pod by its shape. own is set if its Pods say everything.
func identify(p *corev1.Pod) (g id, own *definition, ok bool) {
	g.namespace = p.Namespace
	switch {
	case p.Spec.SchedulingGroup != nil && p.Spec.SchedulingGroup.PodGroupName != nil:
		g.kind, g.name = native, *p.Spec.SchedulingGroup.PodGroupName
	case p.Labels[labelCoscheduling] != "":
		g.kind, g.name = coscheduling, p.Labels[labelCoscheduling]
	case p.Annotations[annotationVolcano] != "":
		g.kind, g.name = volcano, p.Annotations[annotationVolcano]
	case p.Annotations[annotationVolcanoOld] != "":
		g.kind, g.name = volcano, p.Annotations[annotationVolcanoOld]
	case p.Labels[labelKueueGroup] != "":
		g.form, g.name = "pod-group.kueue.x-k8s.io", p.Labels[labelKueueGroup]
		own = &definition{min: number(p.Annotations[annotationKueueTotal])}
	case p.Labels[labelLWS] != "" && p.Annotations[annotationLWSTopology] == "":
		g.form, g.name = "group.leaderworkerset.x-k8s.io", p.Labels[labelLWS]+"-"+p.Labels[labelLWSGroup]
		own = &definition{min: number(p.Annotations[annotationLWSSize])}
	case p.Labels[labelJobSet] != "" && p.Annotations[annotationJobSetTopo] == "":
		g.kind, g.name = jobSet, p.Labels[labelJobSet]
	default:
		return g, nil, false
	}
	return g, own, true
}

// Shape returns the labels that make a Pod a member of a gang, and the names of the annotations that do; nothing if it is none.
func Shape(p *corev1.Pod) (labels map[string]string, annotations []string) {
	if _, _, ok := identify(p); !ok {
		return nil, nil
	}
	labels = map[string]string{}
	for _, key := range []string{labelCoscheduling, labelKueueGroup, labelLWS, labelLWSGroup, labelJobSet} {
		if v, ok := p.Labels[key]; ok {
			labels[key] = v
		}
	}
	return labels, []string{annotationVolcano, annotationVolcanoOld, annotationKueueTotal, annotationLWSSize, annotationLWSTopology, annotationJobSetTopo}
}

func number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0
	}
	return int32(n)
}

// define reads an object that defines a gang. A form that it does not know is not a gang: min is 0.
func define(kind schema.GroupVersionResource, o *unstructured.Unstructured) (d definition) {
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	switch kind {
	case native:
		d.strict, d.min = true, integer(spec, "schedulingPolicy", "gang", "minCount")
		topology, _, _ := unstructured.NestedSlice(spec, "schedulingConstraints", "topology")
		if len(topology) > 0 {
			first, _ := topology[0].(map[string]any)
			d.topology, _ = first["key"].(string)
		}
	case coscheduling, volcano:
		d.strict, d.min = true, integer(spec, "minMember")
	case jobSet:
		d.min = ofJobSet(spec)
	}
	if d.min <= 0 && d.topology == "" {
		return definition{}
	}
	return d
}

// ofJobSet counts the Pods of a JobSet that start together. Where some Jobs wait for others to run, there are none.
func ofJobSet(spec map[string]any) (pods int32) {
	if order, _, _ := unstructured.NestedString(spec, "startupPolicy", "startupPolicyOrder"); order == "InOrder" {
		return 0
	}
	jobs, _, _ := unstructured.NestedSlice(spec, "replicatedJobs")
	for _, j := range jobs {
		job, _ := j.(map[string]any)
		if after, _, _ := unstructured.NestedSlice(job, "dependsOn"); len(after) > 0 {
			return 0
		}
		replicas, parallel := int32(1), int32(1)
		if _, stated := job["replicas"]; stated {
			replicas = integer(job, "replicas")
		}
		if _, stated, _ := unstructured.NestedFieldNoCopy(job, "template", "spec", "parallelism"); stated {
			parallel = integer(job, "template", "spec", "parallelism")
		}
		if completions, stated, _ := unstructured.NestedInt64(job, "template", "spec", "completions"); stated {
			parallel = min(parallel, int32(min(completions, 1<<20)))
		}
		pods += max(0, replicas) * max(0, parallel)
	}
	return pods
}

// integer reads a number from 0 to a million; more is not a number of Pods.
func integer(o map[string]any, path ...string) int32 {
	n, _, _ := unstructured.NestedInt64(o, path...)
	return int32(min(max(n, 0), 1_000_000))
}
