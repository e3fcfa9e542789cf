package planner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// fleet is a random small world in plain form, so that it can be built in any order and with any numbering.
type fleet struct {
	now      int64
	clusters []fleetCluster
	machines []fleetMachine
	policy   *engine.Policy
}

type fleetCluster struct {
	name     string
	facts    demand.Facts
	overhead []resource.Quantity
	rooms    []demand.Room
	rows     []fleetRow
}

type fleetRow struct {
	row      demand.Row
	arrival  int64
	hold     demand.Hold
	unplaced bool
	room     int64    // negative: served elsewhere
	full     []string // values of its spread's key
}

type fleetMachine struct {
	m           inventory.Machine
	attribution *inventory.Attribution
	promise     *inventory.Promise
	marks       []inventory.Withheld
	since       int64
	ready       inventory.Readiness
	foreign     bool
	stuck       bool
	leaving     bool // its drain cannot be stopped any more
	holds       inventory.Occupancy
	labels      []inventory.Label // of its node alone
	taken       bool              // its provider takes it back
}

// Fleets are drawn from a seed, which rapid draws, and not value by value: even spreads find more than small values do,
// and a fleet shrinks better by losing machines and rows (see shrink).
type source = *rand.Rand

func oneOf[T any](t source, list ...T) T { return list[t.IntN(len(list))] }

func chance(t source, percent int) bool { return t.IntN(100) < percent }

// shape says how large random worlds are and what they are mostly made of, in per cent.
type shape struct {
	clusters, rows, machines int
	plain                    bool // no Same, no spread, no sharing: for laws that hold without them only
	same, spread, twins      int  // Needs with Same, with hard spread, equal to another row but for the group
	together                 int  // Needs whose Pods start together or not at all
	bound, speculative       int  // machines bound to a cluster, and slots; the others are anything
	picky                    int  // requirements, tolerations, taints, marks, odd states
	prices                   int  // distinct prices; few make ties
}

// shapes are the themes that the laws are checked on.
var shapes = map[string]shape{
	"mixed":   {clusters: 3, rows: 5, machines: 14, same: 25, spread: 15, twins: 10, bound: 40, speculative: 25, picky: 15, together: 15, prices: 6},
	"market":  {clusters: 2, rows: 4, machines: 20, same: 0, spread: 10, twins: 0, bound: 5, speculative: 85, picky: 4, prices: 40},
	"ties":    {clusters: 2, rows: 5, machines: 18, same: 10, spread: 25, twins: 20, bound: 20, speculative: 60, picky: 4, prices: 2},
	"gangs":   {clusters: 2, rows: 7, machines: 18, same: 80, spread: 5, twins: 40, bound: 45, speculative: 30, picky: 5, together: 50, prices: 4},
	"crowded": {clusters: 4, rows: 6, machines: 14, same: 15, spread: 10, twins: 10, bound: 80, speculative: 5, picky: 8, together: 30, prices: 6},
	"sharing": {clusters: 2, rows: 9, machines: 10, same: 15, spread: 0, twins: 10, bound: 50, speculative: 35, picky: 2, together: 10, prices: 6},
	"picky":   {clusters: 3, rows: 5, machines: 14, same: 30, spread: 20, twins: 10, bound: 40, speculative: 25, picky: 50, together: 20, prices: 6},
	"slack":   {clusters: 2, rows: 3, machines: 18, same: 10, spread: 10, twins: 10, bound: 25, speculative: 5, picky: 6, together: 40, prices: 2},
	"spread":  {clusters: 2, rows: 5, machines: 12, same: 15, spread: 70, twins: 10, bound: 50, speculative: 25, picky: 8, together: 20, prices: 4},
}

var themes = []string{"mixed", "market", "ties", "gangs", "crowded", "sharing", "picky", "slack", "spread"}

