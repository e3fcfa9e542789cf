package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-3.12, 10.6: a machine belongs to the provider that listed it first; another one that lists its id is refused that
// record, and its other machines are merged.
func TestAnIdBelongsToOneProvider(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Providers = []string{"p", "q"} }, slotsOf(1)...)
	w.queue = nil // the Lists are answered here
	if p, q := w.c.reconciler.listOf(1), w.c.reconciler.listOf(2); p == nil || q == nil || p.Name != "p" || q.Name != "q" {
		t.Fatalf("the first Lists are of %v and %v", p, q)
	}
	same, other := slot("m01"), slot("q01")
	w.step(ListPage{List: 1, Rows: []Fact{{Machine: slot("m01")}}})
	w.step(ListDone{List: 1, Complete: true, Seen: 1})
	w.step(ListPage{List: 2, Rows: []Fact{{Machine: same}, {Machine: other}}})
	w.step(ListDone{List: 2, Complete: true, Seen: 2})
	i, _ := w.c.world.Inventory.Find("m01")
	if p := w.c.world.Inventory.Provider(i); p != "p" {
		t.Errorf("m01 is of %s", p)
	}
	if _, known := w.c.world.Inventory.Find("q01"); !known || w.count(MetricMachinesRejected, "identity") != 1 {
		t.Errorf("q01 is known: %v; %d records refused", known, w.count(MetricMachinesRejected, "identity"))
	}
}

// SHARD-13.1, 13.3: a machine with an accepted command is asked for by Get from the poll interval on, ever more seldom with
// the age of the operation, and never by two Lists at a time.
func TestMachinesOnTheirWayArePolled(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	w.dwell = 40 * Second
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	for len(w.calls) == 0 {
		w.run(Millisecond)
	}
	gets := func(d int64) (n int) {
		from := len(w.log)
		w.run(d)
		for _, l := range w.log[from:] {
			if _, is := l.e.(GetDone); is {
				n++
			}
		}
		return n
	}
	second, later := gets(Second), gets(30*Second)
	if second < 5 || second > 20 || later < 8 || later > 60 {
		t.Errorf("%d Gets in the first second and %d in the next thirty", second, later)
	}
	w.run(Minute)
	if w.provider["m01"].State == inventory.Speculative {
		t.Error("it is not created")
	}
	asked, open := 0, 0
	for _, l := range w.log {
		if e, is := l.e.(ListDone); is && !e.Failed {
			asked++
		}
	}
	if p := w.c.providers[0]; p.list != nil {
		open = 1
	}
	if total := int(w.c.reconciler.lists); total != asked+open {
		t.Errorf("%d Lists were sent, %d answered, %d open", total, asked, open)
	}
}
