package core

import (
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 40, SHARD-14.7: Configure times out at the client and succeeds at the provider: Get finds out, one bound
// machine, nothing bought twice.
func TestTimeoutIsNoProofOfFailure(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), host("h2", inventory.Idle, ""))
	w.reply = func(x Command) (Code, bool) { return CodeDeadlineExceeded, true }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(20 * Second)
	if got := w.called(RPCConfigure); len(got) != 1 {
		t.Errorf("configured %v", got)
	}
	if w.state(inventory.Configured) != 1 || w.outcomes(KindBootstrap)["success"] != 1 {
		t.Errorf("ended %v", w.outcomes(KindBootstrap))
	}
	if len(w.recorded(RecordMachineFailed)) != 0 {
		t.Error("a timeout made a machine Failed")
	}
}

// SHARD-14.7: with no effect at the provider the same command is tried three times in all, then rolled back.
func TestUnknownWithoutEffectIsTriedThreeTimes(t *testing.T) {
	w := newWorld(t, nil, slot("m1"))
	w.reply = func(x Command) (Code, bool) { return CodeInternal, false }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(7500 * Millisecond) // asked after 1, 2 and 4 s; the pause behind that is 1 s
	if n := len(w.called(RPCCreate)); n != 3 {
		t.Errorf("%d attempts", n)
	}
	if w.outcomes(KindProvision)["provider_unknown"] != 1 {
		t.Errorf("ended %v", w.outcomes(KindProvision))
	}
	if s := w.c.world.Inventory.State(0); s != inventory.Speculative {
		t.Errorf("the machine is %v", s)
	}
}

// Scenario 48, SHARD-14.8, 14.9: a refused Delete backs off and the machine can still be used; a Failed machine that the
// provider repairs is adopted.
func TestRefusedDeleteAndRepairedMachine(t *testing.T) {
	w := newWorld(t, nil, cheap(host("h1", inventory.Idle, "")), cheap(host("f1", inventory.Failed, "")))
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCDelete {
			return CodeUnimplemented, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", nil)
	w.run(45 * Minute)
	n := len(w.called(RPCDelete))
	if n < 2 || n > 6 { // the hold of 10 minutes starts over with each return to Idle
		t.Errorf("%d Deletes", n)
	}
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	if w.state(inventory.Configured) != 1 {
		t.Error("the machine could not be used after its Delete was refused")
	}
	w.provider["f1"].State, w.provider["f1"].LastError = inventory.Idle, ""
	w.rollup("red", needs(0, 8))
	w.run(Minute)
	if w.state(inventory.Configured) != 2 {
		t.Error("the repaired machine was not used")
	}
	if len(w.recorded(RecordMachineRecovered)) == 0 {
		t.Error("no record of the repair")
	}
}

// Scenario 49, SHARD-14.11: a pool out of stock is withheld with growing pauses, and the next cheapest is bought.
func TestStockOut(t *testing.T) {
	dear := slot("z1")
	dear.InstanceType, dear.Price = "m5", 5_000_000
	w := newWorld(t, nil, append(slotsOf(10), dear)...)
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCCreate && x.Machine != "z1" {
			return CodeInvalidArgument, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(20 * Second)
	if w.state(inventory.Configured) != 1 || w.provider["z1"].State != inventory.Configured {
		t.Errorf("created %v", w.called(RPCCreate))
	}
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates: one to learn, one elsewhere", n)
	}
	if s := w.c.pub.status(); len(s.Pools) != 1 || s.Pools[0].Type != "m4" {
		t.Errorf("pools %+v", s.Pools)
	}
}

// Scenario 50, SHARD-14.12: a provider that cannot be reached opens the breaker; nothing is lost; a probe closes it.
func TestBreaker(t *testing.T) {
	w := newWorld(t, nil, slotsOf(20)...)
	down := true
	w.reply = func(x Command) (Code, bool) {
		if down {
			return CodeUnavailable, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 40))
	w.run(10 * Minute)
	if n := len(w.calls); n > 60 {
		t.Errorf("%d calls to a provider that is down", n)
	}
	if w.c.pub.status().Providers[0].Breaker == 0 {
		t.Error("the breaker is closed")
	}
	if w.state(inventory.Failed) != 0 || len(w.recorded(RecordMachineFailed)) != 0 {
		t.Error("machines failed")
	}
	down = false
	w.run(5 * Minute)
	if w.state(inventory.Configured) != 10 {
		t.Errorf("%d machines after the provider returned", w.state(inventory.Configured))
	}
	if w.c.pub.status().Providers[0].Breaker != 0 {
		t.Error("the breaker did not close")
	}
}

// Scenario 29, SHARD-17.4: demand returns before the ack: the reclaim is cancelled, the operator uncordons, the machine
// stays.
func TestReclaimIsCancelledBeforeTheAck(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.ack = func(SendReclaim) bool { return false }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(40 * Second)
	n := len(sentOf[SendReclaim](w))
	if n != 3 {
		t.Errorf("%d instructions in 40 s; repeated every 15 s", n)
	}
	w.rollup("red", needs(0, 8))
	w.run(Second)
	last := sentOf[SendReclaim](w)
	if s := last[len(last)-1]; !s.Cancelled || s.Instruction != last[0].Instruction {
		t.Errorf("sent %+v", s)
	}
	if len(w.called(RPCDrain)) != 0 || w.outcomes(KindReclaim)["cancelled"] != 1 {
		t.Errorf("ended %v", w.outcomes(KindReclaim))
	}
}

// SHARD-17.3: a voluntary Drain is never sent without the ack.
func TestVoluntaryDrainWaitsForTheAck(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.ack = func(SendReclaim) bool { return false }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Hour)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Errorf("drained %v", got)
	}
}

