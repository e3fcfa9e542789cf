package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// OP-5.15, OP-5.22: an operator of another version may name its rows otherwise, or split one by the size of its Pods. The machines
// serve on: nothing is bought, nothing is drained, neither at the upgrade nor when it is taken back.
func TestRenamedRowsKeepTheirMachines(t *testing.T) {
	w := newWorld(t, func(*Config) {}, slotsOf(12)...)
	w.connect("red")
	w.rollup("red", needs(0, 8, 12))
	w.run(10 * Minute)
	served := w.state(inventory.Configured)
	if served == 0 {
		t.Fatal("nothing serves")
	}
	before := len(w.calls)
	named := func(prefix string) {
		rows := needs(0, 8, 12)
		for i := range rows {
			rows[i].RowID = fmt.Sprintf("%srow%d", prefix, i)
			if prefix != "" {
				rows[i].Group = fmt.Sprintf("%ssize%d", prefix, i)
			}
		}
		w.rollup("red", rows)
	}
	split := func() {
		rows := append(needs(0, 4, 8), needs(0, 4, 4)...)
		for i := range rows {
			rows[i].RowID, rows[i].Group = fmt.Sprintf("half%d", i), fmt.Sprintf("s2-%d", i)
		}
		w.rollup("red", rows)
	}
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"a name for each size", func() { named("s1-") }}, {"another derivation", func() { named("s2-") }}, {"a row is split", split},
		{"taken back", func() { named("") }},
	} {
		w.disconnect("red") // the operator is replaced
		w.run(20 * Second)
		w.connect("red")
		c.change()
		w.run(30 * Minute)
		if got := w.calls[before:]; len(got) != 0 || w.state(inventory.Configured) != served {
			t.Errorf("%s: %v were called, %d of %d machines serve", c.name, got, w.state(inventory.Configured), served)
			before = len(w.calls)
		}
	}
}
