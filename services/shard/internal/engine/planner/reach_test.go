package planner_test

import (
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// A law says something only about what the random fleets have: among some thousands of them each rule decides something. Seeds are
// given, so that this stands or falls with the generator alone (ENG-26.2, ENG-23.8).
func TestRandomFleetsReachEveryRule(t *testing.T) {
	seen := map[string]int{}
	for _, theme := range themes {
		for seed := range uint64(420) {
			f := drawFleet(rand.New(rand.NewPCG(seed, 1)), shapes[theme])
			w := f.build(straight)
			r := planner.Plan(engine.Input{World: w, Policy: f.policy})
			f.reached(w, r, func(what string, n int) { seen[what] += n })
		}
	}
	want := []string{"takeover", "fold of several", "gang", "kept elsewhere", "spread met", "share", "displaced", "exchange", "guarded",
		"grace 10s", "grace 30s", "grace 2m", "grace 10m", "on the way NODE_NOT_JOINED", "member of a fold short"}
	for _, name := range []func(i uint8) string{func(i uint8) string { return engine.Detail(i).String() }, func(i uint8) string { return engine.Cause(i).String() },
		func(i uint8) string { return engine.KeepReason(i).String() }, func(i uint8) string { return engine.UnmetReason(i).String() }} {
		for i := uint8(1); name(i) != "UNKNOWN"; i++ {
			if name(i) != engine.CauseMoved.String() && name(i) != engine.CauseDrained.String() { // which no plan gives (ENG-19.9)
				want = append(want, name(i))
			}
		}
	}
	for _, what := range want {
		if seen[what] < 3 {
			t.Errorf("%q is there %d times in %d random fleets", what, seen[what], 420*len(themes))
		}
	}
}

var graceNames = map[int32]string{10: "grace 10s", 30: "grace 30s", 120: "grace 2m", 600: "grace 10m"}

// reached names what a plan had to do with.
func (f *fleet) reached(w *engine.World, r *engine.Result, note func(what string, n int)) {
	for _, a := range r.Actions {
		note(a.Cause.String(), 1)
	}
	for _, d := range r.Drains {
		note(graceNames[int32(d.Grace)], 1)
	}
	note("takeover", len(r.Promised))
	note("displaced", r.Counters.Displaced)
	note("exchange", int(min(1, r.Counters.ExchangeSaved)))
	for i := range w.Inventory.All() {
		note(r.Keep(w, f.policy, i).Reason.String(), 1)
	}
	for _, b := range r.Blocks {
		note("share", len(b.Shares))
		note("guarded", len(b.Protected))
		for _, fold := range b.Folded {
			note("fold of several", min(1, len(fold.Members)-1))
		}
		for _, c := range b.Claims {
			if c.Kind == engine.ClaimKept {
				note("kept elsewhere", 1)
			}
		}
		for i := range b.Verdicts {
			v, n := &b.Verdicts[i], &b.Needs[i]
			note(v.Detail.String(), 1)
			note(v.Reason.String(), 1)
			switch {
			case v.Fold >= 0 && v.Status == engine.Short:
				note("member of a fold short", 1)
			case v.Status == engine.OnTheWay && v.Detail == engine.DetailNodeNotJoined:
				note("on the way "+v.Detail.String(), 1)
			case v.Status != engine.Short && n.Form.Same != nil:
				note("gang", 1)
			case v.Status != engine.Short && len(n.Form.Spread) > 0:
				note("spread met", 1)
			}
		}
	}
}
