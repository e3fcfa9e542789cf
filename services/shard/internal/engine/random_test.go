package engine

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// fleet is a random small world in plain form, so that it can be built in any order and with any numbering.
type fleet struct {
	now      int64
	clusters []fleetCluster
	machines []fleetMachine
	policy   *Policy
}

type fleetCluster struct {
	name     string
	facts    demand.Facts
	overhead []resource.Quantity
	rows     []fleetRow
}

type fleetRow struct {
	row      demand.Row
	arrival  int64
	hold     demand.Hold
	unplaced bool
}

type fleetMachine struct {
	m       inventory.Machine
	stamp   *inventory.Stamp
	promise *inventory.Promise
	marks   []inventory.Withheld
	since   int64
	ready   inventory.Readiness
	foreign bool
	stuck   bool
}

// shape says how large random worlds are and what they may hold.
type shape struct {
	clusters, rows, machines int
	plain                    bool // no Same, no spread, no sharing: for laws that hold without them only
}

func oneOf[T any](t *rapid.T, label string, list ...T) T {
	return rapid.SampledFrom(list).Draw(t, label)
}

func chance(t *rapid.T, label string, percent int) bool {
	return rapid.IntRange(0, 99).Draw(t, label) < percent
}

func milli(name string, n int64) resource.Quantity {
	return resource.Quantity{Name: name, Milli: n * 1000}
}

// drawProfile draws a profile of few keys and values, so that Needs and machines meet often.
func drawProfile(t *rapid.T, sh shape) demand.Profile {
	p := demand.Profile{
		Priority:     oneOf[int32](t, "priority", 0, 0, 10, 10, 100, 1000, 200_000, 2_000_000),
		Interruption: oneOf[demand.Bucket](t, "interruption", 0, 0, 1, 5, 10, 27),
		Reclamation:  oneOf[demand.Bucket](t, "reclamation", 0, 0, 2, 6),
	}
	add := func(r demand.Requirement) { p.Requirements = append(p.Requirements, r) }
	if chance(t, "zonal", 20) {
		add(demand.Requirement{Key: "topology.kubernetes.io/zone", Op: oneOf(t, "op", demand.In, demand.NotIn), Values: []string{oneOf(t, "z", "a", "b")}})
	}
	if chance(t, "typed", 15) {
		add(demand.Requirement{Key: "node.kubernetes.io/instance-type", Op: demand.In, Values: []string{oneOf(t, "t", "small", "large"), "mid"}})
	}
	if chance(t, "labelled", 15) {
		add(demand.Requirement{Key: "disk", Op: oneOf(t, "dop", demand.Exists, demand.DoesNotExist, demand.NotIn), Values: []string{"hdd"}})
	}
	if chance(t, "tolerating", 15) {
		p.TolerationsStated = true
		if chance(t, "tolerates", 60) {
			p.Tolerations = []demand.Toleration{{Key: "gpu", Op: demand.TolerationExists}}
		}
	}
	if sh.plain {
		return p
	}
	if chance(t, "same", 35) {
		add(demand.Requirement{Key: oneOf(t, "same key", "rack", "rack", "topology.kubernetes.io/zone"), Op: demand.Same})
	}
	if chance(t, "spread", 20) {
		p.Spread = []demand.Spread{{Key: oneOf(t, "spread key", "topology.kubernetes.io/zone", "rack"), MaxSkew: oneOf[int32](t, "skew", 1, 1, 2)}}
	}
	return p
}

func drawRow(t *rapid.T, sh shape, i int) fleetRow {
	r := demand.Row{Profile: drawProfile(t, sh), RowID: fmt.Sprintf("row%d", i), Group: oneOf(t, "group", "", "g1", "g2", "g3")}
	unit, cores := oneOf[int64](t, "unit", 0, 1, 2, 4), oneOf[int64](t, "cores", 0, 1, 2, 3, 4, 8, 9, 16, 30)
	r.Aggregate = []resource.Quantity{milli("cpu", cores)}
	if unit > 0 {
		r.MinUnit = []resource.Quantity{milli("cpu", unit)}
	}
	if chance(t, "memory", 40) {
		r.Aggregate = append(r.Aggregate, milli("mem", oneOf[int64](t, "gib", 1, 4, 10, 30)))
		if unit > 0 && chance(t, "memory unit", 60) {
			r.MinUnit = append(r.MinUnit, milli("mem", oneOf[int64](t, "unit gib", 1, 2, 5)))
		}
	}
	if chance(t, "devices", 15) {
		r.Aggregate = append(r.Aggregate, milli("gpu", oneOf[int64](t, "gpus", 1, 2, 4)))
	}
	return fleetRow{row: r, arrival: oneOf[int64](t, "arrival", 0, 1, 2, 2, 3), unplaced: chance(t, "unplaced", 5),
		hold: oneOf(t, "hold", demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld,
			demand.NotHeld, demand.HeldParked, demand.HeldOffline)}
}

