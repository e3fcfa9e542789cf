package core

import (
	"fmt"
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

// SHARD-6.10: the full plan is made again after a hundred cycles, but at most every minute, and at the least every ten.
func TestFullPlanIsComparedInItsTime(t *testing.T) {
	for _, busy := range []bool{true, false} {
		t.Run(fmt.Sprint("busy ", busy), func(t *testing.T) {
			w := newWorld(t, nil, slotsOf(4)...)
			var at []int64
			w.watch = func([]Effect) {
				if n := len(at); n == 0 || at[n-1] != w.c.cycle.fullAt {
					at = append(at, w.c.cycle.fullAt)
				}
			}
			w.connect("red")
			w.run(Second)
			for i := range 1500 {
				w.rollup("red", needs(1, int64(4+4*(i%2))))
				w.run(200 * Millisecond)
				if !busy {
					w.run(2 * Second)
				}
			}
			least, most := Minute, 10*Minute+w.c.cfg.CycleInterval
			for i := 2; i < len(at); i++ { // the first is before any cycle
				if gap := at[i] - at[i-1]; gap < least || gap > most {
					t.Errorf("%d s between two comparisons", gap/Second)
				}
			}
			if len(at) < 4 {
				t.Errorf("%d comparisons", len(at)-1)
			}
			if n := w.count(MetricPlanMismatch); n != 0 {
				t.Errorf("%d plans differed", n)
			}
		})
	}
}
