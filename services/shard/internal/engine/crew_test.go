package engine

import (
	"errors"
	"fmt"
	"testing"
)

// ENG-14.1, ENG-14.7, ENG-P11: 1, 2, 3, 16 and 64 workers give the bytes of one, from nothing and following a history.
func TestWorkersDoNotShow(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		policy := *f.policy
		policy.Workers = 1
		want := render(w, Plan(Input{World: w, Policy: &policy}))
		for _, n := range []int{2, 3, 16, 64} {
			crowd := *f.policy
			crowd.Workers, crowd.ParallelMin = n, 1
			pl := NewPlanner()
			for range 2 { // the second plan remembers the first
				if d := difference(want, render(w, pl.Plan(Input{World: w, Policy: &crowd}))); d != "" {
					return errors.New(fmt.Sprint("- one worker, + ", n, "\n", d))
				}
			}
		}
		return nil
	})
}