// checkFleets checks a law on random fleets of every theme. A fleet that breaks it is shrunk before it is shown.
func checkFleets(t *testing.T, law func(f *fleet) error) {
	for _, theme := range themes {
		t.Run(theme, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				seed := rapid.Uint64().Draw(rt, "seed")
				f := drawFleet(rand.New(rand.NewPCG(seed, 1)), shapes[theme])
				if err := law(f); err != nil {
					small, err := shrink(f, err, law)
					rt.Fatalf("%v\n%s", err, small)
				}
			})
		})
	}
}

// shrink takes machines, rows and clusters away as long as the law stays broken.
func shrink(f *fleet, err error, law func(f *fleet) error) (*fleet, error) {
	for again := true; again; {
		again = false
		for _, smaller := range f.smaller() {
			if e := law(smaller); e != nil {
				f, err, again = smaller, e, true
				break
			}
		}
	}
	return f, err
}

// smaller lists the fleets with one thing less.
func (f *fleet) smaller() []*fleet {
	var out []*fleet
	with := func(change func(c *fleet)) {
		c := *f
		c.machines, c.clusters = slices.Clone(f.machines), slices.Clone(f.clusters)
		change(&c)
		out = append(out, &c)
	}
	for i := range f.machines {
		with(func(c *fleet) { c.machines = slices.Delete(c.machines, i, i+1) })
	}
	for i := range f.clusters {
		if len(f.clusters) > 1 {
			with(func(c *fleet) { c.clusters = slices.Delete(c.clusters, i, i+1) })
		}
		for r := range f.clusters[i].rows {
			with(func(c *fleet) { c.clusters[i].rows = slices.Delete(slices.Clone(c.clusters[i].rows), r, r+1) })
		}
	}
	for i, m := range f.machines {
		if len(m.marks) > 0 {
			with(func(c *fleet) { c.machines[i].marks = nil })
		}
		if m.attribution != nil {
			with(func(c *fleet) { c.machines[i].attribution = nil })
		}
		if len(m.m.Taints)+len(m.m.Labels) > 0 {
			with(func(c *fleet) { c.machines[i].m.Taints, c.machines[i].m.Labels = nil, nil })
		}
	}
	return out
}

func (f *fleet) String() string {
	var b strings.Builder
	for _, c := range f.clusters {
		fmt.Fprintf(&b, "cluster %s %+v overhead %v rooms %v\n", c.name, c.facts, c.overhead, c.rooms)
		for _, r := range c.rows {
			fmt.Fprintf(&b, "  row %+v arrival %d hold %d\n", r.row, r.arrival, r.hold)
		}
	}
	for _, m := range f.machines {
		fmt.Fprintf(&b, "machine %+v since %ds ready %d foreign %v stuck %v leaving %v taken %v marks %v holds %d\n", m.m, m.since/engine.Second, m.ready, m.foreign, m.stuck,
			m.leaving, m.taken, m.marks, m.holds)
		if m.attribution != nil {
			fmt.Fprintf(&b, "  attribution %+v\n", *m.attribution)
		}
		if m.promise != nil {
			fmt.Fprintf(&b, "  promise %+v\n", *m.promise)
		}
	}
	return b.String()
}

func milli(name string, n int64) resource.Quantity {
	return resource.Quantity{Name: name, Milli: n * 1000}
}

