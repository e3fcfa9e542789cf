package core

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 12, SHARD-6.5: heartbeats that say nothing new cause no cycle: at rest there is one per --cycle-interval,
// however many clusters repeat themselves.
func TestHeartbeatsCauseNoCycle(t *testing.T) {
	const clusters = 200
	w := newWorld(t, nil, slot("m1"))
	rows := needs(0, 1)
	for i := range clusters {
		w.connect(clusterName(i))
	}
	w.run(Second)
	for i := range clusters {
		w.rollup(clusterName(i), rows)
	}
	w.run(Minute)
	before := w.c.Cycle()
	for range 30 { // five minutes of heartbeats, spread over each interval
		for i := range clusters {
			if got := w.rollup(clusterName(i), rows); got != DispositionUnchanged {
				t.Fatalf("a heartbeat is %v", got)
			}
			w.run(10 * Second / clusters)
		}
	}
	if n := w.c.Cycle() - before; n > 31 {
		t.Errorf("%d cycles in 30 intervals", n)
	}
}

func clusterName(i int) string { return "c" + string(rune('a'+i/26)) + string(rune('a'+i%26)) }

// Scenario 13, SHARD-6.4: a storm of changes costs at most ten cycles a second, and each change is used within 200 ms.
func TestStormIsServedInTenCyclesASecond(t *testing.T) {
	const clusters = 500
	w := newWorld(t, nil, slot("m1"))
	for i := range clusters {
		w.connect(clusterName(i))
	}
	w.run(5 * Second)
	before := w.c.Cycle()
	for i := range clusters {
		w.rollup(clusterName(i), needs(0, 1))
		w.run(Second / clusters)
	}
	if n := w.c.Cycle() - before; n > 11 || n < 9 {
		t.Errorf("%d cycles in the second of the storm", n)
	}
	used := w.samples
	w.run(200 * Millisecond)
	if lag := used[metricKey(MetricCycleLag)]; lag > clusters*200*Millisecond {
		t.Errorf("the changes waited for %d ms in all", lag/Millisecond)
	}
	if len(w.c.cycle.Rollups) != 0 {
		t.Errorf("%d changes are not used 200 ms later", len(w.c.cycle.Rollups))
	}
}

// SHARD-6.4: spacing counts from the end of a cycle and is at least as long as the cycle took. Cycles that take longer than the
// spacing would otherwise follow each other without a gap, one event of anybody between two, and a shard with many needs
// that cannot be met would take in six roll-ups a second.
func TestSlowCyclesLeaveHalfOfTheLoopToEvents(t *testing.T) {
	const clusters, slow, quick = 400, 300 * Millisecond, 100 * 1000
	w := newWorld(t, nil, slot("m1"))
	for i := range clusters {
		w.connect(clusterName(i))
	}
	w.run(5 * Second)
	began, first := w.mono, w.c.Cycle()
	for i := range clusters { // as the loop does: the next event is taken when the step before is over
		cycle := w.c.Cycle()
		w.rollup(clusterName(i), needs(0, 1))
		took := int64(quick)
		if w.c.Cycle() != cycle {
			took = slow
		}
		w.mono, w.wall = w.mono+took, w.wall+took
		w.ended = w.mono
	}
	if n := w.c.Cycle() - first; n != 1 {
		t.Errorf("%d cycles while %d roll-ups waited; the first one alone was due", n, clusters)
	}
	if took := w.mono - began; took > slow+clusters*quick {
		t.Errorf("the roll-ups were taken in %d ms", took/Millisecond)
	}
	quiet := w.c.Cycle()
	w.run(25 * Second)
	if n := w.c.Cycle() - quiet; n < 3 { // the one that was due, and --cycle-interval continues after a slow one (SHARD-6.3)
		t.Errorf("%d cycles in 25 s of rest", n)
	}
	if len(w.c.cycle.Rollups) != 0 {
		t.Errorf("%d changes are not used", len(w.c.cycle.Rollups))
	}
}

