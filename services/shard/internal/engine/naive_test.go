package engine

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// naive is docs/spec/engine.md written down as it reads: every question is answered by walking all machines or all
// Needs, nothing is remembered or kept in order, strings are compared as strings (ENG-7.6).
type naive struct {
	w        *World
	p        *Policy
	now      int64
	machines []*nMachine // by id
	clusters []*nCluster // by name
	needs    []*nNeed    // all, in turn order
	tries    int
	spent    bool // exchange_tries are used up
	saved    int64
	displace int
	openSpec map[string]int // free Speculative machines of each hardware shape before the turns
	out      *Result
}

type nMachine struct {
	i       inventory.Index
	m       inventory.Machine
	state   inventory.State
	supply  resource.Vector
	stamp   *inventory.Stamp
	promise *inventory.Promise
	marks   []inventory.Withheld
	foreign bool
	since   int64
	ready   inventory.Readiness

	claim    *nNeed // who claims it now
	kept     bool   // claimed, but credited with nothing
	acquired bool   // taken from a free pool by this plan
	shares   []*nShare
	shunned  bool // Configured, but not credited (17.3)
	guarded  bool
	preempt  *nDrain // chosen by section 15
	goesTo   *nNeed  // promised by section 15
}

type nDrain struct {
	kind      Kind
	cause     Cause
	preemptor *nNeed
	gap       int64
	terms     ScoreTerms
	order     int
}

type nShare struct {
	to     *nNeed
	on     *nMachine
	units  int64
	taken  resource.Vector // what left the offered part
	credit resource.Vector
}

type nCluster struct {
	d     *demand.Cluster
	at    int32
	needs []*nNeed // normalised, in turn order
	fold  []*nNeed
}

type nNeed struct {
	c       *nCluster
	row     int32
	n       demand.Need
	hold    demand.Hold
	members []int32
	same    *demand.Requirement
	spread  *demand.Spread

	claims   []*nMachine
	received []*nShare
	promised []*nMachine // by section 15
	domain   string
	chosen   bool
	possible bool // satisfiable
	lost     bool // something was taken over from it (15.4)
	victims  int
	freed    resource.Vector
}

// planNaively is the phases of ENG-2.7 in their order: turns on one goroutine, each after the one before (ENG-12.1, ENG-14.2).
func planNaively(in Input) *Result {
	p := in.Policy
	if p == nil {
		p = DefaultPolicy()
	}
	n := &naive{w: in.World, p: p, now: in.World.Inventory.Now(), openSpec: map[string]int{}}
	n.out = &Result{Now: n.now, Cycle: in.Cycle}
	n.load()
	n.normalise()
	n.readiness()
	for _, c := range n.clusters {
		n.credit(c)
	}
	for _, m := range n.machines {
		if n.pooled(m) && m.state == inventory.Speculative {
			n.openSpec[hardware(&m.m)]++
		}
	}
	for _, d := range n.needs {
		if d.hold == demand.NotHeld && n.short(d) {
			n.out.Counters.OpenNeeds++
		}
	}
	n.turns()
	n.exchange()
	n.lastLook()
	n.preemption()
	n.finish()
	return n.out
}

func (n *naive) load() {
	inv := n.w.Inventory
	for i := range inv.All() {
		m := &nMachine{i: i, m: inv.Machine(i), state: inv.Seen(i), marks: inv.Withheld(i), foreign: inv.Foreign(i),
			since: inv.Since(i), ready: inv.Readiness(i)}
		list := m.m.Allocatable
		if len(list) == 0 {
			list = m.m.Resources
		}
		m.supply, _ = resource.Find(n.w.Space.Dimensions, list)
		if s, ok := inv.Stamp(i); ok {
			m.stamp = &s
		}
		if p, ok := inv.Promise(i); ok {
			m.promise = &p
		}
		n.machines = append(n.machines, m)
	}
	for at, d := range n.w.Demand.Clusters() {
		n.clusters = append(n.clusters, &nCluster{d: d, at: int32(at)})
	}
}

