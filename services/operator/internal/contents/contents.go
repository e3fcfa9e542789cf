// Package contents counts what each node holds: Pods that a drain must evict, those that must not be disturbed now, and what
// disturbing them costs (OP-11.6).
//
// A Tracker adjusts counters of one node per change of a Pod. A change of a disruption budget touches only the Pods whose
// protection it changes. Counters never drift: a property test compares them with a recount after random histories.
//
// It reads no clock but for since when a node is empty, and does no I/O. Start at Tracker.SetPod. Tests cite the operator
// specification as OP-n.n.
package contents

import (
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// penaltyMax bounds the penalty of one Pod in cents, so that the sum of a node fits an int64.
const penaltyMax = 1 << 50

// Contents is what one node holds.
type Contents struct {
	Pods       int       // that a drain must evict or wait for
	Protected  int       // those of them that must not be disturbed now
	CostCents  int64     // interruption penalties, and one cent for each Pod
	EmptySince time.Time // zero while Pods is above zero
}

// Tracker counts. Use New. It is safe for concurrent use.
type Tracker struct {
	onNode func(node string)

	mu        sync.Mutex
	started   time.Time
	nodes     map[string]*Contents
	groups    map[groupKey]*group
	counted   map[types.UID]*entry
	budgets   map[string]map[types.UID]*budget // by namespace
	penalties map[types.UID]int64              // cents, of Pods with one above zero
}

// groupKey names the Pods of a namespace with equal labels: the same budgets select all of them.
type groupKey struct {
	namespace string
	labels    pods.LabelSet
}

type group struct {
	key     groupKey
	labels  labels.Set
	pods    map[types.UID]*entry
	blocked bool // a budget selects them and allows no disruption
}

// entry is one counted Pod.
type entry struct {
	pod   *pods.Pod
	group *group
}

type budget struct {
	selector labels.Selector
	blocks   bool
}

// New returns an empty Tracker. onNode is called with each node whose contents changed; it must not block.
func New(onNode func(node string)) *Tracker {
	return &Tracker{
		onNode: onNode, started: time.Now(), nodes: map[string]*Contents{}, groups: map[groupKey]*group{}, counted: map[types.UID]*entry{},
		budgets: map[string]map[types.UID]*budget{}, penalties: map[types.UID]int64{},
	}
}

// Of returns the contents of a node. A node that never held a Pod is empty since the Tracker started.
func (t *Tracker) Of(node string) Contents {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.nodes[node]; c != nil {
		return *c
	}
	return Contents{EmptySince: t.started}
}

// SetPod replaces the counted form of a Pod; either form may be nil.
func (t *Tracker) SetPod(old, now *pods.Pod) {
	t.mu.Lock()
	var changed []string
	if old != nil {
		if e := t.counted[old.UID]; e != nil {
			t.remove(e)
			changed = append(changed, e.pod.Node)
		}
	}
	if now != nil && now.Node != "" && pods.Evictable(now) {
		t.add(now)
		changed = append(changed, now.Node)
	}
	if now == nil && old != nil {
		delete(t.penalties, old.UID)
	}
	t.mu.Unlock()
	t.notify(changed)
}

func (t *Tracker) add(p *pods.Pod) {
	key := groupKey{p.Namespace, p.LabelSet}
	g := t.groups[key]
	if g == nil {
		g = &group{key: key, labels: p.LabelSet.Labels(), pods: map[types.UID]*entry{}}
		g.blocked = t.blocks(p.Namespace, g.labels)
		t.groups[key] = g
	}
	e := &entry{p, g}
	g.pods[p.UID], t.counted[p.UID] = e, e
	t.apply(e, 1)
}

func (t *Tracker) remove(e *entry) {
	t.apply(e, -1)
	delete(t.counted, e.pod.UID)
	if delete(e.group.pods, e.pod.UID); len(e.group.pods) == 0 {
		delete(t.groups, e.group.key)
	}
}

// apply adds a Pod to the counters of its node, or removes it.
func (t *Tracker) apply(e *entry, sign int) {
	p := e.pod
	c := t.nodes[p.Node]
	if c == nil {
		c = &Contents{}
		t.nodes[p.Node] = c
	}
	c.Pods += sign
	if protected(p, e.group.blocked) {
		c.Protected += sign
	}
	c.CostCents += int64(sign) * t.cost(p)
	c.EmptySince = time.Time{}
	if c.Pods == 0 {
		c.EmptySince = time.Now()
	}
}

// protected reports whether a Pod must not be disturbed now. A Pod that terminates is leaving anyway.
func protected(p *pods.Pod, blocked bool) bool {
	return p.DeletionTimestamp == nil && (blocked || pods.Protected(p))
}

func (t *Tracker) cost(p *pods.Pod) int64 {
	if p.DeletionTimestamp != nil {
		return 0
	}
	return 1 + t.penalties[p.UID]
}

// SetPenalty sets the interruption penalty of a Pod in milli-dollars; zero or less removes it.
func (t *Tracker) SetPenalty(uid types.UID, milliDollars int64) {
	cents := int64(penaltyMax)
	if milliDollars < 10*penaltyMax {
		cents = max(0, (milliDollars+9)/10)
	}
	t.mu.Lock()
	if t.penalties[uid] == cents {
		t.mu.Unlock()
		return
	}
	e := t.counted[uid]
	if e != nil {
		t.nodes[e.pod.Node].CostCents -= t.cost(e.pod)
	}
	if t.penalties[uid] = cents; cents == 0 {
		delete(t.penalties, uid)
	}
	if e != nil {
		t.nodes[e.pod.Node].CostCents += t.cost(e.pod)
	}
	t.mu.Unlock()
	if e != nil {
		t.onNode(e.pod.Node)
	}
}

// SetBudget takes the present form of a disruption budget.
func (t *Tracker) SetBudget(b *policyv1.PodDisruptionBudget) {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		selector = labels.Nothing()
	}
	t.mu.Lock()
	was := t.budgets[b.Namespace][b.UID]
	if t.budgets[b.Namespace] == nil {
		t.budgets[b.Namespace] = map[types.UID]*budget{}
	}
	now := &budget{selector: selector, blocks: b.Status.DisruptionsAllowed <= 0}
	t.budgets[b.Namespace][b.UID] = now
	var changed []string
	if was == nil || was.blocks != now.blocks || was.selector.String() != now.selector.String() {
		changed = t.reassess(b.Namespace)
	}
	t.mu.Unlock()
	t.notify(changed)
}

