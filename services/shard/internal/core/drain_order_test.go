package core

import (
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// surplus is a world in which red has one machine too many and its operator says of drains what state answers: 0 is silence.
func surplus(t *testing.T, edit func(*Config), state func() int32) *world {
	w := newWorld(t, edit, hostsOf(2, "red")...)
	w.drain = func(SendReclaim) int32 { return state() }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Second)
	w.rollup("red", needs(0, 4))
	return w
}

func (w *world) report(state int32) {
	for _, x := range sentOf[SendReclaim](w) {
		w.step(DrainReported{Cluster: x.Cluster, Session: w.sessions[x.Cluster], Instruction: x.Instruction, State: state, Blocking: []string{"default/db"}})
	}
}

// SHARD-17.10: the ack of a voluntary reclaim sends no Drain; the operator's word that nothing is left does.
func TestVoluntaryDrainWaitsUntilTheNodeIsEmpty(t *testing.T) {
	w := surplus(t, nil, func() int32 { return 0 })
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Fatalf("drained %v while Pods are evicted", got)
	}
	if n := len(sentOf[SendReclaim](w)); n != 1 {
		t.Errorf("%d instructions; an acknowledged one is not repeated", n)
	}
	w.report(drainDone)
	w.run(Second)
	if got := w.called(RPCDrain); len(got) != 1 {
		t.Errorf("drained %v after the operator said that the node is empty", got)
	}
}

// SHARD-17.11: a drain that a person stops, or whose deadline comes, is given up: the operator gets the withdrawal, the machine stays, and it is
// left alone for ten minutes and then for longer. The record names the budget.
func TestBlockedDrainIsGivenUp(t *testing.T) {
	for name, state := range map[string]int32{"stopped": drainStopped, "deadline": drainDeadlineExceeded, "silence": 0} {
		t.Run(name, func(t *testing.T) {
			w := surplus(t, nil, func() int32 { return state })
			w.run(map[bool]int64{false: 4 * Minute, true: 12 * Minute}[state == 0]) // the grace is ten
			if got := w.called(RPCDrain); len(got) != 0 {
				t.Errorf("drained %v", got)
			}
			sent := sentOf[SendReclaim](w)
			if last := sent[len(sent)-1]; len(sent) != 2 || !last.Cancelled || last.Instruction != sent[0].Instruction {
				t.Fatalf("sent %+v", sent)
			}
			ended := w.recorded(RecordEnded)
			if last := ended[len(ended)-1]; last.Outcome != "cancelled" || state != 0 && !strings.Contains(last.Detail, "blocked by default/db") {
				t.Errorf("ended %q: %q", last.Outcome, last.Detail)
			}
			if k, _ := w.c.Why(sent[0].Machine); k.BlockedText() != "drain_backoff" {
				t.Errorf("the machine is kept for %q", k.BlockedText())
			}
			w.run(12 * Minute)
			if n := len(sentOf[SendReclaim](w)); n < 3 || n > 4 {
				t.Errorf("%d instructions and cancellations after the first pause", n)
			}
			w.run(Hour)
			if n := len(sentOf[SendReclaim](w)); n > 10 {
				t.Errorf("%d instructions and cancellations in an hour", n)
			}
			if w.state(inventory.Configured) != 2 {
				t.Error("the machine does not serve any more")
			}
		})
	}
}

// SHARD-17.7: a voluntary drain whose node may run Pods and is not cordoned is given up; one without a node drains, and one whose operator
// still tries waits for its last word.
func TestDrainOfANodeThatWasNotCordoned(t *testing.T) {
	for reason, want := range map[string]struct{ drains, instructions int }{
		"REASON_AMBIGUOUS":    {0, 2},
		"REASON_API_ERROR":    {0, 2},
		"REASON_STILL_TRYING": {0, 1},
		"REASON_NOT_FOUND":    {1, 1},
	} {
		t.Run(reason, func(t *testing.T) {
			state := int32(0)
			w := newWorld(t, nil, hostsOf(2, "red")...)
			w.failure, w.drain = reason, func(SendReclaim) int32 { return state }
			w.connect("red")
			w.run(Second)
			w.rollup("red", needs(0, 8))
			w.run(Second)
			w.rollup("red", needs(0, 4))
			w.run(5 * Minute)
			sent := sentOf[SendReclaim](w)
			if got := w.called(RPCDrain); len(got) != want.drains || len(sent) != want.instructions {
				t.Fatalf("drained %v, sent %+v", got, sent)
			}
			if len(sent) == 2 {
				ended := w.recorded(RecordEnded)
				if last := ended[len(ended)-1]; !sent[1].Cancelled || !strings.Contains(last.Detail, "no node was cordoned: the operator says why") {
					t.Errorf("ended %q: %q", last.Outcome, last.Detail)
				}
			}
			w.report(drainDone)
			w.run(Second)
			if got := w.called(RPCDrain); reason == "REASON_STILL_TRYING" && len(got) != 1 {
				t.Errorf("drained %v after the operator said that the node is empty", got)
			}
		})
	}
}

