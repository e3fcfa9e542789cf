package planner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"pgregory.net/rapid"
)

// times multiplies what a test does: 1 in CI, BIGFLEET_ENGINE_LONG of it at night.
func times(n int) int {
	if more, err := strconv.Atoi(os.Getenv("BIGFLEET_ENGINE_LONG")); err == nil && more > 1 {
		return n * more
	}
	return n
}

// drawLoop makes a random world of the harness: types of machines, some of them whole devices with few cpus, clusters that
// already have unattributed machines, workloads of several priorities, gangs.
func drawLoop(seed uint64) *loop {
	l := newLoop(seed)
	r := l.rng
	l.every = 7
	for _, what := range []string{"create", "configure", "drain", "delete"} {
		l.dwell[what] = []int{0, 1, 2, 3, 5}[r.IntN(5)]
	}
	l.unattributed = []int{0, 0, 30}[r.IntN(3)]
	for rack := range 2 + r.IntN(3) {
		l.slots(fmt.Sprintf("small%d-", rack), 4+r.IntN(6), fmt.Sprintf("cpu=4 mem=8 price=1 type=small zone=a label.rack=r%d", rack+1))
		l.slots(fmt.Sprintf("big%d-", rack), 1+r.IntN(3), fmt.Sprintf("cpu=16 mem=32 price=3.5 type=big zone=b spot risk=0.01 label.rack=r%d", rack+1))
	}
	l.slots("gpu", 3, "cpu=2 mem=4 gpu=1 price=5 type=gpu zone=a label.rack=r1")
	l.slots("metal", 2, "cpu=8 mem=16 price=2 bare-metal type=metal zone=a label.rack=r2")
	for c := range 2 + r.IntN(2) {
		y := l.yard([]string{"blue", "green", "red"}[c])
		for k := range 1 + r.IntN(4) {
			l.drawLoad(y, k)
		}
		for k := range r.IntN(4) {
			l.do(fmt.Sprintf("machine old-%s-%d cpu=4 mem=8 price=1 type=small zone=a label.rack=r1 configured=%s", y.name, k, y.name))
		}
	}
	return l
}

func (l *loop) drawLoad(y *yard, k int) {
	r := l.rng
	unit := []amounts3{{1, 1}, {1, 2}, {2, 2}, {4, 4}, {1, 1, 1}}[r.IntN(5)]
	ld := y.run(fmt.Sprintf("w%d", k), []int32{0, 10, 10, 100, 1000}[r.IntN(5)], unit, r.IntN(10))
	ld.profile.Interruption = []demand.Bucket{0, 3, 9, 27}[r.IntN(4)]
	ld.profile.Reclamation = []demand.Bucket{0, 5}[r.IntN(2)]
	switch r.IntN(5) {
	case 0:
		ld.gang = unit[2] == 0
	case 1:
		ld.profile.Requirements = []demand.Requirement{{Key: inventory.ZoneKey, Op: demand.In, Values: []string{"a"}}}
	}
}

// disturb changes something: demand goes up and down, machines break.
func (l *loop) disturb() {
	y := l.clusters[l.rng.IntN(len(l.clusters))]
	if ld := y.loads[l.rng.IntN(len(y.loads))]; l.rng.IntN(3) > 0 {
		ld.scale(y, l.rng.IntN(12))
	} else {
		l.lose(y)
	}
}

// ENG-P12, ENG-26.2, ENG-S1: whatever happened before, constant demand settles, and then nothing moves for 100 cycles; no
// gang that some rack could hold is left waiting. The results of 1 and 16 workers and of the Planner are the same on the
// way, and the invariants hold.
func TestSteadyDemandIsQuiet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := drawLoop(rapid.Uint64().Draw(rt, "seed"))
		for range l.rng.IntN(60) {
			if l.rng.IntN(4) == 0 {
				l.disturb()
			}
			l.cycle(rt)
		}
		l.settle(rt, 400, 100)
		if err := l.noGangStarves(); err != nil {
			rt.Fatal(err)
		}
	})
}

// noGangStarves looks for a gang that is short although its domain could hold it with what is free.
func (l *loop) noGangStarves() error {
	for _, ref := range l.last.Short {
		if ref.Row >= engine.FoldedRow {
			continue
		}
		n, cluster := l.last.Need(ref)
		if v := l.last.Blocks[ref.Block].Verdicts[ref.Row]; n.Form.Same != nil && v.Satisfiable {
			return fmt.Errorf("gang %s of %s is short at rest, and its domain could hold it", n.RowID, cluster)
		}
	}
	return nil
}