// drawProfile draws a profile of few keys and values, so that Needs and machines meet often.
func drawProfile(t source, sh shape) demand.Profile {
	p := demand.Profile{
		Priority:     oneOf[int32](t, 0, 0, 10, 10, 100, 1000, 200_000, 600_000, 2_000_000),
		Interruption: oneOf[demand.Bucket](t, 0, 0, 1, 5, 10, 27),
		Reclamation:  oneOf[demand.Bucket](t, 0, 0, 2, 6),
	}
	add := func(r demand.Requirement) { p.Requirements = append(p.Requirements, r) }
	if chance(t, sh.picky) {
		add(demand.Requirement{Key: "topology.kubernetes.io/zone", Op: oneOf(t, demand.In, demand.NotIn), Values: []string{oneOf(t, "a", "b")}})
	}
	if chance(t, sh.picky) {
		add(demand.Requirement{Key: "node.kubernetes.io/instance-type", Op: demand.In, Values: []string{oneOf(t, "small", "large"), "mid"}})
	}
	if chance(t, sh.picky) {
		add(demand.Requirement{Key: "disk", Op: oneOf(t, demand.Exists, demand.DoesNotExist, demand.NotIn), Values: []string{"hdd"}})
	}
	if chance(t, sh.picky/2) {
		add(demand.Requirement{Key: "gen", Op: oneOf(t, demand.Gt, demand.Lt), Values: []string{oneOf(t, "2", "3")}})
	}
	if chance(t, sh.picky) {
		p.TolerationsStated = true
		if chance(t, 60) {
			p.Tolerations = []demand.Toleration{{Key: "gpu", Op: demand.TolerationExists}}
		}
	}
	p.NeverPreempts = chance(t, 15)
	if chance(t, 20) {
		p.MaxPerHost = oneOf[int32](t, 1, 1, 2, 3)
	}
	if chance(t, sh.together) {
		p.MinMembers = oneOf[int32](t, 1, 2, 3, 4, 7)
	}
	for chance(t, sh.picky/2) && len(p.Preferences) < 3 {
		p.Preferences = append(p.Preferences, demand.Preference{Weight: oneOf[int32](t, 1, 10, 50, 100), Requirements: []demand.Requirement{
			oneOf(t, demand.Requirement{Key: "topology.kubernetes.io/zone", Op: demand.In, Values: []string{"b"}},
				demand.Requirement{Key: "disk", Op: demand.Exists}, demand.Requirement{Key: "gen", Op: demand.Gt, Values: []string{"2"}})}})
	}
	if sh.plain {
		return p
	}
	if chance(t, sh.same) {
		r := demand.Requirement{Key: oneOf(t, "rack", "rack", "rack", "topology.kubernetes.io/zone"), Op: demand.Same}
		if chance(t, sh.picky/2) {
			r.Values = []string{"r1", "r2", "a"}
		}
		add(r)
	}
	if chance(t, sh.spread) {
		p.Spread = []demand.Spread{{Key: oneOf(t, "topology.kubernetes.io/zone", "topology.kubernetes.io/zone", "rack"),
			MaxSkew: oneOf[int32](t, 1, 1, 2), MinDomains: oneOf[int32](t, 0, 0, 0, 2, 3, 1000)}}
	}
	return p
}

