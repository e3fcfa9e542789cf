package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-27.3: the lag of a cycle counts from when the message came, before the gate, and once for each roll-up that the
// cycle used; one that a person accepts later counts from there.
func TestCycleLagCountsFromTheMessage(t *testing.T) {
	w := newWorld(t, nil, hostsOf(20, "red")...)
	w.connect("red")
	w.run(Minute)
	send := func(rows []demand.Row, hash string) {
		w.arrival++
		w.step(RollupArrived{Cluster: "red", Session: w.sessions["red"], Arrival: w.arrival, Rows: rows, Hash: hash,
			RowCount: int64(len(rows)), Received: w.mono - 300*Millisecond})
	}
	send(needs(0, 80), "first")
	w.run(Minute)
	if got := w.count(MetricCycleLag); got != 300*Millisecond {
		t.Errorf("the cycle of a roll-up that took 300 ms to get to the core lags by %d ms", got/Millisecond)
	}
	send(nil, "nothing")
	w.run(Hour)
	w.step(AdminAsked{Ask: 1, Command: AdminAcceptRollup, Cluster: "red", Actor: "me", Reason: "it is so"})
	w.run(Second)
	if got := w.count(MetricCycleLag) - 300*Millisecond; got < 0 || got > Second {
		t.Errorf("%d ms are the lag of a roll-up that was held", got/Millisecond)
	}
}

// SHARD-27.1, 27.2, 27.4, 27.5, 27.6: phases and the way from unmet to Configured and to a ready node are observed at the
// terminal facts, once for each machine; a need that lost a machine is unmet since then; failures are in no histogram.
func TestLatenciesAreThoseOfWhatWasAcquired(t *testing.T) {
	w := newWorld(t, nil, append(slotsOf(1), host("spare", inventory.Idle, ""))...)
	w.dwell = Minute
	w.connect("red")
	w.run(10 * Second)
	asked := w.mono
	w.rollup("red", needs(0, 8))
	w.run(5 * Minute)
	if w.state(inventory.Configured) != 2 {
		t.Fatalf("%d machines serve", w.state(inventory.Configured))
	}
	near := func(what string, got, want int64) {
		t.Helper()
		if got < want || got > want+11*Second { // to the next look at the provider
			t.Errorf("%s: %d ms, want %d", what, got/Millisecond, want/Millisecond)
		}
	}
	near("provisioning, idle", w.count(MetricProvisioningLatency, "idle"), Minute)
	near("provisioning, speculative", w.count(MetricProvisioningLatency, "speculative"), 2*Minute)
	near("create phase", w.count(MetricCreatePhase), Minute)
	near("configure phase", w.count(MetricConfigurePhase), 2*Minute) // two machines
	if n := w.count(MetricDemandToReady, "idle"); n != 0 {
		t.Error("a ready node is observed that no operator reported")
	}
	ready := func() {
		w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "m01", Node: "m", Present: true, Ready: true})
		w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "spare", Node: "n", Present: true, Ready: true, LastOfFullSet: true})
	}
	ready()
	near("ready", w.count(MetricDemandToReady, "idle"), w.mono-asked)
	was := w.count(MetricDemandToReady, "idle")
	w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "spare", Node: "n", Present: true})
	ready()
	if got := w.count(MetricDemandToReady, "idle"); got != was {
		t.Error("one machine is observed twice")
	}

	// A machine is lost for good; what replaces it has been wanted since then and not since the roll-up.
	again := slot("new")
	w.provider["new"] = &again
	w.run(30 * Second)
	delete(w.provider, "spare")
	w.run(10 * Minute)
	if w.state(inventory.Configured) != 2 {
		t.Fatalf("%d machines serve after the loss", w.state(inventory.Configured))
	}
	if got := w.count(MetricProvisioningLatency, "speculative") - 2*Minute; got > 10*Minute {
		t.Errorf("the replacement took %d s, as if it were wanted since the roll-up", got/Second)
	}
}

// SHARD-27.1, 27.7: what fails is in no success histogram; that it never succeeds shows in the age of the oldest unmet need
// and in the outcomes.
func TestFailuresAreNotLatencies(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.reply = func(x Command) (Code, bool) { return CodeInvalidArgument, false }
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(Hour)
	for _, m := range []Metric{MetricCreatePhase, MetricConfigurePhase} {
		if got := w.count(m); got != 0 {
			t.Errorf("a phase of %d ms although nothing succeeded", got/Millisecond)
		}
	}
	if w.count(MetricProvisioningLatency, "speculative") != 0 {
		t.Error("a purchase that never came has a latency")
	}
	s := w.c.pub.status()
	if s.OldestAge < 59*Minute || s.Short != 1 {
		t.Errorf("the oldest unmet need is %d s old, %d needs are unmet", s.OldestAge/Second, s.Short)
	}
	if got := w.outcomes(KindProvision); got["provider_refused"] == 0 || len(got) != 1 {
		t.Errorf("purchases ended %v", got)
	}
}
