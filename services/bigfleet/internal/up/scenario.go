package up

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// Scenario is a scripted story: the same steps at the same times in every run.
type Scenario struct {
	Name  string
	About string
	Cloud bool // it changes the simulated cloud
	Steps []Step
}

// Step is one thing that happens. After counts from the step before, and is divided by --speed.
type Step struct {
	After   time.Duration
	Message string
	Do      func(context.Context, *World) error
}

// Scenarios are the stories that ship (OPS-5.3, OPS-5.5). The clusters are the first ones of the world.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "steady", About: "a little demand in every cluster, then no changes", Steps: []Step{
			{0, "every cluster runs a small web service", each(service("web", 6, "1", 0))},
		}},
		{Name: "burst", About: "one cluster requests much at once and then releases it", Steps: []Step{
			{0, "every cluster runs a small web service", each(service("web", 4, "1", 0))},
			{2 * time.Second, "cluster 1 gets a burst of 60 Pods", on(0, service("burst", 60, "1", 0))},
			{40 * time.Second, "the burst is over", on(0, scale("burst", 0))},
		}},
		{Name: "priority", About: "a low-priority batch fills the fleet, then something urgent arrives elsewhere", Steps: []Step{
			{0, "cluster 1 fills everything there is with batch work", on(0, service("batch", 720, "1", -10))},
			{15 * time.Second, "cluster 2 urgently needs 24 Pods", on(1, service("urgent", 24, "1", 1_000_000))},
			{30 * time.Second, "the urgent work is done", on(1, scale("urgent", 0))},
		}},
		{Name: "sizes", About: "large Pods bring machines, and smaller ones fill what these leave", Steps: []Step{
			{0, "cluster 1 runs 6 Pods of 5 cpu: one on each machine of 8", on(0, serviceOn("m.8x", "large", 6, "5"))},
			{15 * time.Second, "4 Pods of 2 cpu find room beside them: nothing is bought", on(0, serviceOn("m.8x", "middle", 4, "2"))},
			{10 * time.Second, "and 10 of 1 cpu fill the rest; `bigfleet get needs` has a row for each size", on(0, serviceOn("m.8x", "small", 10, "1"))},
		}},
		{Name: "gang", About: "a training job wants all its machines in one rack", Steps: []Step{
			{0, "cluster 1 starts a gang of 12 that must share a rack", on(0, gang("train", 12, "2"))},
		}},
		{Name: "saturate", About: "more demand than the cloud can supply", Steps: []Step{
			{0, "every cluster asks for 200 Pods of 4 cpu: more than there is", each(service("flood", 200, "4", 0))},
		}},
		{Name: "stockout", About: "the cheapest machines are sold out, the next best are bought, and later the stock returns", Cloud: true, Steps: []Step{
			{0, "every cluster runs a small web service on spot machines", each(serviceOn("m.8x", "web", 4, "1"))},
			{5 * time.Second, "spot machines are sold out in every zone", stock(provider.Spot, 0)},
			{time.Second, "cluster 1 gets 40 more Pods: the shard learns pool by pool and buys on demand", on(0, serviceOn("m.8x", "more", 40, "1"))},
			{20 * time.Second, "spot machines are back: `bigfleet status` shows when each pool is tried again", stock(provider.Spot, -1)},
		}},
		{Name: "spot", About: "the cloud interrupts the spot machines of a zone with a short notice; replacements are bought before they go", Cloud: true, Steps: []Step{
			{0, "every cluster runs a web service on spot machines", each(serviceOn("m.8x", "web", 16, "1"))},
			{8 * time.Second, "every spot machine in the busiest zone gets its notice: 4 seconds; `bigfleet history cluster/red` shows what follows", storm(4 * time.Second)},
		}},
		{Name: "budget", About: "a disruption budget blocks a drain until the budget is changed", Steps: []Step{
			{0, "cluster 1 runs a service on every GPU there is, under a budget that lets no Pod go", on(0, guarded("guarded", 12))},
			{8 * time.Second, "cluster 2 urgently needs 2 GPUs: `bigfleet get drains` names the budget that holds them up", on(1, onGPU("urgent", 2, 1_000_000))},
			{6 * time.Second, "the budget is removed before the deadline, at which the machines would be taken with their Pods", on(0, letGo("guarded"))},
		}},
		{Name: "restart", About: "the shard stops and starts again", Steps: []Step{
			{0, "every cluster runs a web service", each(service("web", 8, "1", 0))},
			{10 * time.Second, "the shard is stopped: watch that no Pod and no Node is lost", func(_ context.Context, w *World) error { return w.StopShard() }},
			{10 * time.Second, "the shard starts again: the operators come back one by one, and nothing is bought or drained", func(_ context.Context, w *World) error { return w.StartShard() }},
		}},
	}
}

