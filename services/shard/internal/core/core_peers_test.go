package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Scenario 11, SHARD-8.4, 8.5: the operator's clock orders nothing: reports with a timestamp an hour back apply, in the order
// of their arrival.
func TestClockOfTheOperatorOrdersNothing(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.connect("red")
	w.run(Second)
	for i, cpus := range []int64{4, 8, 12} {
		w.arrival++
		rows := needs(0, cpus)
		w.step(RollupArrived{Cluster: "red", Session: w.sessions["red"], Arrival: w.arrival, Rows: rows, Hash: rows[0].Fingerprint + string(rune('a'+i)),
			RowCount: 1, Timestamp: w.wall - int64(i)*Hour})
		w.run(10 * Second)
		if got := w.state(inventory.Configured); got != i+1 {
			t.Errorf("%d machines after report %d", got, i+1)
		}
	}
}

// Scenario 20, SHARD-18.5, 13.13: what happened while the operator was away is in the resync by its absence: the drained and
// the vanished machine are not mentioned before the end marker, so their node objects go.
func TestResyncLeavesOutWhatIsGone(t *testing.T) {
	w := newWorld(t, nil, hostsOf(3, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 12))
	w.run(5 * Second)
	w.disconnect("red")
	w.provider["red-000"].State, w.provider["red-000"].Cluster = inventory.Idle, ""
	delete(w.provider, "red-001")
	w.run(3 * Minute)
	from := len(w.sent)
	w.connect("red")
	mentioned, marker := map[string]bool{}, false
	for _, x := range w.sent[from:] {
		switch x := x.(type) {
		case SendNodeState:
			if marker {
				t.Errorf("%s is mentioned after the marker", x.Machine.ID)
			}
			mentioned[x.Machine.ID] = true
		case SendAck:
			marker = marker || x.Echo == EchoResync
		}
	}
	if !marker || !mentioned["red-002"] || mentioned["red-000"] || mentioned["red-001"] {
		t.Errorf("marker %v, mentioned %v", marker, mentioned)
	}
}

// Scenario 21, SHARD-7.11: a peer that knows no extension gets none, and its machines come, serve and go all the same.
func TestPeerWithoutExtensions(t *testing.T) {
	w := newWorld(t, nil, slotsOf(3)...)
	w.connect("red", "something-of-the-future")
	w.run(Second)
	w.rollup("red", needs(0, 12))
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 3 {
		t.Fatalf("%d machines serve", n)
	}
	w.rollup("red", needs(0, 4))
	w.run(5 * Minute)
	if n := w.state(inventory.Configured); n != 1 || w.outcomes(KindReclaim)["success"] != 2 {
		t.Errorf("%d machines serve, reclaims ended %v", n, w.outcomes(KindReclaim))
	}
	if n := len(sentOf[SendNeedStatus](w)); n != 0 {
		t.Errorf("%d need statuses for a peer that knows none", n)
	}
	for _, s := range sentOf[SendReclaim](w) {
		if s.Cancelled {
			t.Error("a cancellation for a peer that knows none")
		}
	}
}

// Scenario 28, SHARD-12.4, 17.3: a voluntary reclaim of a cluster without a session is planned and not started; it starts
// when the operator is back and has reported.
func TestReclaimWaitsForTheOperator(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Second)
	w.arrival++
	rows := needs(0, 4)
	w.step(RollupArrived{Cluster: "red", Session: w.sessions["red"], Arrival: w.arrival, Rows: rows, Hash: "less", RowCount: 1})
	w.disconnect("red")
	w.run(10 * Minute)
	if n := len(w.called(RPCDrain)); n != 0 {
		t.Fatalf("%d machines were drained without their operator", n)
	}
	w.connect("red")
	w.run(30 * Second)
	if n := len(w.called(RPCDrain)); n > 0 && len(sentOf[SendReclaim](w)) == 0 {
		t.Error("drained before this session had reported")
	}
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Errorf("%d machines were drained after the report", n)
	}
}

