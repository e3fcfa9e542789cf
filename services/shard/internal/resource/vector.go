// Package resource holds amounts of capacity: quantities as people write them, and integer vectors as the engine
// computes with them.
//
// A Quantity is one named amount in milli-units (one cpu is 1000, one byte of memory is 1000). A Vector is a list of
// positive amounts by dimension, where a dimension is a number that a symbol.Table gave to the name (ENG-3.1). A
// dimension that is missing is zero; no amount is ever negative; every sum saturates at the largest int64, so no input
// can overflow (ENG-3.2, ENG-3.3). Money, probabilities and penalties are not resources and live with their owners.
//
// Vectors are values: no operation changes its operands. They hold numbers of one table only, and stay valid as long as
// their owner counts the dimensions (Retain, Release). Results never depend on the numbering.
//
// Start at Vector; Parse reads the text form.
package resource

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Quantity is one named amount, in milli-units.
type Quantity struct {
	Name  string `n:"1"`
	Milli int64  `n:"2"`
}

// Dim is the number of a dimension.
type Dim = symbol.ID

// inline is how many amounts a Vector holds without a second piece of memory: cpu, memory, pods and one device.
const inline = 4

// Vector is a list of positive amounts, sorted by dimension. The zero value is the empty vector.
type Vector struct {
	n    int32
	dims [inline]Dim
	vals [inline]int64
	more *[]amount // beyond the first four, sorted; never changed once shared
}

type amount struct {
	dim Dim
	val int64
}

// Intern builds the vector of a list of quantities and adds one user to each of its dimensions. Names that occur twice
// are added up. Empty names and amounts that are not positive are left out (WIRE-14.1).
func Intern(t *symbol.Table, list []Quantity) (v Vector) {
	var buf [8]amount
	all := buf[:0]
	for _, q := range list {
		if q.Milli > 0 && q.Name != "" {
			all = append(all, amount{t.Intern(q.Name), q.Milli})
		}
	}
	slices.SortFunc(all, func(a, b amount) int { return cmp.Compare(a.dim, b.dim) })
	for i := 0; i < len(all); {
		sum, same := all[i].val, i+1
		for ; same < len(all) && all[same].dim == all[i].dim; same++ {
			t.Release(all[i].dim)
			sum = AddSat(sum, all[same].val)
		}
		v.push(all[i].dim, sum)
		i = same
	}
	return v
}

// Find builds the vector of a list without adding users, for questions about vectors that exist. known is false if a
// positive amount is in a dimension without users; that dimension is then missing.
func Find(t *symbol.Table, list []Quantity) (v Vector, known bool) {
	known = true
	for _, q := range list {
		if q.Milli <= 0 || q.Name == "" {
			continue
		}
		d, ok := t.Find(q.Name)
		if !ok {
			known = false
			continue
		}
		v = v.With(d, AddSat(v.Get(d), q.Milli))
	}
	return v, known
}

// Retain adds one user to each dimension of v.
func (v *Vector) Retain(t *symbol.Table) {
	for i := range v.Len() {
		t.Retain(v.Dim(i))
	}
}

// Release removes one user from each dimension of v.
func (v *Vector) Release(t *symbol.Table) {
	for i := range v.Len() {
		t.Release(v.Dim(i))
	}
}

