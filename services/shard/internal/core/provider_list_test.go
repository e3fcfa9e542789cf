package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 37, SHARD-13.10, 13.11: an empty List removes nothing until it was repeated over a minute; one lost machine is
// removed at once; a bound one only when Get does not know it either.
func TestRemovals(t *testing.T) {
	w := newWorld(t, nil, append(slotsOf(30), hostsOf(3, "red")...)...)
	w.run(Second)
	empty := true
	w.listing = func(f []Fact) []Fact {
		if empty {
			return nil
		}
		return f
	}
	w.run(15 * Second)
	if n := w.c.world.Inventory.Len(); n != 33 {
		t.Fatalf("%d machines after an empty List", n)
	}
	if w.c.providers[0].Held == 0 || len(w.recorded(RecordRemovalsHeld)) == 0 {
		t.Error("the guard said nothing")
	}
	empty = false
	w.run(15 * Second)
	if w.c.providers[0].Held != 0 {
		t.Errorf("%d removals are still held", w.c.providers[0].Held)
	}
	delete(w.provider, "m01")
	w.run(15 * Second)
	if _, ok := w.c.world.Inventory.Find("m01"); ok {
		t.Error("a lost slot is still there")
	}
	w.listing = func(f []Fact) (out []Fact) { // the List forgets a bound machine, Get does not
		for _, x := range f {
			if x.Machine.ID != "red-001" {
				out = append(out, x)
			}
		}
		return out
	}
	w.run(30 * Second)
	if _, ok := w.c.world.Inventory.Find("red-001"); !ok {
		t.Error("a bound machine was removed although Get knows it")
	}
	delete(w.provider, "red-001")
	w.run(30 * Second)
	if _, ok := w.c.world.Inventory.Find("red-001"); ok {
		t.Error("a bound machine that is gone is still there")
	}
	if got := w.recorded(RecordMachineVanished); len(got) != 2 {
		t.Errorf("%d machines vanished", len(got))
	}
}

// SHARD-13.11: after three empty Lists over a minute the fleet is believed to be gone.
func TestRepeatedEmptyListsAreBelieved(t *testing.T) {
	w := newWorld(t, nil, slotsOf(30)...)
	w.run(Second)
	w.provider = map[string]*inventory.Machine{}
	w.run(50 * Second)
	if n := w.c.world.Inventory.Len(); n != 30 {
		t.Fatalf("%d machines after 50 s", n)
	}
	w.run(50 * Second)
	if n := w.c.world.Inventory.Len(); n != 0 {
		t.Errorf("%d machines after 100 s", n)
	}
}

// Scenario 38, SHARD-13.17, 12.4, 6.2, 2.8: with Lists failing decisions go on, nothing fails, and Reclaim and Delete stop when the
// inventory is five minutes old.
func TestListsThatFail(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), cheap(host("i1", inventory.Idle, "")))...)
	w.dwell = 0
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(30 * Second)
	w.listErr = true
	asked := w.c.reconciler.lists
	w.run(6 * Minute)
	w.rollup("red", needs(0, 4))
	w.run(10 * Minute) // a full reconcile is due meanwhile
	if n := w.c.reconciler.lists - asked; n > 16*6+10 {
		t.Errorf("a provider that does not answer was asked %d times in 16 minutes", n)
	}
	if got := append(w.called(RPCDrain), w.called(RPCDelete)...); len(got) != 0 {
		t.Errorf("acted on an old inventory: %v", got)
	}
	w.listErr = false
	w.run(2 * Minute)
	if len(w.called(RPCDrain)) != 1 {
		t.Errorf("drained %v after recovery", w.called(RPCDrain))
	}
}

// Scenario 45, SHARD-13.6, 13.5: a List answered before a Configure and merged after its ack does not undo the binding.
func TestStaleListDoesNotUndoABinding(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""))
	w.dwell = 5 * Second
	w.connect("red")
	w.run(9500 * Millisecond)
	w.tampered = true
	stale := *w.fact("h1")
	w.c.reconciler.requestList(w.c.providers[0], true) // sent now, answered below
	id := w.c.reconciler.lists
	w.rollup("red", needs(0, 4))
	w.run(Second)
	if s := w.c.world.Inventory.State(0); s != inventory.Configuring {
		t.Fatalf("the machine is %v", s)
	}
	w.step(ListPage{List: id, Rows: []Fact{stale}})
	w.step(ListDone{List: id, Complete: true, Seen: 1})
	if s := w.c.world.Inventory.State(0); s != inventory.Configuring {
		t.Errorf("a stale List made the machine %v", s)
	}
	w.run(20 * Second)
	if n := len(w.called(RPCConfigure)); n != 1 || w.state(inventory.Configured) != 1 {
		t.Errorf("%d Configures", n)
	}
}

// Scenario 43, SHARD-13.9: a price that moves reaches the next cycle, in any state.
func TestPricesAreRefreshed(t *testing.T) {
	w := newWorld(t, nil, slot("m1"), slot("m2"))
	w.run(Second)
	w.provider["m1"].Price = 9_000_000
	w.run(15 * Second)
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(Second)
	if got := w.called(RPCCreate); len(got) != 1 || got[0] != "m2" {
		t.Errorf("bought %v", got)
	}
}

