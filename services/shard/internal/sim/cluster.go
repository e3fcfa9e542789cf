package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// cluster is one Kubernetes cluster: workloads that keep their number of Pods, nodes, a scheduler that packs, and an
// operator or two.
type cluster struct {
	w     *world
	s     *shard // that it is bound to
	name  string
	r     *random
	work  []*workload
	nodes []*node // by machine id
	ops   []*operator
	dirty bool  // the scheduler has something to look at
	edits int64 // number of the last change of demand
	wiped bool  // the operator has lost its store
}

// workload is a set of equal Pods that are made again when they are evicted.
type workload struct {
	row     demand.Row // of one Pod: profile, group and unit
	pods    int
	pending int
	stuck   int64 // since when Pods are pending; 0: none
}

// node is one Kubernetes node.
type node struct {
	c        *cluster
	m        *machine
	joined   bool
	ready    bool
	cordoned bool
	pods     []int // by workload
}

// amounts lists cpu (in milli-units), memory (in GiB) and devices, by name.
func amounts(cpu, gib, gpu int64) []resource.Quantity {
	var q []resource.Quantity
	if cpu > 0 {
		q = append(q, resource.Quantity{Name: "cpu", Milli: cpu})
	}
	if gpu > 0 {
		q = append(q, resource.Quantity{Name: "example.com/gpu", Milli: gpu * 1000})
	}
	if gib > 0 {
		q = append(q, resource.Quantity{Name: "memory", Milli: gib << 30 * 1000})
	}
	return q
}

func amount(list []resource.Quantity, name string) int64 {
	for i := range list {
		if list[i].Name == name {
			return list[i].Milli
		}
	}
	return 0
}

func (w *world) buildClusters() {
	total := int64(0)
	for _, p := range w.providers {
		for _, m := range p.order {
			total += amount(m.Allocatable, "cpu")
		}
	}
	share := int64(float64(total) * w.load / float64(w.nCluster))
	for i := range w.nCluster {
		c := &cluster{w: w, s: w.shards[i%len(w.shards)], name: fmt.Sprintf("c%d", i)}
		c.r = newRandom(w.Seed, c.name)
		n := 1 + c.r.intn(4)
		if c.r.chance(.3) {
			n = 11 + c.r.intn(4) // enough rows for the row rule of the roll-up guard
		}
		for range n {
			c.work = append(c.work, c.newWorkload(share/int64(n)))
		}
		c.ops = []*operator{c.newOperator(0)}
		w.clusters = append(w.clusters, c)
		c.s.clusters = append(c.s.clusters, c)
	}
}

// newWorkload draws a workload of about the given cpu.
func (c *cluster) newWorkload(cpu int64) *workload {
	r, d := c.r, &workload{}
	p := &d.row.Profile
	p.Priority = int32(pick(r, []int{0, 0, 10, 100, 1000, 200_000, 1_000_000}))
	p.Interruption, p.Reclamation = demand.Bucket(1+r.intn(12)), demand.Bucket(1+r.intn(6))
	if r.chance(.1) {
		p.Interruption = demand.Pinned
	}
	unit := pick(r, []int64{500, 1000, 1000, 2000, 3500, 7000})
	gib := pick(r, []int64{1, 2, 4, 8})
	gpu := int64(0)
	if r.chance(.1) {
		gpu, unit = 1, 2000
	}
	if r.chance(.3) {
		zs := slices.Clone(zones[:1+r.intn(len(zones))])
		p.Requirements = append(p.Requirements, demand.Requirement{Key: "topology.kubernetes.io/zone", Op: demand.In, Values: zs})
	}
	if r.chance(.15) {
		p.Requirements = append(p.Requirements, demand.Requirement{Key: "node.kubernetes.io/instance-type", Op: demand.NotIn, Values: []string{pick(r, catalogue).name}})
	}
	gang := r.chance(.12)
	if gang {
		p.Requirements = append(p.Requirements, demand.Requirement{Key: rackKey, Op: demand.Same})
		d.row.Group = fmt.Sprintf("gang-%d", r.intn(1000))
	}
	if !gang && r.chance(.05) {
		p.Spread = append(p.Spread, demand.Spread{Key: "topology.kubernetes.io/zone", MaxSkew: int32(1 + r.intn(3))})
	}
	d.row.MinUnit = amounts(unit, gib, gpu)
	d.row.RowID = fmt.Sprintf("w%d", len(c.work))
	d.row.Seal()
	d.pods = max(1, int(cpu/unit))
	if gang {
		d.pods = min(d.pods, 2+r.intn(6))
	}
	if gpu > 0 {
		d.pods = min(d.pods, 4)
	}
	d.pending = d.pods
	return d
}

