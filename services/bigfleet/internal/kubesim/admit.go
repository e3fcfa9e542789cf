package kubesim

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// admit fills what an API server fills of a new Pod: its phase, its priority by its class, and that gates keep it from the scheduler.
// Called with the lock held.
func (s *Store) admit(o *Object) error {
	status := map[string]any{"phase": "Pending"}
	if gates, _, _ := unstructured.NestedSlice(o.Object, "spec", "schedulingGates"); len(gates) > 0 {
		status["conditions"] = []any{map[string]any{"type": string(corev1.PodScheduled), "status": "False", "reason": corev1.PodReasonSchedulingGated,
			"message": "Scheduling is blocked due to non-empty scheduling gates"}}
	}
	o.Object["status"] = status
	return s.prioritise(o)
}

// prioritise sets the priority of a Pod from its PriorityClass, or from the default one if the Pod has neither.
func (s *Store) prioritise(o *Object) error {
	classes := s.tables[PriorityClasses].objects
	want, _, _ := unstructured.NestedString(o.Object, "spec", "priorityClassName")
	if _, has, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "priority"); want == "" && has {
		return nil
	}
	class := classes[name{"", want}]
	if want != "" && class == nil {
		return apierrors.NewForbidden(Pods.GroupResource(), o.GetName(), fmt.Errorf("no PriorityClass with name %s was found", want))
	}
	for _, c := range classes {
		if byDefault, _, _ := unstructured.NestedBool(c.Object, "globalDefault"); want == "" && byDefault {
			class = c
		}
	}
	if class == nil {
		return nil
	}
	fields := map[string]any{"priority": class.Object["value"], "priorityClassName": class.GetName()}
	if policy := class.Object["preemptionPolicy"]; policy != nil {
		fields["preemptionPolicy"] = policy
	}
	for field, value := range fields {
		if err := unstructured.SetNestedField(o.Object, value, "spec", field); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	return nil
}
