package machine

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Match says how the Node of a machine was found.
type Match int

const (
	None       Match = iota // no Node
	ByLabel                 // OP-10.1 rule 1
	ByProvider              // rule 2
	ByName                  // rule 3: the name that the shard gave
	ByID                    // rule 4: a Node is named like the machine
	Ambiguous               // more than one Node could be meant: do nothing
	Foreign                 // the Node of that name is no machine of ours: do nothing
)

// Machine is what the shard says of a machine.
type Machine struct {
	ID, ProviderID, NodeName string
	RowID                    string            // of the demand that it serves; empty: the shard does not say
	Configured               time.Time         // since when the shard calls it Configured; zero: it does not
	Leaving                  bool              // the shard takes it back
	Labels                   map[string]string // that the shard expects of the Node; never modified
	Taints                   []corev1.Taint    // that the machine registers with; never modified
	Resources                map[string]string // that the Node should have for Pods and DaemonSets; never modified
}

func (m Machine) equal(other Machine) bool {
	return m.ID == other.ID && m.ProviderID == other.ProviderID && m.NodeName == other.NodeName && m.RowID == other.RowID &&
		m.Configured.Equal(other.Configured) && m.Leaving == other.Leaving && maps.Equal(m.Labels, other.Labels) && slices.Equal(m.Taints, other.Taints) && maps.Equal(m.Resources, other.Resources)
}

// names is a small set.
type names map[string]struct{}

func put(m map[string]names, key, name string) {
	if key == "" {
		return
	}
	if m[key] == nil {
		m[key] = names{}
	}
	m[key][name] = struct{}{}
}

func drop(m map[string]names, key, name string) {
	delete(m[key], name)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// Registry joins machines and Nodes. Use New.
type Registry struct {
	onChange func(ids []string)

	mu       sync.RWMutex
	machines map[string]*Machine
	nodes    map[string]*corev1.Node
	// Nodes by what they say, machines by what the shard says of them.
	nodesByLabel, nodesByProvider                       map[string]names
	machinesByLabel, machinesByProvider, machinesByName map[string]names
}

// New returns an empty Registry. onChange hears of machines whose Node may have changed, and of those that are forgotten; it may be called with
// repetitions, from several goroutines, and must not block.
func New(onChange func(ids []string)) *Registry {
	return &Registry{
		onChange: onChange, machines: map[string]*Machine{}, nodes: map[string]*corev1.Node{},
		nodesByLabel: map[string]names{}, nodesByProvider: map[string]names{},
		machinesByLabel: map[string]names{}, machinesByProvider: map[string]names{}, machinesByName: map[string]names{},
	}
}

// Set takes what the shard says of a machine. Empty fields keep what was known.
func (r *Registry) Set(m Machine) {
	r.mu.Lock()
	old := r.machines[m.ID]
	if old != nil {
		if m.ProviderID == "" {
			m.ProviderID = old.ProviderID
		}
		if m.NodeName == "" {
			m.NodeName = old.NodeName
		}
		if !m.Configured.IsZero() && !old.Configured.IsZero() {
			m.Configured = old.Configured
		}
		r.unindex(old)
	}
	r.machines[m.ID] = &m
	put(r.machinesByLabel, LabelValue(m.ID), m.ID)
	put(r.machinesByProvider, m.ProviderID, m.ID)
	put(r.machinesByName, m.NodeName, m.ID)
	changed := old == nil || !old.equal(m)
	r.mu.Unlock()
	if changed {
		r.onChange([]string{m.ID})
	}
}

// Forget drops a machine that is no longer this cluster's.
func (r *Registry) Forget(id string) {
	r.mu.Lock()
	m := r.machines[id]
	if m != nil {
		r.unindex(m)
		delete(r.machines, id)
	}
	r.mu.Unlock()
	if m != nil {
		r.onChange([]string{id})
	}
}

func (r *Registry) unindex(m *Machine) {
	drop(r.machinesByLabel, LabelValue(m.ID), m.ID)
	drop(r.machinesByProvider, m.ProviderID, m.ID)
	drop(r.machinesByName, m.NodeName, m.ID)
}

// SetNode takes the present form of a Node.
func (r *Registry) SetNode(n *corev1.Node) {
	r.mu.Lock()
	old := r.nodes[n.Name]
	ids := r.named(old)
	r.unindexNode(old)
	r.nodes[n.Name] = n
	put(r.nodesByLabel, n.Labels[v1alpha1.LabelMachineID], n.Name)
	put(r.nodesByProvider, n.Spec.ProviderID, n.Name)
	ids = append(ids, r.named(n)...)
	r.mu.Unlock()
	r.notify(ids)
}

// DeleteNode takes the end of a Node.
func (r *Registry) DeleteNode(name string) {
	r.mu.Lock()
	old := r.nodes[name]
	ids := r.named(old)
	r.unindexNode(old)
	delete(r.nodes, name)
	r.mu.Unlock()
	r.notify(ids)
}

func (r *Registry) unindexNode(n *corev1.Node) {
	if n != nil {
		drop(r.nodesByLabel, n.Labels[v1alpha1.LabelMachineID], n.Name)
		drop(r.nodesByProvider, n.Spec.ProviderID, n.Name)
	}
}

func (r *Registry) notify(ids []string) {
	if len(ids) > 0 {
		slices.Sort(ids)
		r.onChange(slices.Compact(ids))
	}
}

// named lists the machines that a Node could be.
func (r *Registry) named(n *corev1.Node) (ids []string) {
	if n == nil {
		return nil
	}
	for _, set := range []names{
		r.machinesByLabel[n.Labels[v1alpha1.LabelMachineID]], r.machinesByProvider[n.Spec.ProviderID], r.machinesByName[n.Name],
	} {
		for id := range set {
			ids = append(ids, id)
		}
	}
	if r.machines[n.Name] != nil {
		ids = append(ids, n.Name)
	}
	return ids
}

// Find returns the Node of a machine. Machines that the shard never spoke of are found by label alone.
func (r *Registry) Find(id string) (*corev1.Node, Match) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.find(id)
}

