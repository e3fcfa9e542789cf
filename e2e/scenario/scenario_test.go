package scenario

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// SHARD-6.6, OP-11.5: one of two providers has a wrong address from the start. Pods that find no Node run all the same, on machines of the other one
// that are bought once and one after the other, and their owners read which provider is missing.
func TestAProviderIsMissingFromTheStart(t *testing.T) {
	t.Parallel()
	const pods, machines = 6, 2
	s := fixture.StartT(t, fixture.Config{Offerings: spot(12), DeadProvider: true})
	red := s.Clusters[0]
	deploy(t, red, fixture.Workload{Name: "web", Replicas: pods, CPU: "1", Memory: "1Gi"})
	until(t, s, red, "all Pods running", func(p fixture.Picture) bool { return p.PodsRunning == pods && p.NodesReady == machines })
	events, err := red.Client().EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Kind == "Pod" && strings.Contains(e.Note, "provider typo has not answered")
	}) {
		t.Errorf("no event of a Pod names the provider: %v", events.Items)
	}
	if got := metric(t, s.ShardMetrics, "bigfleet_shard_actions_total", `kind="provision"`); got != machines {
		t.Errorf("%v machines were bought for %d Pods, want %d", got, pods, machines)
	}
}

// The whole line: 20 Pods without a Node run on 5 machines; scaled to zero, everything is given back, and nothing was bought
// twice. OP-6, OP-12, SHARD-15, SHARD-17, ENG-16.7.
func TestFromPendingToRunningAndBack(t *testing.T) {
	t.Parallel()
	const pods, machines, quota = 20, 5, 12
	s := fixture.StartT(t, fixture.Config{Offerings: spot(quota), ShardArgs: []string{"--reclaim-cap-fraction", "1"}})
	if err := s.Settled(bounded(t)); err != nil {
		t.Fatal(err)
	}
	red := s.Clusters[0]
	phases := watchPhases(t, red)
	clock, err := red.WatchPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	deploy(t, red, fixture.Workload{Name: "web", Replicas: pods, CPU: "1", Memory: "1Gi"})
	until(t, s, red, "20 Pods running", func(p fixture.Picture) bool {
		return p.PodsRunning == pods && p.Requests["Acknowledged"] == pods && p.Upcoming["Ready"] == machines && p.NodesReady == machines
	})
	t.Logf("Pod created to Pod Running: %s", clock.Stop())

	scale(t, red, "web", 0)
	until(t, s, red, "Nodes and UpcomingNodes gone", func(p fixture.Picture) bool {
		return p.Nodes == 0 && len(p.Upcoming) == 0 && len(p.Requests) == 0
	})
	until(t, s, red, "machines given back", func(p fixture.Picture) bool { return p.Machines["speculative"] == quota })

	// Bought exactly what was needed, once, and drained and released exactly that.
	for kind, want := range map[string]float64{"provision": machines, "reclaim": machines, "delete": machines, "preempt": 0} {
		if got := metric(t, s.ShardMetrics, "bigfleet_shard_actions_total", `kind="`+kind+`"`); got != want {
			t.Errorf("%s actions: %v, want %v", kind, got, want)
		}
	}
	for method, want := range map[string]float64{"Create": machines, "Configure": machines, "Drain": machines, "Delete": machines} {
		if got := metric(t, s.ProviderMetrics, "bigfleet_provider_rpc_requests_total", `method="`+method+`"`); got != want {
			t.Errorf("%s calls at the provider: %v, want %v", method, got, want)
		}
	}
	seen := phases()
	if len(seen) != machines {
		t.Errorf("%d UpcomingNodes were seen, want %d", len(seen), machines)
	}
	for name, walked := range seen {
		// A phase may be too short to be seen; what is seen must be in order, and these are always there.
		order := []string{"Provisioning", "Launched", "Registered", "Ready", "Draining", "Drained"}
		if !slices.IsSortedFunc(walked, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
			t.Errorf("%s walked %v, which is out of order", name, walked)
		}
		for _, must := range []string{"Provisioning", "Ready", "Draining"} {
			if !slices.Contains(walked, must) {
				t.Errorf("%s walked %v and never was %s", name, walked, must)
			}
		}
	}
	sizes(t, s, red)
	apart(t, s, red)
}

