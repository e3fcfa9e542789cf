package clusterapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// noticesMax bounds the news that wait for the SDK. News beyond it are found by the next Describe.
const noticesMax = 1024

// watch holds the Machines of this provider as the management cluster shows them. It polls nothing.
type watch struct {
	informer cache.SharedIndexInformer
	answers  func(context.Context) error // asks the API server once
	notices  chan provider.Notice
	stopped  context.Context
	end      context.CancelFunc
	running  sync.WaitGroup

	mu      sync.Mutex
	storeID string
	waiting map[string]map[chan struct{}]bool // by machine id
}

func newWatch(client dynamic.Interface, providerName string, log *slog.Logger) *watch {
	selector, all := labelProvider+"="+providerName, client.Resource(machines)
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = selector
		return all.List(ctx, o)
	}
	begin := func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
		o.LabelSelector = selector
		return all.Watch(ctx, o)
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(nodeready.ListWatch(list, begin), client),
		&unstructured.Unstructured{}, cache.SharedIndexInformerOptions{Indexers: cache.Indexers{byMachine: machineIndex}, ObjectDescription: machines.String()})
	w := &watch{informer: informer, notices: make(chan provider.Notice, noticesMax), waiting: map[string]map[chan struct{}]bool{}}
	w.answers = func(ctx context.Context) error {
		_, err := all.List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
		return err
	}
	// The informer has not started, so setting the handler cannot fail.
	_ = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		log.Warn("the Machines of the management cluster cannot be watched; this is tried again", "err", err)
	})
	w.stopped, w.end = context.WithCancel(context.Background())
	return w
}

// start begins to watch. Errors of the API server are repeated with a growing pause by the informer itself.
func (w *watch) start(storeID string) {
	w.mu.Lock()
	w.storeID = storeID
	w.mu.Unlock()
	// The informer has not started, so adding a handler cannot fail.
	_, _ = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.changed(o, false) },
		UpdateFunc: func(_, o any) { w.changed(o, false) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			w.changed(o, true)
		},
	})
	w.running.Go(func() { w.informer.RunWithContext(w.stopped) })
}

func (w *watch) stop() {
	w.end()
	w.running.Wait()
}

// changed wakes those who wait for a Machine. It runs on the watch and must not block.
func (w *watch) changed(o any, gone bool) {
	m, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	id := m.GetLabels()[labelMachine]
	w.mu.Lock()
	for ch := range w.waiting[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
	mine := m.GetAnnotations()[annotationStore] == w.storeID
	w.mu.Unlock()
	if !mine {
		return
	}
	switch {
	case gone:
		w.send(provider.Notice{MachineID: id, Gone: true})
	case m.GetDeletionTimestamp() != nil: // the server will go: replace it while it still serves
		w.send(provider.Notice{MachineID: id, InterruptionProbability: 1})
	}
}

func (w *watch) send(n provider.Notice) {
	select {
	case w.notices <- n:
	default:
	}
}

// syncTime is how long the first list of Machines may take in one round.
const syncTime = 10 * time.Second

// all returns the Machines of this provider, or an error when the management cluster has not shown them yet.
func (w *watch) all(ctx context.Context) ([]*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTime)
	defer cancel()
	if !w.informer.HasSynced() { // which repeats a refused connection and reports it to no one
		if err := w.answers(ctx); err != nil {
			return nil, err
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.informer.HasSynced) {
		return nil, context.Cause(ctx)
	}
	var all []*unstructured.Unstructured
	for _, o := range w.informer.GetStore().List() {
		if m, ok := o.(*unstructured.Unstructured); ok {
			all = append(all, m)
		}
	}
	return all, nil
}

// byMachine names the index of the watch by machine id.
const byMachine = "machine"

func machineIndex(o any) ([]string, error) {
	m, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{m.GetLabels()[labelMachine]}, nil
}

// get returns the Machine of a machine id, or nil.
func (w *watch) get(id string) *unstructured.Unstructured {
	found, err := w.informer.GetIndexer().ByIndex(byMachine, id)
	if err != nil || len(found) == 0 {
		return nil
	}
	m, _ := found[0].(*unstructured.Unstructured)
	return m
}

// wait asks done at once and after each change of the Machine, until it says yes or an error, or the context ends.
func (w *watch) wait(ctx context.Context, id string, done func(*unstructured.Unstructured) (bool, error)) error {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	if w.waiting[id] == nil {
		w.waiting[id] = map[chan struct{}]bool{}
	}
	w.waiting[id][ch] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.waiting[id], ch)
		if len(w.waiting[id]) == 0 {
			delete(w.waiting, id)
		}
		w.mu.Unlock()
	}()
	for {
		if yes, err := done(w.get(id)); yes || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ch:
		}
	}
}
