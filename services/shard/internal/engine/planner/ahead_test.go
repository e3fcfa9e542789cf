package planner_test

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// gangsAndOthers are rows in turn: a gang that one machine can hold, of a few sizes, one that none can, and a plain row.
func gangsAndOthers(n int, mark string) []demand.Row {
	rows := make([]demand.Row, n)
	for i := range rows {
		cpu := int64(1+i/3%5) * 1_000
		r := demand.Row{Group: fmt.Sprint(mark, i), RowID: fmt.Sprint(mark, i)}
		if i%3 > 0 {
			r.Profile.Requirements = []demand.Requirement{{Key: "rack", Op: demand.Same}}
		}
		if i%3 == 2 {
			cpu *= 1_000
		}
		r.Aggregate, r.MinUnit = []resource.Quantity{{Name: "cpu", Milli: cpu}}, []resource.Quantity{{Name: "cpu", Milli: 1_000}}
		r.Seal()
		rows[i] = r
	}
	return rows
}

// SHARD-8.9, ENG-8.3: gangs that fold into one Need in different parts of a credit are one Need, as in a plan.
func TestGangsFoldOverPartsOfACredit(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:4
		machine m1 configured=red for=web cpu=16 label.rack=ra
		machine m2 speculative cpu=16 label.rack=rb`)
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	for round := range 2 {
		rows := gangsAndOthers(20_000, fmt.Sprint(round, "-"))
		s.w.Demand.Replace("red", rows, nil, int64(2+round))
		for part := range planner.AheadParts(len(rows)) {
			pl.CreditAhead(engine.Input{World: s.w}, "red", part)
		}
		if pl.CreditedAhead() != 1 {
			t.Fatal("the cluster is not credited before the plan")
		}
		got := pl.Plan(engine.Input{World: s.w})
		if len(got.Blocks[0].Folded) != 5 {
			t.Errorf("%d Needs stand for folded gangs, want one for each size", len(got.Blocks[0].Folded))
		}
		if err := sameResult(planner.Plan(engine.Input{World: s.w}), got); err != nil {
			t.Fatal(err)
		}
	}
}

// SHARD-8.9, ENG-21.2, ENG-8.7: machines that change while a cluster is credited in parts do not end its credit, unless other gangs fold then. The plan says
// the same whenever they change.
func TestACreditInPartsGoesOnWhenMachinesChange(t *testing.T) {
	rows := gangsAndOthers(20_000, "a")
	for i := range rows { // of one kind, so that each is asked about as the one before
		rows[i].Profile, rows[i].Aggregate = rows[4].Profile, rows[4].Aggregate
		rows[i].Seal()
	}
	parts := planner.AheadParts(len(rows))
	for at := 1; at < parts; at += 3 {
		for _, x := range []struct {
			change string
			ends   bool
		}{
			{"machine m1 configuring=red for=web cpu=1 label.rack=ra", false},
			{"machine m1 configured=red for=a4 cpu=1 label.rack=ra", at > planner.BeginPart(len(rows))+1}, // a gang has begun on a machine that is too small for it
			{"machine m2 failed cpu=16 label.rack=rb", false},
			{"machine m2 failed cpu=16 label.rack=rb\nmachine m3 failed cpu=16 label.rack=rc", at > planner.BeginPart(len(rows))+1}, // nothing that can be had holds a gang
		} {
			s := newScript()
			s.lines(`
				need red/web cpu=8 unit=cpu:4
				machine m1 configured=red for=web cpu=1 label.rack=ra
				machine m2 speculative cpu=16 label.rack=rb
				machine m3 speculative cpu=16 label.rack=rc`)
			s.rows["red/a4"] = &scriptRow{cluster: "red", row: rows[4]}
			pl := planner.NewPlanner()
			pl.Plan(engine.Input{World: s.w})
			s.w.Demand.Replace("red", rows, nil, 2)
			for part := range parts {
				if part == at {
					s.lines(x.change)
				}
				pl.CreditAhead(engine.Input{World: s.w}, "red", part)
			}
			if n := pl.CreditedAhead(); n != 1 && !x.ends {
				t.Errorf("%q before part %d of %d ends the credit", x.change, at, parts)
			}
			if err := sameResult(planner.Plan(engine.Input{World: s.w}), pl.Plan(engine.Input{World: s.w})); err != nil {
				t.Fatalf("%q before part %d: %v", x.change, at, err)
			}
		}
	}
}

// SHARD-8.9, ENG-21.11: what one credit sweeps away at its end is nothing that another one, which was begun meanwhile, still makes Needs of.
func TestASweepWaitsForACreditThatWasBegun(t *testing.T) {
	bw := newBenchWorld(workload.Steady(workload.Size{Machines: 100, Needs: 20, Clusters: 2}, 1))
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: bw.w})
	named := func(mark string) []demand.Row { // rows with a profile each
		rows := make([]demand.Row, 4*match.SweepMin)
		for i := range rows {
			rows[i] = bw.rows[0]
			rows[i].Profile.Spread = nil
			rows[i].Profile.Requirements = []demand.Requirement{{Key: "kubernetes.io/arch", Op: demand.NotIn, Values: []string{fmt.Sprint(mark, i)}}, {Key: workload.RackLabel, Op: demand.Same}}
			rows[i].Seal()
		}
		return rows
	}
	for round := range 3 {
		var names [2]string
		for i := range names {
			names[i] = workload.ClusterName(int32(i))
			bw.w.Demand.Replace(names[i], named(fmt.Sprint(round, i, "-")), nil, int64(2+round))
		}
		parts := planner.AheadParts(4 * match.SweepMin)
		credit := func(i, from, end int) {
			for part := from; part < end; part++ {
				pl.CreditAhead(engine.Input{World: bw.w}, names[i], part)
			}
		}
		credit(0, 0, parts-1)
		credit(1, 0, 3)
		credit(0, parts-1, parts)
		credit(1, 3, parts)
		if pl.CreditedAhead() != 2 {
			t.Fatalf("round %d: %d clusters are credited before the plan, want 2", round, pl.CreditedAhead())
		}
		if err := sameResult(planner.Plan(engine.Input{World: bw.w}), pl.Plan(engine.Input{World: bw.w})); err != nil {
			t.Fatal(err)
		}
	}
}

// SHARD-8.9: each part makes a sixteenth of the matchers at most, wherever the rows stand that need a new one, and the last part leaves none to be made.
func TestMatchersOfNewRowsAreMadeInParts(t *testing.T) {
	const wide = 2_000
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:4
		machine m1 speculative cpu=16 label.rack=ra`)
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	rows := gangsAndOthers(20_000, "a")
	for i := range rows {
		rows[i].Profile = demand.Profile{}
		if i >= 100 && i < 100+wide {
			rows[i].Profile.Requirements = []demand.Requirement{{Key: "rack", Op: demand.NotIn, Values: []string{fmt.Sprint(i)}}}
		}
		rows[i].Seal()
	}
	s.w.Demand.Replace("red", rows, nil, 2)
	before, _, _ := pl.Remembered()
	for part := range planner.BeginPart(len(rows)) {
		pl.CreditAhead(engine.Input{World: s.w}, "red", part)
		now, _, _ := pl.Remembered()
		if now-before > s.w.Demand.Rules()/planner.LookParts+1 {
			t.Errorf("part %d makes %d matchers", part, now-before)
		}
		before = now
	}
	if before < wide {
		t.Errorf("%d matchers are made before the credit begins, of %d", before, wide)
	}
}