// apart: small Pods that must not share a host get a host each, though a few machines have room for all of them: by anti-affinity, and
// by a spread over hosts. ENG-4.12a, OP-15.19, OP-15.27.
func apart(t *testing.T, s *fixture.Fixture, c *fixture.Cluster) {
	t.Helper()
	p, err := s.Look(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	running := p.PodsRunning
	for _, w := range []struct {
		name  string
		hosts int
		edit  func(p *corev1.PodSpec, mine *metav1.LabelSelector)
	}{
		{"apart", 6, func(p *corev1.PodSpec, mine *metav1.LabelSelector) {
			p.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: mine}}}}
		}},
		{"level", 7, func(p *corev1.PodSpec, mine *metav1.LabelSelector) {
			p.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: mine}}
		}},
	} {
		mine := &metav1.LabelSelector{MatchLabels: map[string]string{"app": w.name}}
		deploy(t, c, fixture.Workload{Name: w.name, Replicas: int32(w.hosts), CPU: "100m", Memory: "64Mi", Edit: func(p *corev1.PodSpec) { w.edit(p, mine) }})
		running += w.hosts
		until(t, s, c, w.name+" Pods running on a host each", func(p fixture.Picture) bool {
			return p.PodsRunning == running && p.PodsPending == 0 && p.NodesReady >= w.hosts
		})
	}
}

// sizes: Pods of several sizes on machines of 4 cpu all run, whatever the scheduler does with them: large ones bring machines of
// their own, small ones get what these leave and one machine more, and those in between one more. ENG-4.12, ENG-11.5, OP-5.22.
func sizes(t *testing.T, s *fixture.Fixture, c *fixture.Cluster) {
	t.Helper()
	running := 0
	for _, w := range []struct {
		fixture.Workload
		nodes int
	}{
		{fixture.Workload{Name: "large", Replicas: 2, CPU: "3", Memory: "1Gi"}, 2},
		{fixture.Workload{Name: "small", Replicas: 4, CPU: "1", Memory: "1Gi"}, 3},
		{fixture.Workload{Name: "middle", Replicas: 2, CPU: "2", Memory: "1Gi"}, 4},
	} {
		deploy(t, c, w.Workload)
		running += int(w.Replicas)
		until(t, s, c, w.Name+" Pods running beside the others", func(p fixture.Picture) bool {
			return p.PodsRunning == running && p.PodsPending == 0 && p.NodesReady == w.nodes
		})
	}
}

// Small and large Pods at once, whose machines would be full with all of them: the scheduler puts small Pods where large ones were to
// go. Those get room as soon as the last node is there, and all run. ENG-11.16, OP-11.5.
func TestMixedSizesAllRun(t *testing.T) {
	t.Parallel()
	s := fixture.StartT(t, fixture.Config{Offerings: spot(12)})
	red := s.Clusters[0]
	clock, err := red.WatchPods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deploy(t, red, fixture.Workload{Name: "small", Replicas: 16, CPU: "500m", Memory: "256Mi"})
	deploy(t, red, fixture.Workload{Name: "large", Replicas: 4, CPU: "3", Memory: "1Gi"})
	until(t, s, red, "all Pods of both sizes running", func(p fixture.Picture) bool { return p.PodsRunning == 20 && p.PodsPending == 0 })
	t.Logf("Pod created to Pod Running: %s", clock.Stop())
	if p, err := s.Look(t.Context(), red); err != nil || p.Machines["speculative"] < 3 { // 20 cpu need five; a large Pod without a place brings one
		t.Errorf("%v, %v", p, err)
	}
}

// watchPhases records the phases each UpcomingNode walks through.
func watchPhases(t *testing.T, c *fixture.Cluster) func() map[string][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w, err := c.Dynamic.Resource(fixture.UpcomingNodes).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[string][]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			mu.Lock()
			if walked := seen[o.GetName()]; phase != "" && (len(walked) == 0 || walked[len(walked)-1] != phase) {
				seen[o.GetName()] = append(walked, phase)
			}
			mu.Unlock()
		}
	}()
	return func() map[string][]string {
		cancel()
		<-done
		return maps.Clone(seen)
	}
}