// SHARD-14.2 to 14.4: facts are adopted whatever edge they imply; a foreign binding is adopted and raised.
func TestFactsAreAdopted(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Second)
	w.provider["red-000"].Cluster = "blue"
	w.provider["red-001"].State, w.provider["red-001"].Cluster = inventory.Idle, ""
	w.run(15 * Second)
	if w.count(MetricBindingConflicts) != 1 || len(w.recorded(RecordBindingConflict)) != 1 {
		t.Error("the binding conflict was not raised")
	}
	if w.count(MetricUnexpectedEdges, "configured", "idle") != 1 {
		t.Errorf("the edge was not counted: %v", w.samples)
	}
	var released bool
	for _, s := range sentOf[SendNodeState](w) {
		released = released || s.Released && s.Cluster == "red" && s.Machine.ID == "red-001"
	}
	if !released {
		t.Error("red got no word that the machine left")
	}
}

// Scenario 47, SHARD-14.14: a machine that is being created for an hour is alarmed, replaced once, and ordinary supply
// when it arrives.
func TestStuckCreateIsReplacedOnce(t *testing.T) {
	w := newWorld(t, nil, slotsOf(6)...)
	w.dwell = Hour
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(29 * Minute)
	w.dwell = Second
	w.run(10 * Minute)
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates", n)
	}
	if len(w.recorded(RecordMachineStuck)) != 1 {
		t.Errorf("%d alarms", len(w.recorded(RecordMachineStuck)))
	}
	w.run(Hour)
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines serve", n)
	}
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates after the late arrival", n)
	}
}

// Scenario 52, SHARD-13.15: a restart with a journal keeps intents and the grace and id of drains.
func TestJournalSurvivesARestart(t *testing.T) {
	creating, draining := slot("c1"), host("d1", inventory.Draining, "red")
	creating.State = inventory.Creating
	w := newWorld(t, nil)
	w.c, w.log = New(nil), nil
	w.provider["c1"], w.provider["d1"] = &creating, &draining
	want := needs(0, 4)
	w.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p"}, ReclaimCapOff: true}, Epoch: 8, Journal: []JournalEntry{
		{Machine: "c1", Kind: KindProvision, Cluster: "red", For: Attribution{Fingerprint: want[0].Fingerprint}},
		{Machine: "d1", Kind: KindReclaim, Cluster: "red", Grace: 600, Instruction: "00000000000000aa", DrainEnds: w.wall + 300*Second},
	}})
	w.connect("red")
	w.run(Second)
	w.rollup("red", want)
	w.run(Second)
	if n := len(w.called(RPCCreate)); n != 0 {
		t.Errorf("bought %d although one is on its way", n)
	}
	w.connect("red")
	found := false
	for _, s := range sentOf[SendReclaim](w) {
		found = found || s.Instruction == "00000000000000aa" && s.GraceSecs > 290 && s.GraceSecs <= 300
	}
	if !found {
		t.Errorf("the drain's instruction was not repeated: %+v", sentOf[SendReclaim](w))
	}
}

// SHARD-6.6, scenario 53: no cycle before each provider has listed once, or has failed to for a while; then the needs are seen, and nothing is
// bought while no Pod is reported to wait.
func TestNoCycleBeforeEveryProviderListed(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.c, w.log = New(nil), nil
	w.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p", "q"}}, Epoch: 8})
	w.connect("red")
	w.listErr = true
	w.rollup("red", needs(0, 4))
	w.run(6 * Second)
	if w.c.cycle.N != 0 {
		t.Errorf("%d cycles after six seconds", w.c.cycle.N)
	}
	w.run(Minute)
	if w.c.cycle.N == 0 || len(w.calls) != 0 {
		t.Errorf("%d cycles, %d calls", w.c.cycle.N, len(w.calls))
	}
	for _, a := range sentOf[SendAck](w) {
		if a.Echo == EchoResync {
			t.Error("the end of a replay was claimed before anything was listed")
		}
	}
}

// SHARD-14.2: what becomes of a command of ours is not an edge without a command, also when it does not succeed.
func TestAFailedCommandIsNoUnexpectedEdge(t *testing.T) {
	for _, end := range []inventory.State{inventory.Failed, inventory.Speculative} {
		w := newWorld(t, func(c *Config) { c.InflightPollInterval = Second }, slot("z1"))
		w.dwell = Hour
		w.connect("red")
		w.run(Second)
		w.rollup("red", needs(0, 4))
		w.run(Second)
		if len(w.calls) != 1 || w.state(inventory.Creating) != 1 {
			t.Fatalf("no Create is on its way: %v", w.calls)
		}
		m := w.provider[w.calls[0].Machine]
		m.State = end
		if end == inventory.Failed {
			m.LastError = "no stock"
		}
		w.run(30 * Second)
		if got := w.recorded(RecordUnexpectedEdge); len(got) != 0 {
			t.Errorf("a Create that ended %s is recorded as unexpected: %+v", end, got)
		}
		ended := w.recorded(RecordEnded)
		if len(ended) == 0 || ended[0].Outcome == OutcomeSuccess.String() {
			t.Errorf("a Create that ended %s: %+v", end, ended)
		}
	}
}

// SHARD-10.6: a provider that lists ever more machines does not fill the shard's memory: new ones above the limit are refused, one record for each, those that
// are known stay up to date, and the place of one that goes is given to another.
func TestMachinesAreBounded(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MachinesMax = 20 }, slotsOf(30)...)
	w.run(15 * Second)
	n := w.c.world.Inventory.Len()
	if n != 20 || len(w.recorded(RecordMachineRejected)) != 10 {
		t.Errorf("%d machines, %d records of refused ones", n, len(w.recorded(RecordMachineRejected)))
	}
	delete(w.provider, "m00")
	w.provider["m01"].Price = 7
	w.run(30 * Second)
	i, ok := w.c.world.Inventory.Find("m01")
	if n := w.c.world.Inventory.Len(); n != 20 || !ok || w.c.world.Inventory.Machine(i).Price != 7 {
		t.Errorf("%d machines; one that is known was changed: %v", n, ok)
	}
}