// SHARD-6.4: while an order keeps every action from starting, plans are for readers only, and slow ones leave nine tenths of the loop
// to events. Once the order ends the next plan comes at the usual time.
func TestSlowCyclesOfAPausedShardLeaveTheLoopToReaders(t *testing.T) {
	const clusters, slow, quick = 600, 300 * Millisecond, 20 * Millisecond
	for _, x := range []struct {
		name  string
		pause Pause
		most  int64 // cycles that 12 s of events may see
		least int64
	}{
		{"everything is paused", Pause{}, 6, 3},
		{"one cluster is paused", Pause{Cluster: "ca"}, 45, 30},
	} {
		w := newWorld(t, nil, slot("m1"))
		for i := range clusters {
			w.connect(clusterName(i))
		}
		w.run(5 * Second)
		x.pause.ID, x.pause.Reason = "p1", "look"
		w.step(AdminAsked{Ask: 1, Command: AdminPause, Actor: "me", Reason: "look", Pause: &x.pause})
		timed := func(took int64, step func()) {
			cycle := w.c.Cycle()
			step()
			if w.c.Cycle() != cycle {
				took = slow
			}
			w.mono, w.wall = w.mono+took, w.wall+took
			w.ended = w.mono
		}
		serve := func(from, to int) (cycles int64) { // as the loop does: the next event is taken when the step before is over, and a Tick that is due
			first := w.c.Cycle()
			for i := from; i < to; i++ {
				timed(quick, func() { w.rollup(clusterName(i), needs(0, 1)) })
				if at, due := w.c.NextWake(); due && at <= w.mono {
					timed(0, func() { w.step(Tick{}) })
				}
			}
			return w.c.Cycle() - first
		}
		if n := serve(0, clusters-20); n > x.most || n < x.least {
			t.Errorf("%s: %d cycles, want %d to %d", x.name, n, x.least, x.most)
		}
		w.step(AdminAsked{Ask: 2, Command: AdminResume, Actor: "me", Reason: "go", PauseID: "p1"})
		if n := serve(clusters-20, clusters); n == 0 {
			t.Errorf("%s: no cycle in the 0.4 s after the pause ended", x.name)
		}
	}
}

func metricKey(m Metric) string { return sampleKey(m, "", "") }

// Scenario 44, SHARD-13.7: a change that a List shows while the operation waits is set aside, because the cursor has moved
// on it never comes again, and so Get fetches it when the operation has settled.
func TestWhatWasSetAsideIsFetched(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.blob = func(PullBootstrap) *BootstrapAnswered { return nil }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.provider["h1"].Price = 7_000_000
	w.run(12 * Second) // a List shows it while the pull waits
	if got := w.c.world.Inventory.Machine(0).Price; got == 7_000_000 {
		t.Fatal("a fact was merged while a pull waits")
	}
	w.listErr = true // from here on no List shows anything
	w.blob = nil
	w.run(40 * Second) // the pull times out; the next one is answered
	if got := w.c.world.Inventory.Machine(0).Price; got != 7_000_000 {
		t.Errorf("the price is still %d: what was set aside was forgotten", got)
	}
}

// Scenario 55, SHARD-19.3, 19.4: whatever triggers cycles, and however often, no window of the budget sees more reclaims
// than a full bucket and one refill; preempts are not counted.
func TestBudgetHoldsUnderAnySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(5, 60).Draw(rt, "machines")
		w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false; c.CycleMinSpacing = 50 * Millisecond }, hostsOf(n, "red")...)
		w.tampered = true
		w.connect("red")
		w.connect("blue")
		w.run(Second)
		w.rollup("red", needs(1, int64(4*n)))
		w.run(Second)
		capacity := max(1, n/20)
		var at []int64
		sent := 0
		look := func() {
			for _, s := range sentOf[SendReclaim](w)[sent:] {
				sent++
				if s.Cause == CauseVoluntary && !s.Cancelled {
					at = append(at, w.mono)
				}
			}
			for i := range at {
				k := 0
				for _, x := range at[i:] {
					if x-at[i] < 10*Second {
						k++
					}
				}
				if k > 2*capacity {
					rt.Fatalf("%d reclaims within one window of %d machines", k, n)
				}
			}
		}
		for range rapid.IntRange(20, 80).Draw(rt, "steps") {
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				w.rollup("red", needs(1, int64(rapid.IntRange(n/2, 4*n).Draw(rt, "cpus"))))
			case 1:
				w.rollup("blue", needs(1000, int64(4*rapid.IntRange(0, 2).Draw(rt, "blue"))))
			case 2:
				w.c.trigger(triggerNode)
				w.step(Tick{})
			}
			w.run(int64(rapid.IntRange(1, 2000).Draw(rt, "ms")) * Millisecond)
			look()
		}
	})
}