func (r *Registry) find(id string) (*corev1.Node, Match) {
	m, known := r.machines[id]
	if !known {
		m = &Machine{ID: id}
	}
	label := LabelValue(id)
	found, how := "", None
	for name := range r.nodesByLabel[label] {
		if found != "" || r.contradicts(r.nodes[name], id) {
			return nil, Ambiguous
		}
		found, how = name, ByLabel
	}
	if m.ProviderID != "" {
		for name := range r.nodesByProvider[m.ProviderID] {
			claims := r.nodes[name].Labels[v1alpha1.LabelMachineID]
			if found != "" && found != name || claims != "" && claims != label {
				return nil, Ambiguous
			}
			if found == "" {
				found, how = name, ByProvider
			}
		}
	}
	if found != "" {
		return r.nodes[found], how
	}
	if !known {
		return nil, None // a name that no update gave is not evidence (OP-10.7)
	}
	for _, by := range []struct {
		name string
		how  Match
	}{{m.NodeName, ByName}, {id, ByID}} {
		n := r.nodes[by.name]
		if n == nil || controlPlane(n) {
			continue
		}
		if n.Labels[v1alpha1.LabelMachineID] != "" || r.contradicts(n, id) {
			return nil, Ambiguous
		}
		return n, by.how
	}
	return nil, None
}

// contradicts says that a Node's provider id is that of another machine.
func (r *Registry) contradicts(n *corev1.Node, id string) bool {
	if n.Spec.ProviderID == "" {
		return false
	}
	claims := r.machinesByProvider[n.Spec.ProviderID]
	_, mine := claims[id]
	return len(claims) > 0 && !mine
}

