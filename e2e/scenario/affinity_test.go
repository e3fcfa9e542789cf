package scenario

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// OP-5.31: required Pod affinity over zones follows the Pods that run. The fleet's first choice of a zone is test-1a; what is to be near Pods in test-1b gets its
// machines there, and a gang of which the first Pods found a place on the machines of others gets the rest beside them. No running Pod moves for it.
func TestPodAffinityFollowsThePodsThatRun(t *testing.T) {
	t.Parallel()
	const east, west = "test-1a", "test-1b"
	offering := `- {name: %s, instance_type: test.4x, zone: %s, capacity_type: spot, count: 8, price_per_hour: 0.08, interruption_probability: 0.01, resources: {cpu: "4", memory: 16Gi, pods: "110"}}` + "\n"
	s := fixture.StartT(t, fixture.Config{
		Offerings: "offerings:\n" + fmt.Sprintf(offering, "east", east) + fmt.Sprintf(offering, "west", west),
		ShardArgs: []string{"--release-delay", "5s", "--release-delay-empty", "5s", "--release-unused-after", "10s", "--reclaim-cap-fraction", "0"},
	})
	red := s.Clusters[0]
	if err := s.Settled(bounded(t)); err != nil {
		t.Fatal(err)
	}
	running := 0
	add := func(name, cpu string, pods int, edit func(p *corev1.PodSpec)) {
		t.Helper()
		deploy(t, red, fixture.Workload{Name: name, Replicas: int32(pods), CPU: cpu, Memory: "64Mi", Edit: edit})
		running += pods
		until(t, s, red, "all Pods of "+name+" running", func(p fixture.Picture) bool { return p.PodsRunning == running && p.PodsPending == 0 })
	}
	in := func(zone string) func(p *corev1.PodSpec) {
		return func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone} }
	}
	near := func(app string) func(p *corev1.PodSpec) {
		return func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
		}
	}

	// A gang that grows says where it runs. Its machine was bought before that.
	add("own", "1", 4, near("own"))
	before := podsOf(t, red)
	scale(t, red, "own", 8)
	running += 4
	until(t, s, red, "own has grown", func(p fixture.Picture) bool {
		return p.PodsRunning == running && p.PodsPending == 0 && p.NodesReady == 2
	})
	if got := zonesOf(t, red, "own"); got[east] != 8 {
		t.Errorf("own runs in %v", got)
	}

	// The machine of db is full.
	add("db", "2", 2, in(west))
	add("web", "1", 3, near("db"))
	if got := zonesOf(t, red, "web"); got[west] != 3 {
		t.Errorf("web runs in %v", got)
	}

	// Two of ring run at once, on what others left in test-1b.
	add("cache", "2", 1, in(west))
	add("ring", "1", 7, near("ring"))
	if got := zonesOf(t, red, "ring"); got[west] != 7 {
		t.Errorf("ring runs in %v", got)
	}

	// What no Pod uses goes; until then, whatever was to be drained would have been.
	time.Sleep(15 * time.Second)
	until(t, s, red, "all Pods running still", func(p fixture.Picture) bool {
		return p.PodsRunning == running && p.PodsPending == 0 && p.NodesReady == p.Nodes
	})
	after := podsOf(t, red)
	maps.DeleteFunc(after, func(name, _ string) bool { return before[name] == "" })
	if !maps.Equal(before, after) {
		t.Errorf("running Pods moved:\n%v\n%v", before, after)
	}
}

// ENG-8.3: Pods that must share a zone fit one machine. Later there are more of them: they get small machines beside their own, which is not drained, and
// not the dear one that would hold all of them.
func TestPodsThatShareAZoneKeepTheirMachineWhenTheyGrow(t *testing.T) {
	t.Parallel()
	s := fixture.StartT(t, fixture.Config{
		Offerings: spot(6) + `- {name: large, instance_type: test.16x, zone: test-1a, capacity_type: on_demand, count: 2, price_per_hour: 0.80, resources: {cpu: "16", memory: 64Gi, pods: "110"}}` + "\n",
		ShardArgs: []string{"--release-delay", "5s", "--release-delay-empty", "5s", "--reclaim-cap-fraction", "0"},
	})
	red := s.Clusters[0]
	near := func(p *corev1.PodSpec) {
		p.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}}}
	}
	runs := func(what string, pods, nodes int) {
		t.Helper()
		until(t, s, red, what, func(p fixture.Picture) bool {
			return p.PodsRunning == pods && p.PodsPending == 0 && p.Nodes == nodes && p.NodesReady == nodes
		})
	}
	deploy(t, red, fixture.Workload{Name: "web", Replicas: 2, CPU: "2", Memory: "64Mi", Edit: near})
	runs("two Pods on one machine", 2, 1)
	first := nodesOf(t, red)
	scale(t, red, "web", 5)
	runs("five Pods on three small machines", 5, 3)
	time.Sleep(8 * time.Second) // longer than the release delays
	runs("all of it stays", 5, 3)
	after := nodesOf(t, red)
	for name, uid := range first {
		if after[name] != uid {
			t.Errorf("%s is gone", name)
		}
	}
	for name := range after {
		if strings.Contains(name, "large") {
			t.Errorf("%s was bought", name)
		}
	}
}

// nodesOf are the uids of the Nodes.
func nodesOf(t *testing.T, c *fixture.Cluster) map[string]string {
	t.Helper()
	nodes, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "bigfleet.lucy.sh/provider"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range nodes.Items {
		out[n.Name] = string(n.UID)
	}
	return out
}

// zonesOf counts the Pods of an app by the zone in which they run.
func zonesOf(t *testing.T, c *fixture.Cluster, app string) map[string]int {
	t.Helper()
	nodes, err := c.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zone := map[string]string{}
	for _, n := range nodes.Items {
		zone[n.Name] = n.Labels[corev1.LabelTopologyZone]
	}
	list, err := c.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, p := range list.Items {
		out[zone[p.Spec.NodeName]]++
	}
	return out
}

// podsOf is every Pod with its node.
func podsOf(t *testing.T, c *fixture.Cluster) map[string]string {
	t.Helper()
	out := identity(t, c)
	maps.DeleteFunc(out, func(name, _ string) bool { return !strings.HasPrefix(name, "pod/") })
	return out
}

// OP-11.5: what is left of the machine of another app is enough for Pods that keep away from its hosts, or that it keeps from its own, and no help to them.
// They get a machine.
func TestPodsThatKeepAwayFromOthersGetAHost(t *testing.T) {
	t.Parallel()
	s := fixture.StartT(t, fixture.Config{Offerings: spot(4)})
	red := s.Clusters[0]
	deploy(t, red, fixture.Workload{Name: "db", Replicas: 1, CPU: "2", Memory: "64Mi"})
	until(t, s, red, "db running", func(p fixture.Picture) bool { return p.PodsRunning == 1 })
	deploy(t, red, fixture.Workload{Name: "web", Replicas: 2, CPU: "1", Memory: "64Mi", Edit: func(p *corev1.PodSpec) {
		p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}}
	}})
	until(t, s, red, "web running on another host", func(p fixture.Picture) bool { return p.PodsRunning == 3 && p.NodesReady == 2 })
	scale(t, red, "db", 3) // web keeps it from its host, where there is room for one of them
	until(t, s, red, "db running on another host", func(p fixture.Picture) bool { return p.PodsRunning == 5 && p.NodesReady == 3 })
}