func drawRow(t source, sh shape, c *fleetCluster) fleetRow {
	if len(c.rows) > 0 && chance(t, sh.twins) {
		twin := oneOf(t, c.rows...)
		twin.row.Group = oneOf(t, "g4", "g5", "g6", "g7")
		twin.arrival = oneOf[int64](t, 0, 1, 2, 3)
		return twin
	}
	r := demand.Row{Profile: drawProfile(t, sh), RowID: fmt.Sprintf("row%d", len(c.rows)), Group: oneOf(t, "", "g1", "g2", "g3")}
	unit, cores := oneOf[int64](t, 0, 1, 1, 2, 4), oneOf[int64](t, 0, 1, 2, 3, 4, 8, 9, 16, 30)
	r.Aggregate = []resource.Quantity{milli("cpu", cores)}
	if unit > 0 {
		r.MinUnit = []resource.Quantity{milli("cpu", unit)}
	}
	if chance(t, 40) {
		r.Aggregate = append(r.Aggregate, milli("mem", oneOf[int64](t, 1, 4, 10, 30)))
		if unit > 0 && chance(t, 60) {
			r.MinUnit = append(r.MinUnit, milli("mem", oneOf[int64](t, 1, 2, 5)))
		}
	}
	if chance(t, 10) {
		r.Aggregate = append(r.Aggregate, milli("gpu", oneOf[int64](t, 1, 2, 4)))
	}
	if chance(t, 35) { // Pods that are all alike, most of which do not pack evenly (ENG-4.12)
		k := oneOf[int64](t, 1, 2, 3, 4, 7)
		cpu, mem := oneOf[int64](t, 1, 2, 3, 3, 5), oneOf[int64](t, 0, 0, 1, 3, 5)
		r.MinUnit, r.Aggregate = []resource.Quantity{milli("cpu", cpu)}, []resource.Quantity{milli("cpu", k*cpu)}
		if mem > 0 {
			r.MinUnit, r.Aggregate = append(r.MinUnit, milli("mem", mem)), append(r.Aggregate, milli("mem", k*mem))
		}
	}
	if chance(t, 20) { // Pods and volumes are limits of a node, which few machines state
		name, k := oneOf(t, "pods", "pods", "attachable-volumes-csi-x"), oneOf[int64](t, 1, 2, 3, 5)
		if len(r.MinUnit) > 0 && r.MinUnit[0].Milli > 0 {
			k = max(1, r.Aggregate[0].Milli/r.MinUnit[0].Milli)
			r.MinUnit = append(slices.Clone(r.MinUnit), milli(name, 1))
		}
		r.Aggregate = append(slices.Clone(r.Aggregate), milli(name, k))
	}
	room, full := int64(0), []string(nil)
	if chance(t, 15) {
		room = oneOf[int64](t, -1, -1, -2, -3, -10, 1, 2)
	}
	if len(r.Profile.Spread) > 0 && chance(t, 40) {
		room, full = oneOf[int64](t, 1, 1, 2, 3), oneOf(t, []string{"a"}, []string{"b"}, []string{"a", "b"}, []string{"r1"}, []string{"r2", "r3"}, nil)
	}
	return fleetRow{room: room, full: full, row: r, arrival: oneOf[int64](t, 0, 1, 2, 2, 3), unplaced: chance(t, 5),
		hold: oneOf(t, demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld, demand.NotHeld,
			demand.NotHeld, demand.HeldParked, oneOf(t, demand.HeldOffline, demand.HeldBootstrapBackoff))}
}