// Resolve finds the Node that an entry of a reclaim instruction means: a machine id first, then a node name (OP-10.4).
// It returns the machine id, if the Node belongs to a known machine. A Node that nothing but the entry connects with a machine is
// Foreign (OP-10.7).
func (r *Registry) Resolve(entry string) (id string, n *corev1.Node, how Match) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n, how := r.find(entry); how != None {
		return entry, n, how
	}
	n = r.nodes[entry]
	if n == nil {
		return entry, nil, None
	}
	for _, id := range r.named(n) {
		if m, how := r.find(id); how != None {
			if m != n {
				return id, nil, Ambiguous
			}
			return id, n, how
		}
	}
	if n.Labels[v1alpha1.LabelMachineID] == "" {
		return entry, n, Foreign
	}
	return entry, n, ByLabel
}

// controlPlane reports whether a Node runs the control plane. A name alone never makes it a machine: the shard gives the names.
func controlPlane(n *corev1.Node) bool {
	for _, role := range [...]string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, has := n.Labels[role]; has {
			return true
		}
	}
	return false
}

// Machine returns what the shard says of a machine.
func (r *Registry) Machine(id string) (Machine, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	m, ok := r.machines[id]
	if !ok {
		return Machine{}, false
	}
	return *m, true
}

// RowReady says whether every machine that the shard gave to a row is Configured with a Ready Node, and since when.
func (r *Registry) RowReady(rowID string) (since time.Time, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, m := range r.machines {
		if m.RowID != rowID || m.Leaving {
			continue
		}
		n, _ := r.find(id)
		if n == nil || m.Configured.IsZero() {
			return time.Time{}, false
		}
		ready, at, _ := Ready(n)
		if !ready {
			return time.Time{}, false
		}
		if at.After(since) {
			since = at
		}
	}
	return since, true
}

// Count is the number of Nodes.
func (r *Registry) Count() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.nodes)
}

// MachineOf returns the machine that a Node belongs to.
func (r *Registry) MachineOf(node string) (id string, ok bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := r.nodes[node]
	for _, id := range r.named(n) {
		if m, _ := r.find(id); m == n {
			return id, true
		}
	}
	return "", false
}

// Node returns a Node by name, or nil.
func (r *Registry) Node(name string) *corev1.Node {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.nodes[name]
}

// Label is a label of a Node; known is false while the Node is not.
func (r *Registry) Label(node, key string) (value string, known bool) {
	n := r.Node(node)
	if n == nil {
		return "", false
	}
	return n.Labels[key], true
}

// Nodes returns all Nodes, in no order.
func (r *Registry) Nodes() []*corev1.Node {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]*corev1.Node, 0, len(r.nodes))
	for _, n := range r.nodes {
		out = append(out, n)
	}
	return out
}

// IDs returns all known machines, sorted.
func (r *Registry) IDs() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make([]string, 0, len(r.machines))
	for id := range r.machines {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Ready returns the Ready condition of a Node: its value, since when, and why.
func Ready(n *corev1.Node) (ready bool, since time.Time, reason string) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time, c.Reason
		}
	}
	return false, n.CreationTimestamp.Time, "NoReadyCondition"
}

// Strip drops what is not read of a Node, before it enters the cache.
func Strip(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	n.ManagedFields, n.Finalizers, n.OwnerReferences = nil, nil, nil
	keep := map[string]string{}
	for _, k := range []string{v1alpha1.AnnotationDrain, v1alpha1.LabelMachineID, v1alpha1.AnnotationCordonReason, v1alpha1.AnnotationCordonedBy} {
		if v, ok := n.Annotations[k]; ok {
			keep[k] = v
		}
	}
	n.Annotations = keep
	status := corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: n.Status.NodeInfo.KubeletVersion}, Allocatable: n.Status.Allocatable}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			c.LastHeartbeatTime, c.Message = n.CreationTimestamp, ""
			status.Conditions = append(status.Conditions, c)
		}
	}
	n.Status = status
	return n, nil
}
