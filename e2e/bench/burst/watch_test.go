package burst

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

// watches notes on one clock when this process first saw what.
type watches struct {
	mu           sync.Mutex
	pods         map[string]*pod // by namespace/name
	made, ready  map[string]time.Time
	upcoming     map[string]time.Time // by machine
	acked        map[string]time.Time // by Pod
	machineOf    map[string]string    // by Node
	nodes        int
	requests     int
	acknowledged int
}

type pod struct {
	namespace, name                  string
	created, request, bound, running time.Time
	node, requestName                string
}

func watchAll(ctx context.Context, c *fixture.Cluster) (*watches, error) {
	w := &watches{pods: map[string]*pod{}, made: map[string]time.Time{}, ready: map[string]time.Time{}, upcoming: map[string]time.Time{},
		acked: map[string]time.Time{}, machineOf: map[string]string{}}
	typed := informers.NewSharedInformerFactory(c.Client(), 0)
	ours := dynamicinformer.NewDynamicSharedInformerFactory(c.Dynamic, 0)
	for informer, see := range map[toolscache.SharedIndexInformer]func(o any, gone bool){
		typed.Core().V1().Pods().Informer(): w.pod, typed.Core().V1().Nodes().Informer(): w.node,
		ours.ForResource(capacityRequests).Informer(): w.request, ours.ForResource(fixture.UpcomingNodes).Informer(): w.machine,
	} {
		locked := func(o any, gone bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			see(o, gone)
		}
		_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { locked(o, false) }, UpdateFunc: func(_, o any) { locked(o, false) }, DeleteFunc: func(o any) { locked(o, true) },
		})
		if err != nil {
			return nil, err
		}
	}
	typed.Start(ctx.Done())
	ours.Start(ctx.Done())
	typed.WaitForCacheSync(ctx.Done())
	ours.WaitForCacheSync(ctx.Done())
	return w, nil
}

func first(at *time.Time) {
	if at.IsZero() {
		*at = time.Now()
	}
}

// created notes that the API server answered the creation of a Pod. It is the user's clock: a watch shows a Pod late
// when the API server has much to do, which would make a wait look short.
func (w *watches) created(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first(&w.entry(namespace, name).created)
}

// entry is what is known of a Pod. Watches have no order among each other. The caller holds the lock.
func (w *watches) entry(namespace, name string) *pod {
	key := namespace + "/" + name
	if w.pods[key] == nil {
		w.pods[key] = &pod{namespace: namespace, name: name}
	}
	return w.pods[key]
}

func (w *watches) pod(o any, _ bool) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	known := w.entry(p.Namespace, p.Name)
	if p.Spec.NodeName != "" {
		known.node = p.Spec.NodeName
		first(&known.bound)
	}
	if p.Status.Phase == corev1.PodRunning {
		first(&known.running)
	}
}

func (w *watches) node(o any, gone bool) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	if gone {
		w.nodes--
		return
	}
	if _, known := w.made[n.Name]; !known {
		w.made[n.Name] = time.Now()
		w.nodes++
	}
	w.machineOf[n.Name] = n.Labels["bigfleet.lucy.sh/machine-id"]
	for _, c := range n.Status.Conditions {
		if _, known := w.ready[n.Name]; !known && c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			w.ready[n.Name] = time.Now()
		}
	}
}

func (w *watches) request(o any, gone bool) {
	r, ok := o.(*unstructured.Unstructured)
	if !ok || gone {
		return
	}
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return
	}
	key := r.GetNamespace() + "/" + owner.Name
	known := w.entry(r.GetNamespace(), owner.Name)
	if known.request.IsZero() {
		known.requestName = r.GetName()
		first(&known.request)
		w.requests++
	}
	if phase, _, _ := unstructured.NestedString(r.Object, "status", "phase"); phase == "Acknowledged" {
		if _, twice := w.acked[key]; !twice {
			w.acked[key] = time.Now()
			w.acknowledged++
		}
	}
}

func (w *watches) machine(o any, _ bool) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		id, _, _ := unstructured.NestedString(u.Object, "spec", "machineID")
		if _, known := w.upcoming[id]; !known {
			w.upcoming[id] = time.Now()
		}
	}
}

func (w *watches) until(t *testing.T, ctx context.Context, what string, ok func() bool) {
	t.Helper()
	for {
		w.mu.Lock()
		done := ok()
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("still not: %s (%v)", what, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// placed counts the Pods of a namespace whose Node is Ready. The caller holds the lock.
func (w *watches) placed(namespace string) (n int) {
	for _, p := range w.pods {
		if p.namespace == namespace && p.node != "" && !w.ready[p.node].IsZero() {
			n++
		}
	}
	return n
}

// waits are from Pods created to Nodes Ready.
type waits struct {
	// inOrder pairs the first Pod created with the first place on a Node that was Ready, and so on: what the supply owes.
	inOrder fixture.Latencies
	// bound pairs each Pod with its own Node. kube-scheduler does not serve in order: a Pod that it tried in vain waits out
	// a pause while a later one takes the place.
	bound fixture.Latencies
}

func (w *watches) waits(namespace string) (out waits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.bound = w.since(namespace, time.Time{}, func(p *pod) time.Time { return w.ready[p.node] })
	var created, places []time.Time
	for _, p := range w.pods {
		if p.namespace == namespace {
			created, places = append(created, p.created), append(places, w.ready[p.node])
		}
	}
	slices.SortFunc(created, time.Time.Compare)
	slices.SortFunc(places, time.Time.Compare)
	for i := range created {
		out.inOrder = append(out.inOrder, max(0, places[i].Sub(created[i])))
	}
	slices.Sort(out.inOrder)
	return out
}

// since are the times from begin, or from each Pod created when begin is zero. The caller holds the lock.
func (w *watches) since(namespace string, begin time.Time, end func(*pod) time.Time) (out fixture.Latencies) {
	return w.spans(namespace, func(p *pod) time.Time {
		if begin.IsZero() {
			return p.created
		}
		return begin
	}, end)
}

// spans are the times from one step to another.
func (w *watches) spans(namespace string, begin, end func(*pod) time.Time) (out fixture.Latencies) {
	for _, p := range w.pods {
		from, to := begin(p), end(p)
		if p.namespace == namespace && !p.created.IsZero() && !from.IsZero() && !to.IsZero() {
			out = append(out, max(0, to.Sub(from)))
		}
	}
	slices.Sort(out)
	return out
}
