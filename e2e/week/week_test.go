package week

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

const (
	drainsMost    = 1.05 // nodes drained for each machine given back
	evictionsMost = 1.2  // Pods evicted for each that an optimal choice evicts
	wordless      = 10 * time.Second
	slack         = 20 * time.Second // that a busy machine takes to write an event
	patience      = 8 * time.Minute  // of three happenings
)

func number(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s=%q: want a number", name, text)
	}
	return n
}

// TestWeek: a week of a cluster harms no Pod (OP-5.23, OP-8.10, ENG-7.3, SHARD-17.10).
func TestWeek(t *testing.T) {
	first, n, happenings := 23, number(t, "BIGFLEET_WEEK_SEEDS", 0), 3 // a lost node, a scale-down, a rollout
	if n > 0 {
		first, happenings = number(t, "BIGFLEET_WEEK_SEED", 1), 21
	}
	for seed := first; seed < first+max(1, n); seed++ {
		t.Run(fmt.Sprint("seed-", seed), func(t *testing.T) { play(t, uint64(seed), happenings) })
	}
}

// week is one cluster and what happens in it.
type week struct {
	*testing.T
	*observer
	r   *rand.Rand
	ctx context.Context

	replicas map[string]int32 // of the Deployments
	jobs     int
	did      int // Pods that BigFleet evicted
	could    int // what an optimal choice evicts
}

func play(t *testing.T, seed uint64, happenings int) {
	f := fixture.StartT(t, fixture.Config{
		Offerings: `offerings:
- {name: small, instance_type: week.4x, zones: [z-a, z-b], capacity_type: on_demand, count: 20, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi, pods: "110"}}
- {name: large, instance_type: week.8x, zones: [z-a, z-b], capacity_type: on_demand, count: 10, price_per_hour: 0.41, resources: {cpu: "8", memory: 32Gi, pods: "110"}}
`,
		ShardArgs:    []string{"--release-delay", "3s", "--release-delay-empty", "2s", "--release-unused-after", "5s", "--reclaim-cap-fraction", "0", "--cycle-interval", "2s"},
		OperatorArgs: []string{"--demand-hold", "3s", "--node-not-ready-after", "3s"},
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(happenings)*patience/3, errors.New("patience ended"))
	defer cancel()
	c := f.Clusters[0]
	w := &week{T: t, r: rand.New(rand.NewPCG(seed, 7)), ctx: ctx, replicas: map[string]int32{"web": 6, "api": 4}}
	w.must(c.AddControlPlaneNode(ctx))
	w.must(f.Settled(ctx))
	w.observer = observe(t, c)
	w.begin()
	kinds := []struct {
		name string
		do   func()
	}{{"rollout", w.rollout}, {"up", w.up}, {"down", w.down}, {"job", w.job}, {"drain", w.person}, {"lost", w.lost}}
	var order []int
	for len(order) < happenings {
		order = append(order, w.r.Perm(len(kinds))...)
	}
	for i, k := range order[:happenings] {
		w.happen(fmt.Sprintf("%d, %s", i, kinds[k].name), kinds[k].do)
	}
	w.judge()
}

func (w *week) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// begin makes the workloads: two Deployments and a StatefulSet, each with a budget.
func (w *week) begin() {
	soon := func(p *corev1.PodSpec) { p.Tolerations = pod(nil, "1").Spec.Tolerations }
	w.must(w.c.Deploy(w.ctx, fixture.Workload{Name: "web", Replicas: w.replicas["web"], CPU: "1", Memory: "1Gi", Edit: soon}))
	w.must(w.c.Deploy(w.ctx, fixture.Workload{Name: "api", Replicas: w.replicas["api"], CPU: "2", Memory: "2Gi", Edit: soon}))
	labels := map[string]string{"app": "db"}
	replicas := int32(2)
	_, err := w.c.Client().AppsV1().StatefulSets("default").Create(w.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: pod(labels, "3")},
	}, metav1.CreateOptions{})
	w.must(err)
	for _, name := range []string{"web", "api", "db"} {
		one := intstr.FromInt32(1)
		_, err := w.c.Client().PolicyV1().PodDisruptionBudgets("default").Create(w.ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
		}, metav1.CreateOptions{})
		w.must(err)
	}
	w.calm()
}

// pod leaves a node that is lost after a second.
func pod(labels map[string]string, cpu string) corev1.PodTemplateSpec {
	soon := int64(1)
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}}}}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		spec.Tolerations = append(spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &soon})
	}
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
}