// SHARD-17.11: the deadline of a voluntary drain is configurable, and is the grace that the operator hears.
func TestDrainDeadline(t *testing.T) {
	w := surplus(t, func(c *Config) { c.DrainDeadline = 90 * Second }, func() int32 { return 0 })
	if got := sentOf[SendReclaim](w); len(got) != 0 && got[0].GraceSecs != 90 {
		t.Fatalf("sent %+v", got)
	}
	w.run(Minute)
	if sent := sentOf[SendReclaim](w); len(sent) != 1 || sent[0].GraceSecs != 90 {
		t.Fatalf("sent %+v, want one instruction with 90 s", sent)
	}
	w.run(3 * Minute) // and the minute of silence beyond it
	if sent := sentOf[SendReclaim](w); len(sent) != 2 || !sent[1].Cancelled || len(w.called(RPCDrain)) != 0 {
		t.Errorf("drained %v, sent %+v", w.called(RPCDrain), sent)
	}
}

// SHARD-17.11: the policy `force` sends Drain at the deadline; a person who stops the drain is obeyed under it as well.
func TestForcedDrain(t *testing.T) {
	force := func(c *Config) { c.DrainForce = true }
	w := surplus(t, force, func() int32 { return drainDeadlineExceeded })
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 1 {
		t.Errorf("drained %v at the deadline", got)
	}
	w = surplus(t, force, func() int32 { return drainStopped })
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Errorf("drained %v although a person stopped it", got)
	}
}

// SHARD-17.10: demand that comes back while Pods are evicted takes the instruction back, and the machine stays.
func TestDemandThatReturnsStopsTheDrain(t *testing.T) {
	w := surplus(t, nil, func() int32 { return 0 })
	w.run(Minute)
	w.rollup("red", needs(0, 8))
	w.run(Minute)
	sent := sentOf[SendReclaim](w)
	if len(w.called(RPCDrain)) != 0 || len(sent) != 2 || !sent[1].Cancelled {
		t.Errorf("drained %v, sent %+v", w.called(RPCDrain), sent)
	}
}

// SHARD-17.5, 17.10: a preemption drains once the node is empty, or at its own deadline, and never before.
func TestPreemptWaitsForItsOwnDeadline(t *testing.T) {
	for _, x := range []struct {
		state      int32
		from, till int64
	}{{drainDone, 0, 10 * Second}, {drainDeadlineExceeded, 0, 10 * Second}, {0, 100 * Second, 130 * Second}, {drainStopped, 100 * Second, 130 * Second}} {
		w := newWorld(t, nil, hostsOf(1, "red")...)
		w.drain = func(SendReclaim) int32 { return x.state }
		w.connect("red")
		w.connect("blue")
		w.run(Second)
		w.rollup("red", needs(0, 4))
		w.run(Second)
		w.rollup("blue", needs(200_000, 4))
		w.run(x.from)
		if got := w.called(RPCDrain); x.from > 0 && len(got) != 0 {
			t.Errorf("state %d: drained %v before the deadline", x.state, got)
		}
		w.run(x.till - x.from)
		if got := w.called(RPCDrain); len(got) != 1 {
			t.Errorf("state %d: drained %v", x.state, got)
		}
	}
}

// SHARD-17.5: a preemption whose cluster has no session waits for one handover of its operator before it acts without one.
func TestPreemptWaitsForAHandover(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := newWorld(t, func(c *Config) { c.SessionHandoverWait = 30 * Second }, hostsOf(1, "red")...)
		w.connect("red")
		w.connect("blue")
		w.run(Second)
		w.rollup("red", needs(0, 4))
		w.run(Second)
		w.disconnect("red")
		w.rollup("blue", needs(200_000, 4))
		w.run(25 * Second)
		if got := w.called(RPCDrain); len(got) != 0 {
			t.Fatalf("drained %v without waiting", got)
		}
		if back {
			w.connect("red")
		}
		w.run(10 * Second)
		if n, skipped := len(w.called(RPCDrain)), w.count(MetricEvictionsSkipped); n != 1 || skipped != map[bool]int64{false: 1, true: 0}[back] {
			t.Errorf("operator back: %v; %d Drains, %d without eviction", back, n, skipped)
		}
	}
}

