package week

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

const machineLabel = "bigfleet.lucy.sh/machine-id"

// observer notes what happens to Pods and Nodes, and who does it.
type observer struct {
	t *testing.T
	c *fixture.Cluster

	mu       sync.Mutex
	pods     map[types.UID]*corev1.Pod
	nodes    map[string]*corev1.Node // of machines
	byPeople map[types.UID]bool      // Pods that the test evicts
	held     map[types.UID]bool      // Nodes that the test cordons or breaks: a machine comes again under the same name
	evicted  map[types.UID]string    // Pods that BigFleet evicted: their names
	orphaned map[types.UID]string    // Pods whose Node went away under them
	drains   int                     // cordons of a Node by BigFleet
	gone     map[types.UID]bool      // Nodes that went
	waits    map[types.UID]time.Time // Pods without a node, since when seen
	served   map[types.UID]time.Duration
	choice   map[string]int // what the machines held when BigFleet first cordoned one in this happening
}

func observe(t *testing.T, c *fixture.Cluster) *observer {
	o := &observer{t: t, c: c, pods: map[types.UID]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, byPeople: map[types.UID]bool{}, held: map[types.UID]bool{},
		evicted: map[types.UID]string{}, orphaned: map[types.UID]string{}, gone: map[types.UID]bool{},
		waits: map[types.UID]time.Time{}, served: map[types.UID]time.Duration{}}
	factory := informers.NewSharedInformerFactory(c.Client(), 0)
	for informer, see := range map[toolscache.SharedIndexInformer]func(o any, gone bool){
		factory.Core().V1().Pods().Informer(): o.pod, factory.Core().V1().Nodes().Informer(): o.node,
	} {
		locked := func(x any, gone bool) {
			if last, ok := x.(toolscache.DeletedFinalStateUnknown); ok {
				x = last.Obj
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			see(x, gone)
		}
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(x any) { locked(x, false) }, UpdateFunc: func(_, x any) { locked(x, false) }, DeleteFunc: func(x any) { locked(x, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	return o
}

func (o *observer) pod(x any, gone bool) {
	p, ok := x.(*corev1.Pod)
	if !ok || p.Namespace != "default" {
		return
	}
	for _, c := range p.Status.Conditions {
		if c.Type != corev1.DisruptionTarget || o.byPeople[p.UID] {
			continue
		}
		switch c.Reason {
		case "EvictionByEvictionAPI":
			o.evicted[p.UID] = p.Name
		case corev1.PodReasonPreemptionByScheduler, "DeletionByTaintManager": // not BigFleet
		default:
			o.orphaned[p.UID] = p.Name + ": " + c.Reason
		}
	}
	if gone {
		delete(o.pods, p.UID)
		delete(o.waits, p.UID)
		return
	}
	o.pods[p.UID] = p
	switch since, waits := o.waits[p.UID]; {
	case p.Spec.NodeName == "" && p.DeletionTimestamp == nil && !waits:
		o.waits[p.UID] = time.Now()
	case p.Spec.NodeName != "" && waits:
		o.served[p.UID] = time.Since(since)
		delete(o.waits, p.UID)
	}
}

func (o *observer) node(x any, gone bool) {
	n, ok := x.(*corev1.Node)
	if !ok || n.Labels[machineLabel] == "" {
		return
	}
	if gone {
		delete(o.nodes, n.Name)
		o.gone[n.UID] = true
		return
	}
	if old := o.nodes[n.Name]; n.Spec.Unschedulable && (old == nil || old.UID != n.UID || !old.Spec.Unschedulable) && !o.held[n.UID] {
		o.drains++
		if o.choice == nil {
			o.choice = o.load()
		}
	}
	o.nodes[n.Name] = n
}

// load is how many Pods that have to be evicted each machine holds now, but for those that the test has taken. The caller holds the lock.
func (o *observer) load() map[string]int {
	out := map[string]int{}
	for name, node := range o.nodes {
		if !o.held[node.UID] {
			out[name] = 0
		}
	}
	for _, p := range o.pods {
		if _, ours := out[p.Spec.NodeName]; ours && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded {
			out[p.Spec.NodeName]++
		}
	}
	return out
}

// least is how many Pods an optimal choice evicts to empty n of these machines.
func least(load map[string]int, n int) (sum int) {
	var all []int
	for _, pods := range load {
		all = append(all, pods)
	}
	slices.Sort(all)
	for _, pods := range all[:min(n, len(all))] {
		sum += pods
	}
	return sum
}

// next begins a happening and returns how many Pods BigFleet has evicted and how many machines it has given back.
func (o *observer) next() (evicted, went int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.choice = nil
	return len(o.evicted), o.returned()
}

// returned are the Nodes that went and that the test had not taken. The caller holds the lock.
func (o *observer) returned() (n int) {
	for uid := range o.gone {
		if !o.held[uid] {
			n++
		}
	}
	return n
}

// silent are the Pods that have waited for longer than a while and got no reason.
func (o *observer) silent(ctx context.Context, longer time.Duration) (out []string, err error) {
	o.mu.Lock()
	late := map[types.UID]string{}
	for uid, since := range o.waits {
		if time.Since(since) > longer {
			late[uid] = o.pods[uid].Name
		}
	}
	o.mu.Unlock()
	for uid, name := range late {
		events, err := o.c.Client().CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(uid)})
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.ReportingController != "default-scheduler" && e.Source.Component != "default-scheduler"
		}) {
			out = append(out, fmt.Sprintf("%s after %s", name, longer))
		}
	}
	return out, nil
}
