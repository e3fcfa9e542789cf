// Package quantity checks the text form of Kubernetes quantities without Kubernetes.
//
// A provider emits quantities and compares their signs; it never computes with them. So this package answers two things:
// does the text parse, and is it below, at or above zero. It follows the wire pattern of docs/spec/wire.md (WIRE-3.11) and
// is stricter than the Kubernetes parser in two ways: exponents are whole and within ±60, and a text has at most 64
// bytes. What it accepts, Kubernetes accepts with the same sign; a test in e2e compares the two on random input.
package quantity

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	bytesMax    = 64
	exponentMax = 60
)

// suffixes are the unit letters of the wire pattern.
const suffixes = " n u m k M G T P E Ki Mi Gi Ti Pi Ei "

// Sign returns -1, 0 or 1 for a quantity, or an error that says what is wrong with it.
func Sign(text string) (int, error) {
	if len(text) > bytesMax {
		return 0, fmt.Errorf("quantity %.16q… has more than %d bytes", text, bytesMax)
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
	if s == "" || !strings.Contains(s, " ") && strings.Contains(suffixes, " "+s+" ") {
		return nil
	}
	if s[0] == 'e' || s[0] == 'E' {
		n, err := strconv.Atoi(s[1:])
		if err != nil || n < -exponentMax || n > exponentMax {
			return fmt.Errorf("exponent %q is not a whole number within ±%d", s[1:], exponentMax)
		}
		return nil
	}
	return fmt.Errorf("unknown suffix %q", s)
}
