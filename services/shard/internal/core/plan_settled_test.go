package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-17.4: an operator that cannot receive a withdrawal drains for certain. So when the demand that made a
// machine excess comes back before the ack and goes again, what is left of it is not given up as well.
func TestDrainThatCannotBeCancelledIsNotSupply(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.connect("red", "released")
	w.ack = func(SendReclaim) bool { return false }
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Second)
	w.rollup("red", needs(0, 4)) // one is excess
	w.run(Second)
	instructed := sentOf[SendReclaim](w)
	if len(instructed) != 1 {
		t.Fatalf("%d instructions", len(instructed))
	}
	for range 4 {
		w.rollup("red", needs(0, 8))
		w.run(2 * Second)
		w.rollup("red", needs(0, 4))
		w.run(2 * Second)
	}
	for _, s := range sentOf[SendReclaim](w) {
		if s.Cancelled || s.Machine != instructed[0].Machine {
			t.Errorf("%s was instructed, cancelled %v, after %s", s.Machine, s.Cancelled, instructed[0].Machine)
		}
	}
	// An operator that can receive a withdrawal dials: what waits for its ack can be taken back again.
	w.connect("red")
	w.rollup("red", needs(0, 8))
	w.run(Second)
	if last := sentOf[SendReclaim](w); !last[len(last)-1].Cancelled {
		t.Error("the instruction was not taken back from an operator that can receive a withdrawal")
	}
	if w.state(inventory.Configured) != 2 || len(w.called(RPCDrain)) != 0 {
		t.Errorf("%d machines serve, drained were %v", w.state(inventory.Configured), w.called(RPCDrain))
	}
}

// SHARD-17.4: what will drain for certain is replaced before it has drained.
func TestReplacementDoesNotWaitForTheDrain(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), slot("m1"))...)
	w.connect("red", "released")
	w.ack = func(SendReclaim) bool { return false }
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	if n := len(sentOf[SendReclaim](w)); n != 1 {
		t.Fatalf("%d instructions", n)
	}
	w.rollup("red", needs(0, 8))
	w.run(10 * Second)
	if w.provider["m1"].State != inventory.Configured {
		t.Errorf("m1 is %s: what will drain was counted as supply", w.provider["m1"].State)
	}
}

// SHARD-17.5: the same for a victim: it counts for the row that it is taken for from the moment nothing can stop it, so
// no second victim falls for the same row.
func TestVictimThatCannotBeCancelledIsCountedOnce(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Configured, "red"), host("h2", inventory.Configured, "red"))
	w.connect("red", "released")
	w.connect("blue")
	w.ack = func(SendReclaim) bool { return false }
	w.rollup("red", needs(10, 8))
	w.run(Second)
	w.rollup("blue", needs(1000, 4))
	w.run(2 * Second)
	w.rollup("blue", needs(1000, 4, 0)) // another plan before the drain
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 1 {
		t.Errorf("drained %v for one machine's worth of demand", got)
	}
	if n := w.outcomes(KindPreempt)["success"]; n != 1 {
		t.Errorf("preempts ended %v", w.outcomes(KindPreempt))
	}
	blue := 0
	for _, m := range w.provider {
		if m.Cluster == "blue" {
			blue++
		}
	}
	if blue != 1 {
		t.Errorf("%d machines serve blue", blue)
	}
}

// SHARD-13.6: an operation that began on what is not so ends before it has sent anything, once a later word of the
// provider says so. A word from before the operation decides nothing.
func TestOperationOnAFalseFactEnds(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Configured, "blue"))
	w.listing = func(rows []Fact) []Fact { // the provider's List lies: h1 is free
		rows[0].Machine.State, rows[0].Machine.Cluster = inventory.Idle, ""
		return rows
	}
	w.connect("red")
	w.run(Second)
	w.blob = func(PullBootstrap) *BootstrapAnswered { return nil } // the pull waits
	w.rollup("red", needs(0, 4))
	w.run(Second)
	if got := w.c.world.Inventory.State(0); got != inventory.Configuring {
		t.Fatalf("h1 is %s", got)
	}
	old := int64(len(w.recorded(RecordEnded)))
	w.listing = nil // from here on it tells the truth
	w.run(15 * Second)
	if int64(len(w.recorded(RecordEnded))) == old || w.outcomes(KindBootstrap)["stale_state"] != 1 {
		t.Errorf("the bootstrap ended %v", w.outcomes(KindBootstrap))
	}
	if m := w.c.world.Inventory.Machine(0); m.State != inventory.Configured || m.Cluster != "blue" {
		t.Errorf("h1 is %s for %q", m.State, m.Cluster)
	}
	if got := w.called(RPCConfigure); len(got) != 0 {
		t.Errorf("configured %v", got)
	}
}

// SHARD-20.6, 16.7: the confirming attempt of a Configure needs a blob that has not expired; without one the operation
// ends as fenced, and the suspicion with it.
func TestConfirmingAttemptNeedsAFreshBlob(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.tampered = true
	w.reply = func(Command) (Code, bool) {
		p := w.c.provider("p")
		p.Inflight++ // another command keeps the confirming attempt waiting
		w.after(5*Second, func() { p.Inflight--; w.step(Tick{}) })
		return CodeFailedPrecondition, false
	}
	w.blob = func(PullBootstrap) *BootstrapAnswered { return &BootstrapAnswered{Digest: "d", TTL: Second} }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(35 * Second)
	if got := w.outcomes(KindBootstrap); got["fenced"] != 1 || w.c.superseded != "" {
		t.Errorf("ended %v, superseded %q", got, w.c.superseded)
	}
}
