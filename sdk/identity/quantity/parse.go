package quantity

import (
	"errors"
	"fmt"
	"math"
	"math/big"
)

// Rounding says how fractions of a milli-unit are rounded.
type Rounding bool

const (
	// Up is for demand and Down for supply, so that rounding never makes demand look covered (ENG-3.2).
	Up   Rounding = true
	Down Rounding = false
)

var (
	// ErrSyntax says that the text is not a Kubernetes quantity.
	ErrSyntax = errors.New("not a quantity")
	// ErrRange says that the amount does not fit 63 bits of milli-units.
	ErrRange = errors.New("quantity out of range")
)

// TextMax is how long the text of a quantity may be. Those that Kubernetes stores have 30 characters at most, and converting digits takes time that
// grows with the square of their number.
const TextMax = 128

// exponentMax bounds decimal exponents: 10^64 is far beyond what fits and cheap to compute with.
const exponentMax = 64

// Parse reads a Kubernetes quantity ("1500m", "2Gi", "1e3", ".5") exactly and returns milli-units. It accepts what
// apimachinery accepts, up to TextMax, but never rounds to nano-units on the way. Negative amounts are returned as they are. An amount
// that does not fit returns ErrRange and the nearest amount that does.
func Parse(text string, r Rounding) (milli int64, err error) {
	if len(text) > TextMax {
		return 0, fmt.Errorf("%w: it has %d characters, and at most %d are read", ErrSyntax, len(text), TextMax)
	}
	neg, digits, fraction, rest, err := split(text)
	if err != nil {
		return 0, err
	}
	two, ten, err := suffix(rest)
	if err != nil {
		return 0, err
	}
	ten += 3 - fraction // milli-units, and the digits behind the point
	if v, ok := parseSmall(digits, two, ten); ok {
		if neg {
			v = -v
		}
		return v, nil
	}
	return parseBig(neg, digits, two, ten, r)
}

// split separates sign, digits and suffix. digits has no point; fraction is the number of digits after it.
func split(text string) (neg bool, digits []byte, fraction int, rest string, err error) {
	i := 0
	if i < len(text) && (text[i] == '+' || text[i] == '-') {
		neg = text[i] == '-'
		i++
	}
	digits = make([]byte, 0, 24)
	point := false
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			digits = append(digits, c)
			if point {
				fraction++
			}
			continue
		case c == '.' && !point:
			point = true
			continue
		}
		break
	}
	if len(digits) == 0 {
		return false, nil, 0, "", ErrSyntax
	}
	return neg, digits, fraction, text[i:], nil
}

// suffix returns the power of two and the power of ten that a suffix stands for.
func suffix(s string) (two, ten int, err error) {
	switch s {
	case "":
		return 0, 0, nil
	case "n":
		return 0, -9, nil
	case "u":
		return 0, -6, nil
	case "m":
		return 0, -3, nil
	case "k":
		return 0, 3, nil
	case "M":
		return 0, 6, nil
	case "G":
		return 0, 9, nil
	case "T":
		return 0, 12, nil
	case "P":
		return 0, 15, nil
	case "E":
		return 0, 18, nil
	case "Ki":
		return 10, 0, nil
	case "Mi":
		return 20, 0, nil
	case "Gi":
		return 30, 0, nil
	case "Ti":
		return 40, 0, nil
	case "Pi":
		return 50, 0, nil
	case "Ei":
		return 60, 0, nil
	}
	if s[0] != 'e' && s[0] != 'E' {
		return 0, 0, ErrSyntax
	}
	ten, err = exponent(s[1:])
	return 0, ten, err
}

// exponent reads a signed decimal exponent and clips it to where the result is certainly 0 or out of range.
func exponent(s string) (int, error) {
	neg := false
	if s != "" && (s[0] == '+' || s[0] == '-') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if s == "" {
		return 0, ErrSyntax
	}
	e := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, ErrSyntax
		}
		e = min(e*10+int(s[i]-'0'), 1<<20)
	}
	if neg {
		e = -e
	}
	return e, nil
}

// parseSmall computes digits * 2^two * 10^ten if everything fits an int64 without rounding.
func parseSmall(digits []byte, two, ten int) (int64, bool) {
	if len(digits) > 18 || ten < 0 || ten > 18 {
		return 0, false
	}
	v := int64(0)
	for _, c := range digits {
		v = v*10 + int64(c-'0')
	}
	factor := int64(1)
	for range ten {
		factor *= 10
	}
	if v > math.MaxInt64/factor {
		return 0, false
	}
	v *= factor
	if v > math.MaxInt64>>two {
		return 0, false
	}
	return v << two, true
}

// parseBig is parseSmall for every size, with rounding.
func parseBig(neg bool, digits []byte, two, ten int, r Rounding) (int64, error) {
	v, _ := new(big.Int).SetString(string(digits), 10)
	if v.Sign() == 0 {
		return 0, nil
	}
	// 10^len(digits) bounds v, so beyond these exponents the answer does not need the digits.
	if ten > exponentMax {
		return saturated(neg), ErrRange
	}
	v.Lsh(v, uint(two))
	if low := -(len(digits) + exponentMax); ten < low {
		ten = low
	}
	if ten >= 0 {
		v.Mul(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(ten)), nil))
	} else {
		rest := new(big.Int)
		v.QuoRem(v, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-ten)), nil), rest)
		if rest.Sign() != 0 && (r == Up) != neg {
			v.Add(v, big.NewInt(1))
		}
	}
	if !v.IsInt64() {
		return saturated(neg), ErrRange
	}
	if neg {
		return -v.Int64(), nil
	}
	return v.Int64(), nil
}

func saturated(neg bool) int64 {
	if neg {
		return math.MinInt64
	}
	return math.MaxInt64
}