// Scenario 59, SHARD-15.3: with one place in each concurrency class, and the first command of every kind slow, each kind gets on.
func TestEveryKindProgresses(t *testing.T) {
	var machines []inventory.Machine
	machines = append(machines, hostsOf(6, "red")...) // four of them are excess
	machines = append(machines, host("i1", inventory.Idle, ""), host("i2", inventory.Idle, ""), host("i3", inventory.Idle, ""))
	for i := range machines {
		if machines[i].State == inventory.Idle { // too small for anybody: to be released
			machines[i].Resources[0].Milli = 100
		}
	}
	machines = append(machines, slotsOf(3)...)
	special := host("s1", inventory.Configured, "green")
	special.Zone = "special"
	machines = append(machines, special)
	w := newWorld(t, func(c *Config) { c.ExecuteConcurrency = 1; c.ProviderConcurrency = 1 }, machines...)
	for _, name := range []string{"red", "green", "blue"} {
		w.connect(name)
	}
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.rollup("green", needs(1, 4))
	picky := needs(1000, 4)
	picky[0].Profile.Requirements = []demand.Requirement{{Key: inventory.ZoneKey, Op: demand.In, Values: []string{"special"}}}
	picky[0].Seal()
	plain := needs(10, 24) // more than what red gives back
	w.rollup("blue", append(picky, plain...))
	w.run(40 * Minute)
	for _, k := range []Kind{KindBootstrap, KindProvision, KindPreempt, KindReclaim, KindDelete} {
		if w.outcomes(k)["success"] == 0 {
			t.Errorf("no %s came to its end: %v", k, w.outcomes(k))
		}
	}
	_ = engine.CauseIdle
}

// Scenario 64, SHARD-21.6: two shards on one provider with disjoint domains; one loses a domain while it creates a machine
// there. Each is short and would use everything; no machine is acted on by both.
func TestTwoShardsShareAProvider(t *testing.T) {
	machines := []inventory.Machine{zoned("a1", "za", inventory.Speculative, ""), zoned("a2", "za", inventory.Speculative, ""),
		zoned("b1", "zb", inventory.Speculative, ""), zoned("b2", "zb", inventory.Speculative, "")}
	one := newWorld(t, coordinated, machines...)
	two := newWorld(t, func(c *Config) { c.Coordinated = true; c.ShardID = "shard-1" })
	two.provider = one.provider // one world of machines
	one.tampered, two.tampered = true, true
	one.dwell, two.dwell = 2*Minute, 2*Minute
	view := func(w *world, id string, term int64, zones ...string) {
		v := &View{Term: term, Index: 1, PartitionKeys: []string{labelZone}}
		for _, z := range zones {
			v.Owned = append(v.Owned, DomainRef{labelZone, z})
		}
		w.step(CoordinatorReplied{Term: term, UUID: "u", Instructions: []Instruction{{ID: id, Term: term, SetView: v}}})
	}
	both := func(d int64) {
		for range d / (100 * Millisecond) {
			one.run(100 * Millisecond)
			two.run(100 * Millisecond)
		}
	}
	one.connect("red")
	two.connect("blue")
	both(Second)
	view(one, "v1", 3, "za", "zb")
	view(two, "v1", 3)
	one.rollup("red", needs(0, 16))
	two.rollup("blue", needs(0, 16))
	both(20 * Second)
	if len(one.called(RPCCreate)) != 4 || len(two.calls) != 0 {
		t.Fatalf("the owner created %v, the other did %d things", one.called(RPCCreate), len(two.calls))
	}
	view(one, "v2", 4, "za") // zb goes, in the middle of its Creates
	both(30 * Second)
	view(two, "v2", 4, "zb") // the coordinator gives it on only after the ack of the first
	both(10 * Minute)
	first := map[string]bool{}
	for _, x := range one.calls {
		first[x.Machine] = true
	}
	for _, x := range two.calls {
		if first[x.Machine] && one.mono < two.mono {
			t.Errorf("%s of %s by the second shard, which the first had acted on", x.RPC, x.Machine)
		}
	}
	owner := map[string]string{}
	for id, m := range one.provider {
		owner[id] = m.Cluster
	}
	if owner["a1"] != "red" || owner["a2"] != "red" {
		t.Errorf("the machines of za serve %v", owner)
	}
	for _, id := range []string{"b1", "b2"} {
		if owner[id] == "" {
			t.Errorf("%s serves no cluster although both are short: %v", id, owner)
		}
	}
}
