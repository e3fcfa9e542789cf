package translate

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/devices"
)

var rewrite = flag.Bool("rewrite", false, "write the table of docs/clusters.md again")

// walked are the types whose fields are decided one by one; below any other type one decision covers everything.
var walked = []reflect.Type{
	reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.Affinity](), reflect.TypeFor[corev1.NodeAffinity](),
	reflect.TypeFor[corev1.PodAffinity](), reflect.TypeFor[corev1.PodAntiAffinity](), reflect.TypeFor[corev1.TopologySpreadConstraint](),
}

// paths lists the fields below a type.
func paths(t reflect.Type, prefix string) (out []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if !slices.Contains(walked, t) {
		return []string{strings.TrimSuffix(prefix, ".")}
	}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, paths(t.Field(i).Type, prefix+name+".")...)
	}
	return out
}

// OP-15.28: every field of the Pod type of this Kubernetes version has one decision, so that a field that kube-scheduler begins to
// read is not overlooked; every decision is about a field, and what is claimed has a test.
func TestEveryFieldHasADecision(t *testing.T) {
	decided := map[string]bool{}
	tests := ""
	for _, file := range []string{"spec_test.go", "fields_test.go", "../keeper/keeper_test.go", "../gangs/gangs_test.go"} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests += string(b)
	}
	for _, f := range Fields() {
		if decided[f.Path] {
			t.Errorf("%s has two decisions", f.Path)
		}
		decided[f.Path] = false
		if f.Decision != Unread && (f.How == "" || !strings.Contains(tests, "func "+f.Test+"(t *testing.T)")) {
			t.Errorf("%s: %q by test %q, which is missing", f.Path, f.How, f.Test)
		}
	}
	for _, path := range paths(reflect.TypeFor[corev1.PodSpec](), "") {
		if _, ok := decided[path]; !ok {
			t.Errorf("there is no decision about what spec.%s does to capacity", path)
		}
		decided[path] = true
	}
	for path, is := range decided {
		if !is {
			t.Errorf("no Pod has spec.%s", path)
		}
	}
}

