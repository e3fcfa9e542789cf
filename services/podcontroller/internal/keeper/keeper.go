package keeper

import (
	"errors"
	"log/slog"
	"slices"
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
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

const (
	retryMin     = 20 * time.Millisecond
	retryMax     = 30 * time.Second
	resyncEvery  = 30 * time.Minute // OP-15.24
	workersMin   = 64
	reconcileMax = time.Minute      // all API requests of one reconcile; the API server gives up on one request after as long
	turnEvery    = 10 * time.Second // of Run, to show that it lives
	joinGrace    = 2 * time.Minute  // a young Node without a mark may be a machine\'s: the operator marks it when it has joined
	stuckAfter   = time.Minute      // beyond lookMax or turnEvery: the process asks to be restarted (OP-15.25)
)

// Config is what a Keeper needs.
type Config struct {
	Client            client.Client          // required
	Defaults          translate.Defaults     // of Pods
	Gathering         Gathering              // of gangs; nil means that no Pod waits for others
	ExcludeNamespaces map[string]bool        // OP-15.9
	Unmanaged         labels.Selector        // required: nodes that are not BigFleet's
	CountForeign      bool                   // Pods on nodes that no machine stands behind ask as well
	Workers           int                    // 0 means 64
	Record            func(events.Event)     // required
	Reconciles        *prometheus.CounterVec // required; label outcome
	Unsupported       *prometheus.CounterVec // required; label kind
	Repairs           prometheus.Counter     // required: changes found only by the periodic resync
	Log               *slog.Logger           // required
}

// Gathering says whether a pending Pod asks for nothing yet because its gang is not complete: for how long at most, 0 for as long as it is so,
// and in words if only the owner can end it. Pods that it concerns are given to Enqueue when that changes.
type Gathering func(p *corev1.Pod, now time.Time) (left time.Duration, why string, waits bool)

// Keeper keeps requests.
type Keeper struct {
	Config
	queue workqueue.TypedRateLimitingInterface[types.UID]

	mu           sync.RWMutex
	running      bool // false before Run: a standby replica, which may wait for months, must not queue
	pods         map[types.UID]*cached.Pod
	byNode       map[string]map[types.UID]struct{}
	nodes        map[string]*corev1.Node
	claimed      map[string]string       // UpcomingNode -> the Node that it names
	claims       map[string]int          // Node -> UpcomingNodes that name it
	foreignNodes map[string]struct{}     // Nodes that no machine is known to stand behind
	objects      map[types.UID][]*Object // by UID of the Pod; more than one only if something went wrong
	created      map[types.UID]*Object   // written by us, not in the cache yet
	notified     map[types.UID]uint64    // hash of what was last counted and notified for a Pod
	resync       map[types.UID]bool      // reconciled because of the periodic resync
	turns        map[types.UID]turn      // of Pods whose alternatives are tried one after the other

	lastTurn    atomic.Int64   // when Run last held the lock, in nanoseconds; 0: not running
	reconciling []atomic.Int64 // when each worker began its reconcile; 0: idle
}

// New checks the configuration.
func New(c Config) (*Keeper, error) {
	if c.Client == nil || c.Unmanaged == nil || c.Record == nil || c.Reconciles == nil || c.Unsupported == nil || c.Repairs == nil || c.Log == nil {
		return nil, errors.New("keeper: Client, Unmanaged, Note, Reconciles, Unsupported, Repairs and Log are required")
	}
	if c.Workers <= 0 {
		c.Workers = workersMin
	}
	k := &Keeper{
		Config: c, pods: map[types.UID]*cached.Pod{}, byNode: map[string]map[types.UID]struct{}{}, nodes: map[string]*corev1.Node{},
		claimed: map[string]string{}, claims: map[string]int{}, foreignNodes: map[string]struct{}{},
		objects: map[types.UID][]*Object{}, created: map[types.UID]*Object{}, notified: map[types.UID]uint64{},
		resync: map[types.UID]bool{}, turns: map[types.UID]turn{}, reconciling: make([]atomic.Int64, c.Workers),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](retryMin, retryMax)),
	}
	k.Defaults.Turn = k.turn
	return k, nil
}

