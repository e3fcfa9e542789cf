package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// rebound is a shard among others to which red comes from another shard. That one has just configured a machine for red,
// later than this shard's last List.
func rebound(t *testing.T, view View) *world {
	w := newWorld(t, func(c *Config) { c.Coordinated = true; c.ReconcileInterval = 10 * Second }, slotsOf(4)...)
	view.Term, view.Index = 1, 1
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &view}}})
	w.run(Minute)
	theirs := host("theirs", inventory.Configured, "red")
	w.provider["theirs"] = &theirs
	return w
}

// SHARD-12.7, 6.9, scenario 42 of COORD: what another shard configured a moment before is not bought again. The wait is one
// List, which is asked for at once, and the verdict says what it is for.
func TestNewClusterWaitsForAList(t *testing.T) {
	w := rebound(t, View{DefaultOwner: true})
	w.listErr = true
	w.connect("red")
	w.rollup("red", needs(0, 4, 4))
	w.run(2 * Second)
	if len(w.calls) != 0 {
		t.Fatalf("%v are called for a cluster that is new here, before its machines were read", w.calls)
	}
	row := w.c.pub.list[0].Rows[0]
	if row.Detail() != DetailNewCluster || row.Text() == "" || row.Remedy() == "" {
		t.Errorf("a row that waits for the List has the detail %d: %q", row.Detail(), row.Text())
	}
	w.listErr = false
	asked := w.mono
	w.run(5 * Second)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Errorf("%v are created beside the one machine that was there", got)
	}
	if p := w.c.providers[0]; p.ListedAt < asked {
		t.Error("the provider was not read again")
	}
}

// SHARD-12.7: the List is wanted at once and not at its usual time.
func TestNewClusterIsServedAfterOneList(t *testing.T) {
	w := rebound(t, View{DefaultOwner: true})
	w.run(3 * Second)
	w.connect("red")
	w.rollup("red", needs(0, 4, 4))
	w.run(200 * Millisecond)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Errorf("%v are created within 200 ms", got)
	}
}

// SHARD-12.7: nothing waits in a fleet of one shard.
func TestOneShardDoesNotWait(t *testing.T) {
	w := rebound(t, View{OnlyShard: true})
	w.listErr = true // nothing is read
	delete(w.provider, "theirs")
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(200 * Millisecond)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Errorf("%v are created", got)
	}
}

// SHARD-12.7: a cluster waits once. A new session does not make it new, and neither does a restart; that it was elsewhere
// does, also when the view names it before it dials.
func TestClusterAtHomeDoesNotWait(t *testing.T) {
	asks := func(w *world, cpus int64) int {
		w.listErr = true
		w.connect("red")
		w.rollup("red", needs(0, cpus))
		w.run(200 * Millisecond)
		w.listErr = false
		return len(w.called(RPCCreate))
	}
	w := rebound(t, View{DefaultOwner: true, Clusters: []string{"red"}})
	delete(w.provider, "theirs")
	if asks(w, 4) != 0 {
		t.Fatal("a cluster that was bound here before it came does not wait")
	}
	w.run(Minute)
	w.disconnect("red")
	if n := asks(w, 8); n != 2 {
		t.Errorf("%d machines after a new session, without a List", n)
	}
	w.run(Minute)
	again := newWorld(t, func(c *Config) { c.Coordinated = true }, slotsOf(4)...)
	again.c = New(nil)
	again.log, again.queue = nil, nil
	again.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p"}, Coordinated: true}, Epoch: 8, Control: Control{View: w.c.ctl.View,
		Coordinator: Lineage{Term: 1, UUID: "u"}}})
	again.run(Minute)
	if n := asks(again, 4); n != 1 {
		t.Errorf("%d machines after a restart, without a List", n)
	}
	w.disconnect("red")
	for i, clusters := range [][]string{nil, {"red"}} {
		v := &View{Term: 1, Index: uint64(i + 2), DefaultOwner: true, Clusters: clusters}
		w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: fmt.Sprint("v", i+2), Term: 1, SetView: v}}})
	}
	if n := asks(w, 12); n != 2 {
		t.Errorf("%d machines for a cluster that was elsewhere, without a List", n)
	}
}

// SHARD-12.7: a provider that does not answer keeps a new cluster waiting for two reconcile intervals and no longer.
func TestNewClusterDoesNotWaitForEver(t *testing.T) {
	w := rebound(t, View{DefaultOwner: true})
	w.listErr = true
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(19 * Second)
	if len(w.calls) != 0 {
		t.Fatalf("%v before two intervals are over", w.calls)
	}
	w.run(2 * Second)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Errorf("%v are created after two intervals", got)
	}
}

// SHARD-25.5, SHARD-6.6, OP-14.1: while the provider never answered a List nothing is decided, and the rows' owners hear why; when it
// answers, the verdict takes the place of that word.
func TestRowsBehindADeadProviderAreReported(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.c, w.log = New(nil), nil
	w.listErr = true
	w.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p"}}, Epoch: 8})
	w.run(5 * Second)
	w.connect("red", "need-status")
	from := len(w.sent)
	w.rollup("red", needs(0, 4))
	w.rollup("red", needs(0, 4))
	statuses := sentOf[SendNeedStatus](&world{sent: w.sent[from:]})
	if len(statuses) != 1 || statuses[0].RowID != "row0" || statuses[0].Satisfied || statuses[0].Detail != DetailProviderBreaker || statuses[0].Text == "" || statuses[0].Since == 0 {
		t.Fatalf("statuses: %+v", statuses)
	}
	w.listErr = false
	from = len(w.sent)
	w.run(2 * Minute)
	statuses = sentOf[SendNeedStatus](&world{sent: w.sent[from:]})
	if len(statuses) == 0 || !statuses[len(statuses)-1].Satisfied {
		t.Errorf("statuses when the provider is back: %+v", statuses)
	}
}
