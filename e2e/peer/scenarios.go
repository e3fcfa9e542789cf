package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// scene is what happens in one turn: workloads, and then changes of the first of them.
type scene struct {
	name      string
	workloads []fixture.Workload
	then      []step
}

// step is a change of the first workload, measured on its own.
type step struct {
	name  string
	patch string // of its Deployment
	pods  int    // that it has then
	calm  time.Duration
}

func scenes(scale float64) []scene {
	n := func(pods int) int32 { return int32(max(1, math.Round(float64(pods)*scale))) }
	zoned := fixture.Workload{Name: "zoned", Replicas: n(100), CPU: "1", Memory: "1Gi",
		Edit: func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{corev1.LabelTopologyZone: zones[0]} }}
	few := n(20)
	return []scene{
		{"burst", []fixture.Workload{{Name: "equal", Replicas: n(1000), CPU: "1", Memory: "1Gi"}}, nil},
		{"mix", []fixture.Workload{
			{Name: "quarter", Replicas: n(500), CPU: "250m", Memory: "512Mi"}, {Name: "one", Replicas: n(300), CPU: "1", Memory: "1Gi"},
			{Name: "six", Replicas: n(50), CPU: "6", Memory: "8Gi"}, zoned,
		}, nil},
		{"day", []fixture.Workload{{Name: "web", Replicas: n(200), CPU: "1", Memory: "1Gi"}}, []step{
			{"rollout", `{"spec":{"template":{"metadata":{"annotations":{"version":"2"}}}}}`, int(n(200)), slow},
			{"scale-down", fmt.Sprintf(`{"spec":{"replicas":%d}}`, few), int(few), slow},
		}},
	}
}

const (
	patience = 100 * time.Second // without any change, before Pods that do not run are given up
	calm     = 12 * time.Second  // without a change, after which a measurement ends
	slow     = 75 * time.Second  // the same where machines are to be given back
	longest  = 5 * time.Minute   // of one measurement
)

// figures are what one side did in one scene.
type figures struct {
	side, scene    string
	round          int
	took           fixture.Latencies // from Pod to running
	last           time.Duration     // until all run
	never          int
	machines       int // when all run
	dollars        float64
	waste          float64 // part of their cpu that no Pod asks for
	most           int     // machines at once
	settled        int     // machines at the end
	settledDollars float64
	evicted        int
	processor      time.Duration
	memory         int64 // peak, all processes of the side
	writes         int
}

func (f figures) String() string {
	return fmt.Sprintf("%s %s: %s, last %.1f s, never %d, %d machines (most %d) $%.2f, waste %.0f %%, settled %d $%.2f, evicted %d, %.1f s of processors, %d MiB, %d writes",
		f.side, f.scene, f.took, f.last.Seconds(), f.never, f.machines, f.most, f.dollars, 100*f.waste, f.settled, f.settledDollars, f.evicted,
		f.processor.Seconds(), f.memory>>20, f.writes)
}

// turn is a side at work on the cluster.
type turn struct {
	c      *fixture.Cluster
	s      side
	prices map[string]machineType
}