// ADR 1006: candidate indexes of rows that are short are filled in parts before the plan, and the plan fills none again.
func TestIndexesOfShortRowsAreFilledInParts(t *testing.T) {
	const rows = 2_000
	s := newScript()
	s.lines("need red/web cpu=8 unit=cpu:4")
	for pool := range 11 {
		s.lines(fmt.Sprintf("machine m%[1]d speculative cpu=16 label.pool=p%[1]d", pool))
	}
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	s.w.Demand.Replace("red", excludingRows(rows, "pool", func(i int) (values []string) { // each another set
		for pool := range 11 {
			if i>>pool&1 == 1 {
				values = append(values, fmt.Sprint("p", pool))
			}
		}
		return append(values, "none")
	}), nil, 2)
	before := pl.Fills()
	for part := range planner.AheadParts(rows) {
		pl.CreditAhead(engine.Input{World: s.w}, "red", part)
		if n := pl.Fills() - before; n > s.w.Demand.Rules()/planner.LookParts+1 {
			t.Errorf("part %d fills %d indexes", part, n)
		}
		before = pl.Fills()
	}
	if before < rows {
		t.Errorf("%d indexes are filled before the plan, of %d", before, rows)
	}
	got := pl.Plan(engine.Input{World: s.w})
	if n := pl.Fills() - before; n != 0 {
		t.Errorf("the plan fills %d indexes", n)
	}
	if err := sameResult(planner.Plan(engine.Input{World: s.w}), got); err != nil {
		t.Error(err)
	}
}

// excludingRows are rows that differ in the values of a key that they exclude.
func excludingRows(n int, key string, values func(i int) []string) []demand.Row {
	list := make([]demand.Row, n)
	for i := range list {
		list[i] = demand.Row{Group: fmt.Sprint(i), RowID: fmt.Sprint(i), Aggregate: []resource.Quantity{{Name: "cpu", Milli: 4_000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 4_000}}}
		list[i].Profile.Requirements = []demand.Requirement{{Key: key, Op: demand.NotIn, Values: values(i)}}
		list[i].Seal()
	}
	return list
}

// ENG-21.8: rows that match the same machines share a candidate index, whatever each of them excludes: one cluster can state as many requirements as rows.
func TestRowsThatMatchTheSameShareACandidateIndex(t *testing.T) {
	s := newScript()
	s.lines("machine m1 speculative cpu=16 label.pool=p1\nmachine m2 speculative cpu=16 label.pool=p2")
	s.w.Demand.Replace("red", excludingRows(500, "pool", func(i int) []string { return []string{fmt.Sprint("none", i)} }), nil, 2)
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: s.w})
	if n := pl.Fills(); n != 1 {
		t.Errorf("%d indexes are filled", n)
	}
}
