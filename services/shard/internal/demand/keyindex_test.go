package demand

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// An index finds what a map would, for keys near each other and far apart.
func TestKeyIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfDistinct(rapid.Uint32Range(0, 1<<rapid.IntRange(9, 32).Draw(t, "bits")-1), func(k uint32) uint32 { return k }).Draw(t, "keys")
		x, want := newKeyIndex(len(keys)), map[symbol.ID]int{}
		for i, k := range keys {
			x.set(symbol.ID(k), i)
			want[symbol.ID(k)] = i
		}
		for i, k := range keys { // rows change places
			x.set(symbol.ID(k), len(keys)-i)
			want[symbol.ID(k)] = len(keys) - i
		}
		for range 20 {
			k := symbol.ID(rapid.Uint32Range(0, 600).Draw(t, "asked"))
			if len(keys) > 0 && rapid.Bool().Draw(t, "known") {
				k = symbol.ID(rapid.SampledFrom(keys).Draw(t, "one of them"))
			}
			at, ok := x.find(k)
			if w, has := want[k]; has != ok || has && w != at {
				t.Fatalf("key %d is at %d, %v; want %d, %v", k, at, ok, w, has)
			}
		}
	})
}

// ENG-21.11: Forms that match the same machines share one list of requirements, also in copies of a table, and what
// no row asks for any more is forgotten in each of them.
func TestFormsShareRules(t *testing.T) {
	space := symbol.NewSpace()
	table := NewTable(space)
	row := func(priority int32, zone string) Row {
		return Row{Profile: Profile{Priority: priority, Requirements: []Requirement{{Key: "zone", Op: In, Values: []string{zone}}, {Key: "rack", Op: Same}}}}
	}
	send := func(t *Table, cluster string, zones ...string) {
		var rows []Row
		for i, z := range zones {
			rows = append(rows, row(int32(i), z))
		}
		t.Replace(cluster, rows, nil, 1)
	}
	send(table, "a", "x", "x", "y")
	send(table, "b", "x")
	frozen, frozenSpace := table.Freeze(), space.Freeze()
	clonedSpace := space.Clone()
	for name, c := range map[string]*Table{"table": table, "clone": table.Clone(clonedSpace), "thawed": frozen.Thaw(frozenSpace.Thaw())} {
		n := c.Cluster("a").Needs
		lists := map[*Requirement]bool{}
		c.Forms(func(f *Form) {
			if f.Same != nil {
				lists[&f.Requirements[0]] = true
			}
		})
		if len(n) != 3 || len(lists) != 2 || len(c.rules) != 4 { // with and without Same
			t.Errorf("%s: %d rows with %d lists of requirements, %d rules", name, len(n), len(lists), len(c.rules))
		}
		for step, want := range []int{2, 2, 0} {
			switch step {
			case 0:
				send(c, "a", "x")
			case 1:
				c.Remove("b")
			case 2:
				send(c, "a")
			}
			if len(c.rules) != want {
				t.Errorf("%s, step %d: %d rules, want %d: %s", name, step, len(c.rules), want, fmt.Sprint(c.rules))
			}
		}
	}
}
