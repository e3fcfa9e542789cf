package core

import "testing"

// SHARD-15.6: thousands of decisions can wait, and each dispatch looks at them: it makes nothing of their machines, and moves none when the first start.
func TestWaitingDecisionsCostLittle(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false; c.CycleMinSpacing = 8 * Second }, hostsOf(5, "red")...)
	w.tampered = true
	w.connect("red")
	w.run(10 * Second)
	w.rollup("red", needs(0, 20))
	w.run(10 * Second)
	w.rollup("red", nil)
	w.run(9 * Second)
	waiting := w.c.cycle.waiting[KindReclaim]
	if len(waiting) != 4 {
		t.Fatalf("%d decisions wait", len(waiting))
	}
	w.c.clusters.get("red").GateOpen = false
	if n := testing.AllocsPerRun(10, func() { w.c.dispatcher.mayStart(&waiting[0]) }); n > 0 || w.c.dispatcher.mayStart(&waiting[0]) != blockedGate {
		t.Errorf("a look at a decision that waits for its cluster makes %.0f allocations; it waits for %v", n, w.c.dispatcher.mayStart(&waiting[0]))
	}
	second, fourth := waiting[1].machine, waiting[3].machine
	waiting[0].machine, waiting[2].machine = "", ""
	w.c.dispatcher.dropStarted(KindReclaim)
	left := w.c.cycle.waiting[KindReclaim]
	if len(left) != 2 || left[0].machine != second || left[1].machine != fourth || &left[0] != &waiting[1] {
		t.Errorf("%d are left, and the first is moved", len(left))
	}
}