// OP-15.28: the owner of a cluster reads the same decisions.
func TestFieldsAreDocumented(t *testing.T) {
	const file = "../../../../docs/clusters.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	table := "| Field of the Pod's spec | Capacity is | How | Test |\n|---|---|---|---|\n"
	for _, f := range Fields() {
		if f.Decision != Unread {
			table += "| `" + f.Path + "` | " + string(f.Decision) + " | " + f.How + " | `" + f.Test + "` |\n"
		}
	}
	between := regexp.MustCompile("(?s)(<!-- fields: begin -->\n).*(<!-- fields: end -->)")
	want := between.ReplaceAllString(string(b), "${1}"+table+"${2}")
	if !between.Match(b) {
		t.Fatal("docs/clusters.md has no place for the table")
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(b) {
		t.Error("the table of docs/clusters.md differs: go test ./internal/translate -run TestFieldsAreDocumented -rewrite")
	}
}

// OP-15.20, OP-15.28: DRA claims are refused with a word while the Pod waits, and never for one that runs; a scheduling group and
// what else has no effect is named; preferences change nothing.
func TestFieldsBeyondRequests(t *testing.T) {
	r := Spec(pod(t, `{spec: {resourceClaims: [{name: gpu, resourceClaimName: one}]}}`), nil, floor())
	if r.Eligibility != Unsupported || len(r.Reduced) != 1 || !strings.Contains(r.Reduced[0], "spec.resourceClaims") {
		t.Errorf("a pending Pod with claims: %+v", r)
	}
	r = Spec(pod(t, `{spec: {nodeName: n, resourceClaims: [{name: gpu, resourceClaimName: one}]}}`), node(), floor())
	if r.Eligibility != Counted || len(r.Spec.Requirements) != 1 {
		t.Errorf("a bound Pod with claims: %+v", r)
	}
	unread := floor()
	unread.Gang = func(*corev1.Pod) (*v1alpha1.Gang, bool) { return nil, true }
	r = Spec(pod(t, `{spec: {schedulingGroup: {podGroupName: g}, topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, nodeAffinityPolicy: Ignore, whenUnsatisfiable: DoNotSchedule}]}}`), nil, unread)
	if got := r.Approximations(); len(got) != 2 || !strings.Contains(strings.Join(got, ";"), "nodeAffinityPolicy") || !strings.Contains(strings.Join(got, ";"), "PodGroup") {
		t.Errorf("named: %q", got)
	}
	plain := Spec(pod(t, `{spec: {}}`), nil, floor())
	for name, spec := range map[string]string{
		"preferred Pod affinity":      `{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}}`,
		"preferred Pod anti-affinity": `{affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a}}]}}}`,
	} {
		if r := Spec(pod(t, `{spec: `+spec+`}`), nil, floor()); !reflect.DeepEqual(r, plain) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// OP-15.29: where the volumes of a Pod can be are requirements beside its own; a pending Pod that waits for a claim asks for nothing, with
// a word, and one that runs keeps its request whatever became of the claim.
func TestVolumes(t *testing.T) {
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	of := func(waits string, terms ...[]corev1.NodeSelectorTerm) Defaults {
		d := floor()
		d.Volumes = func(*corev1.Pod) ([][]corev1.NodeSelectorTerm, string) { return terms, waits }
		return d
	}
	pending, bound := `{spec: {nodeSelector: {disk: ssd}}}`, `{spec: {nodeName: n, nodeSelector: {disk: ssd}}}`
	zones := []corev1.NodeSelectorTerm{in("zone", "z1"), in("zone", "z2")}
	for _, p := range []string{pending, bound} {
		r := Spec(pod(t, p), node(), of("", zones, []corev1.NodeSelectorTerm{in("rack", "r1")}))
		var got []string
		for _, q := range r.Spec.Requirements {
			got = append(got, q.Key+"="+strings.Join(q.Values, ","))
		}
		if r.Eligibility != Counted || strings.Join(got, " ") != "disk=ssd rack=r1 zone=z1,z2" {
			t.Errorf("%s: %v, %v", p, r.Eligibility, got)
		}
	}
	waits := of("PersistentVolumeClaim data does not exist")
	if r := Spec(pod(t, pending), nil, waits); r.Eligibility != Unsupported || len(r.Reduced) != 1 || !strings.Contains(r.Reduced[0], "data does not exist") {
		t.Errorf("a pending Pod without its claim: %+v", r)
	}
	if r := Spec(pod(t, bound), node(), waits); r.Eligibility != Counted || len(r.Reduced) != 0 {
		t.Errorf("a running Pod without its claim: %+v", r)
	}
}

// OP-15.31: preferred node affinity terms are preferences, largest weight first and in one order; those that speak of nodes that exist, or of more than
// requests can say, are left out; and members of a gang have none.
func TestPreferences(t *testing.T) {
	of := func(terms, rest string) string {
		r := Spec(pod(t, `{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [`+terms+`]}`+rest+`}}}`), nil, floor())
		if r.Eligibility != Counted || len(r.Reduced) > 0 || len(r.Approximations()) > 0 || len(r.Spec.Requirements) != 1 {
			t.Errorf("%s: %+v", terms, r)
		}
		var out []string
		for _, p := range r.Spec.Preferences {
			text := fmt.Sprint(p.Weight)
			for _, e := range p.Preference.MatchExpressions {
				text += fmt.Sprint(" ", e.Key, " ", e.Operator, " ", e.Values)
			}
			out = append(out, text)
		}
		return strings.Join(out, "; ")
	}
	const zone, disk = `{weight: 1, preference: {matchExpressions: [{key: zone, operator: In, values: [b, a]}]}}`, `{weight: 5, preference: {matchExpressions: [{key: disk, operator: Exists}]}}`
	for terms, want := range map[string]string{
		zone + "," + disk: "5 disk Exists []; 1 zone In [a b]",
		disk + "," + zone: "5 disk Exists []; 1 zone In [a b]",
		`{weight: 1, preference: {matchFields: [{key: metadata.name, operator: In, values: [n]}]}},` + zone:       "1 zone In [a b]",
		`{weight: 1, preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n]}]}}`: "",
		`{weight: 1, preference: {matchExpressions: [{key: a, operator: Near}]}}`:                                 "",
		`{weight: 1, preference: {}}`:       "",
		strings.Repeat(zone+",", 20) + disk: "5 disk Exists []" + strings.Repeat("; 1 zone In [a b]", preferencesMax-1),
	} {
		if got := of(terms, ""); got != want {
			t.Errorf("%s: %q, want %q", terms, got, want)
		}
	}
	if got := of(zone, `, podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, labelSelector: {}}]}`); got != "" {
		t.Errorf("with a co-location: %q", got)
	}
	in := floor()
	in.Gang = func(*corev1.Pod) (*v1alpha1.Gang, bool) { return &v1alpha1.Gang{Name: "g", MinMembers: 2}, false }
	if r := Spec(pod(t, `{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [`+zone+`]}}}}`), nil, in); len(r.Spec.Preferences) > 0 {
		t.Errorf("of a gang: %+v", r.Spec.Preferences)
	}
}

// OP-15.32: devices are amounts, attributes requirements; a pending Pod whose claims cannot be counted is refused with the field, and a bound one asks for the
// rest; nothing is decided while they are not known.
func TestClaims(t *testing.T) {
	of := func(d devices.Demand, why string, read bool) Defaults {
		out := floor()
		out.Devices = func(*corev1.Pod) (devices.Demand, string, bool) { return d, why, read }
		return out
	}
	const pending, bound = `{spec: {resourceClaims: [{name: gpu, resourceClaimName: one}]}}`, `{spec: {nodeName: n, resourceClaims: [{name: gpu, resourceClaimName: one}]}}`
	asks := devices.Demand{Devices: map[string]int64{"gpu.example.com": 2}, Attributes: []corev1.NodeSelectorRequirement{{Key: "gpu.example.com/model", Operator: corev1.NodeSelectorOpIn, Values: []string{"h100"}}}}
	for _, p := range []string{pending, bound} {
		r := Spec(pod(t, p), node(), of(asks, "", true))
		n := r.Spec.Resources["deviceclass.resource.kubernetes.io/gpu.example.com"]
		if r.Eligibility != Counted || n.Value() != 2 || len(r.Spec.Resources) != 3 || len(r.Spec.Requirements) != 1 || r.Spec.Requirements[0].Key != "gpu.example.com/model" {
			t.Errorf("%s: %+v", p, r)
		}
		if r := Spec(pod(t, p), node(), of(devices.Demand{}, "", false)); r.Eligibility != Undetermined || len(r.Reduced) > 0 {
			t.Errorf("not known yet, %s: %+v", p, r)
		}
	}
	r := Spec(pod(t, pending), nil, of(devices.Demand{}, "request r has adminAccess", true))
	if r.Eligibility != Unsupported || len(r.Reduced) != 1 || !strings.Contains(r.Reduced[0], "request r has adminAccess") || !slices.Equal(r.Ignored, []string{KindResourceClaims}) {
		t.Errorf("pending, refused: %+v", r)
	}
	if r := Spec(pod(t, bound), node(), of(devices.Demand{}, "request r has adminAccess", true)); r.Eligibility != Counted || len(r.Spec.Resources) != 2 {
		t.Errorf("bound, refused: %+v", r)
	}
}
