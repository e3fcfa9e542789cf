package aggregate

import (
	"maps"
	"slices"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OP-5.13, OP-5.14, OP-5.15, OP-5.16, OP-5.17. Scenarios 14, 15.
// OP-5.24: requests of one gang are one row with its least number, also where their sizes differ; gangs of other names, namespaces and
// domains stay apart; a co-location term of the Pods says where. What cannot be a gang is reported.
func TestGangs(t *testing.T) {
	gang := func(cpu, rest string) string {
		return `{"resources":{"cpu":"` + cpu + `"},"priority":0,"gang":{` + rest + `}}`
	}
	a := New(0)
	set(t, a, gang("1", `"name":"podgroups.x/train","minMembers":3`), gang("1", `"name":"podgroups.x/train","minMembers":3`), gang("4", `"name":"podgroups.x/train","minMembers":3`))
	n := a.Needs()
	valid(t, n)
	if len(n) != 1 || n[0].MinMembers != 3 || !strings.HasPrefix(n[0].Group, namedPrefix) || n[0].AggregateResources["cpu"] != "6" || n[0].MinUnit["cpu"] != "4" || len(n[0].Requirements) != 0 {
		t.Fatalf("one gang: %v", n)
	}
	train := n[0].Group
	a = New(0)
	a.Set(req(t, "two/r", gang("1", `"name":"podgroups.x/train","minMembers":3`)))
	a.Set(req(t, "default/other", gang("1", `"name":"podgroups.x/other","minMembers":3`)))
	a.Set(req(t, "default/rack", gang("1", `"name":"podgroups.x/train","minMembers":3,"topologyKey":"rack"`)))
	a.Set(req(t, "default/zone", `{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"zone","labelSelector":{"matchLabels":{"a":"1"}}},"gang":{"name":"podgroups.x/train","topologyKey":"rack"}}`))
	n = a.Needs()
	valid(t, n)
	keys := map[string]string{}
	for _, r := range n {
		if keys[r.Group] != "" || r.Group == train && len(r.Requirements) == 0 {
			t.Errorf("group %s is there twice", r.Group)
		}
		keys[r.Group] = "none"
		for _, q := range r.Requirements {
			keys[r.Group] = q.Key
		}
	}
	if got := slices.Sorted(maps.Values(keys)); !slices.Equal(got, []string{"none", "none", "rack", "zone"}) {
		t.Errorf("domains %q of %v", got, n)
	}
	for _, bad := range []string{`"name":""`, `"name":"x","minMembers":-1`} {
		a := New(0)
		a.Set(req(t, "default/r", gang("1", bad)))
		if len(a.Needs()) != 0 || len(a.problems) != 1 {
			t.Errorf("%s: %v, %v", bad, a.Needs(), a.problems)
		}
	}
}

func TestCoLocation(t *testing.T) {
	gang := func(topology, rest string) string {
		return `{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"` + topology + `",` + rest + `}}`
	}
	groups := func(a *Aggregate) (out []string) {
		for _, n := range a.Needs() {
			same := 0
			for _, r := range n.Requirements {
				if r.Operator == pb.NodeSelectorRequirement_OPERATOR_SAME {
					same++
				}
			}
			if strings.HasPrefix(n.Group, groupPrefix) != (same == 1) {
				t.Errorf("group %q has %d Same requirements", n.Group, same)
			}
			out = append(out, n.Group)
		}
		valid(t, a.Needs())
		return out
	}
	t.Run("a term with permuted maps is one group", func(t *testing.T) {
		a := New(0)
		set(t, a, gang("rack", `"labelSelector":{"matchLabels":{"a":"1","b":"2"},"matchExpressions":[{"key":"k","operator":"In","values":["x","y"]}]}`),
			gang("rack", `"labelSelector":{"matchExpressions":[{"key":"k","operator":"In","values":["y","x","x"]}],"matchLabels":{"b":"2","a":"1"}}`))
		if g := groups(a); len(g) != 1 || !strings.HasPrefix(g[0], "g1-") || len(g[0]) != 35 {
			t.Errorf("groups %q", g)
		}
	})
	t.Run("equal selectors in two namespaces are two groups", func(t *testing.T) {
		a := New(0)
		spec := gang("rack", `"labelSelector":{"matchLabels":{"a":"1"}}`)
		a.Set(req(t, "one/r", spec))
		a.Set(req(t, "two/r", spec))
		if g := groups(a); len(g) != 2 {
			t.Errorf("groups %q", g)
		}
	})
	// As in Kubernetes (ADR 0060): beside a namespace selector the own namespace does not count.
	t.Run("a namespace selector alone joins requests of two namespaces", func(t *testing.T) {
		a := New(0)
		spec := gang("rack", `"namespaceSelector":{"matchLabels":{"team":"x"}},"labelSelector":{"matchLabels":{"a":"1"}}`)
		a.Set(req(t, "one/r", spec))
		a.Set(req(t, "two/r", spec))
		a.Set(req(t, "two/everywhere", gang("rack", `"namespaceSelector":{},"labelSelector":{"matchLabels":{"a":"1"}}`)))
		if g := groups(a); len(g) != 2 || g[0] == g[1] {
			t.Errorf("groups %q", g)
		}
	})
	t.Run("named namespaces join requests of two namespaces", func(t *testing.T) {
		a := New(0)
		a.Set(req(t, "one/r", gang("rack", `"namespaces":["two","one"],"labelSelector":{"matchLabels":{"a":"1"}}`)))
		a.Set(req(t, "two/r", gang("rack", `"namespaces":["one","two"],"labelSelector":{"matchLabels":{"a":"1"}}`)))
		if g := groups(a); len(g) != 1 {
			t.Errorf("groups %q", g)
		}
	})
	t.Run("different terms stay apart, and keep one Same each when built again", func(t *testing.T) {
		a := New(0)
		set(t, a, gang("rack", `"labelSelector":{"matchLabels":{"a":"1"}}`), gang("rack", `"labelSelector":{"matchLabels":{"a":"2"}}`),
			gang("zone", `"labelSelector":{"matchLabels":{"a":"1"}}`))
		first := groups(a)
		fresh, equal := a.Rebuild(a.Requests())
		if again := groups(fresh); !equal || len(first) != 3 || !slices.Equal(first, again) {
			t.Errorf("groups %q, then %q", first, again)
		}
	})
	t.Run("a nil selector is no term", func(t *testing.T) {
		a := New(0)
		set(t, a, gang("rack", `"namespaces":["x"]`))
		if p := a.Problem(Key{"default", "r0"}); p == nil || p.Reason != ReasonEmptyCoLocation || p.Fatal {
			t.Errorf("problem %+v", p)
		}
		if g := groups(a); len(g) != 1 || strings.HasPrefix(g[0], groupPrefix) {
			t.Errorf("groups %q", g)
		}
	})
}