// Two clusters want more than there is: the higher priority is served first, and takes from the lower what it still needs;
// the lower keeps the rest. ENG-12, ENG-15.
func TestPriorityDecides(t *testing.T) {
	t.Parallel()
	const machines = 6
	s := fixture.StartT(t, fixture.Config{Clusters: []string{"batch", "web"}, Offerings: spot(machines)})
	batch, web := s.Cluster("batch"), s.Cluster("web")
	priorityClass(t, web, "urgent", 100_000)

	deploy(t, batch, fixture.Workload{Name: "low", Replicas: 24, CPU: "1", Memory: "1Gi"})
	until(t, s, batch, "the lower priority on every machine", func(p fixture.Picture) bool { return p.PodsRunning == 24 && p.NodesReady == machines })

	deploy(t, web, fixture.Workload{Name: "high", Replicas: 16, CPU: "1", Memory: "1Gi", PriorityClass: "urgent"})
	until(t, s, web, "the higher priority running", func(p fixture.Picture) bool { return p.PodsRunning == 16 && p.NodesReady == 4 })
	until(t, s, batch, "the lower priority on what is left", func(p fixture.Picture) bool { return p.PodsRunning == 8 && p.NodesReady == 2 })

	if got := metric(t, s.ShardMetrics, "bigfleet_shard_actions_total", `kind="preempt"`); got != 4 {
		t.Errorf("%v machines were preempted, want 4: as many as were missing", got)
	}
	// It stays so: nothing reverses what priority decided.
	before := identity(t, web)
	time.Sleep(12 * time.Second) // more than a nominal cycle
	if after := identity(t, web); !maps.Equal(before, after) {
		t.Errorf("the higher priority changed afterwards:\n%v\n%v", before, after)
	}
	if got := metric(t, s.ShardMetrics, "bigfleet_shard_actions_total", `kind="preempt"`); got != 4 {
		t.Errorf("%v machines were preempted in the end, want 4", got)
	}
}

// Killed without warning and started again, no part of BigFleet harms what runs. SHARD-2.1, SHARD-13, OP-1.4, PROV-12.
func TestKillAnything(t *testing.T) {
	t.Parallel()
	s := fixture.StartT(t, fixture.Config{Offerings: spot(8)})
	red := s.Clusters[0]
	deploy(t, red, fixture.Workload{Name: "web", Replicas: 12, CPU: "1", Memory: "1Gi"})
	until(t, s, red, "12 Pods running", func(p fixture.Picture) bool { return p.PodsRunning == 12 && p.Upcoming["Ready"] == 3 })

	for _, p := range s.Processes() {
		t.Run(p.Name(), func(t *testing.T) {
			before := identity(t, red)
			p.Kill()
			time.Sleep(3 * time.Second)
			if after := identity(t, red); !maps.Equal(before, after) {
				t.Errorf("with %s dead the cluster changed:\n%v\n%v", p.Name(), before, after)
			}
			if err := p.Start(bounded(t)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(12 * time.Second) // more than a nominal cycle and a roll-up heartbeat
			if after := identity(t, red); !maps.Equal(before, after) {
				t.Errorf("after the restart of %s the cluster changed:\n%v\n%v", p.Name(), before, after)
			}
			for _, kind := range []string{"reclaim", "preempt", "delete"} {
				if got := metric(t, s.ShardMetrics, "bigfleet_shard_actions_total", `kind="`+kind+`"`); got != 0 {
					t.Errorf("%v %s actions after the restart of %s, want none", got, kind, p.Name())
				}
			}
		})
	}
	// And everything still works: more demand is met, with machines that were not there before.
	scale(t, red, "web", 20)
	until(t, s, red, "20 Pods running after all restarts", func(p fixture.Picture) bool { return p.PodsRunning == 20 && p.Upcoming["Ready"] == 5 })
	if got := metric(t, s.ProviderMetrics, "bigfleet_provider_machines", `state="configured"`); got != 5 {
		t.Errorf("%v machines are configured, want 5", got)
	}
}
