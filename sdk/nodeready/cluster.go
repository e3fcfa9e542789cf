package nodeready

import (
	"context"
	"sync"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const byProviderID = "providerID"

// cluster is the one watch of one cluster.
type cluster struct {
	name, version string
	client        typedcorev1.CoreV1Interface
	informer      cache.SharedIndexInformer
	end           context.CancelFunc
	ended         context.Context

	mu        sync.Mutex
	listeners map[string]map[chan struct{}]bool // by node name and by provider id
}

func newCluster(name, version string, config *rest.Config, c Config) (*cluster, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &cluster{name: name, version: version, client: client, listeners: map[string]map[chan struct{}]bool{}}
	w.ended, w.end = context.WithCancel(context.Background())
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = c.Selector
		return client.Nodes().List(ctx, o)
	}
	begin := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		o.LabelSelector = c.Selector
		return client.Nodes().Watch(ctx, o)
	}
	w.informer = cache.NewSharedIndexInformer(
		ListWatch(list, begin), &corev1.Node{}, 0, cache.Indexers{
			byProviderID: func(o any) ([]string, error) {
				if id := o.(*corev1.Node).Spec.ProviderID; id != "" {
					return []string{id}, nil
				}
				return nil, nil
			},
		})
	if err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		c.Log.Warn("the Nodes of a cluster cannot be watched; this is tried again", "cluster", name, "err", err)
	}); err != nil {
		return nil, err
	}
	if err := w.informer.SetTransform(strip); err != nil {
		return nil, err
	}
	_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.notify(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { w.notify(o.(*corev1.Node)) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if n, ok := o.(*corev1.Node); ok {
				w.notify(n)
				c.Deleted(name, view(n))
			}
		},
	})
	return w, err
}

func (w *cluster) run(life context.Context) {
	stop := context.AfterFunc(life, w.end)
	defer stop()
	w.informer.RunWithContext(w.ended)
}

// awaitSync returns once everything was seen once.
func (w *cluster) awaitSync(ctx context.Context) error {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(w.ended, cancel)
	defer stop()
	if cache.WaitForCacheSync(both.Done(), w.informer.HasSynced) {
		return nil
	}
	return context.Cause(both)
}

// wait returns once done says so; replaced means that this watch ended and another one has taken its place.
func (w *cluster) wait(ctx context.Context, n provider.Node, done func(Node, bool) bool) (replaced bool, err error) {
	changed := w.listen(n)
	defer w.leave(n, changed)
	for err = w.awaitSync(ctx); err == nil; {
		if done(w.find(n)) {
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-w.ended.Done():
			err = w.ended.Err()
		case <-changed:
		}
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return true, nil
}

// strip keeps what readiness and matching need: a fleet's Nodes with images and addresses would take ten times as much.
func strip(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, Annotations: n.Annotations,
			DeletionTimestamp: n.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{ProviderID: n.Spec.ProviderID},
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out, nil
}

func view(n *corev1.Node) Node {
	v := Node{
		Name: n.Name, ProviderID: n.Spec.ProviderID, UID: string(n.UID), Deleting: n.DeletionTimestamp != nil,
		Labels: n.Labels, Annotations: n.Annotations,
	}
	for _, c := range n.Status.Conditions {
		v.Ready = v.Ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return v
}

// find matches spec.providerID, else the name (PROV-14.4).
func (w *cluster) find(n provider.Node) (Node, bool) {
	if n.ProviderID != "" {
		if hits, err := w.informer.GetIndexer().ByIndex(byProviderID, n.ProviderID); err == nil && len(hits) > 0 {
			return view(hits[0].(*corev1.Node)), true
		}
	}
	object, ok, err := w.informer.GetStore().GetByKey(n.Name)
	if err != nil || !ok {
		return Node{}, false
	}
	return view(object.(*corev1.Node)), true
}

// listen returns a channel that gets a value after each change of the node.
func (w *cluster) listen(n provider.Node) chan struct{} {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys(n.Name, n.ProviderID) {
		if w.listeners[key] == nil {
			w.listeners[key] = map[chan struct{}]bool{}
		}
		w.listeners[key][ch] = true
	}
	return ch
}

func (w *cluster) leave(n provider.Node, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys(n.Name, n.ProviderID) {
		delete(w.listeners[key], ch)
		if len(w.listeners[key]) == 0 {
			delete(w.listeners, key)
		}
	}
}

func (w *cluster) notify(n *corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys(n.Name, n.Spec.ProviderID) {
		for ch := range w.listeners[key] {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

// keys keeps names and provider ids apart.
func keys(name, providerID string) []string {
	if providerID == "" {
		return []string{"name " + name}
	}
	return []string{"name " + name, "id " + providerID}
}
