package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// manyNeeds are rows of which no two are alike.
func manyNeeds(n int, mark string) []demand.Row {
	amount := []resource.Quantity{{Name: "cpu", Milli: 1000}}
	one := demand.Row{Aggregate: amount, MinUnit: amount}
	one.Seal()
	rows := make([]demand.Row, n)
	for i := range rows {
		rows[i] = one
		rows[i].Group = fmt.Sprint(mark, i)
		rows[i].RowID = rows[i].Group
	}
	return rows
}

// offer sends a roll-up and returns at once.
func (w *world) offer(cluster, hash string, rows []demand.Row) {
	w.arrival++
	w.step(RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: rows, Hash: hash, RowCount: int64(len(rows)), Received: w.mono})
}

// answered counts the dispositions that a cluster was sent.
func (w *world) answered(cluster string) (n int) {
	for _, e := range w.sent {
		if a, is := e.(SendAck); is && a.Cluster == cluster && a.Rollup != nil {
			n++
		}
	}
	return n
}

// SHARD-8.9: a large roll-up that is taken in while the credit before a plan goes on waits for that plan, so that no plan waits for two credits. The plan after has it.
func TestLargeRollupWaitsForThePlanThatIsCredited(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.connect("other")
	w.run(Minute)
	credits := func() bool {
		return slices.ContainsFunc(w.c.cycle.large, func(x largeDemand) bool { return x.begun > 0 })
	}
	w.offer("large", "1", manyNeeds(6*demand.PartRows, "a"))
	for ticks := 0; !credits() && ticks < 1000; ticks++ {
		w.tick()
	}
	w.offer("other", "1", manyNeeds(2*demand.PartRows, "b"))
	waited, cycle := 0, w.c.Cycle()
	for ticks := 0; w.answered("other") == 0 && ticks < 1000; ticks++ {
		before := credits()
		w.tick()
		switch other := w.c.clusters.get("other"); {
		case w.answered("other") > 0 && before && w.c.Cycle() == cycle:
			t.Error("the demand changes while the credit before a plan goes on")
		case other.staged != nil && other.staged.ordered && credits():
			waited++
		}
	}
	if waited == 0 || w.answered("other") == 0 || w.c.Cycle() == cycle {
		t.Errorf("waited for %d Ticks, answered %d times, %d plans", waited, w.answered("other"), w.c.Cycle()-cycle)
	}
	w.run(Second)
	if b := w.view.Needs; len(b) != 2 || len(b[1].Rows) != 2*demand.PartRows {
		t.Error("no plan has the demand that waited")
	}
}

// SHARD-8.9: a large roll-up is taken in in parts. What others send meanwhile is answered at once, two large ones take turns, and
// of those that a cluster sends meanwhile only the newest counts.
func TestLargeRollupsAreTakenInInParts(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	for _, name := range []string{"large", "other", "red"} {
		w.connect(name)
	}
	w.run(Minute)
	const parts = 4
	w.offer("large", "1", manyNeeds(parts*demand.PartRows, "a"))
	w.offer("other", "1", manyNeeds(parts*demand.PartRows, "o"))
	w.offer("large", "2", manyNeeds(3, "b"))
	w.offer("large", "3", manyNeeds(parts*demand.PartRows, "c"))
	w.offer("red", "1", needs(0, 1))
	if w.answered("red") != 1 || w.answered("large") != 0 || w.answered("other") != 0 {
		t.Fatalf("answered: red %d, large %d, other %d times; red goes first", w.answered("red"), w.answered("large"), w.answered("other"))
	}
	if rows := w.c.world.Demand.Rows(); rows != 1 {
		t.Fatalf("%d rows are demand before all of a roll-up is taken in", rows)
	}
	ticks := 0
	for ; w.answered("other") == 0; ticks++ {
		w.mono, w.wall = w.mono+1, w.wall+1
		w.step(Tick{})
	}
	if ticks < parts || ticks > 2*(parts+3) { // of each: its parts, two to bring it into order, and one to make it the demand
		t.Errorf("a roll-up of %d parts beside another took %d steps", parts, ticks)
	}
	w.run(Second)
	if w.answered("large") != 2 {
		t.Errorf("%d roll-ups of one cluster are answered, of 3: the second was superseded", w.answered("large"))
	}
	if _, has := w.c.world.Demand.Position("large", demand.RowKey{Fingerprint: manyNeeds(1, "")[0].Fingerprint, Group: "c7"}); !has {
		t.Error("the newest roll-up is not the demand")
	}
}

