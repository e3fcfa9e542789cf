package planner_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ENG-4.12, ENG-19.8: where a Need counts in whole units, its explanation does too.
func TestExplanationsSpeakOfWholePods(t *testing.T) {
	explain := func(world string) *explain.NeedExplanation {
		s := newScript()
		s.lines(world)
		s.w.Inventory.Advance(1)
		r := planner.Plan(engine.Input{World: s.w})
		_, ref := r.Verdict("red", s.w.Demand.Cluster("red").Needs[0].RowKey())
		return explain.ExplainNeed(s.w, nil, r, ref)
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

// ENG-11.16, ENG-19.8: room beyond what is asked for is said, with its reason.
func TestExplanationsSpeakOfRoom(t *testing.T) {
	s := newScript()
	s.lines(`need red/a cpu=12 unit=cpu:3
		machines m1..m6 cpu=4 configured=red for=a`)
	s.w.Demand.SetHeadroom("red", func(*demand.Need) int64 { return 2 })
	s.w.Inventory.Advance(1)
	r := planner.Plan(engine.Input{World: s.w})
	if v := r.Blocks[0].Verdicts[0]; v.Claimed != 6 || len(r.Actions) != 0 {
		t.Fatalf("with room for two more it has %d machines, %d actions", v.Claimed, len(r.Actions))
	}
	e := explain.ExplainNeed(s.w, nil, r, engine.Ref{Block: 0, Row: 0})
	if !strings.Contains(e.Sentence, "It gets room for 2 Pods more than requested") {
		t.Errorf("%q", e.Sentence)
	}
}

// ENG-19.8: amounts are written as people write them: bytes with a binary suffix where one is exact, all else in whole units.
func TestAmountsAreReadable(t *testing.T) {
	for want, q := range map[string]resource.Quantity{
		"cpu 4": {Name: "cpu", Milli: 4000}, "cpu 0.5": {Name: "cpu", Milli: 500}, "cpu 1024": {Name: "cpu", Milli: 1024_000},
		"memory 16Gi": {Name: "memory", Milli: 16 << 30 * 1000}, "memory 1536Mi": {Name: "memory", Milli: 1536 << 20 * 1000},
		"memory 1000": {Name: "memory", Milli: 1000_000}, "memory 0": {Name: "memory"}, "memory 0.001": {Name: "memory", Milli: 1},
		"ephemeral-storage 1Ki": {Name: "ephemeral-storage", Milli: 1 << 10 * 1000}, "hugepages-2Mi 4Mi": {Name: "hugepages-2Mi", Milli: 4 << 20 * 1000},
	} {
		if got := explain.AmountList([]resource.Quantity{q}); got != want {
			t.Errorf("%d of %s is written %q, not %q", q.Milli, q.Name, got, want)
		}
	}
	pods := resource.Quantity{Name: "pods", Milli: 3000}
	if got := explain.AmountList([]resource.Quantity{{Name: "cpu", Milli: 4000}, pods}); got != "cpu 4" {
		t.Errorf("beside cpu, what a node takes is written: %q", got)
	}
	if got := explain.AmountList([]resource.Quantity{pods}); got != "pods 3" {
		t.Errorf("alone it is written %q", got)
	}
}
