package pods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// OP-11.5a: a Pod is unbound from its creation until it has a node, is being deleted, or is gone.
func TestUnbound(t *testing.T) {
	pod := func(node string, phase corev1.PodPhase, deleted bool) *Pod {
		p := &Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID("p")}, Node: node, Phase: phase}
		if deleted {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return p
	}
	s := New(nil, nil, nil)
	for _, c := range []struct {
		name string
		now  *Pod
		want int
	}{
		{"new", pod("", corev1.PodPending, false), 1},
		{"bound", pod("n1", corev1.PodPending, false), 0},
		{"another of its name waits", pod("", corev1.PodPending, false), 1},
		{"is being deleted", pod("", corev1.PodPending, true), 0},
		{"waits", pod("", corev1.PodPending, false), 1},
		{"failed without a node", pod("", corev1.PodFailed, false), 0},
		{"waits again", pod("", corev1.PodPending, false), 1},
	} {
		if s.Set(c.now); len(s.Unbound()) != c.want {
			t.Errorf("%s: %d unbound, want %d", c.name, len(s.Unbound()), c.want)
		}
	}
	if s.Delete(pod("", corev1.PodPending, false)); len(s.Unbound()) != 0 {
		t.Errorf("gone, and %d unbound", len(s.Unbound()))
	}
}
