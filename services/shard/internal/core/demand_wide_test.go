package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// gridOf is machines of which each two differ in one of two labels, a side of values each.
func gridOf(side int) (out []inventory.Machine) {
	for i := range side * side {
		m := slot(fmt.Sprintf("m%05d", i))
		m.Labels = []inventory.Label{{Key: "place", Value: fmt.Sprint("p", i%side)}, {Key: "rack", Value: fmt.Sprint("r", i/side)}}
		out = append(out, m)
	}
	return out
}

// differing is a roll-up with so many rows of one cpu of which each excludes a place and a rack, but the first.
func (w *world) differing(cluster string, rows int) *Rollup {
	list := needs(0, slices.Repeat([]int64{1}, rows)...)
	for i := range list {
		list[i].Group = fmt.Sprint(i)
		if i > 0 {
			list[i].Profile.Requirements = []demand.Requirement{{Key: "place", Op: demand.NotIn, Values: []string{fmt.Sprint("p", i%50)}},
				{Key: "rack", Op: demand.NotIn, Values: []string{fmt.Sprint("r", i/50%50)}}, {Key: fmt.Sprint("k", i/2500), Op: demand.DoesNotExist}}
		}
		list[i].Seal()
	}
	w.arrival++
	from := len(w.sent)
	e := RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: list, Hash: fmt.Sprint("differing ", rows), RowCount: int64(rows), Width: Width{Requirements: int64(demand.Matches(list))}}
	for _, n := range demand.ValuesOf(list, 1<<16) {
		e.Width.Values += int64(n)
	}
	e.LabelKeys, e.TopologyKeys = demand.KeysOf(list)
	w.step(e)
	w.run(2 * Second)
	for _, x := range w.sent[from:] {
		if a, ok := x.(SendAck); ok && a.Rollup != nil {
			return a.Rollup
		}
	}
	w.t.Fatalf("%s has no answer", cluster)
	return nil
}

// SHARD-10.12: a cluster that asks more than a plan can hold gives way, and no other does. It keeps its machines, and has none bought. It is refused for a while if it asks for nearly
// as much, and served when it asks for less.
func TestDemandThatIsTooWideIsSetAside(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RollupGuardOff = true }, gridOf(50)...)
	w.connect("wide")
	w.connect("usual")
	if got := w.differing("wide", 1); got.Disposition != DispositionAccepted {
		t.Fatal(got)
	}
	w.run(Minute)
	if n := w.c.clusters.get("wide").configured(); n != 1 {
		t.Fatalf("%d machines", n)
	}
	const rows = answersMax/2500 + 1000
	w.differing("wide", rows)
	cl := w.c.clusters.get("wide")
	if cl.Disposition != DispositionRejected || cl.DispReason != "too_wide" {
		t.Fatalf("%v %s, %d requirements, %d values, %d classes", cl.Disposition, cl.DispReason, cl.Width.Requirements, cl.Width.Values, w.c.world.Inventory.LiveClasses())
	}
	if n := len(w.c.world.Demand.Cluster("wide").Needs); n != 0 {
		t.Fatalf("%d rows are still in the demand", n)
	}
	got := w.differing("wide", rows)
	if got.Disposition != DispositionRejected || got.Reason != "too_wide" || !strings.Contains(got.Message, "state at most 8") {
		t.Errorf("the next roll-up: %v %s %s", got.Disposition, got.Reason, got.Message)
	}
	if got := w.differing("usual", 1); got.Disposition != DispositionAccepted {
		t.Errorf("another cluster: %v", got)
	}
	w.run(5 * Minute)
	if n := w.c.clusters.get("usual").configured(); n != 1 {
		t.Errorf("another cluster has %d machines", n)
	}
	if n := cl.configured(); n != 1 || cl.GateOpen {
		t.Errorf("the cluster has %d machines, its gate is open: %v", n, cl.GateOpen)
	}
	if got := w.differing("wide", 1); got.Disposition != DispositionAccepted || !cl.GateOpen {
		t.Errorf("with less: %v", got)
	}
	if got := w.differing("wide", rows); got.Disposition != DispositionRejected || got.Reason != "too_large" || strings.Contains(got.Message, "none is bought") || len(w.c.world.Demand.Cluster("wide").Needs) != 1 {
		t.Errorf("much again, while less is in force: %+v", got)
	}
	w.run(5 * Minute)
	if n := len(slices.DeleteFunc(slices.Clone(w.records), func(r Record) bool { return r.Type != RecordRollupRejected || r.Outcome != "too_wide" })); n != 2 {
		t.Errorf("%d refusals are recorded", n)
	}
	w.run(6 * Minute)
	w.differing("wide", rows) // the time is over; it is taken in, and set aside again
	if cl.Disposition != DispositionRejected || len(w.c.world.Demand.Cluster("wide").Needs) != 0 {
		t.Errorf("after the time: %v", cl.Disposition)
	}
}

// Where values that rows name make the classes, the cluster that names most of them gives way, and not the one whose requirements differ most.
func TestWhoNamesMostValuesIsSetAside(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	for name, of := range map[string]Width{"asks": {Requirements: 5000, Values: 400}, "names": {Requirements: 3, Values: 20_000}, "few": {Requirements: 200, Values: 200}} {
		w.c.clusters.ensure(name).Width = of
	}
	w.tampered = true
	for by, want := range map[Measure]DemandTooWide{byRequirements: {Cluster: "asks", Most: 2500}, byValues: {Cluster: "names", Most: 10_000}} {
		if e, ok := w.c.widest(by, "all").(DemandTooWide); ok != (want.Cluster != "") || e.Cluster != want.Cluster || e.Most != want.Most {
			t.Errorf("%+v", e)
		}
	}
}

// SHARD-8.6: a roll-up that was on its way when the demand before it is set aside has its answer: less is taken in.
func TestRollupOnItsWayWhenDemandIsSetAside(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.RollupGuardOff = true }, slotsOf(2)...)
	w.connect("wide")
	w.offer("wide", "1", manyNeeds(3*demand.PartRows, "a"))
	w.offer("wide", "2", manyNeeds(2*demand.PartRows, "b"))
	w.step(DemandTooWide{Cluster: "wide", Most: 5, Reason: "a test"})
	w.run(2 * Second)
	cl := w.c.clusters.get("wide")
	if cl.Hash != "2" || len(w.c.world.Demand.Cluster("wide").Needs) != 2*demand.PartRows || w.answered("wide") != 1 || !cl.GateOpen {
		t.Errorf("%q is in force with %d rows, %d answers", cl.Hash, len(w.c.world.Demand.Cluster("wide").Needs), w.answered("wide"))
	}
	w.offer("wide", "3", manyNeeds(3*demand.PartRows, "c"))
	w.step(DemandTooWide{Cluster: "wide", Most: -1, Reason: "a test"}) // narrower than it states
	w.run(2 * Second)
	if cl.Known || cl.Disposition != DispositionRejected || w.answered("wide") != 2 {
		t.Errorf("%v, %d answers", cl.Disposition, w.answered("wide"))
	}
}
