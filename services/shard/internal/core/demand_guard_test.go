package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

func hostsOf(n int, cluster string) (out []inventory.Machine) {
	for i := range n {
		out = append(out, host(fmt.Sprintf("%s-%03d", cluster, i), inventory.Configured, cluster))
	}
	return out
}

// rowsOf is n distinct rows of one cpu.
func rowsOf(n int) []demand.Row {
	return needs(0, slices.Repeat([]int64{1}, n)...)
}

// Scenario 1, SHARD-12.1, 4.11: after a restart with machines everywhere and no roll-up, nothing is reclaimed, however long
// the silence; Idle machines are still released.
func TestRestartReclaimsNothingWithoutDemand(t *testing.T) {
	machines := append(hostsOf(30, "red"), host("idle", inventory.Idle, ""))
	w := newWorld(t, nil, machines...)
	w.connect("red")
	w.run(30 * Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Errorf("drained %v", got)
	}
	if got := w.called(RPCDelete); len(got) != 1 || got[0] != "idle" {
		t.Errorf("released %v", got)
	}
}

// Scenario 2, SHARD-12.3, 19.3: a first report of zero rows opens the gate of a large cluster only when it was repeated
// over 20 s, and then its machines go at the budgeted rate; other clusters keep theirs.
func TestFirstReportOfNothingHasToBeConfirmed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false }, append(hostsOf(50, "red"), hostsOf(20, "blue")...)...)
	w.dwell = Second
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	for i := range 3 {
		w.rollup("red", nil)
		if i < 2 && len(w.called(RPCDrain)) != 0 {
			t.Fatalf("drained after report %d", i+1)
		}
		w.run(10 * Second)
	}
	w.run(5 * Second)
	first := len(w.called(RPCDrain))
	if first == 0 || first > 5 {
		t.Errorf("%d drains in the first moments; the budget is 2 per 10 s", first)
	}
	w.run(5 * Minute)
	for _, id := range w.called(RPCDrain) {
		if id[:3] != "red" {
			t.Errorf("%s was drained", id)
		}
	}
	if n := len(w.called(RPCDrain)); n < 35 { // 2 per 10 s, and 1 below 40 machines
		t.Errorf("only %d of 50 were drained in 5 minutes", n)
	}
}

// Scenario 3, SHARD-11.4, 11.5, 4.11: a suspicious roll-up is held until it was confirmed by time and count; a normal one in
// between clears the count.
func TestSuspiciousRollupIsHeld(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	w.run(Second)
	w.rollup("red", rowsOf(100))
	for i, c := range []struct {
		rows int
		want Disposition
		held int64
	}{{5, DispositionHeld, 1}, {100, DispositionUnchanged, 0}, {5, DispositionHeld, 1}, {5, DispositionHeld, 2}, {5, DispositionAccepted, 0}} {
		w.run(10 * Second)
		w.samples = map[string]int64{}
		if got := w.rollup("red", rowsOf(c.rows)); got != c.want {
			t.Fatalf("report %d of %d rows was %v, want %v", i, c.rows, got, c.want)
		}
		if got := int64(w.c.clusters.get("red").Held.Count); got != c.held {
			t.Errorf("after report %d the count is %d, want %d", i, got, c.held)
		}
	}
}

// Scenario 4, SHARD-11.3: the guard looks at a tenth of at least ten rows.
func TestWhatIsSuspicious(t *testing.T) {
	for _, c := range []struct {
		before, after int
		want          Disposition
	}{{9, 0, DispositionAccepted}, {10, 0, DispositionHeld}, {10, 1, DispositionAccepted}, {11, 1, DispositionHeld}} {
		w := newWorld(t, nil)
		w.connect("red")
		w.run(Second)
		w.rollup("red", rowsOf(c.before))
		w.run(Second)
		if got := w.rollup("red", rowsOf(c.after)); got != c.want {
			t.Errorf("%d to %d rows: %v, want %v", c.before, c.after, got, c.want)
		}
	}
}

// Scenario 5, SHARD-11.4: three wipe reports over three reconnects within a second are not accepted.
func TestReconnectLoopDoesNotConfirm(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	w.run(Second)
	w.rollup("red", rowsOf(100))
	for range 3 {
		w.connect("red")
		w.run(200 * Millisecond)
		if got := w.rollup("red", nil); got != DispositionHeld {
			t.Fatalf("a wipe was %v", got)
		}
	}
	if got := w.rollup("red", rowsOf(100)); got != DispositionUnchanged {
		t.Errorf("normal demand was %v", got)
	}
}

// Scenario 6, SHARD-11.3b: the same rows with all quantities zero are suspicious for a cluster with machines.
func TestZeroedQuantitiesAreHeld(t *testing.T) {
	w := newWorld(t, nil, hostsOf(12, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 40, 8))
	w.run(Second)
	if got := w.rollup("red", needs(0, 0, 0)); got != DispositionHeld {
		t.Errorf("zeroed quantities were %v", got)
	}
}

