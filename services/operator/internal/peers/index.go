package peers

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// Config is what an Index needs. All are required.
type Config struct {
	Pods    func(f func(*pods.Pod) bool)                      // calls f with each Pod until it returns false
	Label   func(node, key string) (value string, known bool) // of a Node; known is false while the Node is not
	Changed func()                                            // an answer may have changed; it must not block
}

// Index answers where selected Pods run. It is safe for concurrent use.
type Index struct {
	Config

	mu      sync.Mutex
	terms   map[string]*followed
	byLabel map[string][]*followed // terms by the label that they demand
	others  []*followed            // terms without one
	groups  map[groupID]*group     // of Pods on nodes; empty without terms
	counted map[types.UID]place
}

// followed is a term, and where its Pods run.
type followed struct {
	Term
	groups map[*group]struct{}
	values []string // sorted
	stale  bool
}

// groupID is what decides whether terms select a Pod.
type groupID struct {
	namespace string
	labels    pods.LabelSet
}

// group is Pods that are equal for all terms.
type group struct {
	nodes map[string]int32
	terms []*followed
}

// place is where a Pod is counted.
type place struct {
	group groupID
	node  string
}

// New returns an Index without terms.
func New(c Config) *Index {
	return &Index{Config: c, terms: map[string]*followed{}, byLabel: map[string][]*followed{}, groups: map[groupID]*group{}, counted: map[types.UID]place{}}
}

// Follow makes these the terms that are followed, by name. A name always means the same term.
func (x *Index) Follow(terms map[string]Term) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, f := range x.terms {
		if _, stays := terms[name]; !stays {
			x.drop(name, f)
		}
	}
	if len(terms) == 0 {
		clear(x.groups)
		clear(x.counted)
		return
	}
	first := len(x.terms) == 0
	var fresh []*followed
	for name, t := range terms {
		if x.terms[name] != nil {
			continue
		}
		f := &followed{Term: t, groups: map[*group]struct{}{}, stale: true}
		x.terms[name], fresh = f, append(fresh, f)
		if t.label == "" {
			x.others = append(x.others, f)
		} else {
			x.byLabel[t.label] = append(x.byLabel[t.label], f)
		}
	}
	if first {
		x.Pods(func(p *pods.Pod) bool {
			x.set(p.UID, runs(p), place{groupID{p.Namespace, p.LabelSet}, p.Node})
			return true
		})
		return
	}
	if len(fresh) > 0 {
		for id, g := range x.groups {
			x.join(id, g)
		}
	}
}

// drop ends a term.
func (x *Index) drop(name string, f *followed) {
	is := func(o *followed) bool { return o == f }
	delete(x.terms, name)
	x.others = slices.DeleteFunc(x.others, is)
	if left := slices.DeleteFunc(x.byLabel[f.label], is); len(left) > 0 {
		x.byLabel[f.label] = left
	} else {
		delete(x.byLabel, f.label)
	}
	for g := range f.groups {
		g.terms = slices.DeleteFunc(g.terms, is)
	}
}

// runs reports whether kube-scheduler counts a Pod: it has a node and has not finished. One that ends counts until it is gone.
func runs(p *pods.Pod) bool {
	return p != nil && p.Node != "" && p.Phase != corev1.PodSucceeded && p.Phase != corev1.PodFailed
}

// PodChanged takes a change of a Pod; old is nil for a new one, now for one that is gone.
func (x *Index) PodChanged(old, now *pods.Pod) {
	p := now
	if p == nil {
		p = old
	}
	if p == nil || !runs(old) && !runs(now) {
		return
	}
	x.mu.Lock()
	changed := false
	if len(x.terms) > 0 {
		changed = x.set(p.UID, runs(now), place{groupID{p.Namespace, p.LabelSet}, p.Node})
	}
	x.mu.Unlock()
	if changed {
		x.Changed()
	}
}

// set counts a Pod at a place, or nowhere, and reports whether some term has another node now.
func (x *Index) set(uid types.UID, counts bool, at place) (changed bool) {
	was, known := x.counted[uid]
	if known == counts && (!known || was == at) {
		return false
	}
	if known {
		delete(x.counted, uid)
		g := x.groups[was.group]
		if g.nodes[was.node]--; g.nodes[was.node] == 0 {
			delete(g.nodes, was.node)
			changed = g.touch()
		}
		if len(g.nodes) == 0 {
			for _, f := range g.terms {
				delete(f.groups, g)
			}
			delete(x.groups, was.group)
		}
	}
	if !counts {
		return changed
	}
	x.counted[uid] = at
	g := x.groups[at.group]
	if g == nil {
		g = &group{nodes: map[string]int32{}}
		x.groups[at.group] = g
		x.join(at.group, g)
	}
	if g.nodes[at.node]++; g.nodes[at.node] == 1 {
		changed = g.touch() || changed
	}
	return changed
}

// touch makes the terms of a group look again where its Pods run.
func (g *group) touch() bool {
	for _, f := range g.terms {
		f.stale = true
	}
	return len(g.terms) > 0
}

// join connects a group with the terms that select it.
func (x *Index) join(id groupID, g *group) {
	labels := id.labels.Labels()
	try := func(list []*followed) {
		for _, f := range list {
			if _, in := f.groups[g]; !in && f.selects(id.namespace, labels) {
				f.groups[g], f.stale = struct{}{}, true
				g.terms = append(g.terms, f)
			}
		}
	}
	try(x.others)
	for key, value := range labels {
		try(x.byLabel[pair(key, value)])
	}
}

// Values are the domains in which Pods of a term run, sorted. They must not be changed.
func (x *Index) Values(name string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.terms[name]
	if f == nil {
		return nil
	}
	if f.stale {
		f.stale = false
		values := map[string]struct{}{}
		for g := range f.groups {
			for node := range g.nodes {
				v, known := x.Label(node, f.Key)
				if f.stale = f.stale || !known; v != "" {
					values[v] = struct{}{}
				}
			}
		}
		f.values = slices.Sorted(maps.Keys(values))
	}
	return f.values
}

// Forget makes all terms look again where their Pods run: labels of Nodes may have changed.
func (x *Index) Forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.terms {
		f.stale = true
	}
}
