package planner_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ENG-11.6, ENG-21.9: one cluster can state as many rows that share as a roll-up has, and have thousands of machines with something left. Each row looks at
// few of them, whether it finds something or not.
func TestRowsThatShareLookAtFewMachines(t *testing.T) {
	const machines, rows, blocksOfOne = 2_000, 500, 5
	for name, c := range map[string]struct {
		unit  int64
		short int
	}{"served": {2, 0}, "too large": {9, rows}} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.lines(fmt.Sprintf("machines m1..m%d cpu=20 configured=red", machines))
			list := make([]demand.Row, 0, rows+21)
			for range 20 {
				list = append(list, sharingRow(len(list), machines/20, 12, 100, ""))
			}
			for range rows {
				list = append(list, sharingRow(len(list), 1, c.unit, 0, ""))
			}
			list = append(list, sharingRow(len(list), 1, 1, 0, "")) // so that what is left of machines may be of use
			s.w.Demand.Replace("red", list, nil, 1)
			s.w.Demand.SetFacts("red", demand.Facts{Heard: true, SharingPerMille: 1000})
			pl := planner.NewPlanner()
			if r := pl.Plan(engine.Input{World: s.w}); len(r.Short) != c.short {
				t.Errorf("%d are short, want %d", len(r.Short), c.short)
			}
			if n := pl.ShareLooks(); n == 0 || n > blocksOfOne*rows {
				t.Errorf("%d rows have looked at %d blocks of machines", rows, n)
			}
		})
	}
}

// sharingRow asks for some units, with a hard spread over a key if there is one.
func sharingRow(n int, units, cpu int64, priority int32, key string) demand.Row {
	r := demand.Row{Group: fmt.Sprint(n), Profile: demand.Profile{Priority: priority},
		Aggregate: []resource.Quantity{{Name: "cpu", Milli: 1000 * units * cpu}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000 * cpu}}}
	if key != "" {
		r.Profile.Spread = []demand.Spread{{Key: key, MaxSkew: 1}}
	}
	r.Seal()
	return r
}

// ENG-21.9: small rows beside large ones that leave something on each of 5,800 machines.
func BenchmarkRowsThatShare(b *testing.B) {
	for name, c := range map[string]struct {
		rows, units int64
		key, label  string // of %d, the number of the machine
		modulo      int
	}{
		"rows=5000":                      {rows: 5_000, units: 1, modulo: 1},
		"rows=40000":                     {rows: 40_000, units: 1, modulo: 1},
		"rows=5000/racks=2000":           {rows: 5_000, units: 3, key: "rack", label: "label.rack=r%d", modulo: 2_000},
		"rows=5000/zones=3":              {rows: 5_000, units: 3, key: "zone", label: "label.zone=z%d", modulo: 3},
		"rows=5000/zones=3, one has all": {rows: 5_000, units: 3, key: "zone", label: "label.zone=z%d", modulo: -1},
	} {
		b.Run(name, func(b *testing.B) {
			const machines = 5_800
			s := newScript()
			var lines strings.Builder
			for i := range machines {
				n := i % max(1, c.modulo)
				if c.modulo < 0 {
					n = max(0, i-machines+2)
				}
				fmt.Fprintf(&lines, "machine m%d cpu=62 price=%d configured=red %s\n", i, 1+i%7, strings.ReplaceAll(c.label, "%d", fmt.Sprint(n)))
			}
			s.lines(lines.String())
			list := make([]demand.Row, 0, c.rows+100)
			for range 100 {
				list = append(list, sharingRow(len(list), machines/100, 40, 1000, ""))
			}
			for i := range c.rows {
				list = append(list, sharingRow(len(list), c.units, 1+i%4, 0, c.key))
			}
			s.w.Demand.Replace("red", list, nil, 1)
			s.w.Demand.SetFacts("red", demand.Facts{Heard: true, SharingPerMille: 1000})
			for b.Loop() {
				r := planner.Plan(engine.Input{World: s.w})
				b.ReportMetric(float64(len(r.Short)), "short")
			}
		})
	}
}

// ENG-11.3 to 11.6, ENG-21.1: shares on more machines than one block holds, with a deep tree and with a flat one.
func TestSharesOfManyMachinesEqualNaive(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 11))
		s := newScript()
		var lines strings.Builder
		for i := range 60 {
			zone, state := "abc"[r.IntN(3)], []string{"configured=red", "configured=red", "configuring=red", "creating=red"}[r.IntN(4)]
			fmt.Fprintf(&lines, "machine m%d cpu=%d mem=%d price=%d zone=%c label.rack=r%d %s\n", i, 8+4*r.IntN(4), 8+4*r.IntN(4), 1+r.IntN(3), zone, i%20, state)
		}
		for i := range 6 {
			unit := 3 + r.IntN(4)
			fmt.Fprintf(&lines, "need red/large%d cpu=%d mem=%d unit=cpu:%d,mem:%d priority=%d\n", i, 8*unit, 8*(9-unit), unit, 9-unit, 100+i)
		}
		for i := range 50 {
			units, cpu, mem := 1+r.IntN(4), 1+r.IntN(6), 1+r.IntN(6)
			what := []string{"", "", "in=zone:b", "spread=zone:1", "spread=rack:1", "per-host=1"}[r.IntN(6)]
			fmt.Fprintf(&lines, "need red/small%d cpu=%d mem=%d unit=cpu:%d,mem:%d priority=%d %s\n", i, units*cpu, units*mem, cpu, mem, r.IntN(20), what)
		}
		s.lines(lines.String())
		if seed%3 == 0 {
			s.lines("cluster red sharing=500")
		}
		policy := engine.DefaultPolicy()
		if seed%2 == 0 {
			policy.ShareLooks = 2
		}
		in := engine.Input{World: s.w, Policy: policy}
		want := render(s.w, reference.Plan(in))
		for _, off := range []string{"", "at once"} {
			pl := planner.NewPlanner()
			pl.Without(off)
			if got := render(s.w, pl.Plan(in)); got != want {
				t.Errorf("seed %d, %q: %s", seed, off, difference(want, got))
			}
		}
	}
}

// ENG-11.5: a Need with a hard spread passes by a bounded number of machines that do not help it, where one value has nearly all there is.
func TestSpreadPassesByFewMachines(t *testing.T) {
	for looks, short := range map[int]int{3: 1, 4: 0, 0: 0} {
		s := newScript()
		s.lines(`
			machines a1..a4 cpu=20 configured=red zone=a
			machine b cpu=11 configured=red zone=b
			need red/large cpu=72 unit=cpu:8 priority=100
			need red/small cpu=4 unit=cpu:2 spread=zone:1`)
		policy := engine.DefaultPolicy()
		policy.ShareLooks = looks
		in := engine.Input{World: s.w, Policy: policy}
		r := planner.Plan(in)
		if len(r.Short) != short {
			t.Errorf("%d looks: %d are short, want %d", looks, len(r.Short), short)
		}
		sameBytes(t, s.w, r, reference.Plan(in))
	}
}
