package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-15.2, 15.9: a slot is created, handed over in the step in which it becomes a host, and configured; each machine
// is bought once.
func TestSlotsBecomeMembers(t *testing.T) {
	w := newWorld(t, nil, slotsOf(5)...)
	w.dwell = 30 * Second
	w.connect("red")
	w.rollup("red", needs(0, 10))
	w.run(20 * Second)
	if n := w.state(inventory.Creating); n != 3 {
		t.Fatalf("%d machines are being created", n)
	}
	w.run(2 * Minute)
	if n := w.state(inventory.Configured); n != 3 {
		t.Fatalf("%d machines are configured", n)
	}
	if n := len(w.called(RPCCreate)); n != 3 {
		t.Errorf("%d Creates", n)
	}
	if got := w.outcomes(KindBootstrap); got["success"] != 3 {
		t.Errorf("bootstraps ended %v", got)
	}
}

// Scenario 54, SHARD-33.5.6: a Create that takes many nominal cycles is bought exactly once.
func TestSlowCreateIsBoughtOnce(t *testing.T) {
	w := newWorld(t, nil, slotsOf(9)...)
	w.dwell = 10 * Minute
	w.connect("red")
	w.rollup("red", needs(0, 8))
	w.run(25 * Minute)
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates for two machines", n)
	}
	if n := w.state(inventory.Configured); n != 2 {
		t.Errorf("%d machines are configured", n)
	}
}

// Scenario 71, SHARD-4.9: the same history gives the same digest, and so does a core that starts from a snapshot in the
// middle of it.
func TestReplayGivesTheSameDigests(t *testing.T) {
	w := newWorld(t, nil, slotsOf(8)...)
	w.dwell = 5 * Second
	w.connect("red")
	w.connect("blue")
	w.rollup("red", needs(0, 10))
	w.run(3 * Second)
	w.rollup("blue", needs(100, 16, 3))
	w.run(20 * Second)
	w.step(CheckpointAsked{Full: true})
	middle := len(w.log)
	var snap *Snapshot
	again := New(nil)
	for _, l := range w.log {
		for _, x := range again.Step(l.at, l.e) {
			if taken, ok := x.(CheckpointTaken); ok {
				snap = taken.State.Snapshot()
			}
		}
	}
	if again.Digest() != w.c.Digest() || again.StateDigest() != w.c.StateDigest() {
		t.Fatalf("replayed to %x, lived to %x", again.StateDigest(), w.c.StateDigest())
	}
	back, _ := Restore(nil, snap)
	if back.Digest() != w.c.Digest() {
		t.Errorf("restored to %x, lived to %x", back.Digest(), w.c.Digest())
	}
	if back.StateDigest() != w.c.StateDigest() {
		t.Errorf("restored state %x, lived %x", back.StateDigest(), w.c.StateDigest())
	}
	w.rollup("red", needs(0, 2))
	w.run(30 * Second)
	w.disconnect("blue")
	w.run(2 * Minute)
	w.connect("blue")
	w.rollup("blue", needs(100, 4))
	w.run(12 * Minute)
	for _, l := range w.log[middle:] {
		back.Step(l.at, l.e)
	}
	if back.Digest() != w.c.Digest() || back.StateDigest() != w.c.StateDigest() {
		t.Errorf("from the checkpoint: %x, lived: %x", back.StateDigest(), w.c.StateDigest())
	}
}
