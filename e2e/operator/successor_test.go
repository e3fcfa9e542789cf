package operator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Scenario 32, OP-8.9: the operator's process is killed (SIGKILL) in the middle of a drain; its successor continues with the
// same deadline and evicts no Pod twice.
func testSuccessorResumesDrains(t *testing.T, w *world) {
	s := startShard(t, allFeatures...)
	first := w.replica(s, "first", "--no-leader-election")
	w.machine(s, "k1")
	plain := pod("default", "plain-k1", "10m", onNode("node-k1"))
	held := pod("default", "held-k1", "10m", onNode("node-k1"), labelled("app", "k1"))
	w.running(plain, held)
	b := w.budget("k1", "k1", 1)
	s.send(t, reclaim("0000000000000201", 600, "k1"))
	const evictions, evicted, blocked = "evictions_total", `result="evicted"`, `result="blocked"`
	w.until("the plain Pod is evicted and the other one is not", func() bool {
		return !w.exists(plain) && first.metric(w, evictions, evicted) == 1 && first.metric(w, evictions, blocked) > 0
	})
	before, _ := get(w, "", "node-k1", &corev1.Node{})
	first.Kill()
	w.never(time.Second, "the Pod went although no operator runs", func() bool { return !w.exists(held) })
	second := w.replica(s, "second", "--no-leader-election")
	w.until("the budget blocks the successor", func() bool { return second.metric(w, evictions, blocked) > 0 })
	after, _ := get(w, "", "node-k1", &corev1.Node{})
	if a, b := after.Annotations[v1alpha1.AnnotationDrain], before.Annotations[v1alpha1.AnnotationDrain]; a != b || a == "" {
		t.Errorf("the note of the drain was %s and is %s", b, a)
	}
	w.must(w.client.Delete(t.Context(), b))
	w.until("Drained", func() bool { return w.phase("k1") == v1alpha1.NodeDrained && !w.exists(held) })
	if n := second.metric(w, evictions, evicted); n != 1 {
		t.Errorf("the successor evicted %v times for one Pod", n)
	}
	w.must(second.Stop())
}