// SetPod takes the present form of a Pod.
func (k *Keeper) SetPod(p *cached.Pod) {
	k.mu.Lock()
	fresh := k.pods[p.UID] == nil
	k.pods[p.UID] = p
	if node := p.Node(); node != "" {
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
func (k *Keeper) DeletePod(p *cached.Pod) {
	k.mu.Lock()
	if known := k.pods[p.UID]; known != nil {
		delete(k.byNode[known.Node()], p.UID)
		if len(k.byNode[known.Node()]) == 0 {
			delete(k.byNode, known.Node())
		}
	}
	delete(k.pods, p.UID)
	delete(k.notified, p.UID)
	delete(k.turns, p.UID)
	k.mu.Unlock()
	k.enqueue(p.UID)
}

// SetNode takes the present form of a Node. Pods bound to it are reconciled when its labels changed.
func (k *Keeper) SetNode(n *corev1.Node) {
	k.mu.Lock()
	old := k.nodes[n.Name]
	k.nodes[n.Name] = n
	k.judge(n.Name)
	var again []types.UID
	if old == nil || !labels.Equals(old.Labels, n.Labels) {
		again = k.podsOn(n.Name)
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
	delete(k.foreignNodes, n.Name)
	k.mu.Unlock()
}

// SetUpcoming takes the present form of an UpcomingNode: the Node that it names is a machine's.
func (k *Keeper) SetUpcoming(o *v1alpha1.UpcomingNode) {
	node := ""
	if o.Status.NodeRef != nil {
		node = o.Status.NodeRef.Name
	}
	k.claim(o.Name, node)
}

// DeleteUpcoming takes the end of an UpcomingNode.
func (k *Keeper) DeleteUpcoming(o *v1alpha1.UpcomingNode) { k.claim(o.Name, "") }

func (k *Keeper) claim(name, node string) {
	k.mu.Lock()
	old := k.claimed[name]
	if old == node {
		k.mu.Unlock()
		return
	}
	if k.claimed[name] = node; node == "" {
		delete(k.claimed, name)
	}
	if old != "" {
		if k.claims[old]--; k.claims[old] == 0 {
			delete(k.claims, old)
		}
	}
	if node != "" {
		k.claims[node]++
	}
	k.judge(old)
	k.judge(node)
	again := append(k.podsOn(old), k.podsOn(node)...)
	k.mu.Unlock()
	for _, uid := range again {
		k.enqueue(uid)
	}
}

// podsOn are the Pods bound to a node. The caller holds the lock.
func (k *Keeper) podsOn(node string) (out []types.UID) {
	for uid := range k.byNode[node] {
		out = append(out, uid)
	}
	return out
}

// foreign reports whether no machine stands behind a Node: neither the operator's label nor an UpcomingNode says so. Each of the
// two is enough, so that lost labels alone withdraw no demand (OP-15.10). The caller holds the lock.
func (k *Keeper) foreign(n *corev1.Node) bool {
	if _, marked := n.Labels[v1alpha1.LabelMachineID]; marked || k.CountForeign || k.Unmanaged.Matches(labelSet(n.Labels)) {
		return false
	}
	return k.claims[n.Name] == 0
}

// judge notes whether a Node may be one of the cluster's own, however young: a pending Pod may fit on it. The caller holds the lock.
func (k *Keeper) judge(node string) {
	delete(k.foreignNodes, node)
	if n := k.nodes[node]; n != nil && k.foreign(n) {
		k.foreignNodes[node] = struct{}{}
	}
}

// SetObject takes the present form of a request.
func (k *Keeper) SetObject(o *Object) {
	uid := o.owner()
	if uid == "" {
		return
	}
	k.mu.Lock()
	if i := k.find(uid, o); i >= 0 {
		k.objects[uid][i] = o
	} else {
		k.objects[uid] = append(k.objects[uid], o)
	}
	if c := k.created[uid]; c != nil && c.UID == o.UID {
		delete(k.created, uid)
	}
	k.mu.Unlock()
	k.enqueue(uid)
}

// DeleteObject takes the end of a request. One that a Pod still needs is created again.
func (k *Keeper) DeleteObject(o *Object) {
	uid := o.owner()
	if uid == "" {
		return
	}
	k.mu.Lock()
	k.drop(uid, o)
	if c := k.created[uid]; c != nil && c.UID == o.UID {
		delete(k.created, uid)
	}
	k.mu.Unlock()
	k.enqueue(uid)
}

// find is where the request of a Pod with the name of another form of it is, -1 if it is not known. The caller holds the lock.
func (k *Keeper) find(uid types.UID, o *Object) int {
	return slices.IndexFunc(k.objects[uid], func(x *Object) bool { return x.Name == o.Name && x.Namespace == o.Namespace })
}

// drop forgets a request of a Pod. The caller holds the lock.
func (k *Keeper) drop(uid types.UID, o *Object) {
	i := k.find(uid, o)
	if i < 0 {
		return
	}
	if k.objects[uid] = slices.Delete(k.objects[uid], i, i+1); len(k.objects[uid]) == 0 {
		delete(k.objects, uid)
	}
}

// Enqueue reconciles Pods again, for example because their volumes changed.
func (k *Keeper) Enqueue(uids []types.UID) {
	for _, uid := range uids {
		k.enqueue(uid)
	}
}

func (k *Keeper) enqueue(uid types.UID) {
	k.mu.RLock()
	runs := k.running
	k.mu.RUnlock()
	if runs {
		k.queue.Add(uid)
	}
}

// EnqueueAll reconciles every Pod and every request, for example because the defaults changed.
func (k *Keeper) EnqueueAll() {
	for _, uid := range k.known() {
		k.enqueue(uid)
	}
}

// resyncAll is the periodic resync (OP-15.24). It trusts the cache alone: an object that was written and is not in the cache
// by now is gone, or is adopted when it is created again.
func (k *Keeper) resyncAll() {
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
