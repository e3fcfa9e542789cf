package operator

import (
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// census follows every CapacityRequest, without a gap, and notes when a Pod has two.
type census struct {
	mu    sync.Mutex
	byPod map[string]map[types.UID]bool // Pod -> requests that exist
	made  map[string]int                // Pod -> requests that ever existed
	most  int                           // that existed at once
	twice []string
	alive int
}

func (w *world) census() *census {
	w.Helper()
	watcher := w.watch(&v1alpha1.CapacityRequestList{})
	c := &census{byPod: map[string]map[types.UID]bool{}, made: map[string]int{}}
	go func() {
		for e := range watcher.ResultChan() {
			if r, ok := e.Object.(*v1alpha1.CapacityRequest); ok {
				c.see(r, e.Type)
			}
		}
	}()
	return c
}

func (c *census) see(r *v1alpha1.CapacityRequest, kind watch.EventType) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod := r.Labels[v1alpha1.LabelOwnedByPod]
	if kind == watch.Deleted {
		delete(c.byPod[pod], r.UID)
		c.alive--
		return
	}
	if c.byPod[pod] == nil {
		c.byPod[pod] = map[types.UID]bool{}
	}
	if !c.byPod[pod][r.UID] {
		c.byPod[pod][r.UID] = true
		c.made[pod]++
		c.alive++
		c.most = max(c.most, c.alive)
	}
	if len(c.byPod[pod]) > 1 {
		c.twice = append(c.twice, r.Namespace+"/"+r.Name)
	}
}

// check fails when a Pod ever had two requests at once.
func (c *census) check(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.twice) > 0 {
		t.Errorf("Pods with two requests: %v", c.twice)
	}
}

func (c *census) counts() (alive, most, made int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.made {
		made += n
	}
	return c.alive, c.most, made
}