// Scenario 30, SHARD-17.5, 17.6: where the operator reports no drains, a Preempt drains after the ack, after 5 s, or at once without a session; the instruction
// is repeated to a new session with what is left of the grace.
func TestPreempt(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "red")...)
	w.dwell = 2 * Minute
	w.ack = func(SendReclaim) bool { return false }
	w.connect("red", "reclaim-cancel", "released", "node-report")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.rollup("blue", needs(200_000, 4))
	w.run(4 * Second)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Fatalf("drained %v before 5 s had passed", got)
	}
	w.run(2 * Second)
	if got := w.called(RPCDrain); len(got) != 1 {
		t.Fatalf("drained %v after 5 s", got)
	}
	first := sentOf[SendReclaim](w)[0]
	if first.Cause != CausePreempt || first.PreemptorPriority != 200_000 || first.GraceSecs != 120 {
		t.Errorf("instruction %+v", first)
	}
	w.connect("red", "reclaim-cancel", "released", "node-report")
	again := sentOf[SendReclaim](w)
	if s := again[len(again)-1]; s.Instruction != first.Instruction || s.GraceSecs >= 120 || s.GraceSecs < 110 {
		t.Errorf("repeated %+v", s)
	}
	w.run(10 * Minute)
	if m := w.provider["red-000"]; m.State != inventory.Configured || m.Cluster != "blue" {
		t.Errorf("the victim is %v of %q", m.State, m.Cluster)
	}
}

// Scenario 35, SHARD-20.6, 20.7: a mark of a higher epoch is proof; from then on nothing is sent and sessions end.
func TestSupersededByAHigherEpoch(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.reply = func(Command) (Code, bool) { return CodeFailedPrecondition, false }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	for len(w.calls) == 0 {
		w.run(Millisecond)
	}
	w.queue = nil
	w.step(CommandDone{Op: w.calls[0].Op, Attempt: 1, Machine: w.calls[0].Machine, Code: CodeFailedPrecondition, Sent: true, HasFence: true, FenceEpoch: 8})
	n := len(w.calls)
	w.run(Hour)
	if len(w.calls) != n || w.c.superseded == "" {
		t.Errorf("%d calls after the proof", len(w.calls)-n)
	}
	if got := sentOf[CloseSession](w); len(got) != 1 || got[0].Reason != "superseded" {
		t.Errorf("closed %+v", got)
	}
}

