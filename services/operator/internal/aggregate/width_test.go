package aggregate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// gate counts what a shard refuses a roll-up for.
func gate(needs []*pb.CapacityNeed) *width {
	w := newWidth()
	for _, n := range needs {
		w.add(n, 1)
	}
	return w
}

// namedIn counts the values that rows name.
func namedIn(needs []*pb.CapacityNeed) map[string]int {
	out := map[string]int{}
	for _, n := range needs {
		eachValue(n, func(_ string, values []string) {
			for _, v := range values {
				out[v]++
			}
		})
	}
	return out
}

// OP-5.25: requests that each name a key, a value or a resource of their own are left out and say so; they take no demand of other requests from the
// roll-up. When there is room again, they are counted again and acknowledged like others.
func TestOneUserCannotWidenTheRollupForAll(t *testing.T) {
	for _, c := range []struct {
		name, spec, reason string
		many, most         int
		wide               func(*width) map[string]int
	}{
		{"topology keys", `{"priority":9,"resources":{"cpu":"1"},"topologySpread":[{"topologyKey":"example.com/k%04d","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]}`,
			ReasonTooManyKeys, 100, 64, func(w *width) map[string]int { return w.topology }},
		{"label keys", `{"priority":9,"resources":{"cpu":"1"},"requirements":[{"key":"example.com/k%04d","operator":"Exists"}]}`,
			ReasonTooManyKeys, 1_100, 1_024, func(w *width) map[string]int { return w.keys }},
		{"resources", `{"priority":%[1]d,"resources":{"cpu":"1","example.com/r%04[1]d":"1"}}`,
			ReasonTooManyResources, 1_100, 1_024, func(w *width) map[string]int { return w.resources }},
		{"values", `{"priority":9,"resources":{"cpu":"1"},"requirements":[{"key":"example.com/host","operator":"In","values":["h%04d"]}]}`,
			ReasonTooManyKeys, 5_100, rollupPairsMax / 5_101, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			build := func(order []int) *Aggregate {
				a := New(0)
				for i := range 2 {
					a.Set(req(t, fmt.Sprint("usual", i), `{"priority":0,"resources":{"cpu":"1"},"requirements":[{"key":"disk","operator":"Exists"}],"topologySpread":[{"topologyKey":"zone","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule"}]}`))
				}
				for _, i := range order {
					a.Set(req(t, fmt.Sprint("odd", i), fmt.Sprintf(c.spec, i)))
				}
				return a
			}
			order := rand.New(rand.NewPCG(1, 2)).Perm(c.many)
			a, b := build(order), build(slices.Sorted(slices.Values(order)))
			needs := a.Needs()
			if d := cmp.Diff(needs, b.Needs(), protocmp.Transform()); d != "" {
				t.Errorf("the choice depends on the order: %s", d)
			}
			valid(t, needs)
			if c.wide == nil {
				c.wide = func(*width) map[string]int { return namedIn(needs) }
			}
			if n := len(c.wide(gate(needs))); n != c.most {
				t.Errorf("%d are named, want %d", n, c.most)
			}
			turned, waiting := a.TakeTurned(), a.TakeWaiting()
			out := 0
			for i := range c.many {
				key := Key{"default", fmt.Sprint("odd", i)}
				p := a.Problem(key)
				if (p == nil) != slices.Contains(waiting, key) || (p != nil) != slices.Contains(turned, key) {
					t.Fatalf("%s: problem %v; acknowledged %v, turned %v", key.Name, p, slices.Contains(waiting, key), slices.Contains(turned, key))
				}
				if p != nil {
					if out++; p.Reason != c.reason || !p.Fatal {
						t.Fatalf("%s: %+v", key.Name, p)
					}
				}
			}
			if want := c.many - len(needs) + 1; out != want || a.Problem(Key{"default", "usual0"}) != nil {
				t.Errorf("%d requests are left out, want %d; usual: %v", out, want, a.Problem(Key{"default", "usual0"}))
			}
			if fresh, equal := a.Rebuild(a.Requests()); !equal || len(fresh.Needs()) != len(needs) {
				t.Error("a rebuild gives other rows")
			}
			for i := range c.many - 10 {
				a.Delete(Key{"default", fmt.Sprint("odd", i)})
			}
			if a.Needs(); len(a.TakeTurned()) == 0 {
				t.Error("no request hears that there is room")
			}
			waiting = append(waiting, a.TakeWaiting()...)
			for i := c.many - 10; i < c.many; i++ {
				if key := (Key{"default", fmt.Sprint("odd", i)}); a.Problem(key) != nil || !slices.Contains(waiting, key) {
					t.Errorf("%s is still left out: %v", key.Name, a.Problem(key))
				}
			}
		})
	}
}

// OP-5.25: of more shapes than a roll-up has rows, those of the lowest priority are left out; with very many rows fewer resources are named.
func TestMoreShapesThanRows(t *testing.T) {
	a := New(0)
	for i := range rollupRowsMax + 5 {
		a.Set(req(t, fmt.Sprint("r", i), fmt.Sprintf(`{"priority":%d,"resources":{"cpu":"1","example.com/r%d":"1"}}`, i, i%45)))
	}
	needs := a.Needs()
	w := gate(needs)
	if len(needs) > rollupRowsMax || len(needs)*len(w.resources) > rollupCellsMax || len(w.resources) != 40 {
		t.Fatalf("%d rows with %d resources", len(needs), len(w.resources))
	}
	a = New(0)
	for i := range rollupRowsMax + 5 {
		a.Set(req(t, fmt.Sprint("r", i), fmt.Sprintf(`{"priority":%d,"resources":{"cpu":"1"}}`, i)))
	}
	if n := len(a.Needs()); n != rollupRowsMax {
		t.Fatalf("%d rows", n)
	}
	for i := range 7 {
		if p := a.Problem(Key{"default", fmt.Sprint("r", i)}); (p != nil && p.Reason == ReasonTooManyShapes) != (i < 5) {
			t.Errorf("priority %d: %v", i, p)
		}
	}
}