func drawMachine(t *rapid.T, f *fleet, i int) fleetMachine {
	m := inventory.Machine{ID: fmt.Sprintf("m%02d", rapid.IntRange(0, 30).Draw(t, "id")*40+i), Provider: "p"}
	m.InstanceType = oneOf(t, "type", "small", "mid", "large", "")
	m.Zone = oneOf(t, "zone", "a", "b", "c")
	m.CapacityType = oneOf(t, "capacity", inventory.OnDemand, inventory.OnDemand, inventory.Spot, inventory.Reserved, inventory.BareMetal)
	m.Price = oneOf[int64](t, "price", 0, 1, 2, 3, 5, 8) * 100_000
	m.Probability = oneOf[int32](t, "risk", 0, 0, 0, 10_000, 50_000)
	m.Resources = []resource.Quantity{milli("cpu", oneOf[int64](t, "cpu", 1, 2, 4, 4, 8, 16))}
	if chance(t, "has memory", 85) {
		m.Resources = append(m.Resources, milli("mem", oneOf[int64](t, "mem", 2, 4, 8, 16)))
	}
	if chance(t, "has gpu", 20) {
		m.Resources = append(m.Resources, milli("gpu", oneOf[int64](t, "gpu", 1, 2)))
	}
	if chance(t, "allocatable", 20) {
		m.Allocatable = []resource.Quantity{milli("cpu", oneOf[int64](t, "acpu", 1, 3, 7)), milli("mem", 3)}
	}
	if chance(t, "racked", 85) {
		m.Labels = append(m.Labels, inventory.Label{Key: "rack", Value: oneOf(t, "rack", "r1", "r2", "r3")})
	}
	if chance(t, "has disk", 40) {
		m.Labels = append(m.Labels, inventory.Label{Key: "disk", Value: oneOf(t, "disk", "ssd", "hdd")})
	}
	if chance(t, "tainted", 10) {
		m.Taints = []inventory.Taint{{Key: "gpu", Effect: oneOf(t, "effect", demand.NoSchedule, demand.PreferNoSchedule)}}
	}
	x := fleetMachine{m: m, since: oneOf[int64](t, "since", 0, 100, 900, 990, 995) * second, foreign: chance(t, "foreign", 5), stuck: chance(t, "stuck", 3)}
	x.m.State = oneOf(t, "state", inventory.Idle, inventory.Idle, inventory.Speculative, inventory.Speculative, inventory.Speculative,
		inventory.Configured, inventory.Configured, inventory.Configured, inventory.Configured, inventory.Configuring, inventory.Creating,
		inventory.Draining, inventory.Deleting, inventory.Failed)
	x.ready = oneOf(t, "ready", inventory.ReadyOnce, inventory.ReadyOnce, inventory.NoReport, inventory.NotReady, inventory.ReadyLost)
	cluster := rapid.SampledFrom(f.clusters).Draw(t, "cluster")
	stamp := drawStamp(t, cluster)
	switch x.m.State {
	case inventory.Configuring, inventory.Configured, inventory.Draining:
		x.m.Cluster = cluster.name
		if chance(t, "stamped", 85) {
			x.stamp = &stamp
		}
		if x.m.State == inventory.Draining && chance(t, "reserved", 60) {
			x.promise = &inventory.Promise{Cluster: rapid.SampledFrom(f.clusters).Draw(t, "for").name, For: stamp, Cause: inventory.ForPreempt,
				Expires: oneOf[int64](t, "expires", 0, 500, 2000) * second}
		}
	case inventory.Creating, inventory.Idle:
		if chance(t, "promised", 40) {
			x.promise = &inventory.Promise{Cluster: cluster.name, For: stamp, Cause: inventory.ForCreate}
		}
	}
	if chance(t, "withheld", 12) {
		x.marks = append(x.marks, inventory.Withheld{Reason: oneOf(t, "reason", inventory.WithheldStockOut, inventory.WithheldQuota,
			inventory.WithheldBackoff, inventory.WithheldForgotten), Cluster: oneOf(t, "withheld for", "", cluster.name)})
	}
	return x
}

