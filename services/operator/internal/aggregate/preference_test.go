package aggregate

import (
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OP-5.29: requests with equal preferences, however written, are one row that carries them; others are rows of their own, also for a shard that
// reads the key of a row without them. One that cannot be read does not count, and its request does.
func TestPreferences(t *testing.T) {
	prefers := func(list string) string {
		return `{"resources":{"cpu":"1"},"priority":0,"preferences":[` + list + `]}`
	}
	const zone, disk = `{"weight":10,"preference":{"matchExpressions":[{"key":"zone","operator":"In","values":["b","a"]}]}}`,
		`{"weight":90,"preference":{"matchExpressions":[{"key":"disk","operator":"Exists"},{"key":"gen","operator":"Gt","values":["3"]}]}}`
	a := New(0)
	set(t, a, prefers(zone+","+disk), prefers(disk+","+strings.ReplaceAll(zone, `"b","a"`, `"a","b","a"`)))
	n := a.Needs()
	valid(t, n)
	if len(n) != 1 || n[0].AggregateResources["cpu"] != "2" || len(n[0].Preferences) != 2 || n[0].Preferences[0].Weight != 90 || len(n[0].Preferences[0].Requirements) != 2 ||
		n[0].Preferences[0].Requirements[1].Comparison.GetBound() != 3 {
		t.Fatalf("equal preferences: %v", n)
	}
	a = New(0)
	set(t, a, prefers(zone), prefers(disk), prefers(""), prefers(strings.ReplaceAll(zone, "10", "20")))
	n = a.Needs()
	valid(t, n)
	groups := map[string]bool{}
	for _, r := range n {
		groups[r.Group] = true
	}
	if len(n) != 4 || len(groups) != 4 {
		t.Errorf("four rows with %d groups: %v", len(groups), n)
	}
	for _, bad := range []string{
		`{"weight":1,"preference":{"matchExpressions":[{"key":"zone","operator":"Near","values":["a"]}]}}`,
		`{"weight":1,"preference":{"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}}`,
	} {
		a = New(0)
		a.Set(req(t, "default/r", prefers(bad+","+zone)))
		p := a.Problem(Key{"default", "r"})
		if n := a.Needs(); len(n) != 1 || len(n[0].Preferences) != 1 || p == nil || p.Fatal || p.Reason != ReasonPreference || !strings.Contains(p.Message, "spec.preferences[0]") {
			t.Errorf("%s: %v, problem %+v", bad, n, p)
		}
	}
	a = New(0)
	set(t, a, strings.TrimSuffix(prefers(zone), "}")+`,"gang":{"name":"g","minMembers":2}}`, strings.TrimSuffix(prefers(disk), "}")+`,"gang":{"name":"g","minMembers":2}}`)
	if n := a.Needs(); len(n) != 1 || len(n[0].Preferences) != 0 {
		t.Errorf("a gang: %v", n)
	}
	var many []string
	for range 20 {
		many = append(many, zone)
	}
	a = New(0)
	set(t, a, prefers(strings.Join(many, ",")))
	n = a.Needs()
	valid(t, n)
	if len(n) != 1 || len(n[0].Preferences) != preferencesMax {
		t.Errorf("20 preferences: %v", n)
	}
	// Sizes beyond the rows of a family share one that prefers the same.
	if p := newOverflowProfile(&profile{need: &pb.CapacityNeed{Preferences: n[0].Preferences}, peers: "x"}); len(p.need.Preferences) != preferencesMax || p.need.Group != overflowGroup+"x" {
		t.Errorf("the row of other sizes: %v", p.need)
	}
}
