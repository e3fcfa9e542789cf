package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// handedOut is what checkpoints gave.
type handedOut struct {
	taken int
	last  *Snapshot
	from  int // first event after the last one
}

// checkpoints counts the checkpoints that are taken, and keeps what the core hands out.
func (w *world) checkpoints() *handedOut {
	h := &handedOut{}
	w.watch = func(effects []Effect) {
		for _, e := range effects {
			if x, is := e.(CheckpointTaken); is {
				if h.taken++; x.State != nil {
					h.last, h.from = x.State.Snapshot(), len(w.log)
				}
			}
		}
	}
	return h
}

// standsAlike lets a core made of the last checkpoint take the events since then.
func (w *world) standsAlike(h *handedOut) {
	w.t.Helper()
	twin, _ := Restore(nil, h.last)
	for _, l := range w.log[h.from:] {
		twin.Step(l.at, l.e)
	}
	if twin.StateDigest() != w.c.StateDigest() {
		w.t.Error("a core made of the checkpoint stands otherwise than the one that made it")
	}
}

// tick lets a millisecond pass.
func (w *world) tick() {
	w.advance(w.mono + Millisecond)
	w.step(Tick{})
}

// left says what the core still has to do in parts.
func (w *world) left() string {
	for _, x := range w.c.cycle.large {
		if x.part < x.parts {
			return "the credit of " + x.cluster
		}
	}
	switch {
	case len(w.c.rollups.staging) > 0:
		return "rows of a roll-up"
	case w.c.world.Demand.Sweep(0):
		return "rows that went"
	case !w.c.ledger.isListed():
		return "short rows"
	case w.c.pub.cycled:
		return "what readers see"
	}
	return ""
}

// SHARD-8.9, 28.3: a checkpoint is taken soon and with nothing left to do in parts, although one cluster states another large roll-up as soon as the last one is
// acknowledged and another one states small ones all the time. The next large one waits for it, in the snapshot, too, and what follows its plan comes in parts.
func TestCheckpointComesBetweenLargeRollups(t *testing.T) {
	const parts = 10
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.connect("red")
	w.run(Minute)
	h := w.checkpoints()
	rounds, steps := 0, 0
	next := func() {
		rounds++
		w.offer("large", fmt.Sprint(rounds), manyNeeds(parts*demand.PartRows, fmt.Sprint(rounds)))
	}
	load := func() {
		if steps++; steps%20 == 0 {
			w.offer("red", fmt.Sprint(steps), needs(0, int64(1+steps/20%3)))
		}
		if w.answered("large") == rounds {
			next()
		}
		w.tick()
	}
	for rounds < 4 {
		load()
	}
	w.step(CheckpointAsked{Full: true})
	asked, left := steps, ""
	for h.taken == 0 && steps < asked+1000 {
		left = w.left()
		load()
	}
	if took := steps - asked; took > 12*parts || left != "" {
		t.Errorf("the checkpoint is taken after %d Ticks, with %q left to do", took, left)
	}
	if w.c.ledger.isListed() || len(w.c.pub.ahead) != 1 {
		t.Error("the step of the checkpoint lists all short rows, or writes all rows for readers")
	}
	if h.last == nil || w.c.clusters.get("large").Queued == nil {
		t.Fatal("no checkpoint, or no roll-up waits for it")
	}
	for range 100 {
		load()
	}
	w.run(2 * Second)
	if w.answered("large") != rounds {
		t.Errorf("%d of %d roll-ups are acknowledged", w.answered("large"), rounds)
	}
	w.standsAlike(h)
	w.step(CheckpointAsked{Full: true}) // nothing is new to its plan
	w.run(2 * Second)
	if h.taken != 2 {
		t.Errorf("%d checkpoints, of 2", h.taken)
	}
	w.standsAlike(h)
}

// SHARD-8.9: of roll-ups that wait for a checkpoint the newest counts. One that changes nothing or is small does not wait, and takes the place of one that does;
// with the session what waits is given up.
func TestLargeRollupThatWaitsForACheckpoint(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RollupGuardOff = true }, slotsOf(2)...)
	for _, name := range []string{"large", "other", "red"} {
		w.connect(name)
	}
	w.run(Minute)
	old := manyNeeds(2*demand.PartRows, "a")
	w.offer("large", "a", old)
	w.run(Second)
	w.offer("large", "a", old) // unchanged
	h := w.checkpoints()
	w.offer("other", "o", manyNeeds(20*demand.PartRows, "o"))
	w.step(CheckpointAsked{})
	cl := w.c.clusters.get("large")
	waits := func(hash string) {
		t.Helper()
		if is := w.c.TakesIn(hash); h.taken != 0 || cl.staged != nil || (cl.Queued != nil) != (hash != "") || is != (hash != "") {
			t.Fatalf("%d checkpoints; taken in %v, waits %v, seen %v, want %q to wait", h.taken, cl.staged != nil, cl.Queued != nil, is, hash)
		}
	}
	answers := w.answered("large")
	w.offer("large", "b", manyNeeds(2*demand.PartRows, "b"))
	waits("b")
	w.offer("large", "a", old)
	waits("")
	w.offer("large", "c", manyNeeds(2*demand.PartRows, "c"))
	w.offer("large", "d", manyNeeds(2*demand.PartRows, "d"))
	waits("d")
	w.offer("red", "1", needs(0, 1))
	if n := w.answered("large") - answers; n != 1 || w.answered("red") != 1 {
		t.Errorf("%d answers, and %d for a small one of another cluster", n, w.answered("red"))
	}
	w.disconnect("large")
	waits("")
	w.connect("large")
	w.offer("large", "e", manyNeeds(2*demand.PartRows, "e"))
	waits("e")
	w.run(2 * Second)
	if n := w.answered("large") - answers; h.taken != 1 || n != 2 || cl.Hash != "e" || w.c.TakesIn("e") {
		t.Errorf("%d checkpoints, %d answers, the demand is %q", h.taken, n, cl.Hash)
	}
}

// SHARD-8.9: a checkpoint waits 10 s at most, and does the rest at once then; the roll-up that waits for it does not become part of that.
func TestCheckpointDoesNotWaitForever(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("large")
	w.run(Minute)
	h := w.checkpoints()
	w.offer("large", "1", manyNeeds(60*demand.PartRows, "a"))
	w.step(CheckpointAsked{})
	w.offer("large", "2", manyNeeds(2*demand.PartRows, "b"))
	asked := w.mono
	for h.taken == 0 && w.mono < asked+2*checkpointWait { // a part takes long
		w.advance(w.mono + Second/4)
		w.step(Tick{})
	}
	if wait := w.mono - asked; h.taken != 1 || wait != checkpointWait || w.answered("large") != 1 {
		t.Errorf("%d checkpoints after %d ms, %d answers", h.taken, wait/Millisecond, w.answered("large"))
	}
	w.run(Second)
	if w.answered("large") != 2 {
		t.Errorf("%d answers of 2", w.answered("large"))
	}
}
