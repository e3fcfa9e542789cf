package cover

import (
	"cmp"
	"math"
	"math/bits"
)

// Sum is a sum or difference of products that never overflows and is never negative.
type Sum struct{ Hi, Lo uint64 }

// Add adds a × n.
func (s *Sum) Add(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var carry uint64
	s.Lo, carry = bits.Add64(s.Lo, lo, 0)
	s.Hi += hi + carry
}

// Sub takes off a × n, which is no more than there is.
func (s *Sum) Sub(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var borrow uint64
	s.Lo, borrow = bits.Sub64(s.Lo, lo, 0)
	s.Hi -= hi + borrow
}

// Compare orders sums.
func (s Sum) Compare(t Sum) int {
	return cmp.Or(cmp.Compare(s.Hi, t.Hi), cmp.Compare(s.Lo, t.Lo))
}

// AtLeast reports whether the sum is x or more.
func (s Sum) AtLeast(x uint64) bool { return s.Hi > 0 || s.Lo >= x }

// div is s ÷ d, at most the largest uint64.
func (s Sum) div(d uint64) uint64 {
	if s.Hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(s.Hi, s.Lo, d)
	return q
}