// DeleteBudget takes the end of a disruption budget.
func (t *Tracker) DeleteBudget(b *policyv1.PodDisruptionBudget) {
	t.mu.Lock()
	delete(t.budgets[b.Namespace], b.UID)
	if len(t.budgets[b.Namespace]) == 0 {
		delete(t.budgets, b.Namespace)
	}
	changed := t.reassess(b.Namespace)
	t.mu.Unlock()
	t.notify(changed)
}

func (t *Tracker) blocks(namespace string, set labels.Set) bool {
	for _, b := range t.budgets[namespace] {
		if b.blocks && b.selector.Matches(set) {
			return true
		}
	}
	return false
}

// reassess finds the groups of a namespace whose protection changed, and adjusts the counters of their Pods.
func (t *Tracker) reassess(namespace string) (changed []string) {
	for key, g := range t.groups {
		if key.namespace != namespace {
			continue
		}
		blocked := t.blocks(namespace, g.labels)
		if blocked == g.blocked {
			continue
		}
		for _, e := range g.pods {
			p := e.pod
			switch before, after := protected(p, g.blocked), protected(p, blocked); {
			case before == after:
				continue
			case after:
				t.nodes[p.Node].Protected++
			default:
				t.nodes[p.Node].Protected--
			}
			changed = append(changed, p.Node)
		}
		g.blocked = blocked
	}
	return changed
}

// Forget drops the counters of a Node that is gone and holds no Pod.
func (t *Tracker) Forget(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.nodes[node]; c != nil && c.Pods == 0 {
		delete(t.nodes, node)
	}
}

func (t *Tracker) notify(nodes []string) {
	seen := map[string]bool{}
	for _, n := range nodes {
		if !seen[n] {
			seen[n] = true
			t.onNode(n)
		}
	}
}
