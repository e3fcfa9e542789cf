package resource

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// ENG-3.1, WIRE-14.1: names that occur twice add up, what has no name or is not positive is not there; what is unknown is reported.
func TestListsBecomeVectors(t *testing.T) {
	table := symbol.NewTable()
	list := []Quantity{{"cpu", 1000}, {"", 5}, {"mem", 0}, {"disk", -3}, {"cpu", 500}}
	v := Intern(table, list)
	if got := v.Quantities(table); !slices.Equal(got, []Quantity{{"cpu", 1500}}) {
		t.Errorf("%v", got)
	}
	found, known := Find(table, list)
	if !known || !found.Equal(&v) {
		t.Errorf("found %v, known %v", found.Quantities(table), known)
	}
	more, known := Find(table, append(list, Quantity{"gpu", 1}))
	if known || !more.Equal(&v) {
		t.Errorf("with a resource that no machine has: %v, known %v", more.Quantities(table), known)
	}
	v.Release(table)
	if table.Live() != 1 { // the empty name
		t.Errorf("%d names are left", table.Live())
	}
}

// ENG-3.1, ENG-3.3: vectors are what maps of amounts are, whatever the numbering of dimensions.
func TestVectorsAreMaps(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	draw := func(r *rand.Rand) []Quantity {
		var out []Quantity
		for _, n := range names {
			if r.IntN(2) == 0 {
				out = append(out, Quantity{n, []int64{0, 1, 2, 1000, math.MaxInt64, math.MaxInt64 - 1}[r.IntN(6)]})
			}
		}
		return out
	}
	get := func(list []Quantity, name string) int64 {
		for _, q := range list {
			if q.Name == name {
				return q.Milli
			}
		}
		return 0
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		table := symbol.NewTable()
		for _, n := range r.Perm(len(names)) { // any numbering
			table.Intern(names[n])
		}
		x, y := draw(r), draw(r)
		v, w := Intern(table, x), Intern(table, y)
		sum, diff, low, high := v.Add(w), v.Sub(w), v.Min(w), v.Max(w)
		covers, touches, zero := true, false, true
		for _, n := range names {
			id, _ := table.Find(n)
			a, b := get(x, n), get(y, n)
			covers, touches, zero = covers && (b == 0 || a >= b), touches || a > 0 && b > 0, zero && a == 0
			for _, c := range []struct {
				what      string
				got, want int64
			}{{"+", sum.Get(Dim(id)), AddSat(a, b)}, {"-", diff.Get(Dim(id)), max(0, a-b)}, {"min", low.Get(Dim(id)), min(a, b)}, {"max", high.Get(Dim(id)), max(a, b)}} {
				if c.got != c.want {
					rt.Fatalf("%d %s %d is %d, want %d", a, c.what, b, c.got, c.want)
				}
			}
		}
		if v.Covers(&w) != covers || v.Touches(&w) != touches || v.IsZero() != zero {
			rt.Fatalf("%v and %v: covers %v, touches %v, zero %v", x, y, v.Covers(&w), v.Touches(&w), v.IsZero())
		}
		if got := v.Quantities(table); !slices.Equal(got, slices.DeleteFunc(slices.Clone(x), func(q Quantity) bool { return q.Milli == 0 })) {
			rt.Fatalf("%v comes back as %v", x, got)
		}
		k := int64(r.IntN(5))
		product, repeated := v.Times(k), Vector{}
		for range k {
			repeated = repeated.Add(v)
		}
		if !product.Equal(&repeated) {
			rt.Fatal("times is not repeated addition")
		}
	})
}
