package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-11.2, 11.7: a slide of steps that the guard lets pass, each judged by the roll-up accepted before it, is bounded by
// the reclaim budget alone: never more drains in a window than the bucket holds.
func TestSlowSlideIsBoundedByTheBudget(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false }, hostsOf(100, "red")...)
	w.connect("red")
	w.run(Second)
	rows := needs(0, 400)
	if got := w.rollup("red", rows); got != DispositionAccepted {
		t.Fatal(got)
	}
	w.run(30 * Second)
	for _, cpus := range []int64{60, 8} { // 15 %, then 13 % of that: never below a tenth of the roll-up before
		if got := w.rollup("red", needs(0, cpus)); got != DispositionAccepted {
			t.Fatalf("%d cpus: %v", cpus, got)
		}
		before := len(w.called(RPCDrain))
		w.run(10 * Second)
		if n := len(w.called(RPCDrain)) - before; n == 0 || n > 10 { // full buckets of 5, and 5 more over the window
			t.Errorf("%d drains within 10 s of the step to %d cpus", n, cpus)
		}
	}
	if n := len(w.called(RPCDrain)); n > 20 {
		t.Errorf("%d of 100 machines went within 20 s", n)
	}
}

// SHARD-24.2: no order opens the gate of a live cluster before it reported, goes around the reclaim budget, or wakes a
// process that was superseded.
func TestNoOrderGoesAroundARail(t *testing.T) {
	orders := []AdminAsked{
		{Command: AdminAcceptRollup, Cluster: "red"}, {Command: AdminRetire, Cluster: "red", Bound: 40}, {Command: AdminReconcile},
		{Command: AdminClearBackoff, Cluster: "red"}, {Command: AdminRetry, Machine: "red-000"}, {Command: AdminResume, PauseID: "flag"},
		{Command: AdminDryRun}, {Command: AdminUnretire, Cluster: "red"}, {Command: AdminForget, Machine: "red-001"},
	}
	give := func(w *world) {
		for i, o := range orders {
			o.Ask, o.Actor, o.Reason = int64(i+1), "me", "try"
			w.step(o)
			w.run(5 * Second)
		}
	}
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false }, hostsOf(40, "red")...)
	w.connect("red")
	w.run(Second)
	give(w)
	w.run(5 * Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Fatalf("drained %v of a live cluster that has not reported", got)
	}

	w.rollup("red", needs(0, 160))
	w.run(10 * Second)
	w.rollup("red", needs(0, 120))
	w.run(10 * Second) // the buckets are empty now
	spent := len(w.called(RPCDrain))
	from := w.mono
	give(w)
	if n, most := len(w.called(RPCDrain))-spent, int((w.mono-from)/(10*Second))*2+2; n > most {
		t.Errorf("%d drains in %d s of orders; the budget is %d", n, (w.mono-from)/Second, most)
	}

	w.reply = func(Command) (Code, bool) { return CodeFailedPrecondition, false }
	w.rollup("red", needs(0, 80))
	for range 40 {
		w.run(Minute)
		if w.c.superseded != "" {
			break
		}
	}
	if w.c.superseded == "" {
		t.Fatal("two refused tokens did not supersede the process")
	}
	calls := len(w.calls)
	give(w)
	w.run(10 * Minute)
	if len(w.calls) != calls || w.c.superseded == "" {
		t.Errorf("%d commands after it was superseded", len(w.calls)-calls)
	}
}

// SHARD-15.10, 6.8, 19.5: an accepted command is not taken back: not by a pause, not by plans that would not make it again.
func TestAcceptedWorkIsNotCancelled(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.dwell = 5 * Minute
	w.connect("red")
	w.rollup("red", needs(0, 8))
	w.run(30 * Second)
	if w.state(inventory.Creating) != 2 {
		t.Fatalf("%d machines are being created", w.state(inventory.Creating))
	}
	w.rollup("red", needs(0, 4))
	w.step(AdminAsked{Ask: 1, Command: AdminPause, Actor: "me", Reason: "look", Pause: &Pause{ID: "p1", Reason: "look"}})
	w.run(4 * Minute)
	if n := len(w.recorded(RecordEnded)); n != 0 {
		t.Errorf("%d operations ended before the provider was done: %+v", n, w.recorded(RecordEnded))
	}
	w.run(5 * Minute)
	if got := w.outcomes(KindProvision); got["success"] != 2 {
		t.Errorf("purchases ended %v", got)
	}
	if n := len(w.called(RPCConfigure)); n != 0 {
		t.Errorf("%d Configures while paused", n)
	}
	w.step(AdminAsked{Ask: 2, Command: AdminResume, PauseID: "p1", Actor: "me", Reason: "x"})
	w.run(6 * Minute)
	if w.state(inventory.Configured) != 1 {
		t.Errorf("%d machines serve a demand for one", w.state(inventory.Configured))
	}
}