// SHARD-8.9: a roll-up of few rows is taken in in parts, too, if they are large.
func TestFewLargeRowsAreTakenInInParts(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.connect("red")
	w.run(Minute)
	w.arrival++
	w.step(RollupArrived{Cluster: "large", Session: w.sessions["large"], Arrival: w.arrival, Rows: manyNeeds(64, "a"), Hash: "1", RowCount: 64, Received: w.mono, Bytes: 16 << 20})
	w.offer("red", "1", needs(0, 1))
	if w.answered("red") != 1 || w.answered("large") != 0 {
		t.Fatalf("answered: red %d, large %d times; red goes first", w.answered("red"), w.answered("large"))
	}
	ticks := 0
	for ; w.answered("large") == 0; ticks++ {
		if w.mono, w.wall = w.mono+1, w.wall+1; ticks > 1000 {
			t.Fatal("it is never taken in")
		}
		w.step(Tick{})
	}
	if ticks < 32 {
		t.Errorf("64 rows of 256 KiB took %d steps", ticks)
	}
}

// SHARD-8.9, 8.4: what is on its way of a session that ends is given up, and nothing of it stays; the next session sends all again.
func TestLargeRollupOfAnEndedSessionIsGivenUp(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("large")
	w.run(Minute)
	before := w.c.world.Space.Keys.Live()
	w.offer("large", "1", manyNeeds(5*demand.PartRows, "a"))
	w.offer("large", "2", manyNeeds(3, "b"))
	w.run(2) // two parts
	w.step(SessionClosed{Cluster: "large", Session: w.sessions["large"]})
	w.run(Second)
	if w.answered("large") != 0 || w.c.world.Demand.Rows() != 0 || w.c.world.Space.Keys.Live() != before {
		t.Errorf("%d answers, %d rows, %d row keys of %d", w.answered("large"), w.c.world.Demand.Rows(), w.c.world.Space.Keys.Live(), before)
	}
	w.connect("large")
	w.offer("large", "1", manyNeeds(5*demand.PartRows, "a"))
	w.run(Second)
	if w.answered("large") != 1 || w.c.world.Demand.Rows() != 5*demand.PartRows {
		t.Errorf("%d answers, %d rows", w.answered("large"), w.c.world.Demand.Rows())
	}
}

// SHARD-8.9, 28.2: whatever comes while roll-ups are taken in, the last one that was answered is the demand, a checkpoint stands like the
// core that made it, and the reduced record replays (the world checks that at its end).
func TestLargeRollupsAmongOtherEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		w := newWorld(t, nil, slotsOf(2)...)
		w.c.cfg.RollupGuardOff = true
		w.log[0].e = Started{Config: w.c.cfg, Epoch: 7}
		names := []string{"a", "b"}
		for _, name := range names {
			w.connect(name)
		}
		w.run(Minute)
		var snapshot *Snapshot
		from := 0
		w.watch = func(effects []Effect) {
			for _, e := range effects {
				if x, is := e.(CheckpointTaken); is {
					snapshot, from = x.State.Snapshot(), len(w.log)
				}
			}
		}
		rows := map[string][]demand.Row{} // by hash
		sizes := []int{1, demand.PartRows, demand.PartRows + 1, 2*demand.PartRows + 7}
		for k := range rapid.IntRange(1, 10).Draw(rt, "steps") {
			name := names[r.IntN(2)]
			switch r.IntN(8) {
			case 0:
				w.step(SessionClosed{Cluster: name, Session: w.sessions[name]})
				w.connect(name)
			case 1:
				w.step(CheckpointAsked{Full: true})
			case 2:
				w.run(int64(r.IntN(4)))
			case 3: // as it was
				if cl := w.c.clusters.get(name); cl.Known {
					w.offer(name, cl.Hash, rows[cl.Hash])
				}
			default:
				n, hash := sizes[r.IntN(len(sizes))], fmt.Sprint(k)
				rows[hash] = manyNeeds(n, fmt.Sprint(r.IntN(2)))
				w.offer(name, hash, rows[hash])
			}
		}
		w.run(2 * Second)
		for _, name := range names {
			cl := w.c.clusters.get(name)
			if n := len(w.c.world.Demand.Cluster(name).Needs); cl.staged != nil || cl.Queued != nil || n != cl.Rows {
				rt.Fatalf("%s: %d rows, %d in the demand, staged %v", name, cl.Rows, n, cl.staged != nil)
			}
		}
		if snapshot != nil {
			twin, _ := Restore(nil, snapshot)
			for _, l := range w.log[from:] {
				twin.Step(l.at, l.e)
			}
			if twin.StateDigest() != w.c.StateDigest() {
				rt.Fatalf("a core made of the checkpoint stands at %x, the core that made it at %x", twin.StateDigest(), w.c.StateDigest())
			}
		}
		w.replay()
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// SHARD-8.9, 28.3: a checkpoint waits for what is done in parts.
func TestCheckpointWaitsForLargeRollups(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.run(Minute)
	taken := 0
	w.watch = func(effects []Effect) {
		for _, e := range effects {
			if _, is := e.(CheckpointTaken); is {
				taken++
			}
		}
	}
	w.offer("large", "1", manyNeeds(2*demand.PartRows, "a"))
	w.step(CheckpointAsked{})
	if taken != 0 {
		t.Error("the rest of a roll-up is taken in at once for a checkpoint")
	}
	w.run(Second)
	if taken != 1 || w.answered("large") != 1 {
		t.Errorf("%d checkpoints, %d answers", taken, w.answered("large"))
	}
}

