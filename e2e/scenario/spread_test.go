package scenario

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// ENG-13.9a, OP-11.5b: one Pod of web runs in each of three zones. The one in the dearest zone is deleted while others use what it left. kube-scheduler
// takes the next one there and nowhere else, so its machine comes there, and none is bought in another zone.
func TestAPodOfASpreadGetsItsMachineInTheZoneThatTakesIt(t *testing.T) {
	t.Parallel()
	offerings := "offerings:\n"
	for zone, price := range map[string]string{"test-1a": "0.08", "test-1b": "0.08", "test-1c": "0.09"} {
		offerings += fmt.Sprintf(`- {name: %[1]s, instance_type: test.4x, zone: %[1]s, capacity_type: spot, count: 4, price_per_hour: %[2]s, interruption_probability: 0.01, resources: {cpu: "4", memory: 16Gi, pods: "110"}}`+"\n", zone, price)
	}
	s := fixture.StartT(t, fixture.Config{Offerings: offerings})
	red := s.Clusters[0]
	deploy(t, red, fixture.Workload{Name: "web", Replicas: 3, CPU: "3", Memory: "64Mi", Edit: func(p *corev1.PodSpec) {
		p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	}})
	until(t, s, red, "one Pod of web in each zone", func(p fixture.Picture) bool { return p.PodsRunning == 3 && p.PodsPending == 0 && p.NodesReady == 3 })

	pods, err := red.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		t.Fatal(err)
	}
	var leaves corev1.Pod
	for _, p := range pods.Items {
		if strings.Contains(p.Spec.NodeName, "test-1c") {
			leaves = p
		}
	}
	// There is one cpu left on each machine, so the sums hold for three small Pods. All of them are in one zone.
	deploy(t, red, fixture.Workload{Name: "small", Replicas: 3, CPU: "1", Memory: "64Mi", Edit: func(p *corev1.PodSpec) { p.NodeName = leaves.Spec.NodeName }})
	until(t, s, red, "small running", func(p fixture.Picture) bool { return p.PodsRunning == 6 && p.NodesReady == 3 })
	if err := red.Client().CoreV1().Pods("default").Delete(t.Context(), leaves.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, s, red, "all of web running again", func(p fixture.Picture) bool { return p.PodsRunning == 6 && p.PodsPending == 0 && p.NodesReady > 3 })
	zones := map[string]int{}
	for node := range nodesOf(t, red) {
		for _, zone := range []string{"test-1a", "test-1b", "test-1c"} {
			if strings.Contains(node, zone) {
				zones[zone]++
			}
		}
	}
	if want := map[string]int{"test-1a": 1, "test-1b": 1, "test-1c": 2}; !maps.Equal(zones, want) {
		t.Errorf("Nodes by zone: %v, want %v", zones, want)
	}
}
