package aggregate

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

func ofCPU(milli int) string { return fmt.Sprintf(`{"priority":0,"resources":{"cpu":"%dm"}}`, milli) }

// names are the groups of the rows by the cpu of their largest request.
func names(a *Aggregate) map[string]string {
	out := map[string]string{}
	for _, n := range a.Needs() {
		out[n.MinUnit["cpu"]] = n.Group
	}
	return out
}

// OP-5.22: the name of a row depends on the size of its requests alone: what else there is does not rename it. Machines
// carry the name for life.
func TestTheNameOfAShapeIsForLife(t *testing.T) {
	a := New(0)
	a.Set(req(t, "two", ofCPU(2000)))
	alone := names(a)["2"]
	if want := "s1-876952606e700ab3"; alone != want { // SHA-256 of "\n\"cpu\" 2000"
		t.Errorf("the row is named %s, want %s", alone, want)
	}
	for _, milli := range []int{1000, 3000, 500} { // smaller and larger ones come
		a.Set(req(t, fmt.Sprint(milli), ofCPU(milli)))
	}
	if got := names(a); got["2"] != alone || len(got) != 4 {
		t.Errorf("rows %v, want four, and %s still for 2 cpu", got, alone)
	}
	for _, milli := range []int{500, 1000, 3000} { // and go
		a.Delete(Key{"default", fmt.Sprint(milli)})
	}
	if got := names(a); !maps.Equal(got, map[string]string{"2": alone}) {
		t.Errorf("rows %v, want the one that was there", got)
	}
}

// OP-5.22: of too many sizes the largest keep their rows, and the others share one, which sums them up. Devices make large.
func TestTheSmallestShapesShareARow(t *testing.T) {
	a := New(0)
	for i := range shapesMax {
		a.Set(req(t, fmt.Sprintf("c%d", i), ofCPU(1000+100*i)))
	}
	before := names(a)
	if len(before) != shapesMax || slices.Contains(slices.Collect(maps.Values(before)), overflowGroup) {
		t.Fatalf("rows %v, want one for each of %d sizes", before, shapesMax)
	}
	a.Set(req(t, "device", `{"priority":0,"resources":{"cpu":"1m","example.com/gpu":"1"}}`))
	for i := range 50 {
		a.Set(req(t, fmt.Sprintf("small%d", i), ofCPU(1+i)))
	}
	needs := a.Needs()
	valid(t, needs)
	if len(needs) != shapesMax {
		t.Fatalf("%d rows, want %d", len(needs), shapesMax)
	}
	for _, n := range needs {
		switch {
		case n.Group == overflowGroup:
			if n.AggregateResources["cpu"] != fmt.Sprintf("%dm", 50*51/2+1000+1100) || n.MinUnit["cpu"] != "1100m" {
				t.Errorf("the shared row is %v, at least %v", n.AggregateResources, n.MinUnit)
			}
			members := 0
			a.Members(n.RowId, func(r *request.Request) bool { members++; return true })
			if members != 52 || !a.HasRow(n.RowId) {
				t.Errorf("the shared row has %d members, want 52", members)
			}
		case n.MinUnit["example.com/gpu"] == "" && before[n.MinUnit["cpu"]] != n.Group:
			t.Errorf("the row of %v was renamed to %s", n.MinUnit, n.Group)
		}
	}
	if got := a.Row(Key{"default", "small7"}); got == "" || got != a.Row(Key{"default", "c0"}) || got == a.Row(Key{"default", "c9"}) || got == a.Row(Key{"default", "device"}) {
		t.Errorf("requests are in the wrong rows: the shared one is %q", got)
	}
	for i := range 50 {
		a.Delete(Key{"default", fmt.Sprintf("small%d", i)})
	}
	a.Delete(Key{"default", "device"})
	if d := cmp.Diff(before, names(a)); d != "" {
		t.Errorf("with %d sizes left: %s", shapesMax, d)
	}
}

// OP-5.9, OP-5.22: whatever comes and goes around the border, the rows are those of a rebuild, they name every request once,
// and they sum up to the requests.
func TestShapesAroundTheBorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := New(0)
		cpu := map[string]int{}
		for i := range rapid.IntRange(shapesMax-2, shapesMax+2).Draw(t, "start") {
			name := fmt.Sprintf("r%d", i)
			cpu[name] = 10 + i
			a.Set(req(t, name, ofCPU(cpu[name])))
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := fmt.Sprintf("r%d", rapid.IntRange(0, shapesMax+3).Draw(t, "name"))
			if rapid.IntRange(0, 3).Draw(t, "op") == 0 {
				a.Delete(Key{"default", name})
				delete(cpu, name)
			} else {
				cpu[name] = rapid.IntRange(1, 30).Draw(t, "cpu")
				a.Set(req(t, name, ofCPU(cpu[name])))
			}
			fresh, equal := a.Rebuild(a.Requests())
			if !equal {
				t.Fatalf("incremental %v\nrebuilt %v", a.Needs(), fresh.Needs())
			}
			if !slices.EqualFunc(fresh.Needs(), a.Needs(), func(x, y *pb.CapacityNeed) bool { return proto.Equal(x, y) }) {
				t.Fatalf("incremental %v\nrebuilt %v", a.Needs(), fresh.Needs())
			}
			sum, rows := 0, 0
			for _, n := range a.Needs() {
				q := resource.MustParse(n.AggregateResources["cpu"])
				sum += int(q.MilliValue())
				a.Members(n.RowId, func(r *request.Request) bool {
					if rows++; a.Row(KeyOf(r)) != n.RowId {
						t.Fatalf("%s is a member of %s and says %s", r.Name, n.RowId, a.Row(KeyOf(r)))
					}
					return true
				})
			}
			want := 0
			for _, c := range cpu {
				want += c
			}
			if sum != want || rows != len(cpu) || len(a.Needs()) > shapesMax {
				t.Fatalf("%d rows with %d members and %d in sum, want %d and %d", len(a.Needs()), rows, sum, len(cpu), want)
			}
		}
	})
}
