package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// ENG-12.11: whichever group of Needs has its turn, the engine gives the bytes of the literal one, with and without the memory of the plans before.
func TestPostponedNeedsEqualNaive(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		for _, looks := range []int64{1, 4} {
			f.policy = engine.DefaultPolicy()
			f.policy.DomainLooks = looks
			w := f.build(straight)
			warm := planner.NewPlanner()
			for cycle := range int64(5) {
				in := engine.Input{World: w, Policy: f.policy, Cycle: cycle}
				if err := sameAnswers(w, warm.Plan(in), planner.Plan(in), reference.Plan(in)); err != nil {
					return errors.Join(fmt.Errorf("%d looks, cycle %d", looks, cycle), err)
				}
			}
		}
		return nil
	})
}

// ENG-12.11, ENG-21.1: the same after each step of a random history.
func TestPostponedNeedsEqualNaiveInAHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 8))
		sh := shapes[rapid.SampledFrom(themes).Draw(rt, "theme")]
		f := drawFleet(r, sh)
		f.policy.DomainLooks = 1 + r.Int64N(6)
		w := f.build(straight)
		inc := planner.NewPlanner()
		for step := range 8 {
			if err := f.goOn(r, sh, w, inc, step, r.IntN(3)); err != nil {
				rt.Fatalf("%d looks, step %d: %v", f.policy.DomainLooks, step, err)
			}
		}
	})
}

// ENG-12.11: a plan looks at a bounded number of domains for a cluster, the others are served by the plans that follow, and no other cluster waits.
func TestOnePlanLooksAtFewDomains(t *testing.T) {
	const racks, rows = 10, 28
	for _, form := range []string{"spread=rack:1", "same=rack"} {
		s := newStage()
		var lines strings.Builder
		for d := range racks {
			fmt.Fprintf(&lines, "machines m%[1]d-1..m%[1]d-%[2]d cpu=64 label.rack=r%[1]d speculative\n", d, rows)
		}
		for i := range rows {
			fmt.Fprintf(&lines, "need red/row%d cpu=%d unit=cpu:%d %s\n", i, 2*(33+i), 33+i, form)
		}
		lines.WriteString("need blue/web cpu=2 unit=cpu:1 spread=rack:1\n")
		s.lines(lines.String())
		s.engines = append(s.engines, reference.Plan)
		s.policy = engine.DefaultPolicy()
		s.policy.DomainLooks = 4 * racks
		s.step(t)
		if got := s.last.Counters.Postponed; got != rows-4 {
			t.Errorf("%s: %d Needs are postponed, want %d", form, got, rows-4)
		}
		for _, ref := range s.last.Short {
			n, cluster := s.last.Need(ref)
			if v := s.last.Blocks[ref.Block].Verdicts[ref.Row]; cluster != "red" || v.Detail != engine.DetailPostponed {
				t.Errorf("%s: %s of %s is short: %s", form, n.RowID, cluster, v.Detail)
			}
		}
		for range rows/4 - 1 {
			s.step(t)
		}
		if n := len(s.last.Short); n > 0 {
			t.Errorf("%s: %d Needs are short after as many plans as there are groups", form, n)
		}
	}
}
