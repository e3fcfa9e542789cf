package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// WIRE-10.2, WIRE-10.3: the definitions take what they always took; the policy, where somebody applied it, refuses what could not be counted,
// with the field and what to write, and nothing else. It never stands in the way of a change that leaves the spec alone.
func admission(t *testing.T, cp *controlplane.ControlPlane) {
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	request := func(name, spec string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		text := "apiVersion: bigfleet.lucy.sh/v1alpha1\nkind: CapacityRequest\nmetadata: {name: " + name + ", namespace: default}\nspec: " + spec
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	create := func(spec string) error {
		return c.Create(t.Context(), request("tried", spec), client.DryRunAll)
	}
	bad := map[string]string{
		"{priority: 0, resources: {cpu: 1}, requirements: [{key: gpus, operator: Near, values: ['5']}]}":                          "gpus Near: the operator cannot be used; In, NotIn, Exists, DoesNotExist, Gt and Lt can",
		"{priority: 0, resources: {cpu: 1}, requirements: [{key: gpus, operator: Gt, values: [many]}]}":                           "gpus Gt needs exactly one value, and that is an integer",
		"{priority: 0, resources: {cpu: 1}, requirements: [{key: zone, operator: In}]}":                                           "zone In has no values",
		"{priority: 0, resources: {cpu: 1}, requirements: [{key: zone, operator: NotIn, values: []}]}":                            "zone NotIn has no values",
		"{priority: 0, resources: {cpu: 1}, topologySpread: [{topologyKey: zone, maxSkew: 0, whenUnsatisfiable: DoNotSchedule}]}": "maxSkew of zone is less than 1",
		"{priority: 0, resources: {cpu: 1}, topologySpread: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: Never}]}":         "zone Never: whenUnsatisfiable is DoNotSchedule or ScheduleAnyway",
		"{priority: 0, resources: {cpu: -1}}":                           "spec.resources: cpu is negative",
		"{priority: 0, resources: {memory: -1Gi}}":                      "spec.resources: memory is negative",
		"{priority: 0, resources: {cpu: 1}, interruptionPenalty: -5}":   "spec.interruptionPenalty is negative",
		"{priority: 0, resources: {cpu: 1}, reclamationPenalty: -500m}": "spec.reclamationPenalty is negative",
	}
	for spec := range bad {
		if err := create(spec); err != nil {
			t.Errorf("without the policy, %s: %v", spec, err)
		}
	}
	old := request("old", "{priority: 0, resources: {cpu: -1}}")
	if err := c.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(filepath.Join(root, "deploy", "admission", "capacityrequests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.ApplyYAML(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); create("{priority: 0, resources: {cpu: -1}}") == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the policy refuses nothing")
		}
	}
	for spec, want := range bad {
		if err := create(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
	for _, spec := range []string{
		"{priority: 0, resources: {}}", "{priority: -5, resources: {cpu: 500m, memory: 1Gi, example.com/gpu: '8'}, interruptionPenalty: 500m, reclamationPenalty: 0}",
		"{priority: 0, resources: {cpu: 1}, requirements: [{key: a, operator: Exists}, {key: b, operator: DoesNotExist}, {key: c, operator: NotIn, values: [x]}]}",
		"{priority: 0, resources: {cpu: 1}, topologySpread: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}], coLocation: {topologyKey: rack}}",
	} {
		if err := create(spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
	label := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"team":"a"}}}`))
	if err := c.Patch(t.Context(), old, label); err != nil {
		t.Errorf("a label on an old request: %v", err)
	}
	worse := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"resources":{"cpu":"-2"}}}`))
	if err := c.Patch(t.Context(), old, worse); err == nil {
		t.Error("a change of the spec that leaves it as wrong is taken")
	}
	if err := c.Delete(t.Context(), old); err != nil {
		t.Errorf("deleting an old request: %v", err)
	}
}

// OP-16.3: with the operator's identity bootstrap tokens are made and deleted in kube-system, and no other Secret.
func tokens(t *testing.T, cp *controlplane.ControlPlane) {
	admin, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	user, err := cp.UserConfig("system:serviceaccount:bigfleet-system:bigfleet-operator", "system:serviceaccounts", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	operator, err := client.New(user, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Type: kind, StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef"}}
	}
	const token = "bootstrap-token-abcdef"
	other := secret("other", corev1.SecretTypeOpaque)
	if err := admin.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	try := secret("made", corev1.SecretTypeOpaque)
	for deadline := time.Now().Add(2 * time.Minute); operator.Create(t.Context(), try.DeepCopy(), client.DryRunAll) == nil; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the policy refuses nothing")
		}
	}
	for what, err := range map[string]error{
		"a Secret of another name":   operator.Create(t.Context(), try),
		"a Secret of another type":   operator.Create(t.Context(), secret(token, corev1.SecretTypeOpaque)),
		"deleting another's Secret":  operator.Delete(t.Context(), other),
		"a token in another's place": operator.Create(t.Context(), secret("made", corev1.SecretTypeBootstrapToken)),
	} {
		if err == nil || !strings.Contains(err.Error(), "makes and deletes bootstrap tokens alone") {
			t.Errorf("%s: %v", what, err)
		}
	}
	made := secret(token, corev1.SecretTypeBootstrapToken)
	if err := operator.Create(t.Context(), made); err != nil {
		t.Error(err)
	}
	if err := operator.Delete(t.Context(), made); err != nil {
		t.Error(err)
	}
	if err := admin.Delete(t.Context(), other); err != nil {
		t.Error(err)
	}
}