// SHARD-20.6: without a mark one confirming attempt is made; refused again means superseded.
func TestSupersededByTheSecondRefusal(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.reply = func(Command) (Code, bool) { return CodeFailedPrecondition, false }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 12))
	w.run(Hour)
	if w.c.superseded == "" {
		t.Fatal("not superseded")
	}
	if n := len(w.calls); n != 4 { // three were in flight, and one confirms
		t.Errorf("%d calls", n)
	}
}

// Scenario 34, SHARD-20.6: a provider whose marks are coarser than one per machine is found out, and gets one call at a
// time; nothing is Failed and nothing latches.
func TestReorderingProviderIsForgiven(t *testing.T) {
	w := newWorld(t, nil, slotsOf(6)...)
	refuse := 2
	w.reply = func(x Command) (Code, bool) {
		if refuse > 0 && x.RPC == RPCCreate {
			refuse--
			return CodeFailedPrecondition, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 24))
	w.run(5 * Minute)
	if w.c.superseded != "" || w.count(MetricFenceReordered) != 1 {
		t.Errorf("superseded %q, reordered %d", w.c.superseded, w.count(MetricFenceReordered))
	}
	if w.state(inventory.Configured) != 6 || w.c.providers[0].limit(w.mono) != 1 {
		t.Errorf("%d machines, limit %d", w.state(inventory.Configured), w.c.providers[0].limit(w.mono))
	}
	w.run(10 * Minute)
	if w.c.providers[0].limit(w.mono) == 1 {
		t.Error("still slow after 10 minutes")
	}
}

// Scenario 56, SHARD-19.3: a cluster of five with an excess of five gives up one machine per window.
func TestSmallClusterGivesUpOnePerWindow(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false }, hostsOf(5, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", nil)
	for i := 1; i <= 4; i++ {
		if n := len(sentOf[SendReclaim](w)); n > i {
			t.Fatalf("%d reclaims in %d windows", n, i)
		}
		w.run(10 * Second)
	}
	w.run(Minute)
	if n := len(w.called(RPCDrain)); n != 5 {
		t.Errorf("%d drained in the end", n)
	}
}

// SHARD-3.9: when stopping, waiting pulls are rolled back and nothing new starts.
func TestStopping(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), slot("m1"))
	w.blob = func(PullBootstrap) *BootstrapAnswered { return nil }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.step(Stopping{})
	if s := w.c.world.Inventory.State(0); s != inventory.Idle && s != inventory.Speculative {
		t.Errorf("the machine is %v", s)
	}
	w.rollup("red", needs(0, 8))
	n := len(w.calls)
	w.run(Hour)
	if len(w.calls) != n {
		t.Error("something started")
	}
}

// Scenario 69, SHARD-4.3: the wall clock decides nothing.
func TestWallClockJumps(t *testing.T) {
	run := func(jump int64) uint64 {
		w := newWorld(t, nil, slotsOf(4)...)
		w.connect("red")
		w.run(Second)
		w.rollup("red", needs(0, 8))
		w.run(Second)
		w.wall += jump
		w.run(10 * Minute)
		w.rollup("red", needs(0, 4))
		w.run(20 * Minute)
		h := newHash()
		for _, c := range w.calls {
			h = h.str(c.Machine).byte(byte(c.RPC))
		}
		return h.sum()
	}
	if a, b, c := run(0), run(6*Hour), run(-6*Hour); a != b || a != c {
		t.Error("a jump of the wall clock changed what was done")
	}
}