// Quantities lists v by name, ascending.
func (v *Vector) Quantities(t *symbol.Table) []Quantity {
	out := make([]Quantity, 0, v.Len())
	for i := range v.Len() {
		out = append(out, Quantity{t.Text(v.Dim(i)), v.Val(i)})
	}
	slices.SortFunc(out, func(a, b Quantity) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Len is the number of positive amounts.
func (v *Vector) Len() int { return int(v.n) }

// Dim returns the dimension of the i-th amount.
func (v *Vector) Dim(i int) Dim {
	if i < inline {
		return v.dims[i]
	}
	return (*v.more)[i-inline].dim
}

// Val returns the i-th amount.
func (v *Vector) Val(i int) int64 {
	if i < inline {
		return v.vals[i]
	}
	return (*v.more)[i-inline].val
}

// IsZero reports whether no dimension is positive.
func (v *Vector) IsZero() bool { return v.n == 0 }

// Get returns the amount of one dimension.
func (v *Vector) Get(d Dim) int64 {
	for i := range v.Len() {
		if v.Dim(i) == d {
			return v.Val(i)
		}
	}
	return 0
}

// With returns v with the amount of one dimension replaced; an amount that is not positive takes it away.
func (v Vector) With(d Dim, val int64) Vector {
	if v.n < inline && (v.n == 0 || v.dims[v.n-1] < d) { // v is a copy without memory that others see
		v.push(d, val)
		return v
	}
	var w Vector
	done := val <= 0
	for i := range v.Len() {
		at := v.Dim(i)
		if !done && d < at {
			w.push(d, val)
			done = true
		}
		if at == d {
			if !done {
				w.push(d, val)
				done = true
			}
			continue
		}
		w.push(at, v.Val(i))
	}
	if !done {
		w.push(d, val)
	}
	return w
}

// push appends an amount; dimensions must come in ascending order. Amounts that are not positive are left out.
func (v *Vector) push(d Dim, val int64) {
	if val <= 0 {
		return
	}
	if v.n < inline {
		v.dims[v.n], v.vals[v.n] = d, val
	} else {
		if v.more == nil {
			v.more = new([]amount)
		}
		*v.more = append(*v.more, amount{d, val})
	}
	v.n++
}

// Equal reports whether two vectors have the same amounts.
func (v *Vector) Equal(w *Vector) bool {
	return v.n == w.n && v.dims == w.dims && v.vals == w.vals && (v.n <= inline || slices.Equal(*v.more, *w.more))
}

// merge walks both vectors by dimension and keeps what f makes of each pair of amounts.
func merge(v, w *Vector, f func(a, b int64) int64) Vector {
	var out Vector
	i, j := 0, 0
	for i < v.Len() || j < w.Len() {
		switch {
		case j == w.Len() || i < v.Len() && v.Dim(i) < w.Dim(j):
			out.push(v.Dim(i), f(v.Val(i), 0))
			i++
		case i == v.Len() || w.Dim(j) < v.Dim(i):
			out.push(w.Dim(j), f(0, w.Val(j)))
			j++
		default:
			out.push(v.Dim(i), f(v.Val(i), w.Val(j)))
			i, j = i+1, j+1
		}
	}
	return out
}

// Add returns v + w, saturating.
func (v Vector) Add(w Vector) Vector { return merge(&v, &w, AddSat) }

// Sub returns v - w, not below 0 in any dimension (ENG-3.3).
func (v Vector) Sub(w Vector) Vector {
	return merge(&v, &w, func(a, b int64) int64 { return max(a-b, 0) })
}

// Max returns the larger amount of each dimension.
func (v Vector) Max(w Vector) Vector {
	return merge(&v, &w, func(a, b int64) int64 { return max(a, b) })
}

// Min returns the smaller amount of each dimension.
func (v Vector) Min(w Vector) Vector {
	return merge(&v, &w, func(a, b int64) int64 { return min(a, b) })
}

// Times returns k times v, saturating. k is not negative.
func (v Vector) Times(k int64) Vector {
	var out Vector
	for i := range v.Len() {
		out.push(v.Dim(i), MulSat(v.Val(i), k))
	}
	return out
}

// Covers reports whether v has at least what want wants, in each dimension where want is positive (ENG-3.3).
func (v *Vector) Covers(want *Vector) bool {
	for i := range want.Len() {
		if v.Get(want.Dim(i)) < want.Val(i) {
			return false
		}
	}
	return true
}

// Touches reports whether v has a positive amount in some dimension where w has one (ENG-6.4).
func (v *Vector) Touches(w *Vector) bool {
	for i := range w.Len() {
		if v.Get(w.Dim(i)) > 0 {
			return true
		}
	}
	return false
}

// AddSat returns a + b for amounts that are not negative, at most the largest int64.
func AddSat(a, b int64) int64 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxInt64
}

// MulSat returns a * b for numbers that are not negative, at most the largest int64.
func MulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// AppendKey appends bytes that are equal exactly for equal vectors, in the numbering of one table.
func (v *Vector) AppendKey(b []byte) []byte {
	b = append(b, byte(v.n), byte(v.n>>8))
	for i := range v.Len() {
		d, x := v.Dim(i), uint64(v.Val(i))
		b = append(b, byte(d), byte(d>>8), byte(d>>16), byte(d>>24),
			byte(x), byte(x>>8), byte(x>>16), byte(x>>24), byte(x>>32), byte(x>>40), byte(x>>48), byte(x>>56))
	}
	return b
}
