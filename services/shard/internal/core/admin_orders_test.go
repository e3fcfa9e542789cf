package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-6.7, 5.3: what a step of a cycle gives stands in the order in which it has to be done: what starts, then what operators are
// told of it, then what readers see.
func TestOrderInsideACycle(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), slot("m1"))
	var cycles, told int
	last := int64(0)
	w.watch = func(effects []Effect) {
		if w.c.cycle.n == last {
			return
		}
		last = w.c.cycle.n
		started, words, shown := -1, -1, -1
		for i, x := range effects {
			switch x := x.(type) {
			case Record:
				if x.Type == RecordStarted {
					started = i
				}
			case SendHint, SendNeedStatus:
				if words < 0 {
					words = i
				}
			case *Publish:
				shown = i
			}
		}
		switch {
		case started >= 0 && words >= 0 && words < started:
			t.Errorf("cycle %d: operators are told at %d of what starts at %d", last, words, started)
		case shown >= 0 && (shown < started || shown < words):
			t.Errorf("cycle %d is shown at %d, before what it starts (%d) and tells (%d)", last, shown, started, words)
		case started >= 0 && shown >= 0:
			cycles++
		}
		if words >= 0 {
			told++
		}
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(1, 12))
	w.run(Minute)
	if cycles == 0 || told == 0 {
		t.Errorf("%d cycles started something, %d told something", cycles, told)
	}
}
