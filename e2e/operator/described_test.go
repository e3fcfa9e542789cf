package operator

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// What a developer reads of a Pod that stays pending, with the real shard and its own words: OP-14.1 to OP-14.3.
func TestDescribedByTheRealShard(t *testing.T) {
	t.Parallel()
	const offered = 3 // machines of 4 cpu, in one rack each
	offerings := "offerings:\n"
	for i := range offered {
		offerings += fmt.Sprintf("- {name: small-%d, instance_type: test.4x, zone: test-1a, capacity_type: on_demand, count: 1, price_per_hour: 0.2, interruption_probability: 0,"+
			" labels: {topology.bigfleet/rack: r%d}, resources: {cpu: \"4\", memory: 16Gi}}\n", i, i)
	}
	s := fixture.StartT(t, fixture.Config{Offerings: offerings, ProviderArgs: []string{"--create-delay", "6s"}})
	red := s.Clusters[0]
	ctx, cancel := context.WithTimeoutCause(t.Context(), 4*time.Minute, errors.New("patience ended"))
	defer cancel()
	kubectl := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), red.Kubectl(), append([]string{"--kubeconfig=" + red.Kubeconfig()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	create := func(pods ...*corev1.Pod) {
		for _, p := range pods {
			if _, err := red.Client().CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, value := range map[string]int32{"low": 10, "high": 1000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := red.Client().SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Settled(ctx); err != nil {
		t.Fatal(err)
	}
	class := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.PriorityClassName = name } }
	gang := func(p *corev1.Pod) {
		p.Labels = map[string]string{"job": "train"}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: "topology.bigfleet/rack", LabelSelector: metav1.SetAsLabelSelector(map[string]string{"job": "train"}),
		}}}}
	}
	for _, c := range []struct {
		pods []*corev1.Pod
		says []string // in what kubectl describe shows of the last Pod
		then []string // run afterwards
	}{
		{[]*corev1.Pod{pod("default", "huge", "500")}, []string{"NoCapacity", "NoMatchingSupply", "large enough", "Request less for each Pod"}, nil},
		{[]*corev1.Pod{pod("default", "elsewhere", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"topology.kubernetes.io/zone": "test-9z"} })},
			[]string{"NoCapacity", "NoMatchingSupply"}, nil},
		{[]*corev1.Pod{pod("default", "first", "3", class("high")), pod("default", "second", "3", class("high")), pod("default", "third", "3", class("high"))},
			[]string{"CapacityOnTheWay", "un-"}, []string{"first", "second", "third"}},
		{[]*corev1.Pod{pod("default", "late", "4", class("low"))}, []string{"NoCapacity", "PriorityStarved"}, nil},
		{[]*corev1.Pod{pod("default", "gang-0", "3", gang), pod("default", "gang-1", "3", gang)}, []string{"NoCapacity", "TopologyUnsatisfiable"}, nil},
	} {
		name, start, shown := c.pods[len(c.pods)-1].Name, time.Now(), ""
		create(c.pods...)
		said := func() bool {
			shown = kubectl("describe", "pod", name)
			for _, want := range c.says {
				if !strings.Contains(shown, want) {
					return false
				}
			}
			return true
		}
		for !said() {
			select {
			case <-ctx.Done():
				t.Fatalf("kubectl describe pod %s does not say %q:\n%s\n%s", name, c.says, shown, kubectl("describe", "capacityrequests"))
			case <-time.After(200 * time.Millisecond):
			}
		}
		for _, p := range c.then { // before the next Pod is there to be preempted by these
			for running := false; !running && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				now, err := red.Client().CoreV1().Pods("default").Get(ctx, p, metav1.GetOptions{})
				running = err == nil && now.Status.Phase == corev1.PodRunning
			}
		}
		_, events, _ := strings.Cut(shown, "Events:")
		t.Logf("%s, %v after it was created (promised: 10 s):%s", name, time.Since(start).Round(100*time.Millisecond), events)
	}
	t.Log(kubectl("get", "capacityrequests", "-o", "wide"))
	t.Log(kubectl("describe", "capacityrequests"))
	t.Log(kubectl("get", "upcomingnodes", "-o", "wide"))
}
