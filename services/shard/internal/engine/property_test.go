package engine

import (
	"testing"

	"pgregory.net/rapid"
)

// ENG-P1 to P10 and P15 on random fleets.
func TestInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t, shape{clusters: 3, rows: 5, machines: 14})
		w := f.build(straight)
		r := Plan(Input{World: w, Policy: f.policy})
		if err := invariants(w, f.policy, r); err != nil {
			t.Fatalf("%v\n%s", err, render(w, r))
		}
	})
}
