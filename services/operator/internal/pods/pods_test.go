package pods

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OP-3.1, OP-8.8: the cache keeps of a Pod what decides whether it has to leave a node, and hardly more.
func TestStrip(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_700_000_000, 0))
	full := func() *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", CreationTimestamp: now, DeletionTimestamp: &now,
			Labels: map[string]string{"app": "x"}, Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "m", "large": "text"},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "x"}},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}, {Kind: "DaemonSet", Name: "d", UID: "v", Controller: new(true)}},
		}}
		p.Spec.NodeName, p.Spec.TerminationGracePeriodSeconds = "n", new(int64(9))
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "large", Env: []corev1.EnvVar{{Name: "A"}}}}
		p.Status.Phase = corev1.PodRunning
		return p
	}
	got := Of(full())
	want := &Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", CreationTimestamp: now, DeletionTimestamp: &now,
		Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: "m"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: new(true)}},
	}, Node: "n", Phase: corev1.PodRunning, Grace: new(int64(9)), LabelSet: NewLabelSet(map[string]string{"app": "x"})}
	if got.LabelSet != want.LabelSet || got.LabelSet.Labels()["app"] != "x" || len(LabelSet{}.Labels()) != 0 {
		t.Errorf("labels %v, want %v", got.LabelSet.Labels(), want.LabelSet.Labels())
	}
	if !equality.Semantic.DeepEqual(got.ObjectMeta, want.ObjectMeta) || got.Node != want.Node || got.Phase != want.Phase || *got.Grace != *want.Grace || got.Scheduled != nil {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"a mirror Pod":        func(*corev1.Pod) {},
		"a DaemonSet's":       func(p *corev1.Pod) { p.Annotations = nil },
		"a finished one":      func(p *corev1.Pod) { p.Annotations, p.OwnerReferences, p.Status.Phase = nil, nil, corev1.PodSucceeded },
		"a Node's":            func(p *corev1.Pod) { p.Annotations, p.OwnerReferences = nil, []metav1.OwnerReference{{Kind: "Node"}} },
		"must go: an owner's": func(p *corev1.Pod) { p.Annotations, p.OwnerReferences = nil, p.OwnerReferences[:1] },
	} {
		p := full()
		change(p)
		if got := Evictable(Of(p)); got != (name == "must go: an owner's") {
			t.Errorf("%s: has to go: %v", name, got)
		}
	}
}
