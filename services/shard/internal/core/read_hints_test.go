package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-25.1 to 25.3: a hint counts free machines that fit, says how sure it is and what the cheapest costs, is sent on
// change only, and ends with NONE when no row asks for the shape any more.
func TestHints(t *testing.T) {
	dear := slot("z1")
	dear.Price = 3_000_000
	w := newWorld(t, nil, append(slotsOf(4), dear)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	got := sentOf[SendHint](w)
	if len(got) == 0 {
		t.Fatal("no hints")
	}
	if h := got[len(got)-1]; h.Count != 4 || h.Confidence != ConfidenceMedium || h.PriceMicro != 1_000_000 || h.Resources[0].Milli != 4000 {
		t.Errorf("hint %+v", h)
	}
	n := len(got)
	w.run(5 * Minute)
	if now := sentOf[SendHint](w); len(now) != n {
		t.Errorf("%d hints while nothing changed", len(now)-n)
	}
	w.rollup("red", nil)
	w.run(20 * Second)
	got = sentOf[SendHint](w)
	if h := got[len(got)-1]; h.Count != 0 || h.Confidence != ConfidenceNone || len(h.Requirements) == 0 {
		t.Errorf("the last word on a shape that no row asks for is %+v", h)
	}
	w.connect("red")
	w.rollup("red", needs(0, 1))
	w.run(20 * Second)
	if now := sentOf[SendHint](w); len(now) == len(got) {
		t.Error("a reconnect was not refilled")
	}
}

// SHARD-25.2: HIGH with an Idle machine, LOW when all that fit are withheld.
func TestHintConfidence(t *testing.T) {
	idle := host("h1", inventory.Idle, "")
	idle.CapacityType = inventory.Reserved
	w := newWorld(t, nil, idle)
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 0)) // asks for nothing yet
	w.run(6 * Second)
	w.reply = func(Command) (Code, bool) { return CodeInvalidArgument, false }
	w.rollup("red", needs(0, 4))
	w.run(20 * Second)
	seen := map[Confidence]bool{}
	for _, h := range sentOf[SendHint](w) {
		seen[h.Confidence] = true
	}
	if !seen[ConfidenceLow] {
		t.Errorf("hints %+v", sentOf[SendHint](w))
	}
}

// SHARD-25.4, 6.3: hints of many clusters come over several steps, and those steps are no cause of cycles: nothing that a
// plan reads has changed.
func TestHintsOfManyClustersCauseNoCycles(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	const clusters = 3 * hintClustersPerStep
	for i := range clusters {
		name := fmt.Sprintf("c%03d", i)
		w.connect(name)
		w.rollup(name, []demand.Row{rowOf(40, 0)}) // no machine fits
	}
	w.run(30 * Second)
	hinted := map[string]bool{}
	for _, h := range sentOf[SendHint](w) {
		hinted[h.Cluster] = true
	}
	if len(hinted) != clusters {
		t.Errorf("%d of %d clusters have got hints", len(hinted), clusters)
	}
	before := w.c.Cycle()
	w.run(100 * Second)
	if n := w.c.Cycle() - before; n > 11 {
		t.Errorf("%d cycles in 100 s in which nothing changed, want one each 10 s", n)
	}
}
