package aggregate

import (
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"
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

// countsBytes says that a resource counts bytes, so that its amounts read best with binary suffixes.
func countsBytes(name string) bool {
	return name == "memory" || name == "storage" || name == "ephemeral-storage" || strings.HasPrefix(name, "hugepages-")
}

func (s sum) text(name string) string {
	if s.hi == 0 && s.lo <= math.MaxInt64 {
		return quantityText(name, int64(s.lo))
	}
	v := new(big.Int).SetUint64(s.hi)
	v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(s.lo))
	units, rest := new(big.Int).QuoRem(v, big.NewInt(1000), new(big.Int))
	if rest.Sign() != 0 {
		return v.String() + "m"
	}
	return units.String()
}

// quantityText writes thousandths as the shortest exact quantity of the kind people use for the resource.
func quantityText(name string, milli int64) string {
	if milli%1000 != 0 {
		return strconv.FormatInt(milli, 10) + "m"
	}
	units := milli / 1000
	if countsBytes(name) && units != 0 {
		const suffixes = "KMGTPE"
		if n := min(bits.TrailingZeros64(uint64(units))/10, len(suffixes)); n > 0 {
			return strconv.FormatInt(units>>(10*n), 10) + suffixes[n-1:n] + "i"
		}
	}
	return strconv.FormatInt(units, 10)
}