// drawStamp is mostly that of a row of the cluster, sometimes that of one that is gone, sometimes foreign.
func drawStamp(t *rapid.T, c fleetCluster) inventory.Stamp {
	if len(c.rows) > 0 && chance(t, "known row", 75) {
		r := rapid.SampledFrom(c.rows).Draw(t, "row")
		p := r.row.Profile.Canonical()
		return inventory.Stamp{Fingerprint: p.Fingerprint(), Group: r.row.Group, Priority: p.Priority,
			Interruption: p.Interruption.Penalty(), Reclamation: p.Reclamation.Penalty()}
	}
	return inventory.Stamp{Fingerprint: oneOf(t, "fingerprint", "f1-gone", "f1-gone", "v0-old"), Group: "g1",
		Priority: oneOf[int32](t, "old priority", 0, 10, 100, 1000), Reclamation: oneOf[demand.Penalty](t, "old reclamation", 0, 1, 16)}
}

func drawFleet(t *rapid.T, sh shape) *fleet {
	f := &fleet{now: 1000 * second, policy: DefaultPolicy()}
	names := []string{"blue", "green", "red", "white"}
	for _, name := range names[:rapid.IntRange(1, sh.clusters).Draw(t, "clusters")] {
		c := fleetCluster{name: name}
		c.facts = demand.Facts{Heard: chance(t, "heard", 80), SharingPerMille: oneOf[int32](t, "sharing", 1000, 1000, 500, 0),
			ReportsReadiness: chance(t, "reports", 25), ReportingSince: oneOf[int64](t, "reporting since", 0, 50, 200) * second,
			JoinDrained: oneOf[int32](t, "drained", 0, 0, 1), JoinFailures: oneOf[int32](t, "failures", 0, 0, 1, 3)}
		if sh.plain {
			c.facts.SharingPerMille = 0
		}
		if chance(t, "overhead", 30) {
			c.overhead = []resource.Quantity{milli("cpu", 1)}
		}
		for i := range rapid.IntRange(0, sh.rows).Draw(t, "rows") {
			c.rows = append(c.rows, drawRow(t, sh, i))
		}
		f.clusters = append(f.clusters, c)
	}
	for i := range rapid.IntRange(0, sh.machines).Draw(t, "machines") {
		f.machines = append(f.machines, drawMachine(t, f, i))
	}
	return f
}

// build makes a world of it. order permutes what is inserted when: no result may depend on it.
func (f *fleet) build(order func(n int) []int) *World {
	w := NewWorld()
	f.fill(w, order)
	return w
}

func straight(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func (f *fleet) fill(w *World, order func(n int) []int) {
	for _, i := range order(len(f.clusters)) {
		f.clusters[i].apply(w, order)
	}
	for _, i := range order(len(f.machines)) {
		f.machines[i].apply(w)
	}
	w.Inventory.Advance(f.now)
}

func (c *fleetCluster) apply(w *World, order func(n int) []int) {
	w.Demand.SetFacts(c.name, c.facts)
	w.Demand.Replace(c.name, nil, c.overhead, 0)
	var rows []demand.Row
	for _, at := range []int64{0, 1, 2, 3} { // each row arrives with the roll-up that first has it
		for _, i := range order(len(c.rows)) {
			if c.rows[i].arrival == at {
				rows = append(rows, c.rows[i].row)
			}
		}
		w.Demand.Replace(c.name, rows, c.overhead, at)
	}
	held, marked := map[demand.RowKey]demand.Hold{}, map[demand.RowKey]bool{}
	for i := range c.rows {
		k := demand.RowKey{Fingerprint: c.rows[i].row.Profile.Fingerprint(), Group: c.rows[i].row.Group}
		if _, ok := held[k]; !ok {
			held[k], marked[k] = c.rows[i].hold, c.rows[i].unplaced
		}
	}
	w.Demand.SetHolds(c.name, func(n *demand.Need) demand.Hold { return held[n.RowKey()] })
	w.Demand.SetUnplaced(c.name, func(n *demand.Need) bool { return marked[n.RowKey()] })
}

func (x *fleetMachine) apply(w *World) {
	i, _ := w.Inventory.Put(x.m)
	w.Inventory.SetStamp(i, x.stamp)
	w.Inventory.SetPromise(i, x.promise)
	for _, m := range w.Inventory.Withheld(i) {
		w.Inventory.Lift(i, m.Reason, m.Cluster)
	}
	for _, m := range x.marks {
		w.Inventory.Withhold(i, m)
	}
	w.Inventory.SetSince(i, x.since)
	w.Inventory.SetReadiness(i, x.ready)
	w.Inventory.SetForeign(i, x.foreign)
	w.Inventory.SetStuck(i, x.stuck)
}