func (w *week) patch(name, body string) {
	w.Helper()
	_, err := w.c.Client().AppsV1().Deployments("default").Patch(w.ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	w.must(err)
}

func (w *week) some() string { return []string{"web", "api"}[w.r.IntN(2)] }

func (w *week) rollout() {
	w.patch(w.some(), fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"version":"%d"}}}}}`, w.r.Int64()))
}

func (w *week) up() { w.scale(w.some(), 12+w.r.Int32N(8)) }

func (w *week) scale(name string, replicas int32) {
	w.replicas[name] = replicas
	w.must(w.c.Scale(w.ctx, name, replicas))
}

func (w *week) down() {
	name := w.some()
	w.scale(name, max(w.replicas[name], 12))
	w.calm()
	w.scale(name, 3)
}

// happen lets something happen. What BigFleet evicts for the machines that it gives back then is compared with the best choice of as many.
func (w *week) happen(name string, do func()) {
	before, were := w.next()
	do()
	w.calm()
	w.mu.Lock()
	defer w.mu.Unlock()
	went, did := w.returned()-were, len(w.evicted)-before
	could := least(w.choice, went)
	w.did, w.could = w.did+did, w.could+could
	w.Logf("%s: %d machines of %v given back, %d Pods evicted, at best %d", name, went, w.choice, did, could)
}

// job runs to its end, as one that a CronJob makes.
func (w *week) job() {
	w.jobs++
	name := fmt.Sprintf("job-%d", w.jobs)
	template := pod(map[string]string{"job": name}, "2")
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	parallel := int32(3)
	_, err := w.c.Client().BatchV1().Jobs("default").Create(w.ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{Parallelism: &parallel, Completions: &parallel, Template: template}}, metav1.CreateOptions{})
	w.must(err)
	w.calm()
	w.mu.Lock()
	var mine []string
	for _, p := range w.pods {
		if p.Labels["job"] == name {
			mine = append(mine, p.Name)
		}
	}
	w.mu.Unlock()
	for _, p := range mine {
		_, err := w.c.Client().CoreV1().Pods("default").Patch(w.ctx, p, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		w.must(err)
	}
}

// anyNode is a machine that holds Pods.
func (w *week) anyNode() (string, types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name, pods := range w.load() {
		if pods > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := names[w.r.IntN(len(names))]
	uid := w.nodes[name].UID
	w.held[uid] = true
	return name, uid
}

func (w *week) node(name, patch string, sub ...string) {
	w.Helper()
	_, err := w.c.Client().CoreV1().Nodes().Patch(w.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
	w.must(err)
}

// person drains a node as kubectl does, and leaves it cordoned.
func (w *week) person() {
	name, _ := w.anyNode()
	w.node(name, `{"spec":{"unschedulable":true}}`)
	for {
		w.mu.Lock()
		var on []*corev1.Pod
		for _, p := range w.pods {
			if p.Spec.NodeName == name && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded {
				on, w.byPeople[p.UID] = append(on, p), true
			}
		}
		w.mu.Unlock()
		if len(on) == 0 {
			return
		}
		for _, p := range on { // a budget may refuse: then again
			_ = w.c.Client().PolicyV1().Evictions("default").Evict(w.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: "default"}})
		}
		w.pause(300 * time.Millisecond)
	}
}

// lost takes a node's kubelet away forever.
func (w *week) lost() {
	name, uid := w.anyNode()
	w.node(name, `{"metadata":{"annotations":{"`+controlplane.StatusByTest+`":"custom"}}}`)
	w.node(name, `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"KubeletNotReady","message":"played by the test"}]}}`, "status")
	w.mu.Lock()
	for _, p := range w.pods {
		if p.Spec.NodeName == name {
			w.byPeople[p.UID] = true // they have to leave
		}
	}
	w.mu.Unlock()
	for { // until it has gone: its Pods are elsewhere
		w.mu.Lock()
		gone := w.gone[uid]
		w.mu.Unlock()
		if gone {
			return
		}
		w.pause(200 * time.Millisecond)
	}
}

func (w *week) pause(d time.Duration) {
	w.Helper()
	select {
	case <-w.ctx.Done():
		w.Fatal(context.Cause(w.ctx))
	case <-time.After(d):
	}
}

// calm waits until every Pod runs and no machine has come, gone or been cordoned for longer than the delays. Meanwhile no Pod may wait in
// silence.
func (w *week) calm() {
	w.Helper()
	const still = 11 * time.Second // demand held, release delay, a plan
	last, since := "", time.Now()
	for time.Since(since) < still {
		w.pause(200 * time.Millisecond)
		silent, err := w.silent(w.ctx, wordless+slack)
		w.must(err)
		for _, s := range silent {
			w.Errorf("%s: it has no node and got no reason", s)
		}
		w.mu.Lock()
		key := fmt.Sprint(len(w.nodes), len(w.gone), w.drains, len(w.evicted))
		if len(w.waits) > 0 {
			key = fmt.Sprint(time.Now())
		}
		for _, p := range w.pods {
			if p.DeletionTimestamp != nil {
				key = fmt.Sprint(time.Now())
			}
		}
		w.mu.Unlock()
		if key != last {
			last, since = key, time.Now()
		}
		if len(silent) > 0 {
			return
		}
	}
}

func (w *week) judge() {
	w.mu.Lock()
	defer w.mu.Unlock()
	returned := w.returned()
	var waits fixture.Latencies
	for _, d := range w.served {
		waits = append(waits, d)
	}
	slices.Sort(waits)
	w.Logf("%d drains for %d machines given back; %d Pods evicted, where %d is the least; Pods waited %s", w.drains, returned, w.did, w.could, waits)
	if float64(w.drains) > drainsMost*float64(returned) {
		w.Errorf("%d drains for %d machines given back", w.drains, returned)
	}
	if float64(w.did) > evictionsMost*float64(w.could) {
		w.Errorf("%d Pods were evicted, an optimal choice evicts %d: %v", w.did, w.could, w.evicted)
	}
	if len(w.orphaned) > 0 {
		var all []string
		for _, text := range w.orphaned {
			all = append(all, text)
		}
		w.Errorf("Pods lost their node: no budget was asked: %s", strings.Join(all, ", "))
	}
}