// stock sets how many machines of a class each pool still has. Below zero gives back what its quota says.
func stock(class provider.CapacityType, n int) func(context.Context, *World) error {
	return func(_ context.Context, w *World) error {
		for _, p := range w.Cloud.Pools() {
			left := n
			if n < 0 {
				left = max(0, p.Quota-p.Hosts)
			}
			if p.CapacityType == class {
				w.Cloud.SetStock(p.PoolKey, left)
			}
		}
		return nil
	}
}

// storm takes back the spot machines of the zone that has most of them, after a notice.
func storm(notice time.Duration) func(context.Context, *World) error {
	return func(_ context.Context, w *World) error {
		byZone := map[string][]string{}
		for _, h := range w.Cloud.Hosts() {
			if h.Pool.CapacityType == provider.Spot {
				byZone[h.Pool.Zone] = append(byZone[h.Pool.Zone], h.Machine)
			}
		}
		worst := ""
		for _, zone := range slices.Sorted(maps.Keys(byZone)) {
			if len(byZone[zone]) > len(byZone[worst]) {
				worst = zone
			}
		}
		for _, m := range byZone[worst] {
			w.Cloud.Interrupt(m, notice)
		}
		if worst == "" {
			w.view.log("no spot machine is in use: nothing gets a notice")
			return nil
		}
		w.view.log("the cloud interrupts %s in %s, with %s notice", output.Count(len(byZone[worst]), "spot machine"), worst, notice)
		return nil
	}
}

// Find returns the scenario with a name.
func Find(name string) (Scenario, error) {
	var names []string
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("there is no scenario %q: use one of %s", name, strings.Join(names, ", "))
}

// Names lists the scenarios.
func Names() []string {
	var out []string
	for _, s := range Scenarios() {
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return out
}

// act is something done in one cluster.
type act func(context.Context, *Cluster) error

func each(do act) func(context.Context, *World) error {
	return func(ctx context.Context, w *World) error {
		for _, c := range w.Clusters {
			if err := do(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// on does it in the cluster with this index, or in the last one of a smaller world.
func on(i int, do act) func(context.Context, *World) error {
	return func(ctx context.Context, w *World) error {
		if len(w.Clusters) == 0 {
			return nil
		}
		return do(ctx, w.Clusters[min(i, len(w.Clusters)-1)])
	}
}

func service(name string, replicas int32, cpu string, priority int32) act {
	return func(ctx context.Context, c *Cluster) error {
		return c.apply(ctx, deployment(name, replicas, cpu, func(s *corev1.PodSpec) {
			if priority != 0 {
				s.Priority = &priority
			}
		}))
	}
}

// serviceOn is a service that wants machines of one type.
func serviceOn(instanceType, name string, replicas int32, cpu string) act {
	return func(ctx context.Context, c *Cluster) error {
		return c.apply(ctx, deployment(name, replicas, cpu, func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: instanceType}
		}))
	}
}

func gang(name string, replicas int32, cpu string) act {
	return func(ctx context.Context, c *Cluster) error {
		same := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		return c.apply(ctx, deployment(name, replicas, cpu, func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: same, TopologyKey: rackKey}},
			}}
		}))
	}
}

func guarded(name string, replicas int32) act {
	return func(ctx context.Context, c *Cluster) error {
		all := intstr.FromString("100%")
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		}
		if _, err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, budget, metav1.CreateOptions{}); err != nil {
			return err
		}
		return onGPU(name, replicas, 0)(ctx, c)
	}
}

// letGo changes a budget to one that allows every eviction.
func letGo(name string) act {
	return func(ctx context.Context, c *Cluster) error {
		_, err := c.Client.PolicyV1().PodDisruptionBudgets(namespace).Patch(ctx, name, types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`), metav1.PatchOptions{})
		return err
	}
}

// onGPU is a service of which each Pod takes a GPU.
func onGPU(name string, replicas, priority int32) act {
	return func(ctx context.Context, c *Cluster) error {
		return c.apply(ctx, deployment(name, replicas, "1", func(s *corev1.PodSpec) {
			if priority != 0 {
				s.Priority = &priority
			}
			for _, list := range []*corev1.ResourceList{&s.Containers[0].Resources.Requests, &s.Containers[0].Resources.Limits} {
				if *list == nil {
					*list = corev1.ResourceList{}
				}
				(*list)["nvidia.com/gpu"] = resource.MustParse("1")
			}
		}))
	}
}

func scale(name string, replicas int32) act {
	return func(ctx context.Context, c *Cluster) error {
		patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		_, err := c.Client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

const (
	namespace = "default"
	rackKey   = "topology.bigfleet/rack"
)

func deployment(name string, replicas int32, cpu string, shape func(*corev1.PodSpec)) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	grace := int64(1)
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{Name: "main", Image: "simulated", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")},
		}}},
	}
	shape(&spec)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}
}

func (c *Cluster) apply(ctx context.Context, d *appsv1.Deployment) error {
	_, err := c.Client.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
	return err
}
