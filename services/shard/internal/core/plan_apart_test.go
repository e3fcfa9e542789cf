package core

import "testing"

// SHARD-6.4, SHARD-8.6: where plans take long, a roll-up is acknowledged in its own step and the plan is the next one. Where they are quick, the plan is
// made at once.
func TestARollupIsAcknowledgedBeforeALongPlan(t *testing.T) {
	for _, x := range []struct {
		name  string
		took  int64
		apart bool
	}{{"quick", Millisecond / 2, false}, {"long", 80 * Millisecond, true}} {
		w := newWorld(t, nil, slot("m1"), slot("m2"))
		w.connect("red")
		w.connect("blue")
		w.run(5 * Second)
		before := w.c.Cycle()
		w.rollup("red", needs(0, 4))
		if w.c.Cycle() == before {
			t.Fatal("the first roll-up is not planned at once")
		}
		w.advance(w.mono + x.took)
		w.ended = w.mono
		w.step(Tick{})
		w.advance(w.mono + Second)
		before = w.c.Cycle()
		if d := w.rollup("blue", needs(0, 4)); d != DispositionAccepted {
			t.Fatalf("%s: %s", x.name, d)
		}
		if apart := w.c.Cycle() == before; apart != x.apart {
			t.Errorf("%s: the plan is a step of its own: %v", x.name, apart)
		}
		if at, due := w.c.NextWake(); x.apart && (!due || at > w.mono+1) {
			t.Errorf("%s: the plan does not follow at once", x.name)
		}
		w.advance(w.mono + 1)
		w.step(Tick{})
		if w.c.Cycle() == before {
			t.Errorf("%s: no plan follows", x.name)
		}
	}
}
