package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-6.3, ENG-12.11: plans follow one another until each Need that looks at domains had its turn, and then no more, also if some stay short.
func TestPlansFollowUntilAllHadTheirTurn(t *testing.T) {
	const racks, rows, machines = 5, 40, 30
	var list []inventory.Machine
	for i := range machines {
		m := slot(fmt.Sprintf("m%02d", i))
		m.Labels = []inventory.Label{{Key: "rack", Value: fmt.Sprint("r", i%racks)}}
		list = append(list, m)
	}
	w := newWorld(t, nil, list...)
	policy := *w.c.policy
	policy.DomainLooks = 4 * racks
	w.c.policy = &policy
	w.tampered = true
	w.connect("red")
	demanded := needs(0, slices.Repeat([]int64{4}, rows)...)
	for i := range demanded {
		demanded[i].MinUnit = demanded[i].Aggregate
		demanded[i].Group, demanded[i].Profile.Spread = fmt.Sprint(i), []demand.Spread{{Key: "rack", MaxSkew: 1}}
		demanded[i].Seal()
	}
	w.offer("red", "1", demanded)
	w.run(5 * Second)
	if n := w.c.clusters.get("red").configured(); n != machines {
		t.Errorf("%d of %d machines are configured", n, machines)
	}
	w.run(20 * Second)
	groups := w.c.cycle.result.Counters.Groups
	if groups < 2 {
		t.Fatal("no Need is postponed")
	}
	before := w.c.cycle.N
	w.run(w.c.cfg.CycleInterval)
	if n := w.c.cycle.N - before; n != int64(groups) {
		t.Errorf("%d plans in an interval in which nothing changed, for %d groups", n, groups)
	}
}

// SHARD-17.4, ENG-12.11: a drain that one group of Needs asks for goes on while others have their turn: its operator takes longer to answer than the next plans to come.
func TestDrainsForAPostponedNeedGoOn(t *testing.T) {
	const racks = 4
	var list []inventory.Machine
	for i := range racks {
		m := host(fmt.Sprintf("m%d", i), inventory.Configured, "blue")
		m.Labels = []inventory.Label{{Key: "rack", Value: fmt.Sprint("r", i)}}
		list = append(list, m)
	}
	w := newWorld(t, nil, list...)
	policy := *w.c.policy
	policy.DomainLooks = racks
	w.c.policy = &policy
	w.tampered = true
	w.connect("blue")
	w.connect("red")
	w.rollup("blue", needs(0, 4, 4, 4, 4))
	w.run(Minute)
	demanded := needs(1000, 4, 4, 4)
	for i := range demanded {
		demanded[i].MinUnit = demanded[i].Aggregate
		demanded[i].Profile.Requirements = []demand.Requirement{{Key: "rack", Op: demand.In, Values: []string{fmt.Sprint("r", i)}}} // each another victim
		demanded[i].Group, demanded[i].Profile.Spread = fmt.Sprint(i), []demand.Spread{{Key: "rack", MaxSkew: 1}}
		demanded[i].Seal()
	}
	w.ack = func(SendReclaim) bool { return false }
	w.offer("red", "1", demanded)
	w.run(2 * Second)
	sent := sentOf[SendReclaim](w)
	if len(sent) == 0 || w.c.cycle.result.Counters.Postponed == 0 {
		t.Fatalf("%d instructions, %d Needs are postponed", len(sent), w.c.cycle.result.Counters.Postponed)
	}
	for _, s := range sent {
		if s.Cancelled {
			t.Errorf("the drain of %s is taken back", s.Machine)
		}
	}
}