// normalise is section 8: ENG-8.3, ENG-8.4.
func (n *naive) normalise() {
	for _, c := range n.clusters {
		type group struct{ fingerprint, aggregate string }
		groups := map[group]*nNeed{}
		for i := range c.d.Needs {
			d := &nNeed{c: c, row: int32(i), n: c.d.Needs[i], hold: c.d.Holds[i]}
			d.n.Aggregate = d.n.Aggregate.Add(d.n.MinUnit.Times(c.d.RoomOf(i))) // ENG-11.16
			if d.n.Form.Same == nil || !n.foldable(c, &d.n) {
				c.needs = append(c.needs, d)
				continue
			}
			hash := demand.FoldGroup(n.w.Space, &d.n.Aggregate)
			g := group{d.n.Form.Stripped.Fingerprint, hash}
			f := groups[g]
			if f == nil {
				f = &nNeed{c: c, row: FoldedRow + int32(len(c.fold)), n: d.n, hold: d.hold}
				f.n.Form, f.n.Group, f.n.RowID, f.n.Key = d.n.Form.Stripped, hash, "", 0
				f.n.MinUnit, f.n.Size = d.n.Aggregate, demand.SizeOf(n.w.Space, &d.n.Aggregate)
				f.n.Aggregate = resource.Vector{}
				groups[g] = f
				c.fold = append(c.fold, f)
				c.needs = append(c.needs, f)
			}
			f.members = append(f.members, int32(i))
			f.n.Aggregate = f.n.Aggregate.Add(d.n.Aggregate)
			if demand.CompareArrival(d.n.Arrival, f.n.Arrival) < 0 {
				f.n.Arrival = d.n.Arrival
			}
			if d.hold == demand.NotHeld {
				f.hold = demand.NotHeld
			}
		}
		for _, d := range c.needs {
			d.same = d.n.Form.Same
			if len(d.n.Form.Spread) > 0 && d.same == nil {
				d.spread = &d.n.Form.Spread[0]
			}
			slices.SortFunc(d.members, func(a, b int32) int {
				x, y := &c.d.Needs[a], &c.d.Needs[b]
				return cmp.Or(demand.CompareArrival(x.Arrival, y.Arrival), strings.Compare(x.Group, y.Group),
					strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint))
			})
		}
		slices.SortFunc(c.needs, before)
		n.needs = append(n.needs, c.needs...)
	}
	slices.SortFunc(n.needs, before)
}

// before is the turn order of ENG-7.1 and ENG-7.2, in which every pass over Needs goes.
func before(a, b *nNeed) int {
	return cmp.Or(compareTurns(&a.n, a.c.d.Name, &b.n, b.c.d.Name), cmp.Compare(len(a.members), len(b.members)))
}

// foldable is ENG-8.2.
func (n *naive) foldable(c *nCluster, d *demand.Need) bool {
	if d.Aggregate.IsZero() || !d.Aggregate.Covers(&d.MinUnit) {
		return false
	}
	probe := &nNeed{c: c, n: *d}
	for _, m := range n.machines { // a gang that has begun on smaller machines stays on them
		if s := n.supply(m, c); n.own(probe, m) && n.usable(probe, m) && !s.Covers(&d.Aggregate) {
			return false
		}
	}
	for _, m := range n.machines {
		mine := m.state.Bound() && m.m.Cluster == c.d.Name || inFlight(m, c)
		pool := !m.foreign && (m.state == inventory.Idle || m.state == inventory.Speculative)
		if !mine && !pool || !n.match(probe, m) {
			continue
		}
		if s := n.supply(m, c); s.Covers(&d.Aggregate) {
			return true
		}
	}
	return false
}

