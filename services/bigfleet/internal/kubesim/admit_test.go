package kubesim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OPS-5.2: a new Pod gets its priority as an API server gives it, and says that its gates keep it from the scheduler.
func TestANewPodIsAdmitted(t *testing.T) {
	_, client, _ := cluster(t)
	class := func(name string, value int32, byDefault bool) {
		if _, err := client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: byDefault}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	priority := func(name, class string, own *int32) (out string, value int32) {
		p := pod(name, "", nil)
		p.Spec.PriorityClassName, p.Spec.Priority = class, own
		got := create(t, client, p)
		if got.Spec.Priority != nil {
			value = *got.Spec.Priority
		}
		return got.Spec.PriorityClassName, value
	}
	if of, value := priority("early", "", nil); of != "" || value != 0 {
		t.Errorf("without classes: %q, %d", of, value)
	}
	class("gold", 500, false)
	class("usual", 7, true)
	own := int32(3)
	for name, c := range map[string]struct {
		class string
		own   *int32
		of    string
		value int32
	}{
		"named": {"gold", nil, "gold", 500}, "system": {"system-node-critical", nil, "system-node-critical", 2_000_001_000},
		"default": {"", nil, "usual", 7}, "own": {"", &own, "", 3},
	} {
		if of, value := priority(name, c.class, c.own); of != c.of || value != c.value {
			t.Errorf("%s: %q, %d; want %q, %d", name, of, value, c.of, c.value)
		}
	}
	p := pod("unknown", "", nil)
	p.Spec.PriorityClassName = "platinum"
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("an unknown class: %v", err)
	}
	gated := pod("gated", "", nil)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
	if c := create(t, client, gated).Status.Conditions; len(c) != 1 || c[0].Reason != corev1.PodReasonSchedulingGated || c[0].Status != corev1.ConditionFalse {
		t.Errorf("conditions of a gated Pod: %+v", c)
	}
}
