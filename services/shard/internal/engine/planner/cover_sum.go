package planner

import (
	"cmp"
	"math"
	"math/bits"
)

// sum128 is a sum or difference of products that never overflows and is never negative.
type sum128 struct{ hi, lo uint64 }

func (s *sum128) add(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, lo, 0)
	s.hi += hi + carry
}

func (s *sum128) sub(a, n uint64) {
	hi, lo := bits.Mul64(a, n)
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, lo, 0)
	s.hi -= hi + borrow
}

func (s sum128) compare(t sum128) int {
	return cmp.Or(cmp.Compare(s.hi, t.hi), cmp.Compare(s.lo, t.lo))
}

func (s sum128) atLeast(x uint64) bool { return s.hi > 0 || s.lo >= x }

// div is s ÷ d, at most the largest uint64.
func (s sum128) div(d uint64) uint64 {
	if s.hi >= d {
		return math.MaxUint64
	}
	q, _ := bits.Div64(s.hi, s.lo, d)
	return q
}
