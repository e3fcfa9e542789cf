package resource

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// ENG-3.2: quantities are parsed once, demand rounded up to a milli-unit and supply down.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		text     string
		up, down int64
	}{
		{"1", 1000, 1000}, {"0", 0, 0}, {"1500m", 1500, 1500}, {"1.5", 1500, 1500}, {"0.0001", 1, 0}, {"1u", 1, 0}, {"1001u", 2, 1}, {"1n", 1, 0},
		{"1k", 1_000_000, 1_000_000}, {"2Ki", 2_048_000, 2_048_000}, {"1Gi", 1 << 30 * 1000, 1 << 30 * 1000}, {"1e3", 1_000_000, 1_000_000},
		{"1E2", 100_000, 100_000}, {"3E-3", 3, 3}, {"100Ei", math.MaxInt64, math.MaxInt64}, {"+2", 2000, 2000}, {".5", 500, 500}, {"5.", 5000, 5000},
	} {
		up, err := Parse(c.text, Up)
		down, err2 := Parse(c.text, Down)
		if saturated := c.up == math.MaxInt64; !saturated && (err != nil || err2 != nil) || up != c.up || down != c.down {
			t.Errorf("%q: %d, %d (%v, %v), want %d, %d", c.text, up, down, err, err2, c.up, c.down)
		}
	}
	for _, text := range []string{"", "m", "1x", "--1", "1.2.3", "1 ", " 1", "0x10", "NaN", "inf", "1e", "1ee3", "Ki", "1kk"} {
		if v, err := Parse(text, Up); err == nil {
			t.Errorf("%q is %d", text, v)
		}
	}
}

// ENG-3.2: every suffix that Kubernetes knows, and what is too much for 63 bits is the most there is.
func TestEverySuffix(t *testing.T) {
	for k, suffix := range []string{"k", "M", "G", "T", "P", "E"} {
		want := int64(math.MaxInt64)
		if k < 5 {
			want = 2 * int64(math.Pow10(3*(k+2)))
		}
		if got, err := Parse("2"+suffix, Down); got != want || err != nil != (k == 5) {
			t.Errorf("2%s is %d (%v), not %d", suffix, got, err, want)
		}
	}
	for k, suffix := range []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"} {
		want := int64(math.MaxInt64)
		if k < 5 {
			want = 3 << (10 * (k + 1)) * 1000
		}
		if got, err := Parse("3"+suffix, Up); got != want || err != nil != (k == 5) {
			t.Errorf("3%s is %d (%v), not %d", suffix, got, err, want)
		}
	}
	if got, err := Parse("-8Ei", Up); got != math.MinInt64 || err == nil {
		t.Errorf("-8Ei is %d (%v)", got, err)
	}
	if got, err := Parse("-0.5", Up); got != -500 || err != nil {
		t.Errorf("-0.5 is %d (%v)", got, err)
	}
}

// ENG-3.2: every decimal is its exact value, rounded as asked.
func TestParseIsExact(t *testing.T) {
	suffixes := map[string]*big.Rat{"": big.NewRat(1, 1), "m": big.NewRat(1, 1000), "u": big.NewRat(1, 1_000_000), "k": big.NewRat(1000, 1),
		"n": big.NewRat(1, 1_000_000_000), "M": big.NewRat(1_000_000, 1), "Ki": big.NewRat(1024, 1), "Mi": big.NewRat(1<<20, 1)}
	names := []string{"", "m", "u", "n", "k", "M", "Ki", "Mi"}
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		number := fmt.Sprintf("%d.%0*d", r.IntN(100_000), 1+r.IntN(9), r.IntN(10))
		name := names[r.IntN(len(names))]
		exact, _ := new(big.Rat).SetString(number)
		exact.Mul(exact, suffixes[name]).Mul(exact, big.NewRat(1000, 1))
		floor := new(big.Int).Quo(exact.Num(), exact.Denom())
		ceil := new(big.Int).Set(floor)
		if !exact.IsInt() {
			ceil.Add(ceil, big.NewInt(1))
		}
		up, err := Parse(number+name, Up)
		down, err2 := Parse(number+name, Down)
		if err != nil || err2 != nil || up != ceil.Int64() || down != floor.Int64() {
			rt.Fatalf("%s%s: %d and %d (%v, %v), want %s and %s", number, name, up, down, err, err2, ceil, floor)
		}
	})
}

// ENG-3.1, WIRE-14.1: names that occur twice add up, what has no name or is not positive is not there; what nobody knows is said.
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
		t.Errorf("with a resource that nobody has: %v, known %v", more.Quantities(table), known)
	}
	v.Release(table)
	if table.Live() != 1 { // the empty name
		t.Errorf("%d names are left", table.Live())
	}
}

// FuzzParse: no text panics, and up is never below down.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1.5Gi", "1e309", "-1", "9223372036854775807", "0.000000000000000001", "1e-999999999", "99999999999999999999999Ei"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		up, err := Parse(s, Up)
		down, err2 := Parse(s, Down)
		if (err == nil) != (err2 == nil) || err == nil && (up < down || up-down > 1 && up != math.MaxInt64) {
			t.Fatalf("%q: %d up (%v), %d down (%v)", s, up, err, down, err2)
		}
	})
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
