package rebalance

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

var suffixes = map[string]struct {
	base int64
	exp  int
}{
	"n": {10, -9}, "u": {10, -6}, "m": {10, -3}, "": {10, 0}, "k": {10, 3}, "M": {10, 6}, "G": {10, 9}, "T": {10, 12}, "P": {10, 15}, "E": {10, 18},
	"Ki": {2, 10}, "Mi": {2, 20}, "Gi": {2, 30}, "Ti": {2, 40}, "Pi": {2, 50}, "Ei": {2, 60},
}

// parseMilli reads a Kubernetes quantity as thousandths, rounded up, saturated at the ends of int64. What does not parse
// is reported.
func parseMilli(s string) (int64, bool) {
	number, suffix := s, ""
	if i := strings.IndexFunc(s, func(r rune) bool { return r >= 'A' && r <= 'z' }); i >= 0 {
		number, suffix = s[:i], s[i:]
	}
	value, ok := new(big.Rat).SetString(number)
	if !ok || number == "" || strings.ContainsAny(number, "/_") {
		return 0, false
	}
	scale, ok := suffixes[suffix]
	if !ok {
		if suffix == "" || suffix[0] != 'e' && suffix[0] != 'E' {
			return 0, false
		}
		exp, err := strconv.Atoi(suffix[1:])
		if err != nil || exp < -64 || exp > 64 { // beyond this everything is zero or saturated
			return 0, false
		}
		scale.base, scale.exp = 10, exp
	}
	factor := new(big.Int).Exp(big.NewInt(scale.base), big.NewInt(int64(max(scale.exp, -scale.exp))), nil)
	if scale.exp < 0 {
		value.Quo(value, new(big.Rat).SetInt(factor))
	} else {
		value.Mul(value, new(big.Rat).SetInt(factor))
	}
	value.Mul(value, big.NewRat(1000, 1))
	out := new(big.Int)
	rest := new(big.Int)
	out.DivMod(value.Num(), value.Denom(), rest)
	if rest.Sign() > 0 {
		out.Add(out, big.NewInt(1))
	}
	if !out.IsInt64() {
		if out.Sign() > 0 {
			return math.MaxInt64, true
		}
		return math.MinInt64, true
	}
	return out.Int64(), true
}

// formatMilli writes thousandths as a quantity.
func formatMilli(n int64) string {
	if n%1000 == 0 {
		return strconv.FormatInt(n/1000, 10)
	}
	return strconv.FormatInt(n, 10) + "m"
}