// ENG-S1: 500 Pods in two clusters on 90 machines, a small surplus here and a small deficit there.
func TestTwoClustersOf500Pods(t *testing.T) {
	l := newLoop(1)
	l.every = 20
	l.dwell["create"], l.dwell["configure"], l.dwell["drain"] = 2, 1, 2
	l.slots("m", 90, "cpu=8 mem=16 price=1 type=t label.rack=r1")
	for c, name := range []string{"blue", "red"} {
		y := l.yard(name)
		y.run("web", 10, amounts3{1, 2}, 200)
		y.run("batch", 0, amounts3{2, 2}, 50+10*c)
	}
	l.settle(t, 100, 10)
	l.clusters[0].loads[0].scale(l.clusters[0], 190)
	l.clusters[1].loads[1].scale(l.clusters[1], 64)
	l.settle(t, 100, 100)
	if placed, all := l.running(); placed != all || len(l.last.Short) > 0 {
		t.Fatalf("%d of %d Pods run, %d rows are short", placed, all, len(l.last.Short))
	}
}

// dwells are the cycles that things take in ENG-P13.
var dwells = []int{0, 1, 2, 3, 5, 60}

// ENG-P13, ENG-S2, ENG-S3, ENG-5.4, ENG-9.7: whatever Create and Configure take, a gap of n machines makes n acquisitions,
// and a growth of three makes three more.
func TestAcquisitionsEqualTheGap(t *testing.T) {
	for _, create := range dwells {
		for _, configure := range dwells {
			l := newLoop(uint64(create*100 + configure))
			l.every = 11
			l.dwell["create"], l.dwell["configure"] = create, configure
			l.slots("m", 40, "cpu=4 mem=8 price=1 label.rack=r1")
			y := l.yard("blue")
			ld := y.run("web", 10, amounts3{2, 2}, 20)
			l.settle(t, 400, 5)
			if l.bought != 10 {
				t.Fatalf("create %d, configure %d: %d machines for a gap of 10", create, configure, l.bought)
			}
			ld.scale(y, 26)
			l.settle(t, 400, 5)
			if l.bought != 13 || l.moved[engine.Reclaim]+l.moved[engine.Preempt] != 0 {
				t.Fatalf("create %d, configure %d: %d machines, then %d drains, for a gap of 13", create, configure, l.bought, l.moved[engine.Reclaim]+l.moved[engine.Preempt])
			}
		}
	}
}

// ENG-P13, ENG-S38, ENG-15.12: whatever a drain takes, one preemptor drains as many machines as it needs.
func TestVictimsEqualTheNeed(t *testing.T) {
	for _, drain := range dwells {
		for _, configure := range []int{0, 2} {
			l := newLoop(uint64(drain))
			l.every = 11
			l.dwell["drain"], l.dwell["configure"] = drain, configure
			l.slots("m", 6, "cpu=4 mem=8 price=1 label.rack=r1")
			low, high := l.yard("blue"), l.yard("red")
			low.run("batch", 0, amounts3{4, 4}, 6)
			l.settle(t, 300, 5)
			high.run("vip", 1_000_000, amounts3{4, 4}, 3)
			l.settle(t, 300, 100)
			// A reservation lasts for grace and margin: a drain of 60 cycles is longer than the 13 of this gap, and expires.
			if want := 3; l.moved[engine.Preempt] != want && drain < 13 {
				t.Fatalf("drain %d: %d victims, want %d", drain, l.moved[engine.Preempt], want)
			}
			if l.moved[engine.Preempt] > 6 {
				t.Fatalf("drain %d: %d victims of 6 machines", drain, l.moved[engine.Preempt])
			}
			if v, _ := l.last.Verdict("red", l.w.Demand.Cluster("red").Needs[0].RowKey()); v.Status != engine.Met {
				t.Fatalf("drain %d: the preemptor is %s", drain, v.Status)
			}
		}
	}
}