// SHARD-11.6, 11.1, 24: an order accepts the held roll-up at once.
func TestHeldRollupCanBeAccepted(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	w.run(Second)
	w.rollup("red", rowsOf(50))
	w.run(Second)
	w.rollup("red", rowsOf(1))
	w.step(AdminAsked{Ask: 1, Command: AdminAcceptRollup, Cluster: "red", Actor: "me", Reason: "scaled down"})
	if n := w.c.world.Demand.Rows(); n != 1 {
		t.Errorf("%d rows are in force", n)
	}
	if got := w.answers[0]; got.Code != CodeOK || got.Answer.(AcceptedRollup).Before != 50 {
		t.Errorf("answered %+v", got)
	}
	w.step(AdminAsked{Ask: 2, Command: AdminAcceptRollup, Cluster: "red", Reason: "again"})
	if w.answers[1].Code != CodeNotFound {
		t.Errorf("accepting nothing answered %+v", w.answers[1])
	}
}

// Scenario 10, SHARD-8.4: a roll-up of a replaced session, or an older one of this session, changes nothing.
func TestRollupsOfOldSessionsAreIgnored(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	old := w.session
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.step(RollupArrived{Cluster: "red", Session: old, Arrival: 99, Rows: nil, Hash: "x"})
	if n := w.c.world.Demand.Rows(); n != 1 {
		t.Fatalf("%d rows after a roll-up of the replaced session", n)
	}
	w.step(RollupArrived{Cluster: "red", Session: w.session, Arrival: w.arrival, Rows: nil, Hash: "x"})
	if n := w.c.world.Demand.Rows(); n != 1 {
		t.Errorf("%d rows after a late roll-up", n)
	}
}

// SHARD-2.4, 16.8, scenario 26: demand stays when the session ends; nothing is bought until the cluster is back.
func TestSilenceIsNotNoDemand(t *testing.T) {
	w := newWorld(t, nil, slotsOf(4)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	w.disconnect("red")
	w.run(30 * Minute)
	if n := w.state(inventory.Configured); n != 1 {
		t.Fatalf("%d machines serve the silent cluster", n)
	}
	for id, m := range w.provider {
		if m.State == inventory.Configured {
			delete(w.provider, id) // the one machine is lost while no operator is there
		}
	}
	w.run(10 * Minute)
	if n := len(w.called(RPCCreate)); n != 1 {
		t.Errorf("%d Creates; nothing may be bought for a cluster that cannot be served", n)
	}
	if r := w.c.cycle.result; r.Blocks[0].Verdicts[0].Hold != demand.HeldOffline {
		t.Errorf("the verdict is %+v", r.Blocks[0].Verdicts[0])
	}
	w.connect("red")
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines after the reconnect", n)
	}
}

// SHARD-12.4: a Reclaim also needs a session that has itself reported.
func TestReclaimNeedsAReportOfThisSession(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.disconnect("red")
	for _, m := range hostsOf(3, "red")[1:] { // surplus appears while no operator is there
		w.provider[m.ID] = &m
	}
	w.connect("red")
	w.run(5 * Minute)
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Fatalf("drained %v before this session reported", got)
	}
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	if n := len(w.called(RPCDrain)); n != 2 {
		t.Errorf("%d drains after the report", n)
	}
}

// SHARD-12.6, scenario 61: retiring a cluster needs silence and the right number; a Hello takes it back at once.
func TestRetireCluster(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReclaimCapOff = false }, hostsOf(40, "red")...)
	w.dwell = Second
	ask := func(n int64, bound int64) Code {
		w.step(AdminAsked{Ask: n, Command: AdminRetire, Cluster: "red", Bound: bound, Actor: "me", Reason: "gone"})
		return w.answers[len(w.answers)-1].Code
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 160))
	w.run(15 * Minute)
	if got := ask(1, 40); got != CodeAborted {
		t.Errorf("with a session: %v", got)
	}
	w.rollup("red", needs(0, 160))
	w.disconnect("red")
	if got := ask(2, 40); got != CodeAborted {
		t.Errorf("just after the last report: %v", got)
	}
	w.run(15 * Minute)
	if got := ask(3, 30); got != CodeAborted {
		t.Errorf("with a wrong number: %v", got)
	}
	if got := ask(4, 41); got != CodeOK {
		t.Errorf("with about the right number: %v", got)
	}
	w.run(21 * Second)
	n := len(w.called(RPCDrain))
	if n == 0 || n > 8 {
		t.Errorf("%d drains in 21 s; the budget is 2 per 10 s", n)
	}
	w.connect("red")
	before := len(w.called(RPCDrain))
	w.run(10 * Minute)
	if n := len(w.called(RPCDrain)); n > before {
		t.Errorf("%d more drains after the cluster came back", n-before)
	}
}

// SHARD-10.5: equal rows are added up, with a count.
func TestEqualRowsAddUp(t *testing.T) {
	w := newWorld(t, nil)
	w.connect("red")
	w.run(Second)
	w.rollup("red", append(needs(0, 4), needs(0, 3)...))
	n := w.c.world.Demand.Cluster("red").Needs
	if len(n) != 1 {
		t.Fatalf("%d rows", len(n))
	}
	if got := n[0].Aggregate.Quantities(w.c.world.Space.Dimensions); !slices.Equal(got, []resource.Quantity{{Name: "cpu", Milli: 7000}}) {
		t.Errorf("the row asks for %v", got)
	}
	if w.count(MetricRollupWarnings, "equal_rows") != 1 {
		t.Error("not counted")
	}
}
