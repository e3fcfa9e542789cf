package kubesim

import (
	"fmt"
	"net/http"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func (s *Server) evict(w http.ResponseWriter, r *http.Request, t target) error {
	var in policyv1.Eviction
	if err := readJSON(r, &in); err != nil {
		return err
	}
	var opts metav1.DeleteOptions
	if in.DeleteOptions != nil {
		opts = *in.DeleteOptions
	}
	if err := s.store.Evict(t.namespace, t.name, opts); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated})
	return nil
}

// Evict deletes a Pod if every disruption budget that covers it allows one more disruption, else answers 429.
func (s *Store) Evict(namespace, pod string, opts metav1.DeleteOptions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.tables[Pods]
	n := name{namespace, pod}
	o, err := pods.get(n)
	if err != nil {
		return err
	}
	if o.GetDeletionTimestamp() == nil {
		for _, b := range s.tables[Budgets].list(Filter{Namespace: namespace}) {
			if err := s.allows(b, o); err != nil {
				return err
			}
		}
	}
	s.delete(pods, n, o, opts)
	return nil
}

// allows says whether a budget lets one more of its healthy Pods go.
func (s *Store) allows(budget, pod *Object) error {
	var b policyv1.PodDisruptionBudget
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(budget.Object, &b); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("disruption budget %s: %v", budget.GetName(), err))
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(pod.GetLabels())) || !running(pod) {
		return nil
	}
	expected, healthy := 0, 0
	for _, p := range s.tables[Pods].list(Filter{Namespace: b.Namespace, Labels: selector}) {
		if p.GetDeletionTimestamp() != nil {
			continue
		}
		expected++
		if running(p) {
			healthy++
		}
	}
	floor := 0
	switch {
	case b.Spec.MinAvailable != nil:
		floor, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, expected, true)
	case b.Spec.MaxUnavailable != nil:
		floor, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, expected, true)
		floor = expected - floor
	}
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("disruption budget %s: %v", b.Name, err))
	}
	if healthy-1 >= floor {
		return nil
	}
	blocked := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0) // like a real one, it names no Retry-After
	blocked.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, floor, healthy),
	}}
	return blocked
}

func running(pod *Object) bool {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	return phase == "Running"
}
