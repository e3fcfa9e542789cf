package aggregate

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// OP-5.31: a row that is confined keeps its id and its group. In one domain it stays a gang; in several its Pods may be apart. A rebuild keeps it, and a row that
// comes again has no domains.
func TestConfinedRows(t *testing.T) {
	const spec = `{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"zone","labelSelector":{"matchLabels":{"app":"db"}}}}`
	a := New(0)
	set(t, a, spec, spec, `{"resources":{"cpu":"1"},"priority":0}`)
	if !a.NearMoved() || a.NearMoved() {
		t.Error("a row with a term moves once")
	}
	var id string
	a.NearRows(func(row string, n *Near, where []string, placed bool) {
		if id != "" || n.TopologyKey != "zone" || n.Namespace != "default" || placed || where != nil {
			t.Errorf("row %s: %+v, %v, %v", row, n, where, placed)
		}
		id = row
	})
	of := func(a *Aggregate) *pb.CapacityNeed {
		t.Helper()
		needs := a.Needs()
		valid(t, needs)
		i := slices.IndexFunc(needs, func(n *pb.CapacityNeed) bool { return n.RowId == id })
		if i < 0 || !strings.HasPrefix(needs[i].Group, groupPrefix) || needs[i].AggregateResources["cpu"] != "2" {
			t.Fatalf("%s in %v", id, needs)
		}
		return needs[i]
	}
	text := func(a *Aggregate) (out string) {
		for _, r := range of(a).Requirements {
			out += r.Key + " " + strings.TrimPrefix(r.Operator.String(), "OPERATOR_") + " " + strings.Join(r.Values, ",") + ";"
		}
		return out
	}
	expect := func(a *Aggregate, want string) {
		t.Helper()
		if got := text(a); got != want {
			t.Errorf("the row requires %q, want %q", got, want)
		}
	}
	expect(a, "zone SAME ;")
	a.Place(id, []string{"b"})
	expect(a, "zone SAME ;zone IN b;")
	fresh, equal := a.Rebuild(a.Requests())
	if expect(fresh, "zone SAME ;zone IN b;"); !equal || !fresh.Placed(id) {
		t.Error("a rebuild forgets where")
	}
	a.Place(id, []string{"b", "c"})
	expect(a, "zone IN b,c;")
	a.Place(id, nil)
	expect(a, "zone SAME ;")
	a.Place(id, []string{"b"})
	var requests []*request.Request
	a.Members(id, func(r *request.Request) bool { requests = append(requests, r); return true })
	for _, r := range requests {
		a.Delete(KeyOf(r))
	}
	for _, r := range requests {
		a.Set(r)
	}
	expect(a, "zone SAME ;")
	if !a.NearMoved() {
		t.Error("a row that came again is not reported")
	}
}

// One host is one machine, and a term that selects nothing says nothing: such rows are not confined.
func TestRowsThatAreNotConfined(t *testing.T) {
	a := New(0)
	set(t, a, `{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"db"}}}}`,
		`{"resources":{"cpu":"1"},"priority":0,"coLocation":{"topologyKey":"zone"}}`)
	a.NearRows(func(row string, n *Near, _ []string, _ bool) { t.Errorf("%s is near %+v", row, n) })
}
