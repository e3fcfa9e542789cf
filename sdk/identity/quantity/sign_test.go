package quantity

import (
	"strings"
	"testing"
)

// PROV-9.8, WIRE-3.11.
func TestSign(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "1": 1, "-1": -1, "+1": 1, "0.0": 0, "-0": 0, ".5": 1, "5.": 1, "1500m": 1, "4Gi": 1, "1e3": 1, "1E3": 1, "1E": 1,
		"1e-3": 1, "0e9": 0, "-2k": -1, "1n": 1, "0Ki": 0, "1.5Gi": 1, "12345678901234567890": 1, "1e+2": 1,
	} {
		if got, err := Sign(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "-", "+", ".", "x", "1x", "1 ", " 1", "1 Ki", "1K", "1mi", "1..2", "1.2.3", "1e", "1e1.5", "1e999", "1KiKi", "--1", "1-", "Ki",
		"0x10", "1e99999999999999999999", "NaN", "١", strings.Repeat("1", 65),
	} {
		if got, err := Sign(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}
