package operator

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scenario 50 and section 18: a Deployment of 2,000 Pods in one burst; every Pod is one create and one acknowledgement, and
// when the Pods go their requests go, with one delete each by us or by the garbage collector.
func TestBurst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	w.operator(s)
	w.podController()
	c := w.census()
	const pods = 2000
	mark := w.calls.mark()
	start := time.Now()
	w.must(w.deploy("burst", pods, "100m"))
	w.within(2*time.Minute, "every Pod has its request", func() bool { alive, _, _ := c.counts(); return alive == pods })
	t.Logf("%d Pods created by the Deployment's controller, and their requests: %v", pods, time.Since(start))
	s.within(t, time.Minute, "the shard knows all of them", func(f []frame) bool {
		r := lastRollup(f)
		return r != nil && len(r.Needs) == 1 && r.Needs[0].AggregateResources["cpu"] == fmt.Sprint(pods/10)
	})
	w.within(3*time.Minute, "all are acknowledged", func() bool { return w.metric(t, "acknowledged_total", "") == pods })
	t.Logf("all acknowledged after %v", time.Since(start))
	got := w.calls.writes(mark)
	if got["post capacityrequests"] != pods || got["patch capacityrequests"] != 0 || got["patch capacityrequests/status"] != pods {
		t.Errorf("writes %v; want %d creates and %d acknowledgements", got, pods, pods)
	}
	rollups := 0
	for _, f := range s.since(0) {
		if f.m.GetRollup() != nil {
			rollups++
		}
	}
	t.Logf("%d roll-ups, writes %v", rollups, got)
	mark = w.calls.mark()
	w.must(w.client.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "burst"}}, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	w.within(2*time.Minute, "the demand is withdrawn", func() bool { alive, _, _ := c.counts(); return alive == 0 })
	if n := w.calls.of(mark, "delete", "capacityrequests"); n > pods {
		t.Errorf("%d deletes for %d requests", n, pods)
	}
	_, _, made := c.counts()
	if made != pods {
		t.Errorf("%d requests ever existed for %d Pods", made, pods)
	}
	c.check(t)
}
