package keeper

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

const (
	retryMin    = 20 * time.Millisecond
	retryMax    = 30 * time.Second
	resyncEvery = 30 * time.Minute // OP-15.24
	workersMin  = 64
	lookMax     = time.Minute      // all requests of one look; the API server gives up on one request after as long
	turnEvery   = 10 * time.Second // of Run, to show that it lives
	stuckAfter  = time.Minute      // beyond lookMax or turnEvery: the process asks to be restarted (OP-15.25)
)

// Config is what a Keeper needs.
type Config struct {
	Client            client.Client          // required
	Defaults          translate.Defaults     // of Pods
	ExcludeNamespaces map[string]bool        // OP-15.9
	Unmanaged         labels.Selector        // required: nodes that are not BigFleet's
	Workers           int                    // 0 means 64
	Note              func(notes.Note)       // required
	Reconciles        *prometheus.CounterVec // required; label outcome
	Unsupported       *prometheus.CounterVec // required; label kind
	Repairs           prometheus.Counter     // required: changes that only the periodic look found
	Log               *slog.Logger           // required
}

// Keeper keeps requests.
type Keeper struct {
	Config
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu      sync.RWMutex
	runs    bool // before Run nothing is queued: a standby replica may wait for months
	pods    map[types.UID]*corev1.Pod
	byNode  map[string]map[types.UID]struct{}
	nodes   map[string]*corev1.Node
	objects map[types.UID]map[types.NamespacedName]*Object // by UID of the Pod
	created map[types.UID]*Object                          // written by us, not in the cache yet
	counted map[types.UID]uint64                           // what was counted and told of a Pod already
	resync  map[types.UID]bool                             // looked at because of the periodic look

	turn  atomic.Int64   // when Run last had the lock, in nanoseconds; 0: it does not run
	looks []atomic.Int64 // when each worker began its look; 0: it waits for one
}

// New checks the configuration.
func New(c Config) (*Keeper, error) {
	if c.Client == nil || c.Unmanaged == nil || c.Note == nil || c.Reconciles == nil || c.Unsupported == nil || c.Repairs == nil || c.Log == nil {
		return nil, errors.New("keeper: Client, Unmanaged, Note, Reconciles, Unsupported, Repairs and Log are required")
	}
	if c.Workers <= 0 {
		c.Workers = workersMin
	}
	return &Keeper{
		Config: c, pods: map[types.UID]*corev1.Pod{}, byNode: map[string]map[types.UID]struct{}{}, nodes: map[string]*corev1.Node{},
		objects: map[types.UID]map[types.NamespacedName]*Object{}, created: map[types.UID]*Object{}, counted: map[types.UID]uint64{},
		resync: map[types.UID]bool{}, looks: make([]atomic.Int64, c.Workers),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryMin, retryMax)),
	}, nil
}

// SetPod takes the present form of a Pod.
func (k *Keeper) SetPod(p *corev1.Pod) {
	k.mu.Lock()
	fresh := k.pods[p.UID] == nil
	k.pods[p.UID] = p
	if node := p.Spec.NodeName; node != "" {
		if k.byNode[node] == nil {
			k.byNode[node] = map[types.UID]struct{}{}
		}
		k.byNode[node][p.UID] = struct{}{}
	}
	k.mu.Unlock()
	k.enqueue(p.UID)
	if fresh {
		k.Log.Debug("a Pod is seen", "namespace", p.Namespace, "pod", p.Name)
	}
}

// DeletePod takes the end of a Pod.
func (k *Keeper) DeletePod(p *corev1.Pod) {
	k.mu.Lock()
	if known := k.pods[p.UID]; known != nil {
		delete(k.byNode[known.Spec.NodeName], p.UID)
		if len(k.byNode[known.Spec.NodeName]) == 0 {
			delete(k.byNode, known.Spec.NodeName)
		}
	}
	delete(k.pods, p.UID)
	delete(k.counted, p.UID)
	k.mu.Unlock()
	k.enqueue(p.UID)
}

// SetNode takes the present form of a Node. Pods that are bound to it are looked at when its labels changed.
func (k *Keeper) SetNode(n *corev1.Node) {
	k.mu.Lock()
	old := k.nodes[n.Name]
	k.nodes[n.Name] = n
	var again []types.UID
	if old == nil || !labels.Equals(old.Labels, n.Labels) {
		for uid := range k.byNode[n.Name] {
			again = append(again, uid)
		}
	}
	k.mu.Unlock()
	for _, uid := range again {
		k.enqueue(uid)
	}
}

// DeleteNode takes the end of a Node.
func (k *Keeper) DeleteNode(n *corev1.Node) {
	k.mu.Lock()
	delete(k.nodes, n.Name)
	k.mu.Unlock()
}

// SetObject takes the present form of a request.
func (k *Keeper) SetObject(o *Object) {
	uid := types.UID(o.Labels[v1alpha1.LabelOwnedByPod])
	if uid == "" {
		return
	}
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	k.mu.Lock()
	if k.objects[uid] == nil {
		k.objects[uid] = map[types.NamespacedName]*Object{}
	}
	k.objects[uid][name] = o
	if c := k.created[uid]; c != nil && c.UID == o.UID {
		delete(k.created, uid)
	}
	k.mu.Unlock()
	k.enqueue(uid)
}

// DeleteObject takes the end of a request. One that a Pod still needs is made again.
func (k *Keeper) DeleteObject(o *Object) {
	uid := types.UID(o.Labels[v1alpha1.LabelOwnedByPod])
	if uid == "" {
		return
	}
	k.mu.Lock()
	delete(k.objects[uid], types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	if len(k.objects[uid]) == 0 {
		delete(k.objects, uid)
	}
	if c := k.created[uid]; c != nil && c.UID == o.UID {
		delete(k.created, uid)
	}
	k.mu.Unlock()
	k.enqueue(uid)
}

func (k *Keeper) enqueue(uid types.UID) {
	k.mu.RLock()
	runs := k.runs
	k.mu.RUnlock()
	if runs {
		k.queue.Add(uid)
	}
}

// LookAtAll looks at every Pod and every request, for example because the defaults changed.
func (k *Keeper) LookAtAll() {
	for _, uid := range k.known() {
		k.enqueue(uid)
	}
}

// lookAgain is the periodic look (OP-15.24). It believes the cache alone: what was written and is not in the cache by now is
// gone, or is met again when it is created.
func (k *Keeper) lookAgain() {
	all := k.known()
	k.mu.Lock()
	clear(k.created)
	for _, uid := range all {
		k.resync[uid] = true
	}
	k.mu.Unlock()
	for _, uid := range all {
		k.enqueue(uid)
	}
}

func (k *Keeper) known() []types.UID {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := make([]types.UID, 0, len(k.pods))
	for uid := range k.pods {
		out = append(out, uid)
	}
	for uid := range k.objects {
		if k.pods[uid] == nil {
			out = append(out, uid)
		}
	}
	return out
}