// SHARD-17.8: a Drain that did not touch the machine returns it to Configured and takes the instruction back, so that the
// operator uncordons; the machine is still supply.
func TestUntouchedDrainUncordons(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	refuse := true
	w.reply = func(x Command) (Code, bool) {
		if x.RPC == RPCDrain && refuse {
			return CodeResourceExhausted, false
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(500 * Millisecond)
	got := w.called(RPCDrain)
	if len(got) == 0 {
		t.Fatal("no Drain was tried")
	}
	cancelled := 0
	for _, s := range sentOf[SendReclaim](w) {
		if s.Cancelled && s.Machine == got[0] {
			cancelled++
		}
	}
	i, _ := w.c.world.Inventory.Find(got[0])
	if s := w.c.world.Inventory.State(i); cancelled != 1 || s != inventory.Configured || w.c.world.Inventory.Cluster(i) != "red" {
		t.Errorf("%d cancellations, the machine is %v", cancelled, s)
	}
	refuse = false
	w.run(2 * Minute)
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines serve in the end", n)
	}
}

// SHARD-14.13: a machine that its provider calls Failed gets no command, counts by whether it is bound, and its cluster
// learns why.
func TestFailedMachinesAreShownAndLeftAlone(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), host("spare", inventory.Idle, ""))...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(10 * Second)
	for _, id := range []string{"red-000", "spare"} {
		m := w.provider[id]
		m.State, m.LastError = inventory.Failed, "disk gone"
	}
	w.run(30 * Minute)
	for _, x := range w.calls {
		if x.Machine == "red-000" || x.Machine == "spare" {
			t.Errorf("%s of a Failed machine, %s", x.RPC, x.Machine)
		}
	}
	var census Census
	for next := 0; next >= 0; {
		next = w.c.Count(&census, next, 1)
	}
	if census.Failed != [2]int{1, 1} {
		t.Errorf("unbound and bound Failed machines: %v", census.Failed)
	}
	sent := false
	for _, s := range sentOf[SendNodeState](w) {
		sent = sent || s.Cluster == "red" && s.Machine.ID == "red-000" && s.Machine.State == inventory.Failed && s.Machine.LastError == "disk gone"
	}
	if !sent {
		t.Error("the cluster got no word that its machine failed")
	}
}

// SHARD-13.12: a scan that its provider calls complete removes what it does not show although a cursor was sent, behind
// the same guard; a delta removes what it names, and nothing else.
func TestRemovalsOfDeltas(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Incremental = IncrementalOn }, slotsOf(40)...)
	rest := func(skip ...string) (out []Fact) {
		gone := map[string]bool{}
		for _, id := range skip {
			gone[id] = true
		}
		for _, id := range sortedKeys(w.provider) {
			if !gone[id] {
				out = append(out, *w.fact(id))
			}
		}
		return out
	}
	w.run(Second)
	known := func(want int, when string) {
		t.Helper()
		if n := w.c.world.Inventory.Len(); n != want {
			t.Errorf("%s: %d machines, want %d", when, n, want)
		}
	}
	list := func(e ListDone, rows []Fact) {
		t.Helper()
		p := w.c.providers[0]
		for p.list == nil {
			w.advance(w.mono + Second)
			w.step(Tick{})
		}
		if len(p.Cursor) > 0 && p.list.full {
			t.Fatal("a full List although there is a cursor")
		}
		id := p.list.id
		w.queue = nil // the world itself does not answer
		w.step(ListPage{List: id, Rows: rows})
		e.List, e.Seen, e.Revision = id, int64(len(rows)), []byte{byte(id)}
		w.step(e)
	}
	list(ListDone{Complete: true}, rest()) // brings the cursor
	known(40, "after the first List")
	list(ListDone{Removed: []string{"m01", "unknown"}}, nil)
	delete(w.provider, "m01")
	known(39, "after a delta that names one")
	list(ListDone{Complete: true}, rest("m02"))
	delete(w.provider, "m02")
	known(38, "after a complete scan without another")
	list(ListDone{Complete: true}, rest("m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "m12", "m13"))
	known(38, "after a complete scan without eleven")
	if w.c.providers[0].Held != 11 {
		t.Errorf("%d removals are held", w.c.providers[0].Held)
	}
}

// SHARD-26.4: a gang that no rack can hold is parked after eight nominal cycles without progress and looked at again each
// 32nd; it stays short all the while, and is forgotten once a rack can hold it.
func TestGangsThatFitNowhereAreParked(t *testing.T) {
	rack := func(id, name string) inventory.Machine {
		m := host(id, inventory.Idle, "")
		m.Labels = []inventory.Label{{Key: "rack", Value: name}}
		return m
	}
	w := newWorld(t, nil, rack("m01", "r1"), rack("m02", "r2"))
	w.connect("red")
	w.run(Second)
	list := gangs(8, "a")
	w.rollup("red", list)
	parkedAt := int64(0)
	for range 200 {
		w.run(Second)
		if w.c.sessions.hold(w.c.clusters.get("red"), &w.c.world.Demand.Cluster("red").Needs[0]) == demand.HeldParked {
			parkedAt = w.mono
			break
		}
	}
	if n := parkedAt / (10 * Second); n < 8 || n > 10 {
		t.Fatalf("parked in nominal cycle %d", n)
	}
	if w.c.pub.status().Short != 1 {
		t.Error("a parked gang is no shortfall any more")
	}
	more := rack("m03", "r1")
	w.provider["m03"] = &more
	w.run(7 * Minute)
	if w.c.ledger.parking.Len() != 0 || w.c.pub.status().Short != 0 {
		t.Errorf("%d gangs in the ledger, %d rows short, although a rack can hold it", w.c.ledger.parking.Len(), w.c.pub.status().Short)
	}
}
