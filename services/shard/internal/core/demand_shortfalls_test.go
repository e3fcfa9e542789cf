package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// gangs are rows of whole gangs, which lie in one rack each.
func gangs(cpus int64, names ...string) (out []demand.Row) {
	for _, name := range names {
		r := demand.Row{Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "rack", Op: demand.Same}}}, Group: name,
			Aggregate: []resource.Quantity{{Name: "cpu", Milli: cpus * 1000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
		r.Seal()
		out = append(out, r)
	}
	return out
}

// SHARD-26.1, 29.3: gangs that would fit one machine, and that the engine therefore counts together, are shortfalls with
// their own fingerprint like all others: the coordinator finds them machines elsewhere, and needs_unmet counts them.
func TestGangsThatAreCountedTogetherAreShortfalls(t *testing.T) {
	busy := host("m01", inventory.Configured, "red")
	busy.Labels = []inventory.Label{{Key: "rack", Value: "r1"}}
	w := newWorld(t, nil, busy)
	w.connect("red")
	list := append(needs(100, 4), gangs(2, "a", "b", "c")...)
	w.rollup("red", list)
	w.run(30 * Second)

	folded := 0
	for _, b := range w.c.cycle.result.Blocks {
		folded += len(b.Folded)
	}
	if folded == 0 {
		t.Fatal("the gangs were not counted together")
	}
	s := w.c.pub.status()
	if s.Short != 3 {
		t.Errorf("%d rows are short: %v", s.Short, s.Unmet)
	}
	if len(s.Shortfalls) != 1 || s.Shortfalls[0].Fingerprint != list[1].Fingerprint {
		t.Fatalf("shortfalls %+v", s.Shortfalls)
	}
	if got := s.Shortfalls[0].Residual; len(got) != 1 || got[0].Milli != 6000 {
		t.Errorf("%v are lacking of three gangs of 2 cpus", got)
	}
}

// SHARD-26.1: shortfalls and reasons are what the rows of the last plan say, however many of them the plan left as they
// were.
func TestShortfallsFollowEveryPlan(t *testing.T) {
	w := newWorld(t, nil, slotsOf(3)...)
	w.dwell = 3 * Second
	names := []string{"red", "blue", "green"}
	for i, name := range names {
		w.connect(name)
		w.rollup(name, needs(int32(i), int64(4+i), 8, 4))
		w.run(4 * Second)
		w.checkShortfalls(t, "after the demand of "+name)
	}
	first := map[string]int64{}
	for _, f := range w.c.ledger.order {
		first[f.Fingerprint] = f.First
	}
	w.run(2 * Minute)
	w.checkShortfalls(t, "at rest")
	for _, f := range w.c.ledger.order {
		if first[f.Fingerprint] != f.First {
			t.Errorf("%s began at %d and then at %d", f.Fingerprint, first[f.Fingerprint], f.First)
		}
	}
	w.rollup("blue", needs(9, 4))
	w.run(30 * Second)
	w.checkShortfalls(t, "with less demand")
	w.disconnect("green")
	w.run(30 * Second)
	w.checkShortfalls(t, "with a cluster away")
}

// SHARD-26.1: the same where the short rows are of more clusters than are summed at a time, when one of them comes, changes or goes.
func TestShortfallsOfManyClusters(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	name := func(i int) string { return fmt.Sprintf("c%03d", i) }
	for i := range 2*shortSumBlocks + 5 {
		w.connect(name(i))
		w.rollup(name(i), needs(int32(i%3), int64(4+i%5), 8))
	}
	w.run(5 * Second)
	w.checkShortfalls(t, "at first")
	if n := len(w.c.ledger.summed); n != 3 {
		t.Fatalf("%d sums", n)
	}
	before := slices.Clone(w.c.ledger.summed)
	w.rollup(name(70), needs(1, 100))
	w.run(5 * Second)
	w.checkShortfalls(t, "one asks for more")
	if now := w.c.ledger.summed; now[0] != before[0] || now[1] == before[1] || now[2] != before[2] {
		t.Error("not the one sum that changed was made again")
	}
	w.rollup(name(3), nil)
	w.run(5 * Second)
	w.checkShortfalls(t, "one asks for nothing")
	for i := shortSumBlocks; i < 2*shortSumBlocks+5; i++ {
		w.rollup(name(i), nil)
	}
	w.run(5 * Second)
	w.checkShortfalls(t, "half are gone")
	if n := len(w.c.ledger.summed); n != 1 {
		t.Errorf("%d sums", n)
	}
}

// checkShortfalls sums what the last result says, the simple way.
func (w *world) checkShortfalls(t *testing.T, when string) {
	t.Helper()
	lacks, short := map[string]int64{}, 0
	for _, b := range w.c.cycle.result.Blocks {
		for i := range b.Verdicts {
			if b.Verdicts[i].Status != engine.Short {
				continue
			}
			short++
			for _, q := range b.Missing[b.Verdicts[i].Missing].Residual.Quantities(w.c.world.Space.Dimensions) {
				lacks[b.Needs[i].Form.Fingerprint] += q.Milli
			}
		}
	}
	got := map[string]int64{}
	for _, f := range w.c.ledger.order {
		for _, q := range f.Residual {
			got[f.Fingerprint] += q.Milli
		}
	}
	if s := w.c.pub.status(); s.Short != short || fmt.Sprint(got) != fmt.Sprint(lacks) {
		t.Errorf("%s: %d rows lack %v, the ledger says %d and %v", when, short, lacks, s.Short, got)
	}
}

// SHARD-27.2: a need that was met for an hour is unmet since it lost its machine, to a higher priority or with the host, and
// not since the roll-up that asked for it: the age of demand wakes people.
func TestUnmetSinceTheLoss(t *testing.T) {
	for name, lose := range map[string]func(*world){
		"taken for a higher priority": func(w *world) { w.rollup("blue", needs(200_000, 4)) },
		"its host is gone": func(w *world) {
			for _, m := range w.provider {
				m.State, m.LastError = inventory.Failed, "gone"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, hostsOf(1, "red")...)
			w.connect("red")
			w.connect("blue")
			w.run(Second)
			w.rollup("red", needs(0, 4))
			w.run(Hour)
			if s := w.c.pub.status(); s.Short != 0 {
				t.Fatalf("%d rows are short before the loss", s.Short)
			}
			lose(w)
			w.run(5 * Minute)
			if s := w.c.pub.status(); s.Short != 1 || s.OldestAge < 4*Minute || s.OldestAge > 6*Minute {
				t.Errorf("%d rows are short, the oldest for %d s, 5 minutes after the loss", s.Short, s.OldestAge/Second)
			}
		})
	}
}
