package planner_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// ENG-2.12: no plan of a random fleet is stopped by the audit that production makes of each.
func TestAuditPassesPlans(t *testing.T) {
	var x engine.Audit
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		if why := x.Broken(w, f.policy, planner.Plan(engine.Input{World: w, Policy: f.policy})); why != "" {
			return errors.New(why)
		}
		return nil
	})
}

// ENG-2.12, ENG-P5, ENG-P6, ENG-P7, ENG-P8, ENG-P10: what must never be carried out is named, and nothing of it sticks.
func TestAuditStopsWhatIsBroken(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4 priority=5
		need blue/high cpu=8 unit=cpu:4 priority=9 in=type:big
		cluster green silent
		machine excess configured=red cpu=4 price=9
		machine mine configured=red for=web cpu=4 price=1
		machine big configured=red for=web type=big cpu=4 price=1
		machine silent configured=green cpu=4
		machine idle idle reserved cpu=4
		machine fresh idle on-demand cpu=4 since=0
		machine promised idle promised=red/web cpu=4
		machine slot speculative type=big cpu=4 price=1`)
	good := planner.Plan(engine.Input{World: s.w})
	var x engine.Audit
	if why := x.Broken(s.w, nil, good); why != "" || len(good.Actions) == 0 {
		t.Fatalf("%d actions: %s", len(good.Actions), why)
	}
	_, blue := good.Block("blue")
	_, red := good.Block("red")
	at := s.index
	for want, a := range map[string]engine.Action{
		"a second action (P8)":                       good.Actions[0],
		"it is configured (P8)":                      {Machine: at("mine"), Kind: engine.Provision, Need: engine.Ref{Block: blue, Row: 0}},
		"it is idle (P8)":                            {Machine: at("idle"), Kind: engine.Reclaim, Need: engine.NoNeed},
		"it is for no need (P9)":                     {Machine: at("idle"), Kind: engine.Bootstrap, Need: engine.NoNeed},
		"promised to cluster red (P1)":               {Machine: at("promised"), Kind: engine.Bootstrap, Need: engine.Ref{Block: blue, Row: 0}},
		"must not be released yet (P7)":              {Machine: at("idle"), Kind: engine.Delete, Need: engine.NoNeed},
		"green was not heard (P5)":                   {Machine: at("silent"), Kind: engine.Reclaim, Need: engine.NoNeed},
		"the victim of no need (P6)":                 {Machine: at("mine"), Kind: engine.Preempt, Cause: engine.CauseInversion, Drain: 0},
		"inside its own cluster (P6)":                {Machine: at("mine"), Kind: engine.Preempt, Cause: engine.CauseInversion, Drain: 1},
		"attributed priority 5 and taken for 5 (P10": {Machine: at("mine"), Kind: engine.Preempt, Cause: engine.CauseInversion, Drain: 2},
	} {
		bad := *good
		bad.Actions = append(slices.Clone(good.Actions), a)
		bad.Drains = append(slices.Clone(good.Drains), engine.Drain{Preemptor: engine.NoNeed}, engine.Drain{Preemptor: engine.Ref{Block: red, Row: 0}}, engine.Drain{Preemptor: engine.Ref{Block: blue, Row: 0}})
		bad.Actions[len(good.Actions)].Drain += int32(len(good.Drains))
		if strings.HasPrefix(want, "attributed") {
			lower := *good.Blocks[blue]
			lower.Needs = slices.Clone(lower.Needs)
			form := *lower.Needs[0].Form
			form.Priority = 5
			lower.Needs[0].Form = &form
			bad.Blocks = slices.Clone(good.Blocks)
			bad.Blocks[blue] = &lower
		}
		if i := slices.IndexFunc(good.Actions, func(o engine.Action) bool { return o.Machine == a.Machine }); i >= 0 && want != "a second action (P8)" {
			bad.Actions = slices.Delete(bad.Actions, i, i+1)
		}
		if why := x.Broken(s.w, nil, &bad); !strings.Contains(why, want) {
			t.Errorf("%q instead of %q", why, want)
		}
		if why := x.Broken(s.w, nil, good); why != "" {
			t.Errorf("after %q: %s", want, why)
		}
	}
}