// inFlight is what counts for a cluster beside what is bound to it (ENG-9.1): a Creating or Draining machine without a promise
// counts for nobody (ENG-9.7), and a promise only for its own cluster (ENG-9.8).
func inFlight(m *nMachine, c *nCluster) bool {
	return m.promise != nil && m.promise.Cluster == c.d.Name && !m.foreign &&
		(m.state == inventory.Creating || m.state == inventory.Idle || m.state == inventory.Draining)
}

// attr is the key lookup of ENG-6.1.
func attr(m *inventory.Machine, key string) (string, bool) {
	switch {
	case key == "node.kubernetes.io/instance-type" && m.InstanceType != "":
		return m.InstanceType, true
	case key == "topology.kubernetes.io/zone" && m.Zone != "":
		return m.Zone, true
	}
	for _, l := range m.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// match is ENG-6.2 and 6.3a.
func (n *naive) match(d *nNeed, m *nMachine) bool {
	for _, r := range d.n.Form.Requirements {
		v, has := attr(&m.m, r.Key)
		ok := false
		switch r.Op {
		case demand.In:
			ok = has && slices.Contains(r.Values, v)
		case demand.NotIn:
			ok = !has || !slices.Contains(r.Values, v)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		case demand.Same:
			ok = has && (len(r.Values) == 0 || slices.Contains(r.Values, v))
		}
		if !ok {
			return false
		}
	}
	for _, t := range m.m.Taints {
		if t.Effect != demand.NoSchedule && t.Effect != demand.NoExecute {
			continue
		}
		if d.n.Form.TolerationsStated && !slices.ContainsFunc(d.n.Form.Tolerations, func(o demand.Toleration) bool {
			return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
				(o.Op == demand.TolerationExists || o.Value == t.Value)
		}) {
			return false
		}
	}
	return true
}

// supply is ENG-3.6.
func (n *naive) supply(m *nMachine, c *nCluster) resource.Vector { return m.supply.Sub(c.d.Overhead) }

// usable is match and fit (ENG-6.3).
func (n *naive) usable(d *nNeed, m *nMachine) bool {
	s := n.supply(m, d.c)
	return n.match(d, m) && s.Covers(&d.n.MinUnit)
}

// contributes is ENG-6.4, for what m still has to give.
func (n *naive) contributes(d *nNeed, m *nMachine, rest resource.Vector) bool {
	s := n.worth(d, m)
	return s.Touches(&rest)
}

// worth is what m counts for d, whole, when the shares of others on it stay.
func (n *naive) worth(d *nNeed, m *nMachine) resource.Vector {
	s := n.supply(m, d.c)
	for _, sh := range m.shares {
		if sh.to != d {
			s = s.Sub(sh.taken)
		}
	}
	return d.gives(s)
}

// credited is what counts for d now, section 15 aside.
func (n *naive) credited(d *nNeed) resource.Vector {
	var sum resource.Vector
	for _, m := range d.claims {
		if !m.kept {
			sum = sum.Add(n.worth(d, m))
		}
	}
	for _, s := range d.received {
		sum = sum.Add(s.credit)
	}
	return sum
}

func (n *naive) residual(d *nNeed) resource.Vector {
	r := d.n.Aggregate.Sub(n.credited(d))
	for _, m := range d.promised {
		r = r.Sub(n.yields(d, m))
	}
	return r
}

func (n *naive) short(d *nNeed) bool {
	r := n.residual(d)
	return !r.IsZero()
}

// own is ENG-5.7.
func (n *naive) own(d *nNeed, m *nMachine) bool {
	if m.state.Bound() {
		return m.m.Cluster == d.c.d.Name && m.stamp != nil && names(d, m.stamp)
	}
	return inFlight(m, d.c) && names(d, &m.promise.For)
}

func names(d *nNeed, s *inventory.Stamp) bool {
	if s.Fingerprint == d.n.Form.Fingerprint && s.Group == d.n.Group {
		return true
	}
	for _, r := range d.members {
		if x := &d.c.d.Needs[r]; s.Fingerprint == x.Form.Fingerprint && s.Group == x.Group {
			return true
		}
	}
	return false
}

// keepOrder is ENG-7.3.
func keepOrder(a, b *nMachine) int {
	return cmp.Or(cmp.Compare(a.m.Price, b.m.Price), cmp.Compare(reclamation(b), reclamation(a)), strings.Compare(a.m.ID, b.m.ID))
}

func reclamation(m *nMachine) demand.Penalty {
	if m.stamp == nil {
		return 0
	}
	return m.stamp.Reclamation
}

func byID(a, b *nMachine) int { return strings.Compare(a.m.ID, b.m.ID) }

// cost is ENG-7.4: half a dollar times parts per million is half a millionth of a dollar.
func (n *naive) cost(d *nNeed, m *nMachine) int64 {
	risk := (int64(m.m.Probability)*int64(d.n.Form.Interruption.Penalty()) + 1) / 2
	return resource.AddSat(m.m.Price, risk)
}

// value is the machine's value of the key of a Same or spread term.
func value(m *nMachine, key string) string { v, _ := attr(&m.m, key); return v }

func (n *naive) select_(keep func(m *nMachine) bool, order func(a, b *nMachine) int) []*nMachine {
	var out []*nMachine
	for _, m := range n.machines {
		if keep(m) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, order)
	return out
}

// bound lists bound, creditable machines of a cluster: Configured, then Configuring, each in keep order.
func (n *naive) bound(c *nCluster, keep func(m *nMachine) bool) []*nMachine {
	return n.select_(func(m *nMachine) bool {
		return m.state.Bound() && m.m.Cluster == c.d.Name && !m.shunned && keep(m)
	}, func(a, b *nMachine) int {
		return cmp.Or(cmp.Compare(b.state, a.state), keepOrder(a, b)) // Configured is the larger number
	})
}

// coming lists in-flight machines of a cluster: Idle, Creating, Draining, each by id.
func (n *naive) coming(c *nCluster, keep func(m *nMachine) bool) []*nMachine {
	rank := map[inventory.State]int{inventory.Idle: 0, inventory.Creating: 1, inventory.Draining: 2}
	return n.select_(func(m *nMachine) bool { return inFlight(m, c) && keep(m) },
		func(a, b *nMachine) int { return cmp.Or(cmp.Compare(rank[a.state], rank[b.state]), byID(a, b)) })
}

// claim makes m count for d, whole (ENG-3.7).
func (n *naive) claim(d *nNeed, m *nMachine) {
	m.claim, m.kept = d, false
	d.claims = append(d.claims, m)
	d.received = slices.DeleteFunc(d.received, func(s *nShare) bool { return s.on == m })
	m.shares = slices.DeleteFunc(m.shares, func(s *nShare) bool { return s.to == d })
}

func (n *naive) drop(d *nNeed, m *nMachine) {
	m.claim, m.kept = nil, false
	d.claims = slices.DeleteFunc(d.claims, func(x *nMachine) bool { return x == m })
}

// claimWhileShort claims the listed machines one after the other, as far as d is short and they contribute (ENG-9.2, ENG-6.4).
func (n *naive) claimWhileShort(d *nNeed, list []*nMachine) {
	for _, m := range list {
		rest := n.residual(d)
		if rest.IsZero() {
			return
		}
		if n.contributes(d, m, rest) {
			n.claim(d, m)
		}
	}
}

// score is ENG-10.2.
func score(have, want resource.Vector, capped bool) *big.Int {
	sum := new(big.Int)
	for i := range want.Len() {
		v := have.Get(want.Dim(i))
		if capped {
			v = min(v, want.Val(i))
		}
		t := new(big.Int).Mul(big.NewInt(v), big.NewInt(1_000_000))
		sum.Add(sum, t.Quo(t, big.NewInt(want.Val(i))))
	}
	return sum
}
