package planner_test

import (
	"errors"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// ENG-P1 to P10 and P15 on random fleets.
func TestInvariants(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		return invariants(w, f.policy, planner.Plan(engine.Input{World: w, Policy: f.policy}))
	})
}

// ENG-23.8, ENG-P11: the engine gives the bytes of the literal one, whatever it passes over or remembers on the way (ENG-15.15).
func TestEngineEqualsNaive(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		in := engine.Input{World: w, Policy: f.policy}
		fast, slow := planner.Plan(in), reference.Plan(in)
		if d := difference(render(w, slow), render(w, fast)); d != "" {
			return errors.New("- naive, + engine\n" + d)
		}
		return nil
	})
}
