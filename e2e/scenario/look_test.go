package scenario

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// patience bounds every wait: far above what anything here takes on a busy two-core machine.
const patience = 3 * time.Minute

// spot sells n machines of 4 cpu that are given back a minute after they fall idle.
func spot(n int) string {
	return fmt.Sprintf(`
offerings:
- {name: small, instance_type: test.4x, zone: test-1a, capacity_type: spot, count: %d, price_per_hour: 0.08, interruption_probability: 0.01, resources: {cpu: "4", memory: 16Gi}}
`, n)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("patience ended"))
	t.Cleanup(cancel)
	return ctx
}

// until waits until the cluster looks as done wants.
func until(t *testing.T, s *fixture.Fixture, c *fixture.Cluster, what string, done func(fixture.Picture) bool) {
	t.Helper()
	err := s.Until(bounded(t), c, func(p fixture.Picture) { t.Logf("%s: %s", c.ID, p) }, done)
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

func deploy(t *testing.T, c *fixture.Cluster, w fixture.Workload) {
	t.Helper()
	if err := c.Deploy(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

func scale(t *testing.T, c *fixture.Cluster, name string, replicas int32) {
	t.Helper()
	if err := c.Scale(t.Context(), name, replicas); err != nil {
		t.Fatal(err)
	}
}

func priorityClass(t *testing.T, c *fixture.Cluster, name string, value int32) {
	t.Helper()
	p := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
	if _, err := c.Client().SchedulingV1().PriorityClasses().Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func metric(t *testing.T, address, name string, labels ...string) float64 {
	t.Helper()
	v, err := fixture.Metric(t.Context(), address, name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// identity is what must not change while BigFleet is away: every Node and Pod, and that no Node is cordoned.
func identity(t *testing.T, c *fixture.Cluster) map[string]string {
	t.Helper()
	out := map[string]string{}
	nodes, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes.Items {
		out["node/"+n.Name] = fmt.Sprintf("%s unschedulable=%v", n.UID, n.Spec.Unschedulable)
	}
	pods, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		out["pod/"+p.Name] = fmt.Sprintf("%s on %s %s deleted=%v", p.UID, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
	}
	return out
}
