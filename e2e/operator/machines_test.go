package operator

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// machine makes a machine with a Ready node, known to the operator.
func (w *world) machine(s *shard, id string, more ...func(*corev1.Node)) {
	w.Helper()
	w.node("node-"+id, id, more...)
	s.send(w, node(id, pb.MachineState_MACHINE_STATE_CONFIGURED))
	w.until(id+" is Ready", func() bool { return w.phase(id) == v1alpha1.NodeReady })
}

func (w *world) cordoned(id string) bool {
	n, ok := get(w, "", "node-"+id, &corev1.Node{})
	return ok && n.Spec.Unschedulable
}

func (w *world) noted(id string) bool {
	n, ok := get(w, "", "node-"+id, &corev1.Node{})
	return ok && n.Annotations[v1alpha1.AnnotationDrain] != ""
}

func (w *world) running(pods ...*corev1.Pod) {
	w.Helper()
	for _, p := range pods {
		w.create(p)
	}
	for _, p := range pods {
		w.until(p.Name+" runs", func() bool {
			p, ok := get(w, p.Namespace, p.Name, &corev1.Pod{})
			return ok && p.Status.Phase == corev1.PodRunning
		})
	}
}

func (w *world) exists(p *corev1.Pod) bool {
	got, ok := get(w, p.Namespace, p.Name, &corev1.Pod{})
	return ok && got.DeletionTimestamp == nil
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

// budget protects the one Pod with a label. Bare Pods can be counted by minAvailable only.
func (w *world) budget(name, label string, available int) *policyv1.PodDisruptionBudget {
	w.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": label}}, MinAvailable: new(intstr.FromInt32(int32(available))),
	}}
	w.create(b)
	w.until("the budget is counted", func() bool {
		b, _ := get(w, "default", name, &policyv1.PodDisruptionBudget{})
		return b.Status.ObservedGeneration >= b.Generation && b.Status.ExpectedPods > 0
	})
	return b
}

func report(frames []frame, machine string, state pb.DrainState) *pb.DrainReport {
	for i := len(frames) - 1; i >= 0; i-- {
		if r := frames[i].m.GetDrainReport(); r != nil && r.MachineId == machine && r.State == state {
			return r
		}
	}
	return nil
}
