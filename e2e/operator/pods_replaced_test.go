package operator

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

// Scenario 47, OP-15.8, OP-5.23: a node is drained and its Pods are replaced; demand stays that of the Pods that there are.
func testReplacedPodsCountOnce(t *testing.T, w *world) {
	s := startShard(t, allFeatures...)
	w.operator(s)
	w.podController()
	c := w.census()
	const pods = 12
	w.machine(s, "old")
	w.must(w.deploy("web", pods, "100m"))
	w.until("all run on the old node", func() bool { return len(w.podsOn("node-old")) == pods })
	w.machine(s, "new")
	w.until("no Pod is so young that it could be a replacement itself", func() bool {
		return !slices.ContainsFunc(w.podsOn("node-old"), func(p corev1.Pod) bool { return time.Since(p.CreationTimestamp.Time) < 3*time.Second })
	})
	s.send(t, reclaim("0000000000000047", 120, "old"))
	w.until("all run on the new node", func() bool { return len(w.podsOn("node-new")) == pods && w.phase("old") == v1alpha1.NodeDrained })
	var alive, most, made int
	w.until("each Pod has had its request", func() bool { // a Pod may run before its request is written
		alive, most, made = c.counts()
		return alive == pods && made >= 2*pods
	})
	if made != 2*pods {
		t.Errorf("%d requests were made for %d Pods", made, 2*pods)
	}
	t.Logf("at most %d requests existed at once", most) // a delete and a create may cross; what counts is what the shard receives
	// OP-5.23: nor does it fall below, from the time it was whole.
	whole := false
	for _, f := range s.since(0) {
		r := f.m.GetRollup()
		if r == nil {
			continue
		}
		asked := int64(0)
		for _, n := range r.Needs {
			q := resource.MustParse(n.AggregateResources["cpu"])
			asked += q.MilliValue()
		}
		if whole = whole || asked == pods*100; asked > pods*100 || whole && asked < pods*100 {
			t.Errorf("a roll-up asks for %dm: %v", asked, r.Needs)
		}
	}
	c.check(t)
}

func (w *world) deploy(name string, replicas int32, cpu string) error {
	labels := map[string]string{"app": name}
	p := pod("default", name, cpu)
	return w.client.Create(w.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
	}})
}

func (w *world) podsOn(node string) (out []corev1.Pod) {
	w.Helper()
	var list corev1.PodList
	w.must(w.client.List(w.Context(), &list, client.InNamespace("default"), client.MatchingFields{"spec.nodeName": node}))
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			out = append(out, p)
		}
	}
	return out
}

// Scenario 43: two replicas of the pod controller, one of which is stopped in the middle of a burst: never two requests for
// one Pod, and no Pod without.
func testPodControllerReplaced(t *testing.T, w *world) {
	c := w.census()
	elect := func(c *podcontroller.Config) { c.NoLeaderElection = false }
	first := w.podController(elect)
	const pods = 400
	w.must(w.deploy("burst", pods, "100m"))
	w.until("the first one is in the middle", func() bool { alive, _, _ := c.counts(); return alive > 20 })
	w.podController(elect)
	w.must(first.end())
	w.until("every Pod has its request", func() bool { alive, _, _ := c.counts(); return alive == pods })
	w.never(time.Second, "more requests than Pods", func() bool { alive, _, made := c.counts(); return alive > pods || made > pods })
	c.check(t)
}