// Scenario 31, SHARD-17.2: the instruction names the node as the cluster reported it, and the machine beside it.
func TestInstructionNamesTheNode(t *testing.T) {
	w := newWorld(t, nil, hostsOf(2, "red")...)
	w.connect("red")
	w.run(Second)
	for _, id := range []string{"red-000", "red-001"} {
		w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: id, Node: "ip-10-0-0-" + id, Present: true, Ready: true, LastOfFullSet: id == "red-001"})
	}
	w.rollup("red", needs(0, 4))
	w.run(5 * Second)
	got := sentOf[SendReclaim](w)
	if len(got) != 1 || got[0].Node != "ip-10-0-0-"+got[0].Machine {
		t.Errorf("instructed %+v", got)
	}
}

// Scenario 32, SHARD-14.5, 18.1, 27.1, ENG-5.5: a provider whose every transition takes minutes: the operator hears of Configured and
// of the release, the attribution is whole from the start of Configuring and stays until Idle, and the phases are observed at their end.
func TestAsynchronousProvider(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	w.dwell = 4 * Minute
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(7, 4))
	configuring := false
	for range 12 * Minute / (5 * Second) {
		w.run(5 * Second)
		i, _ := w.c.world.Inventory.Find("m01")
		if w.c.world.Inventory.State(i) != inventory.Configuring {
			continue
		}
		configuring = true
		n := &w.c.world.Demand.Cluster("red").Needs[0]
		want := inventory.Attribution{Fingerprint: n.Form.Fingerprint, Group: n.Group, Priority: 7, Interruption: n.Form.Interruption.Penalty(),
			Reclamation: n.Form.Reclamation.Penalty()}
		if s, _ := w.c.world.Inventory.Attribution(i); s != want {
			t.Fatalf("configuring with %+v, want %+v", s, want)
		}
	}
	if !configuring {
		t.Fatal("never configuring")
	}
	w.rollup("red", nil)
	drained := false
	for range 200 {
		w.run(5 * Second)
		i, known := w.c.world.Inventory.Find("m01")
		if !known {
			t.Fatal("the machine is gone")
		}
		s, has := w.c.world.Inventory.Attribution(i)
		switch w.c.world.Inventory.State(i) {
		case inventory.Draining:
			drained = true
			if !has || s.Priority != 7 {
				t.Fatal("the attribution went before the drain had ended")
			}
		case inventory.Idle:
			if has {
				t.Fatal("the attribution stays on an Idle machine")
			}
		}
	}
	states, released := map[inventory.State]bool{}, false
	for _, s := range sentOf[SendNodeState](w) {
		states[s.Machine.State] = true
		released = released || s.Released
	}
	if !drained || !states[inventory.Configured] || !released {
		t.Errorf("drained %v, sent %v, released %v", drained, states, released)
	}
	for name, m := range map[string]Metric{"create": MetricCreatePhase, "configure": MetricConfigurePhase, "drain": MetricDrainPhase} {
		if n := w.count(m); n < 4*Minute || n > 5*Minute {
			t.Errorf("the %s took %d s by its histogram", name, n/Second)
		}
	}
}

// Scenario 60, SHARD-15.7, 15.8: a decision whose machine has moved on is dropped without a call, and counted.
func TestDecisionForAMachineThatMovedOn(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false; c.CycleMinSpacing = 8 * Second }, hostsOf(3, "red")...)
	w.tampered = true
	w.connect("red")
	w.run(10 * Second)
	w.rollup("red", needs(0, 12))
	w.run(10 * Second)
	w.rollup("red", nil)
	w.run(9 * Second)
	instructed := sentOf[SendReclaim](w)
	if len(instructed) != 1 {
		t.Fatalf("%d reclaims in the first window", len(instructed))
	}
	waiting := w.c.cycle.waiting[KindReclaim]
	if len(waiting) == 0 {
		t.Fatal("nothing waits")
	}
	moved := waiting[0].machine
	w.provider[moved].State, w.provider[moved].Cluster = inventory.Idle, ""
	i, _ := w.c.world.Inventory.Find(moved)
	w.c.machines.move(i, inventory.Idle, "") // as a fact would, just before a dispatch
	w.c.world.Inventory.SetAttribution(i, nil)
	w.c.cycle.Redispatch = true
	before := w.count(MetricDeduped)
	w.c.cycle.wanted = false
	w.step(Tick{})
	if w.count(MetricDeduped) != before+1 {
		t.Errorf("%d decisions were counted as dropped", w.count(MetricDeduped)-before)
	}
	for _, s := range sentOf[SendReclaim](w) {
		if s.Machine == moved {
			t.Errorf("%s was instructed although it had moved on", moved)
		}
	}
}