// SHARD-24.1: a caller whose order was confirmed reads its effect: with the answer, and before it, comes what readers see.
func TestOrdersAreReadAsTheyWereGiven(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("red")
	w.run(Second)
	order := func(e AdminAsked) *Publish {
		t.Helper()
		e.Actor, e.Reason = "me", "look"
		w.mono, w.wall = w.mono+1, w.wall+1 // sooner than anything is published by itself
		at := At{Mono: w.mono, Wall: w.wall}
		var seen *Publish
		for _, x := range slices.Clone(w.c.Step(at, e)) {
			w.take(x)
			switch x := x.(type) {
			case *Publish:
				seen = x
			case AdminAnswer:
				if seen == nil {
					t.Fatalf("%+v was answered before readers could see it", e)
				}
			}
		}
		w.log = append(w.log, logged{at, e})
		return seen
	}
	if p := order(AdminAsked{Ask: 1, Command: AdminPause, Pause: &Pause{ID: "p1", Reason: "look"}}); len(p.Status.Pauses) != 1 || !p.Status.Paused {
		t.Errorf("after the pause: %+v", p.Status.Pauses)
	}
	w.rollup("red", needs(0, 1))
	w.run(Second)
	if n := &w.c.pub.list[0].Rows[0]; n.Detail() != DetailPaused {
		t.Errorf("the need waits for %d, not for the pause", n.Detail())
	}
	if p := order(AdminAsked{Ask: 2, Command: AdminDryRun, DryRun: true}); !p.Status.DryRun {
		t.Error("dry run is not shown")
	}
	if p := order(AdminAsked{Ask: 3, Command: AdminDryRun}); p.Status.DryRun {
		t.Error("dry run is still shown")
	}
	if p := order(AdminAsked{Ask: 4, Command: AdminResume, PauseID: "p1"}); len(p.Status.Pauses) != 0 || p.Status.Paused || p.Needs[0].Rows[0].Detail() == DetailPaused {
		t.Errorf("the lifted pause is still shown: %+v, the need waits for %d", p.Status.Pauses, p.Needs[0].Rows[0].Detail())
	}
}

// SHARD-17.9, user-asks 17: a drain whose deadline came with Pods left ends with a record of how many, and of what held them.
func TestADrainThatWasForcedIsRecorded(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "red")...)
	w.dwell = 3 * Minute // the grace is two
	w.connect("red", "drain-report")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.rollup("blue", needs(200_000, 4))
	w.run(10 * Second)
	for _, x := range sentOf[SendReclaim](w) {
		w.step(DrainReported{Cluster: "red", Session: w.sessions["red"], Instruction: x.Instruction, State: 1,
			PodsLeft: 2, Blocking: []string{"default/web"}})
	}
	w.run(125 * Second)
	for _, x := range sentOf[SendReclaim](w) { // its Node is gone, and its Pods with it, before the provider says so
		w.step(DrainReported{Cluster: "red", Session: w.sessions["red"], Instruction: x.Instruction, State: drainDone})
	}
	w.run(3 * Minute)
	for _, r := range w.recorded(RecordEnded) {
		if r.Kind == KindPreempt {
			if want := "Pods left at the deadline: 2, held by default/web; they were removed with the machine"; r.Outcome != OutcomeSuccess.String() || r.Detail != want {
				t.Errorf("the drain ended %q: %q", r.Outcome, r.Detail)
			}
			return
		}
	}
	t.Error("no drain ended")
}

// SHARD-14.9: what fails on the way again and again is tried ever more rarely, although the provider accepts it each time; one success ends that.
func TestWhatFailsOnTheWayIsTriedMoreRarely(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.dwell = 5 * Second
	failing := true
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCConfigure && failing {
			w.after(Second, func() { w.move(w.provider[x.Machine], inventory.Idle, x) })
		}
		return CodeOK, true
	}
	at := w.timed()
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(2 * Hour)
	tries := at[RPCConfigure]
	if len(tries) < 5 {
		t.Fatalf("%d Configures in two hours", len(tries))
	}
	for i, least := 1, 24*Second; i < len(tries); i, least = i+1, min(2*least, 48*Minute) {
		if gap := tries[i] - tries[i-1]; gap < least {
			t.Errorf("Configure %d came %d s after the one before, want at least %d s", i+1, gap/Second, least/Second)
		}
	}
	failing = false
	w.run(2 * Hour)
	if w.state(inventory.Configured) != 1 {
		t.Fatal("the machine does not serve")
	}
	if len(w.c.guards.backoffs) != 0 {
		t.Errorf("a success leaves %v", w.c.guards.backoffs)
	}
}