// rows is the demand as the operator sums it up: all Pods, placed or not, so that eviction does not change it.
func (c *cluster) rows() []demand.Row {
	rows := make([]demand.Row, 0, len(c.work))
	for _, d := range c.work {
		if d.pods == 0 {
			continue
		}
		row := d.row
		row.Aggregate = make([]resource.Quantity, len(row.MinUnit))
		for i, q := range row.MinUnit {
			row.Aggregate[i] = resource.Quantity{Name: q.Name, Milli: q.Milli * int64(d.pods)}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b demand.Row) int {
		if a.Fingerprint != b.Fingerprint {
			return compare(a.Fingerprint, b.Fingerprint)
		}
		return compare(a.Group, b.Group)
	})
	return rows
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// start brings the operator up and starts the life of the cluster.
func (c *cluster) start() {
	for _, o := range c.ops {
		c.w.after(c.r.between(0, 5*second), o.dial)
	}
}

// scale sets the Pods of a workload.
func (c *cluster) scale(d *workload, pods int) {
	if pods == d.pods {
		return
	}
	c.w.note("", c.name, "demand: %s %s from %d to %d Pods", c.name, d.row.RowID, d.pods, pods)
	more := pods - d.pods
	d.pods = pods
	if d.pending += more; d.pending < 0 {
		c.takeAway(d, -d.pending)
	}
	c.changedDemand()
}

// takeAway ends Pods that run.
func (c *cluster) takeAway(d *workload, n int) {
	at := slices.Index(c.work, d)
	for i := len(c.nodes) - 1; i >= 0 && n > 0; i-- {
		k := min(n, c.nodes[i].pods[at])
		c.nodes[i].pods[at] -= k
		n -= k
	}
	d.pending = 0
}

func (c *cluster) changedDemand() {
	c.edits++
	c.look()
	for _, o := range c.ops {
		o.somethingChanged()
	}
}

// look makes the scheduler run soon.
func (c *cluster) look() {
	if c.dirty {
		return
	}
	c.dirty = true
	c.w.after(500*millisecond, c.schedule)
}

// schedule packs pending Pods on ready nodes, by priority, first fit.
func (c *cluster) schedule() {
	c.dirty = false
	order := slices.Clone(c.work)
	slices.SortStableFunc(order, func(a, b *workload) int { return cmp.Compare(b.row.Profile.Priority, a.row.Profile.Priority) })
	for _, d := range order {
		at := slices.Index(c.work, d)
		for _, n := range c.nodes {
			if d.pending == 0 {
				break
			}
			if !n.ready || n.cordoned || !matches(&d.row.Profile, &n.m.Machine) {
				continue
			}
			k := min(d.pending, n.free(&d.row))
			n.pods[at] += k
			d.pending -= k
		}
		switch {
		case d.pending == 0:
			d.stuck = 0
		case d.stuck == 0:
			d.stuck = c.w.now
		}
	}
}

// waits reports whether Pods of a row have no place.
func (c *cluster) waits(row string) bool {
	return c != nil && slices.ContainsFunc(c.work, func(d *workload) bool { return d.row.RowID == row && d.pending > 0 })
}

// free is how many more Pods of a row fit on a node.
func (n *node) free(row *demand.Row) int {
	free := int64(1 << 40)
	for _, q := range row.MinUnit {
		left := amount(n.m.Allocatable, q.Name)
		for i, k := range n.pods {
			left -= int64(k) * amount(n.c.work[i].row.MinUnit, q.Name)
		}
		free = min(free, max(left, 0)/q.Milli)
	}
	return int(free)
}

// matches reports whether a machine meets the requirements of a profile, gangs and spread aside.
func matches(p *demand.Profile, m *inventory.Machine) bool {
	for _, r := range p.Requirements {
		value, has := "", false
		switch r.Key {
		case "topology.kubernetes.io/zone":
			value, has = m.Zone, m.Zone != ""
		case "node.kubernetes.io/instance-type":
			value, has = m.InstanceType, m.InstanceType != ""
		default:
			for _, l := range m.Labels {
				if l.Key == r.Key {
					value, has = l.Value, true
				}
			}
		}
		in := has && slices.Contains(r.Values, value)
		switch r.Op {
		case demand.In:
			if !in {
				return false
			}
		case demand.NotIn:
			if in {
				return false
			}
		case demand.Exists, demand.Same:
			if !has {
				return false
			}
		case demand.DoesNotExist:
			if has {
				return false
			}
		}
	}
	return true
}

// joinNode lets the kubelet of a configured machine join its cluster, late or never.
func (w *world) joinNode(m *machine) {
	c := w.clusterNamed(m.Cluster)
	if c == nil {
		return
	}
	n := &node{c: c, m: m, pods: make([]int, len(c.work))}
	m.node = n
	at, _ := slices.BinarySearchFunc(c.nodes, m.ID, func(n *node, id string) int { return compare(n.m.ID, id) })
	c.nodes = slices.Insert(c.nodes, at, n)
	wait := c.r.spread(100*millisecond, 30*second)
	if !m.works || w.roll(NodeNeverJoins) {
		w.note(m.ID, c.name, "node of %s never joins", m.ID)
		return
	}
	if w.roll(NodeSlow) {
		wait += c.r.between(minute, 25*minute)
	}
	w.after(wait, func() {
		if m.node == n {
			n.joined, n.ready = true, true
			c.report(n)
			c.look()
		}
	})
}

// gone takes a node away; its Pods are made again.
func (n *node) gone(why string) {
	n.evict()
	c := n.c
	c.nodes = slices.DeleteFunc(c.nodes, func(x *node) bool { return x == n })
	if n.joined {
		n.joined, n.ready = false, false
		c.report(n)
	}
	c.look()
}

// evict takes all Pods off a node; their controllers make them again.
func (n *node) evict() {
	for i, k := range n.pods {
		n.c.work[i].pending += k
		n.pods[i] = 0
	}
}

// report tells the shard about a node, on every session there is.
func (c *cluster) report(n *node) {
	for _, o := range c.ops {
		o.reportNode(n, false)
	}
}

func (c *cluster) nodeOf(machine string) *node {
	i, ok := slices.BinarySearchFunc(c.nodes, machine, func(n *node, id string) int { return compare(n.m.ID, id) })
	if !ok {
		return nil
	}
	return c.nodes[i]
}

// heal ends what faults left behind that does not end by itself.
func (c *cluster) heal() {
	if c.wiped {
		c.wiped = false
		c.changedDemand()
	}
	for _, o := range c.ops[1:] {
		o.leave("the tail begins")
	}
	c.ops = c.ops[:1]
	c.ops[0].wake()
	c.ops[0].hearDuplicate()
	for _, n := range c.nodes {
		if !n.ready {
			n.joined, n.ready = true, true
			c.report(n)
		}
	}
	c.look()
}
