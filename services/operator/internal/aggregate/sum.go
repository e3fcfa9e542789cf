package aggregate

import (
	"math"
	"math/big"
	"math/bits"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
)

// sum is an unsigned 128 bit count of milli-units. A row of 10,000 requests of 1 TiB does not fit into 64 bits.
type sum struct{ hi, lo uint64 }

func (s *sum) add(milli int64) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, uint64(milli), 0)
	s.hi += carry
}

func (s *sum) plus(other sum) {
	var carry uint64
	s.lo, carry = bits.Add64(s.lo, other.lo, 0)
	s.hi += other.hi + carry
}

func (s *sum) sub(milli int64) {
	var borrow uint64
	s.lo, borrow = bits.Sub64(s.lo, uint64(milli), 0)
	s.hi -= borrow
}

func (s sum) text(resource string) string {
	if s.hi == 0 && s.lo <= math.MaxInt64 {
		return quantity.Format(resource, int64(s.lo))
	}
	v := new(big.Int).SetUint64(s.hi)
	return quantity.FormatBig(resource, v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(s.lo)))
}