// SHARD-17.4, 17.5: an operator that comes back within the handover and answers nothing holds a preemption up for its wait only, and
// hears the instruction again meanwhile.
func TestPreemptAfterAHandoverDoesNotWaitForEver(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.SessionHandoverWait = 30 * Second }, hostsOf(1, "red")...)
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.disconnect("red")
	w.rollup("blue", needs(200_000, 4))
	w.run(5 * Second)
	w.ack = func(SendReclaim) bool { return false }
	w.connect("red", "need-status") // knows neither reports of drains nor cancellations
	w.run(Minute)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Errorf("%d Drains a minute after the operator came back", n)
	}
	if n := len(sentOf[SendReclaim](w)); n < 2 {
		t.Errorf("the instruction was sent %d times", n)
	}
}

// SHARD-17.6: a process that ends between instruction and Drain leaves a note; the next one takes the instruction back, so that no
// node stays cordoned for nothing.
func TestInstructionOfTheProcessBeforeIsTakenBack(t *testing.T) {
	w := surplus(t, nil, func() int32 { return 0 })
	var kept []JournalEntry
	w.watch = func(list []Effect) {}
	w.run(Second)
	first := sentOf[SendReclaim](w)
	if len(first) != 1 {
		t.Fatalf("sent %+v", first)
	}
	o := w.c.ops.byMachine[first[0].Machine]
	e := JournalEntry{Machine: o.Machine, Kind: o.Kind, Cluster: o.Cluster, Grace: o.Grace, Instruction: o.Instruction}
	var back JournalEntry
	if err := codec.Unmarshal(codec.Marshal(e), &back); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, back)
	next := &world{t: t, c: New(nil), mono: Second, wall: w.wall, provider: w.provider, attributions: w.attributions, samples: map[string]int64{}, sessions: map[string]int64{}}
	next.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p"}, ReclaimCapOff: true, ReleaseDelay: -1}, Epoch: 8, Journal: kept})
	next.run(Second)
	next.connect("red")
	sent := sentOf[SendReclaim](next)
	if !slices.ContainsFunc(sent, func(s SendReclaim) bool { return s.Cancelled && s.Instruction == first[0].Instruction }) {
		t.Errorf("the next process sent %+v", sent)
	}
	next.connect("red")
	if n := len(sentOf[SendReclaim](next)); n != len(sent) {
		t.Errorf("%d more at the second session", n-len(sent))
	}
}

// SHARD-19.10: a machine is reclaimed once it has been in excess for the release delay without interruption; a dip that is shorter
// changes nothing.
func TestReleaseDelay(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReleaseDelay = 3 * Minute }, hostsOf(2, "red")...)
	w.connect("red")
	w.run(Second)
	for range 3 {
		w.rollup("red", needs(0, 8))
		w.run(2 * Minute)
		w.rollup("red", needs(0, 4))
		w.run(2 * Minute)
	}
	if sent := sentOf[SendReclaim](w); len(sent) != 0 {
		t.Fatalf("sent %+v for dips of two minutes", sent)
	}
	if k, _ := w.c.Why("red-001"); k.BlockedText() != "release_delay" {
		t.Errorf("the machine is kept for %q", k.BlockedText())
	}
	w.run(90 * Second)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Errorf("%d Drains after three and a half minutes", n)
	}
}

// SHARD-17.12: a drain that waits for its operator ends when its machine turns out to serve another cluster; nothing is drained there.
func TestADrainEndsWhenItsMachineServesAnotherCluster(t *testing.T) {
	w := surplus(t, nil, func() int32 { return 0 })
	w.run(Minute)
	sent := sentOf[SendReclaim](w)
	if len(sent) != 1 {
		t.Fatalf("sent %+v", sent)
	}
	w.provider[sent[0].Machine].Cluster = "blue"
	w.run(2 * Minute)
	w.report(drainDone)
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Errorf("drained %v, which serves blue", got)
	}
	if got := w.outcomes(KindReclaim); got["stale_state"] != 1 {
		t.Errorf("the drain ended as %v", got)
	}
}