// SHARD-8.9: after a large roll-up is taken in, the credit before the plan, the list of what is short, its sum and what readers see come in parts, too: another
// cluster is answered between any two.
func TestPlanOfLargeRollupComesInParts(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.connect("red")
	w.rollup("red", needs(0, 1))
	w.run(Minute)
	planned := func() bool {
		return slices.ContainsFunc(w.c.cycle.result.Blocks, func(b *engine.Block) bool { return b.Cluster == "large" && len(b.Needs) > 0 })
	}
	w.offer("large", "1", manyNeeds(20*demand.PartRows, "a"))
	shown := func() int {
		if b := w.c.pub.needs["large"]; b != nil {
			return len(b.Rows)
		}
		return 0
	}
	before, after := 0, 0
	for k := 0; shown() == 0 && k < 1000; k++ {
		w.mono, w.wall = w.mono+10*Millisecond, w.wall+10*Millisecond
		n := w.answered("red")
		if w.offer("red", fmt.Sprint(k), needs(int32(k%2), 1)); w.answered("red") != n+1 {
			t.Fatalf("step %d: red is not answered", k)
		}
		w.mono, w.wall = w.mono+1, w.wall+1
		w.step(Tick{})
		switch {
		case w.answered("large") == 0:
		case !planned():
			before++
		default:
			after++
		}
	}
	if shown() != 20*demand.PartRows || before < 6 || after < 10 {
		t.Errorf("%d rows are shown, after %d steps before the plan and %d after it", shown(), before, after)
	}
	for at, row := range w.c.pub.needs["large"].Rows {
		if want := spellRow(w.c.world, w.c.pub.needs["large"].of, at); !row.says(&NeedRow{Form: want.Form, Group: want.Group, RowID: want.RowID, Aggregate: want.Aggregate,
			MinUnit: want.MinUnit, Residual: want.Residual, Freed: want.Freed, Arrival: want.Arrival, Verdict: want.Verdict, Domain: want.Domain, Since: row.Since}) {
			t.Fatalf("row %d is shown as %+v, and is %+v", at, row, want)
		}
	}
}

// SHARD-8.9: when a machine of a cluster with a large roll-up changes, the cluster is credited again before the plan, in parts: another cluster is answered
// between any two.
func TestLargeClusterIsCreditedAgainInParts(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.connect("red")
	w.offer("large", "1", manyNeeds(20*demand.PartRows, "a"))
	w.run(Minute)
	if w.state(inventory.Configured) != 2 {
		t.Fatal("the cluster has no machines")
	}
	before, steps := w.c.Cycle(), 0
	w.step(NodeReported{Cluster: "large", Session: w.sessions["large"], Machine: "m01", Node: "m", Present: true, Ready: true})
	for ; w.c.Cycle() == before && steps < 100; steps++ {
		w.mono, w.wall = w.mono+1, w.wall+1
		n, parts := w.answered("red"), partsDone(w)
		if w.offer("red", fmt.Sprint(steps), needs(int32(steps%2), 1)); w.answered("red") != n+1 {
			t.Fatalf("step %d: red is not answered", steps)
		}
		if w.c.Cycle() == before && partsDone(w) > parts {
			t.Fatalf("step %d: red waits for a part", steps)
		}
		w.mono, w.wall = w.mono+1, w.wall+1
		w.step(Tick{})
	}
	if steps < 4 || steps == 100 {
		t.Errorf("the plan comes after %d steps", steps)
	}
}

// partsDone is how many parts of credits before the next plan are done.
func partsDone(w *world) (n int) {
	for _, x := range w.c.cycle.large {
		n += x.part
	}
	return n
}

// SHARD-8.9, 26.4: many short gangs are looked through after the step of the plan, and before the next plan.
func TestManyGangsAreParkedAfterThePlan(t *testing.T) {
	m := slot("m01")
	m.Labels = []inventory.Label{{Key: "rack", Value: "r1"}}
	w := newWorld(t, nil, m)
	w.connect("large")
	w.run(Minute)
	names := make([]string, 2*demand.PartRows)
	for i := range names {
		names[i] = fmt.Sprint(i)
	}
	before := w.c.Cycle()
	w.offer("large", "1", gangs(8, names...))
	for range 1000 {
		if w.c.Cycle() != before {
			break
		}
		w.mono, w.wall = w.mono+1, w.wall+1
		w.step(Tick{})
	}
	if n := w.c.ledger.parking.Len(); n != 0 || w.c.Cycle() == before {
		t.Errorf("%d gangs are parked or may be by the step of the plan", n)
	}
	w.run(Second)
	if n := w.c.ledger.parking.Len(); n != len(names) {
		t.Errorf("%d gangs are counted, want %d", n, len(names))
	}
}
