package quantity

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	signBytesMax    = 64
	signExponentMax = 60

	// signSuffixes are the unit letters of the wire pattern (WIRE-3.11).
	signSuffixes = " n u m k M G T P E Ki Mi Gi Ti Pi Ei "
)

// Sign returns -1, 0 or 1 for a quantity, or an error that says what is wrong with it. It accepts less than Parse: at most 64
// bytes, and exponents within ±60. What it accepts, Kubernetes accepts with the same sign.
func Sign(text string) (int, error) {
	if len(text) > signBytesMax {
		return 0, fmt.Errorf("quantity %.16q… has more than %d bytes", text, signBytesMax)
	}
	rest, sign := text, 1
	switch {
	case strings.HasPrefix(rest, "-"):
		rest, sign = rest[1:], -1
	case strings.HasPrefix(rest, "+"):
		rest = rest[1:]
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(rest)
	}
	number, suffix := rest[:end], rest[end:]
	if strings.Count(number, ".") > 1 || strings.Trim(number, ".") == "" {
		return 0, fmt.Errorf("quantity %q does not begin with a number", text)
	}
	if err := checkSuffix(suffix); err != nil {
		return 0, fmt.Errorf("quantity %q: %w", text, err)
	}
	if strings.Trim(number, "0.") == "" {
		return 0, nil
	}
	return sign, nil
}

func checkSuffix(s string) error {
	if s == "" || !strings.Contains(s, " ") && strings.Contains(signSuffixes, " "+s+" ") {
		return nil
	}
	if s[0] == 'e' || s[0] == 'E' {
		n, err := strconv.Atoi(s[1:])
		if err != nil || n < -signExponentMax || n > signExponentMax {
			return fmt.Errorf("exponent %q is not a whole number within ±%d", s[1:], signExponentMax)
		}
		return nil
	}
	return fmt.Errorf("unknown suffix %q", s)
}
