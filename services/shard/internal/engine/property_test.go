package engine

import (
	"errors"
	"testing"
)

// ENG-P1 to P10 and P15 on random fleets.
func TestInvariants(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		return invariants(w, f.policy, Plan(Input{World: w, Policy: f.policy}))
	})
}

// ENG-23.8, ENG-P11: the engine gives the bytes of the literal one, whatever it passes over or remembers on the way (ENG-15.15).
func TestEngineEqualsNaive(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		in := Input{World: w, Policy: f.policy}
		fast, slow := Plan(in), planNaively(in)
		if d := difference(render(w, slow), render(w, fast)); d != "" {
			return errors.New("- naive, + engine\n" + d)
		}
		return nil
	})
}
