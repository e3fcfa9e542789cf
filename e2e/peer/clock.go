package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// clock measures from a Pod seen created to the same seen Running. It lists again when its watch ends.
type clock struct {
	mu               sync.Mutex
	created, running map[types.UID]time.Time
	end              func()
}

// watchPods begins with the Pods that are created from now on.
func watchPods(ctx context.Context, c *fixture.Cluster) (*clock, error) {
	k := &clock{created: map[types.UID]time.Time{}, running: map[types.UID]time.Time{}}
	ctx, cancel := context.WithCancel(ctx)
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client(), 0, informers.WithNamespace("default"))
	k.end = func() { cancel(); factory.Shutdown() }
	see := func(o any, listed bool) {
		if p, ok := o.(*corev1.Pod); ok {
			k.see(p, listed)
		}
	}
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{AddFunc: see, UpdateFunc: func(_, o any) { see(o, false) }})
	if err != nil {
		k.end()
		return nil, err
	}
	factory.Start(ctx.Done())
	if !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		k.end()
		return nil, errors.New("the Pods could not be listed")
	}
	return k, nil
}

func (k *clock) see(p *corev1.Pod, listed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, runs := k.running[p.UID]
	if _, known := k.created[p.UID]; !known && !runs && !listed {
		k.created[p.UID] = time.Now()
	}
	if !runs && p.Status.Phase == corev1.PodRunning {
		k.running[p.UID] = time.Now()
	}
}

// stop ends the watch and returns what it measured.
func (k *clock) stop() (out fixture.Latencies) {
	k.end()
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, at := range k.created {
		if end, ok := k.running[uid]; ok {
			out = append(out, end.Sub(at))
		}
	}
	slices.Sort(out)
	return out
}
