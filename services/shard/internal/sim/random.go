package sim

import "math/bits"

// random is a small generator (wyrand). It is spelled out here so that a seed means the same run under every release of
// Go.
type random struct{ state uint64 }

// newRandom makes the generator of one part of one run.
func newRandom(seed uint64, part string) *random {
	h := uint64(14695981039346656037)
	for i := range len(part) {
		h = (h ^ uint64(part[i])) * 1099511628211
	}
	r := &random{state: seed*0x9E3779B97F4A7C15 ^ h}
	r.next()
	return r
}

func (r *random) next() uint64 {
	r.state += 0xa0761d6478bd642f
	hi, lo := bits.Mul64(r.state, r.state^0xe7037ed1a0b428db)
	return hi ^ lo
}

// float is uniform in [0, 1).
func (r *random) float() float64 { return float64(r.next()>>11) / (1 << 53) }

// chance is true with probability p.
func (r *random) chance(p float64) bool { return r.float() < p }

// intn is uniform in [0, n).
func (r *random) intn(n int) int {
	if n <= 0 {
		return 0
	}
	hi, _ := bits.Mul64(r.next(), uint64(n))
	return int(hi)
}

// between is uniform in [lo, hi].
func (r *random) between(lo, hi int64) int64 {
	if hi <= lo {
		return lo
	}
	h, _ := bits.Mul64(r.next(), uint64(hi-lo+1))
	return lo + int64(h)
}

// spread is between lo and hi with all orders of magnitude alike: most draws are short and a few are very long.
func (r *random) spread(lo, hi int64) int64 {
	steps := 0
	for v := max(lo, 1); v < hi; v *= 2 {
		steps++
	}
	top := max(lo, 1)
	for range r.intn(steps + 1) {
		top *= 2
	}
	return r.between(lo, min(top, hi))
}

// pick takes one of a list.
func pick[T any](r *random, list []T) T { return list[r.intn(len(list))] }
