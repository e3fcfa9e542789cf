package controlplane_test

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

func TestTmpBurst(t *testing.T) {
	for range 3 {
		b := time.Now()
		cp := controlplane.StartT(t, controlplane.Config{})
		t.Log("start", time.Since(b))
		b = time.Now()
		cp.Stop()
		t.Log("stop", time.Since(b))
	}
	cp := controlplane.StartT(t, controlplane.Config{})
	for i := range 20 {
		b := time.Now()
		createNode(t, cp, fmt.Sprint("node-", i), "100")
		if i%5 == 0 {
			t.Log("node ready and untainted", time.Since(b))
		}
	}
	time.Sleep(75 * time.Second)
	nodes, _ := cp.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	for _, n := range nodes.Items {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue || len(n.Spec.Taints) > 0 {
				t.Error(n.Name, c, n.Spec.Taints)
			}
		}
	}
	var mu sync.Mutex
	created, running := map[string]time.Time{}, map[string]time.Time{}
	w, err := cp.Client().CoreV1().Pods("default").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			mu.Lock()
			if _, ok := created[p.Name]; !ok {
				created[p.Name] = time.Now()
			}
			if _, ok := running[p.Name]; !ok && p.Status.Phase == corev1.PodRunning {
				running[p.Name] = time.Now()
				if len(running) == 1000 {
					close(done)
				}
			}
			mu.Unlock()
		}
	}()
	b := time.Now()
	deploy(t, cp, "burst", 1000)
	<-done
	w.Stop()
	t.Log("1000 pods running", time.Since(b))
	var ds []time.Duration
	for n, r := range running {
		ds = append(ds, r.Sub(created[n]))
	}
	sort.Slice(ds, func(i, j int) bool { return ds[i] < ds[j] })
	t.Log("created to running p50", ds[500], "p99", ds[990], "max", ds[999])
	logMemory(t, cp)
}