// play starts a side, makes the scene, and leaves an empty cluster.
func play(ctx context.Context, c *fixture.Cluster, s side, sc scene, kinds []machineType) (out []figures, err error) {
	t := &turn{c, s, map[string]machineType{}}
	for _, k := range kinds {
		t.prices[k.name] = k
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(), t.clear(context.WithoutCancel(ctx))) }()
	want := 0
	one, err := t.measure(ctx, sc.name, calm, func(ctx context.Context) (int, error) {
		for _, w := range sc.workloads {
			want += int(w.Replicas)
			if err := c.Deploy(ctx, w); err != nil {
				return 0, err
			}
		}
		return want, nil
	})
	if err != nil {
		return nil, err
	}
	out = append(out, one)
	for _, st := range sc.then {
		one, err := t.measure(ctx, st.name, st.calm, func(ctx context.Context) (int, error) {
			_, err := c.Client().AppsV1().Deployments("default").Patch(ctx, sc.workloads[0].Name, types.MergePatchType, []byte(st.patch), metav1.PatchOptions{})
			return st.pods, err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// measure makes a change and waits until as many Pods run as it says and no machine comes or goes any more.
func (t *turn) measure(ctx context.Context, name string, calm time.Duration, change func(context.Context) (int, error)) (f figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*longest, errors.New("patience ended"))
	defer cancel()
	f.side, f.scene = t.s.name(), name
	before, err := t.used(ctx)
	if err != nil {
		return f, err
	}
	clock, err := watchPods(ctx, t.c)
	if err != nil {
		return f, err
	}
	begun := time.Now()
	want, err := change(ctx)
	if err != nil {
		return f, err
	}
	done, changed, key := false, time.Now(), ""
	for {
		l, err := t.look(ctx)
		if err != nil {
			return f, err
		}
		f.most = max(f.most, len(l.machines))
		if now := fmt.Sprint(l.running, l.other, slices.Sorted(maps.Keys(l.machines))); now != key {
			key, changed = now, time.Now()
		}
		if !done && l.running == want && l.other == 0 && time.Since(begun) > time.Second && t.rolledOut(ctx) {
			done, f.last = true, time.Since(begun)
			f.machines, f.dollars, f.waste = len(l.machines), t.dollars(l), t.waste(l)
		}
		still := time.Since(changed)
		if done && still > calm || still > patience || time.Since(begun) > longest {
			f.never, f.settled, f.settledDollars = max(0, want-l.running), len(l.machines), t.dollars(l)
			if !done {
				f.last, f.machines, f.dollars, f.waste = time.Since(begun), f.settled, f.settledDollars, t.waste(l)
			}
			break
		}
		select {
		case <-ctx.Done():
			return f, context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
	}
	f.took = clock.stop()
	after, err := t.used(ctx)
	f.processor, f.memory = after.processor-before.processor, after.memory
	f.writes, f.evicted = after.writes-before.writes, after.evictions-before.evictions
	return f, err
}

// rolledOut says that every Deployment has replaced its Pods.
func (t *turn) rolledOut(ctx context.Context) bool {
	all, err := t.c.Client().AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, d := range all.Items {
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
			return false
		}
	}
	return true
}

type sight struct {
	running, other int
	cpu            int64             // milli, that running Pods ask for
	machines       map[string]string // type by node
}

func (t *turn) look(ctx context.Context) (sight, error) {
	l := sight{machines: map[string]string{}}
	pods, err := t.c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return l, err
	}
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			l.running++
			l.cpu += p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		} else {
			l.other++
		}
	}
	nodes, err := t.c.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: corev1.LabelInstanceTypeStable, ResourceVersion: "0"})
	for _, n := range nodes.Items {
		l.machines[n.Name] = n.Labels[corev1.LabelInstanceTypeStable]
	}
	return l, err
}

func (t *turn) dollars(l sight) (sum float64) {
	for _, kind := range l.machines {
		sum += t.prices[kind].price
	}
	return sum
}

func (t *turn) waste(l sight) float64 {
	sum := 0
	for _, kind := range l.machines {
		sum += t.prices[kind].cpu * 1000
	}
	if sum == 0 {
		return 0
	}
	return 1 - float64(l.cpu)/float64(sum)
}

// clear empties the cluster.
func (t *turn) clear(ctx context.Context) error {
	c, now := t.c.Client(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := c.AppsV1().Deployments("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := t.s.clear(ctx); err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: corev1.LabelInstanceTypeStable})
		if err != nil {
			return err
		}
		for _, n := range nodes.Items {
			if len(n.Finalizers) > 0 {
				_, err := c.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			if err := c.CoreV1().Nodes().Delete(ctx, n.Name, now); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		sets, err := c.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if err := c.CoreV1().Pods("default").DeleteCollection(ctx, now, metav1.ListOptions{}); err != nil {
			return err
		}
		pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(nodes.Items)+len(sets.Items)+len(pods.Items) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the cluster is not empty: %d nodes, %d ReplicaSets, %d Pods", len(nodes.Items), len(sets.Items), len(pods.Items))
		}
	}
}
