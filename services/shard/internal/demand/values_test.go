package demand

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-6.5b: values that no requirement tells apart are alike, and no others are.
func TestValuesThatAreAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{"1", "2", "02", "3", "4", "a", "b", "c"})
		var lists []Requirement
		for range rapid.IntRange(0, 5).Draw(t, "requirements") {
			r := Requirement{Key: rapid.SampledFrom([]string{"key", "key", "other"}).Draw(t, "key"), Op: rapid.SampledFrom([]Operator{In, NotIn, Same, Gt, Lt}).Draw(t, "op")}
			if r.Values = rapid.SliceOfNDistinct(value, 1, 6, rapid.ID).Draw(t, "values"); r.Op == Gt || r.Op == Lt {
				r.Values = []string{fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "number"))}
			}
			lists = append(lists, r)
		}
		tab := NewTable(symbol.NewSpace())
		rows := make([]Row, len(lists))
		for i, r := range lists {
			rows[i] = Row{Profile: Profile{Requirements: []Requirement{r}}, Group: fmt.Sprint(i), RowID: fmt.Sprint(i)}
		}
		tab.Replace("red", rows, nil, 1)
		values, alike, _ := tab.Values("key")
		answers := func(v string) (out []bool) {
			for _, r := range lists {
				switch {
				case r.Key != "key":
				case r.Op == Gt || r.Op == Lt:
					out = append(out, r.Compares(v))
				default:
					out = append(out, slices.Contains(r.Values, v))
				}
			}
			return out
		}
		if len(values) != len(alike) || !slices.IsSorted(values) {
			t.Fatalf("%q, %q", values, alike)
		}
		for i, v := range values {
			least := slices.IndexFunc(values, func(x string) bool { return slices.Equal(answers(x), answers(v)) })
			if !slices.Equal(answers(alike[i]), answers(v)) || alike[i] != alike[least] && len(tab.boundsOf("key")) == 0 {
				t.Fatalf("%q counts as %q, of %q and %v", v, alike[i], values, lists)
			}
		}
	})
}

func (t *Table) boundsOf(key string) []int64 {
	_, _, bounds := t.Values(key)
	return bounds
}
