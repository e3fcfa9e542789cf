package aggregate

import (
	"fmt"
	"maps"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OP-5.26: each request is a Pod of its Node, in rows of one size, in sums of sizes and in gangs; what has no resources counts as nothing,
// and a producer that states pods is believed. A shard without the feature gets none of it, and comes to the same rows.
func TestPodsCount(t *testing.T) {
	gang := `,"gang":{"name":"g","minMembers":2}`
	for name, c := range map[string]struct {
		specs []string
		rows  []string // aggregate and unit of pods, of each row
	}{
		"one":     {[]string{`{"resources":{"cpu":"1"}}`}, []string{"1/1"}},
		"equal":   {[]string{`{"resources":{"cpu":"1"}}`, `{"resources":{"cpu":"1"}}`, `{"resources":{"cpu":"1"}}`}, []string{"3/1"}},
		"sizes":   {[]string{`{"resources":{"cpu":"1"}}`, `{"resources":{"cpu":"2"}}`}, []string{"1/1", "1/1"}},
		"gang":    {[]string{`{"resources":{"cpu":"1"}` + gang + `}`, `{"resources":{"cpu":"2"}` + gang + `}`}, []string{"2/1"}},
		"nothing": {[]string{`{"resources":{}}`}, []string{"/"}},
		"partly":  {[]string{`{"resources":{"cpu":"1"}` + gang + `}`, `{"resources":{}` + gang + `}`}, []string{"1/1"}},
		"stated":  {[]string{`{"resources":{"cpu":"9","pods":"9"}` + gang + `}`, `{"resources":{"cpu":"2"}` + gang + `}`}, []string{"10/9"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(0)
			set(t, a, c.specs...)
			before := a.Needs()
			if !a.SetLimits(true) || a.SetLimits(true) {
				t.Error("the change of the shard's features is not reported once")
			}
			after := a.Needs()
			valid(t, after)
			if len(after) != len(c.rows) {
				t.Fatalf("%d rows: %v", len(after), after)
			}
			for i, n := range after {
				if got := n.AggregateResources["pods"] + "/" + n.MinUnit["pods"]; got != c.rows[i] {
					t.Errorf("row %d asks for %s pods, want %s: %v", i, got, c.rows[i], n)
				}
				if n.RowId != before[i].RowId || n.Group != before[i].Group {
					t.Errorf("row %d has another name", i)
				}
			}
			if fresh, equal := a.Rebuild(a.Requests()); !equal || !fresh.Limits() {
				t.Error("a rebuild differs")
			}
			a.SetLimits(false)
			for i, n := range a.Needs() {
				if !maps.Equal(n.AggregateResources, before[i].AggregateResources) || !maps.Equal(n.MinUnit, before[i].MinUnit) {
					t.Errorf("row %d is %v for a shard without the feature, want %v", i, n, before[i])
				}
			}
		})
	}
}

// OP-5.22, OP-5.26: the row that the smallest sizes share counts them all, as they come and go.
func TestPodsOfSharedRows(t *testing.T) {
	a := New(0)
	a.SetLimits(true)
	for i := range 40 {
		a.Set(req(t, fmt.Sprint("r", i), fmt.Sprintf(`{"resources":{"cpu":"%dm"}}`, 100+i)))
	}
	pods := func() (total int, shared string) {
		for _, n := range a.Needs() {
			var k int
			if _, err := fmt.Sscan(n.AggregateResources["pods"], &k); err != nil {
				t.Fatal(err)
			}
			if total += k; n.Group == overflowGroup {
				shared = n.AggregateResources["pods"] + "/" + n.MinUnit["pods"]
			}
		}
		return total, shared
	}
	if total, shared := pods(); total != 40 || shared != "25/1" {
		t.Errorf("%d pods, %s of them in the shared row", total, shared)
	}
	a.Delete(Key{"default", "r0"})
	if total, shared := pods(); total != 39 || shared != "24/1" {
		t.Errorf("%d pods, %s of them in the shared row after one left", total, shared)
	}
}

// OP-5.26, OP-15.13: volumes count against what a CSI driver attaches; labels are compared as numbers. A shard that knows neither gets a row
// that it can read and that a machine for these Pods satisfies.
func TestVolumesAndNumbers(t *testing.T) {
	a := New(0)
	set(t, a, `{"resources":{"cpu":"1"},"attachedVolumes":{"ebs.csi.aws.com":2},"requirements":[{"key":"gen","operator":"Gt","values":["3"]},{"key":"zone","operator":"In","values":["a"]}]}`,
		`{"resources":{"cpu":"1"},"attachedVolumes":{"ebs.csi.aws.com":2},"requirements":[{"key":"zone","operator":"In","values":["a"]},{"key":"gen","operator":"Gt","values":["3"]}]}`)
	old := a.Needs()
	valid(t, old)
	if n := old[0]; len(old) != 1 || len(n.MinUnit) != 1 || len(n.Requirements) != 2 || n.Requirements[0].Operator != pb.NodeSelectorRequirement_OPERATOR_EXISTS || len(n.Requirements[0].Values) != 0 ||
		n.Requirements[0].Comparison == nil || n.Requirements[0].Comparison.Less || n.Requirements[0].Comparison.Bound != 3 {
		t.Errorf("for an old shard: %v", old)
	}
	a.SetLimits(true)
	now := a.Needs()
	valid(t, now)
	if n := now[0]; n.MinUnit["attachable-volumes-csi-ebs.csi.aws.com"] != "2" || n.AggregateResources["attachable-volumes-csi-ebs.csi.aws.com"] != "4" || n.RowId != old[0].RowId {
		t.Errorf("for a new shard: %v", n)
	}
	a.Set(req(t, "bad", `{"resources":{"cpu":"1"},"attachedVolumes":{"x":-1}}`))
	if p := a.Problem(Key{"default", "bad"}); p == nil || !p.Fatal {
		t.Errorf("a negative number of volumes: %+v", p)
	}
}
