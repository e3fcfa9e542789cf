package output

import "testing"

// A price stays legible however small it is: what is printed is within half a percent.
func TestDollars(t *testing.T) {
	for v, want := range map[float64]string{0: "$0.00/h", 0.2: "$0.20/h", 1234.567: "$1234.57/h", 0.0368: "$0.0368/h", 0.0104: "$0.0104/h", 0.000045: "$0.000045/h", 0.01: "$0.01/h", 1.466: "$1.47/h"} {
		if got := Dollars(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
