package engine

import (
	"strings"
	"testing"
)

// ENG-4.12, ENG-19.8: where a Need counts in whole units, its explanation does too.
func TestExplanationsSpeakOfWholePods(t *testing.T) {
	explain := func(world string) *NeedExplanation {
		s := newScript()
		s.lines(world)
		s.w.Inventory.Advance(1)
		r := Plan(Input{World: s.w})
		_, ref := r.Verdict("red", s.w.Demand.Cluster("red").Needs[0].RowKey())
		return ExplainNeed(s.w, nil, r, ref)
	}
	e := explain(`need red/a cpu=12 unit=cpu:3
		machine m1 cpu=4 configured=red for=a
		machine m2 cpu=8 configured=red for=a`)
	if !strings.Contains(e.Sentence, "Short by 1 Pod of cpu 3.") {
		t.Errorf("three of four Pods have room, and it says %q", e.Sentence)
	}
	if e := explain(`need red/a cpu=11 unit=cpu:3`); !strings.Contains(e.Sentence, "Short by cpu 11.") {
		t.Errorf("a row of unlike Pods: %q", e.Sentence)
	}
	// By sum the rack has 12 cpu and would do; in whole Pods it holds three of four.
	e = explain(`need red/a cpu=12 unit=cpu:3 same=rack
		machines m1..m3 cpu=4 label.rack=r1 speculative`)
	if len(e.Domains) != 1 || e.Domains[0].Satisfiable || e.Domains[0].PerMille != 750 {
		t.Errorf("domains %+v, want one with three quarters of it", e.Domains)
	}
}