// ENG-S4: one machine lost every 1 to 3 cycles; replacing them reclaims next to nothing, whatever a Create takes.
func TestLossesDoNotChurn(t *testing.T) {
	for _, dwell := range []int{0, 2, 4} {
		l := newLoop(uint64(40 + dwell))
		l.every = 13
		l.dwell["create"], l.dwell["configure"] = dwell, dwell/2
		l.slots("m", 60, "cpu=4 mem=8 price=1 label.rack=r1")
		l.slots("n", 20, "cpu=8 mem=16 price=1.9 label.rack=r2")
		y := l.yard("blue")
		y.run("web", 10, amounts3{1, 1}, 90)
		y.run("db", 100, amounts3{4, 4}, 8)
		l.settle(t, 200, 5)
		losses, before := 0, l.moved[engine.Reclaim]
		for range 150 {
			if l.rng.IntN(2) == 0 && l.lose(y) {
				losses++
			}
			l.cycle(t)
		}
		if reclaims := l.moved[engine.Reclaim] - before; 4*reclaims > losses {
			t.Errorf("dwell %d: %d reclaims for %d losses", dwell, reclaims, losses)
		}
		l.settle(t, 200, 100)
	}
}

// ENG-S40, ENG-4.11: with requests for pending Pods alone the fleet never comes to rest; with total demand it does. The
// first half shows that the harness would notice.
func TestPendingDemandOscillates(t *testing.T) {
	for _, pending := range []bool{true, false} {
		l := newLoop(40)
		l.every = 17
		l.pending = pending
		l.dwell["create"], l.dwell["drain"] = 1, 1
		l.slots("m", 40, "cpu=4 mem=8 price=1 label.rack=r1")
		for _, name := range []string{"blue", "red"} {
			l.yard(name).run("web", 10, amounts3{1, 1}, 40)
		}
		for range 60 {
			l.cycle(t)
		}
		moves := 0
		for range 100 {
			l.cycle(t)
			moves += len(l.moves())
		}
		if pending && moves < 100 || !pending && moves != 0 {
			t.Errorf("pending Pods only: %v; %d moves in 100 cycles of constant load", pending, moves)
		}
	}
}

// ENG-S51, ENG-11.9: a donor that grows and shrinks each minute for an hour costs its receivers at most one purchase each,
// and takes no machine from them.
func TestABreathingDonorDoesNotOscillate(t *testing.T) {
	l := newLoop(51)
	l.every = 19
	l.dwell["create"], l.dwell["configure"] = 1, 1
	l.slots("m", 20, "cpu=16 mem=32 price=1 label.rack=r1")
	y := l.yard("blue")
	donor := y.run("donor", 100, amounts3{1, 1}, 4)
	for k := range 3 {
		y.run(fmt.Sprintf("receiver%d", k), 10, amounts3{3, 3}, 1)
	}
	l.settle(t, 100, 5)
	before, drained := l.bought, 0
	for n := range 360 {
		if n%6 == 0 {
			donor.scale(y, []int{4, 15}[n/6%2])
		}
		l.cycle(t)
		for _, a := range l.actions {
			if a.Kind == engine.Reclaim || a.Kind == engine.Preempt {
				drained++
			}
		}
	}
	if l.bought-before > 3 || drained > 0 {
		t.Fatalf("%d purchases and %d drains in an hour", l.bought-before, drained)
	}
}

// ENG-2.9, ENG-S12: any part of a plan may be carried out late and in any order; what was not done, or was overtaken by
// what the machines did meanwhile, is derived again, and nothing is bought twice.
func TestAnyPartOfAPlanMayBeDone(t *testing.T) {
	for seed := range uint64(times(40)) {
		l := newLoop(seed)
		l.every = 5
		l.dwell["create"] = l.rng.IntN(4)
		l.slots("m", 30, "cpu=4 mem=8 price=1 label.rack=r1")
		y := l.yard("blue")
		y.run("web", 10, amounts3{4, 4}, 12)
		for range 30 {
			l.stage.cycle++
			l.now += ledger.NominalCycle
			l.finishSome()
			l.evict(y)
			l.schedule(y)
			l.report(y)
			part := *l.plan(t)
			part.Actions = slices.Clone(part.Actions)
			l.rng.Shuffle(len(part.Actions), func(a, b int) { part.Actions[a], part.Actions[b] = part.Actions[b], part.Actions[a] })
			part.Actions = part.Actions[:l.rng.IntN(len(part.Actions)+1)]
			if l.rng.IntN(3) == 0 && len(part.Actions) > 0 { // one machine is gone by the time its action starts
				i := part.Actions[0].Machine
				l.w.Inventory.Move(i, inventory.Failed, "")
				l.w.Inventory.SetPromise(i, nil)
			}
			part.Actions = slices.DeleteFunc(part.Actions, func(a engine.Action) bool { return !startable(l.w, a) })
			for _, a := range part.Actions {
				if a.Cause == engine.CauseSpeculative {
					l.bought++
				}
			}
			l.execute(&part)
		}
		l.settle(t, 100, 20)
		lost := l.w.Inventory.Count(inventory.Failed)
		if got := l.w.Inventory.Count(inventory.Configured); got != 12 || l.moved[engine.Reclaim] > 0 || l.bought > 12+lost {
			t.Fatalf("seed %d: %d machines serve 12 Pods, %d bought, %d lost, %d drained", seed, got, l.bought, lost, l.moved[engine.Reclaim])
		}
	}
}