func drawMachine(t source, sh shape, f *fleet, i int) fleetMachine {
	m := inventory.Machine{ID: fmt.Sprintf("m%04d", t.IntN(30)*40+i), Provider: "p"}
	m.InstanceType = oneOf(t, "small", "mid", "large", "")
	m.Zone = oneOf(t, "a", "b", "c")
	m.CapacityType = oneOf(t, inventory.OnDemand, inventory.OnDemand, inventory.Spot, inventory.Reserved, inventory.BareMetal)
	m.Price = int64(t.IntN(sh.prices)) * 100_000
	m.Probability = oneOf[int32](t, 0, 0, 0, 10_000, 50_000)
	m.DrainSeconds = oneOf[int32](t, 0, 0, 0, 5, 300)
	m.Resources = []resource.Quantity{milli("cpu", oneOf[int64](t, 1, 2, 4, 4, 8, 16))}
	if chance(t, 85) {
		m.Resources = append(m.Resources, milli("mem", oneOf[int64](t, 2, 4, 8, 16)))
	}
	if chance(t, 20) {
		m.Resources = append(m.Resources, milli("gpu", oneOf[int64](t, 1, 2)))
	}
	if chance(t, 20) {
		m.Allocatable = []resource.Quantity{milli("cpu", oneOf[int64](t, 1, 3, 7)), milli("mem", 3)}
	}
	if chance(t, 90) {
		m.Labels = append(m.Labels, inventory.Label{Key: "rack", Value: oneOf(t, "r1", "r2", "r3")})
	}
	if chance(t, 10) {
		m.Resources = append(m.Resources, milli("pods", oneOf[int64](t, 1, 2, 5)))
	}
	if chance(t, 40) {
		m.Labels = append(m.Labels, inventory.Label{Key: "gen", Value: oneOf(t, "1", "3", "12", "new")})
	}
	if chance(t, 40) {
		m.Labels = append(m.Labels, inventory.Label{Key: "disk", Value: oneOf(t, "ssd", "hdd")})
	}
	if chance(t, sh.picky) {
		m.Taints = []inventory.Taint{{Key: "gpu", Effect: oneOf(t, demand.NoSchedule, demand.PreferNoSchedule)}}
	}
	if chance(t, sh.picky/4) {
		m.Labels = append(m.Labels, inventory.Label{Key: "topology.kubernetes.io/zone", Value: oneOf(t, "a", "b")})
		if chance(t, 70) {
			m.Zone = ""
		}
	}
	x := fleetMachine{m: m, since: oneOf[int64](t, 0, 100, 900, 990, 995) * engine.Second, foreign: chance(t, sh.picky/3), stuck: chance(t, sh.picky/5),
		leaving: chance(t, sh.picky/5), taken: chance(t, sh.picky/5)}
	switch n := t.IntN(100); {
	case n < sh.bound:
		x.m.State = oneOf(t, inventory.Configured, inventory.Configured, inventory.Configured, inventory.Configuring)
	case n < sh.bound+sh.speculative:
		x.m.State = inventory.Speculative
	default:
		x.m.State = oneOf(t, inventory.Idle, inventory.Idle, inventory.Creating, inventory.Draining, inventory.Idle, inventory.Creating,
			inventory.Draining, inventory.Deleting, inventory.Failed)
	}
	x.ready = oneOf(t, inventory.ReadyOnce, inventory.ReadyOnce, inventory.NoReport, inventory.NotReady, inventory.ReadyLost)
	cluster := oneOf(t, f.clusters...)
	attribution := drawAttribution(t, cluster)
	switch x.m.State {
	case inventory.Configuring, inventory.Configured, inventory.Draining:
		x.m.Cluster = cluster.name
		x.drawContents(t)
		if chance(t, 85) {
			x.attribution = &attribution
		}
		if x.m.State == inventory.Draining && chance(t, 60) {
			x.promise = &inventory.Promise{Cluster: oneOf(t, f.clusters...).name, For: attribution, Cause: inventory.ForPreempt,
				Expires: oneOf[int64](t, 0, 500, 2000) * engine.Second}
		}
	case inventory.Creating, inventory.Idle:
		if chance(t, 50) {
			x.promise = &inventory.Promise{Cluster: cluster.name, For: attribution, Cause: inventory.ForCreate}
		}
	}
	if chance(t, sh.picky) {
		x.marks = append(x.marks, inventory.Withheld{Reason: oneOf(t, inventory.WithheldStockOut, inventory.WithheldQuota,
			inventory.WithheldBackoff, inventory.WithheldReserved), Cluster: oneOf(t, "", cluster.name, cluster.name)})
	}
	return x
}

// drawAttribution is mostly that of a row of the cluster, sometimes that of one that is gone, sometimes foreign.
func drawAttribution(t source, c fleetCluster) inventory.Attribution {
	if len(c.rows) > 0 && chance(t, 75) {
		r := oneOf(t, c.rows...)
		p := r.row.Profile.Canonical()
		return inventory.Attribution{Fingerprint: p.Fingerprint(), Group: r.row.Group, Priority: p.Priority,
			Interruption: p.Interruption.Penalty(), Reclamation: p.Reclamation.Penalty()}
	}
	return inventory.Attribution{Fingerprint: oneOf(t, "f1-gone", "f1-gone", "v0-old"), Group: "g1",
		Priority: oneOf[int32](t, 0, 10, 100, 1000), Reclamation: oneOf[demand.Penalty](t, 0, 1, 16)}
}

func drawFleet(t source, sh shape) *fleet {
	f := &fleet{now: 1000 * engine.Second, policy: engine.DefaultPolicy()}
	for _, name := range []string{"blue", "green", "red", "white"}[:1+t.IntN(sh.clusters)] {
		c := fleetCluster{name: name}
		c.facts = demand.Facts{Heard: chance(t, 80), SharingPerMille: oneOf[int32](t, 1000, 1000, 500, 0),
			ReportsReadiness: chance(t, 25), ReportingSince: oneOf[int64](t, 0, 50, 200) * engine.Second,
			JoinDrained: oneOf[int32](t, 0, 0, 1), JoinFailures: oneOf[int32](t, 0, 0, 1, 3)}
		if sh.plain {
			c.facts.SharingPerMille = 0
		}
		if chance(t, 30) {
			c.overhead = []resource.Quantity{milli("cpu", 1)}
		}
		for chance(t, 20) {
			c.rooms = append(c.rooms, drawRoom(t))
		}
		for range t.IntN(sh.rows + 1) {
			c.rows = append(c.rows, drawRow(t, sh, &c))
		}
		f.clusters = append(f.clusters, c)
	}
	for i := range t.IntN(sh.machines + 1) {
		f.machines = append(f.machines, drawMachine(t, sh, f, i))
	}
	f.policy.ShareLooks = oneOf(t, 1, 2, 64, 64)
	return f
}

