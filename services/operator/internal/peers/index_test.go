package peers

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

const zone = corev1.LabelTopologyZone

// cluster is Pods, and Nodes by name with their zones.
type cluster struct {
	*Index
	store   *pods.Store
	zones   map[string]string
	changes int
}

func newCluster(zones map[string]string) *cluster {
	c := &cluster{zones: zones}
	c.store = pods.New(nil, nil, func(old, now *pods.Pod) { c.PodChanged(old, now) })
	c.Index = New(Config{Pods: c.store.All, Changed: func() { c.changes++ }, Label: func(node, key string) (string, bool) {
		v, known := c.zones[node]
		if key != zone {
			v = ""
		}
		return v, known
	}})
	return c
}

func (c *cluster) set(namespace, name, node string, phase corev1.PodPhase, of labels.Set) {
	c.store.Set(pods.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Labels: of},
		Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}))
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func term(t *testing.T, namespace string, c v1alpha1.CoLocation) Term {
	t.Helper()
	c.TopologyKey = zone
	out, ok := TermOf(namespace, &c)
	if !ok {
		t.Fatalf("%+v is no term", c)
	}
	return out
}

// OP-5.31: the domains are those of the nodes on which selected Pods are, of the namespaces that the term names, until they are gone or have finished.
func TestDomainsOfPods(t *testing.T) {
	c := newCluster(map[string]string{"n1": "a", "n2": "b", "n3": "b", "bare": ""})
	c.set("x", "before", "n1", corev1.PodRunning, labels.Set{"app": "db"})
	c.Follow(map[string]Term{
		"own": term(t, "x", v1alpha1.CoLocation{LabelSelector: app("db")}), "other": term(t, "x", v1alpha1.CoLocation{LabelSelector: app("db"), Namespaces: []string{"y"}}),
		"all":   term(t, "x", v1alpha1.CoLocation{LabelSelector: app("db"), NamespaceSelector: &metav1.LabelSelector{}}),
		"named": term(t, "x", v1alpha1.CoLocation{LabelSelector: app("db"), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: "y"}}}),
		"any":   term(t, "x", v1alpha1.CoLocation{LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}}),
	})
	expect := func(when string, want map[string][]string) {
		t.Helper()
		for name, values := range want {
			if got := c.Values(name); !slices.Equal(got, values) {
				t.Errorf("%s: %s runs in %q, want %q", when, name, got, values)
			}
		}
	}
	expect("a Pod that was there", map[string][]string{"own": {"a"}, "all": {"a"}, "any": {"a"}, "other": nil, "named": nil, "unknown": nil})
	c.set("x", "waits", "", corev1.PodPending, labels.Set{"app": "db"})
	c.set("y", "theirs", "n2", corev1.PodPending, labels.Set{"app": "db"})
	c.set("x", "web", "n3", corev1.PodRunning, labels.Set{"app": "web"})
	c.set("x", "nowhere", "bare", corev1.PodRunning, labels.Set{"app": "db"})
	expect("more Pods", map[string][]string{"own": {"a"}, "all": {"a", "b"}, "any": {"a", "b"}, "other": {"b"}, "named": {"b"}})
	c.set("x", "before", "n1", corev1.PodSucceeded, labels.Set{"app": "db"})
	c.set("x", "web", "n3", corev1.PodRunning, labels.Set{"app": "db"})
	expect("one has finished, one has other labels", map[string][]string{"own": {"b"}, "all": {"b"}})
	c.store.Delete(c.store.Get("x/web"))
	c.store.Delete(c.store.Get("y/theirs"))
	expect("they are gone", map[string][]string{"own": nil, "all": nil, "other": nil})

	// A Pod may be on a node that is not known yet, and a Node may get its label late.
	c.set("x", "early", "late", corev1.PodRunning, labels.Set{"app": "db"})
	expect("its node is not known", map[string][]string{"own": nil})
	c.zones["late"] = ""
	expect("nor its zone", map[string][]string{"own": nil})
	c.zones["late"] = "c"
	c.Forget()
	expect("it is", map[string][]string{"own": {"c"}})
}

// What a Pod must be near on one host, and namespaces that are found by labels, say nothing of domains.
func TestNoTerm(t *testing.T) {
	for name, c := range map[string]*v1alpha1.CoLocation{
		"none": nil, "selects nothing": {TopologyKey: zone}, "a host": {TopologyKey: corev1.LabelHostname, LabelSelector: app("db")},
		"no selector": {TopologyKey: zone, LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Odd"}}}},
		"namespaces":  {TopologyKey: zone, LabelSelector: app("db"), NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}},
	} {
		if _, ok := TermOf("x", c); ok {
			t.Errorf("%s is a term", name)
		}
	}
}

// In a random history, every answer is that of a look at all Pods, and without terms nothing is kept.
func TestIndexEqualsAScan(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := newCluster(map[string]string{"n0": "a", "n1": "b", "n2": "c", "n3": "c", "n4": ""})
		known := map[string]Term{}
		for i := range 12 {
			s := app(fmt.Sprint(i % 4))
			if i%3 == 0 {
				s = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{fmt.Sprint(i % 4)}}}}
			}
			known[fmt.Sprint(i)] = term(t, fmt.Sprint("ns", i%2), v1alpha1.CoLocation{LabelSelector: s})
		}
		followed := map[string]Term{}
		for range 300 {
			switch r.IntN(8) {
			case 0:
				name := fmt.Sprint(r.IntN(12))
				followed = maps.Clone(followed)
				if _, is := followed[name]; is {
					delete(followed, name)
				} else {
					followed[name] = known[name]
				}
				c.Follow(followed)
			case 1:
				if p := c.store.Get(types.UID(fmt.Sprintf("ns%d/p%d", r.IntN(2), r.IntN(15)))); p != nil {
					c.store.Delete(p)
				}
			default:
				node := ""
				if r.IntN(3) > 0 {
					node = fmt.Sprint("n", r.IntN(5))
				}
				c.set(fmt.Sprint("ns", r.IntN(2)), fmt.Sprint("p", r.IntN(15)), node, []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed}[r.IntN(3)], labels.Set{"app": fmt.Sprint(r.IntN(4))})
			}
			for name, f := range followed {
				want := map[string]bool{}
				c.store.All(func(p *pods.Pod) bool {
					if runs(p) && f.selects(p.Namespace, p.LabelSet.Labels()) && c.zones[p.Node] != "" {
						want[c.zones[p.Node]] = true
					}
					return true
				})
				if got := c.Values(name); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
					t.Fatalf("seed %d: %s runs in %q, want %q", seed, name, got, slices.Sorted(maps.Keys(want)))
				}
			}
		}
		c.Follow(nil)
		if len(c.groups)+len(c.counted)+len(c.terms)+len(c.byLabel)+len(c.others) > 0 {
			t.Fatalf("seed %d: without terms the index keeps %d groups and %d Pods", seed, len(c.groups), len(c.counted))
		}
	}
}
