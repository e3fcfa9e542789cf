package planner_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ENG-21.11, ENG-21.1: rows whose profiles name ever new values, gangs among them, leave nothing behind in a Planner, and what it forgets
// shows in no plan.
func TestProfilesThatAreGoneLeaveNothingBehind(t *testing.T) {
	bw := newBenchWorld(workload.Steady(workload.Size{Machines: 1000, Needs: 100, Clusters: 20}, 1))
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: bw.w})
	start, _, _ := pl.Remembered()
	for n := range 600 {
		row := bw.rows[0]
		row.Profile.Spread = nil
		row.Profile.Requirements = []demand.Requirement{{Key: "kubernetes.io/arch", Op: demand.NotIn, Values: []string{fmt.Sprint("a-", n)}}}
		if n%2 == 0 {
			row.Profile.Requirements = append(row.Profile.Requirements, demand.Requirement{Key: workload.RackLabel, Op: demand.Same})
		}
		row.Seal()
		bw.w.Demand.Replace(workload.ClusterName(int32(n%20)), []demand.Row{row}, nil, 1)
		got := pl.Plan(engine.Input{World: bw.w})
		if n%8 == 0 {
			if err := sameResult(planner.Plan(engine.Input{World: bw.w}), got); err != nil {
				t.Fatalf("after %d changes: %v", n, err)
			}
		}
	}
	inUse := start + 2*20 // of each cluster the row and what it folds into
	if matchers, ids, markets := pl.Remembered(); matchers > match.SweepMin+2*inUse || ids > match.SweepMin+2*inUse || markets > 16*(match.SweepMin+2*inUse) {
		t.Errorf("%d matchers (%d ids) and %d markets are remembered, %d matchers at the start", matchers, ids, markets, start)
	}
}

// rowsWithValues are rows that each select a value of their own, in each round others.
func rowsWithValues(bw *benchWorld, count, round int) []demand.Row {
	rows := make([]demand.Row, count)
	for i := range rows {
		rows[i] = bw.rows[0]
		rows[i].Profile.Spread = nil
		rows[i].Profile.Requirements = []demand.Requirement{{Key: "kubernetes.io/arch", Op: demand.In, Values: []string{fmt.Sprint("a-", round, "-", i)}}}
		rows[i].Seal()
	}
	return rows
}

// ENG-21.11: a cluster that replaces a large demand again and again by rows whose profiles name other values, each credited ahead of its plan, makes no plan start
// from nothing, which would look at all other clusters again.
func TestLargeDemandThatIsReplacedMakesNoColdPlan(t *testing.T) {
	bw := newBenchWorld(workload.Steady(workload.Size{Machines: 1000, Needs: 100, Clusters: 20}, 1))
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: bw.w})
	name := workload.ClusterName(0)
	for n := range 8 {
		rows := rowsWithValues(bw, 2*match.CatalogMax, n)
		bw.w.Demand.Replace(name, rows, nil, 1)
		for part := range planner.AheadParts(len(rows)) {
			pl.CreditAhead(engine.Input{World: bw.w}, name, part)
		}
		if got := pl.Plan(engine.Input{World: bw.w}); n > 0 && got.Counters.DirtyClusters >= 20 { // the first one is new to it
			t.Errorf("replacement %d: the plan credits all %d clusters", n, got.Counters.DirtyClusters)
		}
	}
	if matchers, _, _ := pl.Remembered(); matchers > match.CatalogMax+2*bw.w.Demand.FormLen() {
		t.Errorf("%d matchers are remembered", matchers)
	}
}

// ENG-21.11, SHARD-8.9: what a large demand leaves behind is swept away in parts before the plan: none takes more than 32,768 matchers, and none is left to the plan.
func TestASweepIsDoneInParts(t *testing.T) {
	bw := newBenchWorld(workload.Steady(workload.Size{Machines: 100, Needs: 20, Clusters: 2}, 1))
	pl := planner.NewPlanner()
	pl.Plan(engine.Input{World: bw.w})
	name, swept := workload.ClusterName(0), 0
	for n := range 4 {
		rows := rowsWithValues(bw, 20_000, n)
		bw.w.Demand.Replace(name, rows, nil, 1)
		for part := range planner.AheadParts(len(rows)) {
			before, _, _ := pl.Remembered()
			pl.CreditAhead(engine.Input{World: bw.w}, name, part)
			if after, _, _ := pl.Remembered(); before-after > 32_768 {
				t.Errorf("replacement %d: part %d sweeps %d matchers away", n, part, before-after)
			} else {
				swept += max(0, before-after)
			}
		}
		before, _, _ := pl.Remembered()
		got := pl.Plan(engine.Input{World: bw.w})
		if after, _, _ := pl.Remembered(); after < before {
			t.Errorf("replacement %d: %d matchers are left to the plan", n, before-after)
		}
		if err := sameResult(planner.Plan(engine.Input{World: bw.w}), got); err != nil {
			t.Fatal(err)
		}
	}
	if swept < 20_000 {
		t.Errorf("%d matchers were swept away", swept)
	}
}

// learnt is a list as long as a cluster may state of its Nodes, other than that of another number.
func learnt(n int) []demand.Room {
	list := make([]demand.Room, 512)
	for i := range list {
		list[i].Type = fmt.Sprint("type-", n, "-", i)
		for k := range 64 {
			list[i].Amounts = append(list[i].Amounts, resource.Quantity{Name: fmt.Sprint("example.com/n", i*64+k), Milli: int64(1000 + n)})
		}
	}
	return list
}

// ENG-21.11, SHARD-32: a cluster that has learnt other things of its Nodes again and again leaves nothing behind, and its gangs do not remember all of it each.
func TestWhatClustersLearnTakesItsRoomOnce(t *testing.T) {
	bw := newBenchWorld(workload.Steady(workload.Size{Machines: 100, Needs: 20, Clusters: 2}, 1))
	name := workload.ClusterName(0)
	pl := planner.NewPlanner()
	plan := func(n int) (allocated, alive uint64) {
		var before, after runtime.MemStats
		bw.w.Demand.SetRooms(name, learnt(n))
		runtime.ReadMemStats(&before)
		pl.Plan(engine.Input{World: bw.w})
		runtime.ReadMemStats(&after)
		runtime.GC()
		allocated = after.TotalAlloc - before.TotalAlloc
		runtime.ReadMemStats(&after)
		return allocated, after.HeapAlloc
	}
	_, start := plan(0)
	for n := range 100 {
		if _, alive := plan(1 + n); alive > start+120<<20 {
			t.Fatalf("after %d lists %d MiB are alive, %d at the start", n, alive>>20, start>>20)
		}
	}
	rows := make([]demand.Row, 3_000)
	for i := range rows {
		rows[i] = demand.Row{Group: fmt.Sprint(i), Aggregate: []resource.Quantity{{Name: "cpu", Milli: 1000 + int64(i)}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
		rows[i].Profile.Requirements = []demand.Requirement{{Key: workload.RackLabel, Op: demand.Same}}
		rows[i].Seal()
	}
	bw.w.Demand.Replace(name, rows, nil, 2)
	if allocated, _ := plan(200); allocated > 300<<20 {
		t.Errorf("a plan with 3,000 gangs of different sizes allocates %d MiB", allocated>>20)
	}
}