// startable is what the core asks before it starts an action: is the machine still where the plan saw it?
func startable(w *engine.World, a engine.Action) bool {
	from := map[engine.Kind]inventory.State{engine.Bootstrap: inventory.Idle, engine.Provision: inventory.Speculative, engine.Preempt: inventory.Configured,
		engine.Reclaim: inventory.Configured, engine.Delete: inventory.Idle}[a.Kind]
	return w.Inventory.Seen(a.Machine) == from
}

// ENG-S46, ENG-15.13: with no Reclaim ever carried out, Preempts are planned and done as if nothing else waited.
func TestPreemptsDoNotWaitForReclaims(t *testing.T) {
	l := newLoop(46)
	l.slots("m", 12, "cpu=4 mem=8 price=1 label.rack=r1")
	low, high, gone := l.yard("blue"), l.yard("red"), l.yard("green")
	low.run("batch", 0, amounts3{4, 4}, 6)
	other := gone.run("old", 2000, amounts3{4, 4}, 6)
	other.profile.Requirements = []demand.Requirement{{Key: "rack", Op: demand.In, Values: []string{"r1"}}}
	l.settle(t, 100, 3)
	other.scale(gone, 1) // five machines are excess from now on, attributed to a higher priority than what comes
	vip := high.run("vip", 1000, amounts3{4, 4}, 8)
	vip.profile.Interruption = 5
	for range 20 { // the budget is used up: Reclaims are planned each time and never start
		l.stage.cycle++
		l.now += ledger.NominalCycle
		l.finishSome()
		for _, y := range l.clusters {
			l.evict(y)
			l.schedule(y)
			l.report(y)
		}
		r := *l.plan(t)
		reclaims := 0
		r.Actions = slices.DeleteFunc(slices.Clone(r.Actions), func(a engine.Action) bool {
			if a.Kind == engine.Reclaim {
				reclaims++
			}
			return a.Kind == engine.Reclaim
		})
		if reclaims != 5 {
			t.Fatalf("%d Reclaims are planned, want 5", reclaims)
		}
		l.execute(&r)
	}
	if l.moved[engine.Preempt] != 3 {
		t.Fatalf("%d Preempts; eight machines are wanted, five excess ones promised", l.moved[engine.Preempt])
	}
}

// ENG-S33, ENG-8.1: 2,400 gangs of 3 to 8 Pods that fit one machine: folded, they need what packing needs.
func TestSmallGangsPack(t *testing.T) {
	s := newStage()
	s.engines = nil
	r := rand.New(rand.NewPCG(33, 1))
	for i := range 540 {
		s.do(fmt.Sprintf("machine m%03d cpu=32 mem=64 price=1 label.rack=r%d speculative", i, i%20))
	}
	var rows []demand.Row
	total := int64(0)
	for i := range 2400 {
		k := int64(3 + r.IntN(6))
		total += k
		rows = append(rows, demand.Row{Group: fmt.Sprint("gang", i), Aggregate: amounts3{k, k}.quantities(1), MinUnit: amounts3{1, 1}.quantities(1),
			Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "rack", Op: demand.Same}}}})
	}
	s.w.Demand.SetFacts("blue", demand.Facts{Heard: true, SharingPerMille: 1000})
	s.w.Demand.Replace("blue", rows, nil, 1)
	for range 5 {
		s.now += ledger.NominalCycle
		s.w.Inventory.Advance(s.now)
		s.last = s.planner.Plan(s.input())
		s.execute(s.last)
	}
	need, got := int((total+31)/32), s.w.Inventory.Count(inventory.Configured)
	if len(s.last.Actions) > 0 || len(s.last.Short) > 0 || got < need || 100*got > 105*need {
		t.Fatalf("%d machines, packing needs %d; %d actions left, %d short", got, need, len(s.last.Actions), len(s.last.Short))
	}
}