// drawRoom is what a cluster has learnt of a type.
func drawRoom(t source) demand.Room {
	r := demand.Room{Type: oneOf(t, "small", "mid", "large", "other")}
	for _, name := range []string{"cpu", "mem", "pods", "attachable-volumes-csi-x"} {
		if chance(t, 50) {
			r.Amounts = append(r.Amounts, milli(name, oneOf[int64](t, 1, 2, 3, 6)))
		}
	}
	return r
}

// build makes a world of it. order permutes what is inserted when: no result may depend on it.
func (f *fleet) build(order func(n int) []int) *engine.World {
	w := engine.NewWorld()
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

func (f *fleet) fill(w *engine.World, order func(n int) []int) {
	for _, i := range order(len(f.clusters)) {
		f.clusters[i].apply(w, order)
	}
	for _, i := range order(len(f.machines)) {
		f.machines[i].apply(w)
	}
	w.Inventory.Advance(f.now)
}

func (c *fleetCluster) apply(w *engine.World, order func(n int) []int) {
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
	w.Demand.SetRooms(c.name, c.rooms)
	held, marked, room, full := map[demand.RowKey]demand.Hold{}, map[demand.RowKey]bool{}, map[demand.RowKey]int64{}, map[demand.RowKey][]string{}
	for i := range c.rows {
		k := demand.RowKey{Fingerprint: c.rows[i].row.Profile.Fingerprint(), Group: c.rows[i].row.Group}
		if _, ok := held[k]; !ok {
			held[k], marked[k], room[k], full[k] = c.rows[i].hold, c.rows[i].unplaced, c.rows[i].room, c.rows[i].full
		}
	}
	w.Demand.SetHolds(c.name, func(n *demand.Need) demand.Hold { return held[n.RowKey()] })
	w.Demand.SetUnplaced(c.name, func(n *demand.Need) bool { return marked[n.RowKey()] })
	w.Demand.SetHeadroom(c.name, func(n *demand.Need) int64 {
		switch units := room[n.RowKey()]; {
		case n.MinUnit.IsZero():
			return 0
		case n.Form.Same != nil:
			return max(0, units)
		default:
			return units
		}
	})
	w.Demand.SetOwn(c.name, func(n *demand.Need) int64 { return n.Arrival }) // a few units, or not known
	w.Demand.SetFull(c.name, func(n *demand.Need) []string { return full[n.RowKey()] })
}

// drawContents draws what the node of a machine holds.
func (x *fleetMachine) drawContents(t source) {
	x.holds = oneOf(t, inventory.OccupancyUnknown, inventory.OccupancyEmpty, inventory.OccupancyEmpty, inventory.OccupancyOf(0),
		inventory.OccupancyOf(9), inventory.OccupancyProtected)
	if x.labels = nil; chance(t, 20) {
		x.labels = []inventory.Label{{Key: oneOf(t, "disk", "rack"), Value: oneOf(t, "ssd", "hdd", "r1")}}
	}
}

func (x *fleetMachine) apply(w *engine.World) {
	i, _ := w.Inventory.Put(x.m)
	w.Inventory.SetAttribution(i, x.attribution)
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
	w.Inventory.SetLeaving(i, x.leaving)
	w.Inventory.SetOccupancy(i, x.holds)
	w.Inventory.SetNodeLabels(i, x.labels)
	w.Inventory.SetAnnounced(i, x.taken)
}
