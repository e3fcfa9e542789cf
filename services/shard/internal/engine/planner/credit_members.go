package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// members finds the machines of one cluster, and which Need each is the Own of.
type members struct {
	*plan
	cl *clusterState
	x  *scratch
}

// read makes the machines of the cluster those of the last credit, made unclaimed, or reads them again, and notes of
// each in owner the row of demand that it is the Own of.
func (m *members) read() {
	cl := m.cl
	reports := cl.d.Facts.ReportsReadiness
	cl.reread = cl.gathered != cl.supplyVersion || cl.gathered == 0 || reports || cl.reported
	if cl.reread {
		list, _ := m.w.Inventory.Members(cl.d.ID)
		m.list(list)
	} else {
		m.renew()
	}
	cl.gathered, cl.reported = cl.supplyVersion, reports
	for at := range cl.machines {
		l := &cl.machines[at]
		l.owner = -1
		if key, keyed := m.rowKey(l); keyed {
			if row, ok := cl.d.Row(key); ok {
				l.owner = int32(row)
			}
		}
	}
}

// rowKey is the key of the row that a machine is attributed to, or promised to. A promise names its row by text: the row may be
// new.
func (m *members) rowKey(l *machineState) (key symbol.ID, keyed bool) {
	if l.state.Bound() {
		return l.key, l.bits&lKeyed != 0
	}
	pr, _ := m.w.Inventory.Promise(l.idx)
	return m.w.Space.Keys.Find(pr.For.Fingerprint, pr.For.Group)
}

// gather finds out whose Own each machine is, and lists the machines for the walks of credit.
func (m *members) gather() {
	cl := m.cl
	if cl.reread {
		m.readiness()
		m.arrange()
		if len(cl.gangRows) > 0 && len(cl.machines) > 0 {
			m.noteColumn()
		}
	}
	for at := range cl.machines {
		if l := &cl.machines[at]; l.owner >= 0 {
			l.owner = cl.rowNeed[l.owner]
		} else if len(cl.folds) > 0 {
			l.owner = m.foldOf(l)
		}
	}
	m.linkOwn()
	cl.unclaimedCount, cl.excess, cl.unclaimedStale = len(cl.bound), 0, true
	cl.waiting, cl.waitingStale, cl.lastClaimed = len(cl.flight), true, -1
	for _, at := range cl.bound {
		if l := &cl.machines[at]; l.state == inventory.Configured && l.bits&lForeign == 0 {
			cl.excess++
		}
	}
}

// foldOf returns the folded Need that a machine is the Own of (ENG-5.7), or -1.
func (m *members) foldOf(l *machineState) int32 {
	cl := m.cl
	if key, keyed := m.rowKey(l); keyed {
		fp, group := m.w.Space.Keys.Text(key)
		for i := range cl.folds {
			if n := &cl.folds[i].Need; n.Group == group && n.Form.Fingerprint == fp {
				return cl.rowNeed[cl.folds[i].Members[0]]
			}
		}
	}
	return -1
}

// list reads the members from the inventory, and their labels if gangs may ask for them.
func (m *members) list(list []inventory.Index) {
	cl, x := m.cl, m.x
	cl.machines = slices.Grow(cl.machines[:0], len(list))
	cl.bound, cl.flight, cl.byID, cl.columns = slices.Grow(cl.bound[:0], len(list)), cl.flight[:0], cl.byID[:0], cl.columns[:0]
	x.labels, cl.anyEmpty = x.labels[:0], false
	inv := m.w.Inventory
	for _, i := range list {
		r := inv.Row(i)
		if len(cl.gangRows) > 0 {
			x.labels = append(x.labels, inv.LabelSet(i))
		}
		l := machineState{idx: i, class: r.Class, order: r.Order, state: r.Seen(), claim: -1, next: -1, owner: -1, ownNext: -1,
			shares: -1, out: -1, used: -1, price: inv.Class(r.Class).Price, rank: uint8(r.Occupancy().Rank())}
		if r.Foreign() {
			l.bits |= lForeign
		}
		switch o := r.Occupancy(); {
		case o.InUse():
			l.bits |= lInUse
		case o == inventory.OccupancyEmpty:
			cl.anyEmpty = true
		}
		if r.Attribution != 0 {
			s := inv.AttributionRow(r.Attribution)
			l.recl, l.key = s.Reclamation, s.Key
			l.bits |= lKeyed
			if s.Ours {
				l.bits |= lOurs
			}
		}
		if l.state.Bound() {
			cl.bound = append(cl.bound, int32(len(cl.machines)))
		} else {
			cl.flight = append(cl.flight, int32(len(cl.machines)))
		}
		cl.machines = append(cl.machines, l)
	}
	cl.members = len(cl.machines)
}

// arrange sorts the machines in flight for their walks. Bound machines are sorted when a walk needs it.
func (m *members) arrange() {
	cl := m.cl
	cl.inOrder = false
	slices.SortFunc(cl.flight, func(a, b int32) int {
		x, y := &cl.machines[a], &cl.machines[b]
		return cmp.Or(cmp.Compare(flightRank(x.state), flightRank(y.state)), cmp.Compare(x.order, y.order))
	})
	cl.byID = append(cl.byID, cl.flight...)
	slices.SortFunc(cl.byID, func(a, b int32) int { return cmp.Compare(cl.machines[a].order, cl.machines[b].order) })
}

// renew makes the members of the last credit unclaimed again. They are the same machines in the same states, so their
// order is the same, too.
func (m *members) renew() {
	cl := m.cl
	cl.machines = cl.machines[:cl.members]
	for i := range cl.machines {
		l := &cl.machines[i]
		l.claim, l.next, l.ownNext, l.shares, l.out, l.used = -1, -1, -1, -1, -1, -1
		l.bits &= lOurs | lForeign | lKeyed | lInUse
	}
	for i := range cl.columns {
		c := &cl.columns[i]
		c.values, c.numbers = c.values[:min(len(c.values), cl.members)], c.numbers[:min(len(c.numbers), cl.members)]
	}
}

// flightRank orders in-flight machines for credit: Idle, Creating, Draining.
func flightRank(s inventory.State) int {
	switch s {
	case inventory.Idle:
		return 0
	case inventory.Creating:
		return 1
	}
	return 2
}

// keep is keep order (ENG-7.3).
func (cl *clusterState) keep(a, b int32) int {
	return cmp.Or(cmp.Compare(cl.machines[b].rank, cl.machines[a].rank), cl.pack(a, b))
}

// pack is pack order (ENG-7.3): keep order without what nodes hold.
func (cl *clusterState) pack(a, b int32) int {
	x, y := &cl.machines[a], &cl.machines[b]
	switch {
	case x.price != y.price:
		return cmp.Compare(x.price, y.price)
	case x.recl != y.recl:
		return cmp.Compare(y.recl, x.recl)
	}
	return cmp.Compare(x.order, y.order)
}

// walkKey is what the order of walks looks at: Configured before Configuring, each in keep order.
type walkKey struct {
	later     bool // Configuring
	rank      uint8
	price     int64
	recl      demand.Penalty
	order, at uint32
}

func (a *walkKey) before(b *walkKey) bool {
	switch {
	case a.later != b.later:
		return b.later
	case a.rank != b.rank:
		return a.rank > b.rank
	case a.price != b.price:
		return a.price < b.price
	case a.recl != b.recl:
		return a.recl > b.recl
	}
	return a.order < b.order
}

// walkOrder puts bound machines into the order of walks.
func (cl *clusterState) walkOrder(list []int32, keys []walkKey) []walkKey {
	keys = keys[:0]
	sorted := true
	for i, at := range list {
		l := &cl.machines[at]
		keys = append(keys, walkKey{l.state != inventory.Configured, l.rank, l.price, l.recl, l.order, uint32(at)})
		sorted = sorted && (i == 0 || keys[i-1].before(&keys[i]))
	}
	if sorted {
		return keys
	}
	slices.SortFunc(keys, func(a, b walkKey) int { return sign(a.before(&b)) })
	for i := range keys {
		list[i] = int32(keys[i].at)
	}
	return keys
}

// linkOwn chains the Own machines of each Need: bound ones in walk order, then those in flight. The machines of all Needs
// together need not be in order for that, and those of one are few.
func (m *members) linkOwn() {
	cl, x := m.cl, m.x
	for _, at := range slices.Backward(cl.flight) {
		m.pushOwn(at)
	}
	if len(cl.bound) == 0 {
		return
	}
	x.ends = slices.Grow(x.ends[:0], len(cl.needs)+1)[:len(cl.needs)+1] // by owner plus 1
	clear(x.ends)
	for _, at := range cl.bound {
		x.ends[cl.machines[at].owner+1]++
	}
	from := int32(0)
	for i, n := range x.ends {
		x.ends[i] = from
		from += n
	}
	x.list = slices.Grow(x.list[:0], len(cl.bound))[:len(cl.bound)]
	for _, at := range cl.bound {
		end := &x.ends[cl.machines[at].owner+1]
		x.list[*end] = at
		*end++
	}
	for i := range cl.needs {
		own := x.list[x.ends[i]:x.ends[i+1]]
		if !cl.inOrder && len(own) > 1 {
			x.walk = cl.walkOrder(own, x.walk)
		}
		for _, at := range slices.Backward(own) {
			m.pushOwn(at)
		}
	}
	if !cl.inOrder {
		copy(cl.bound, x.list) // so that the next credit finds them sorted
	}
}

// pushOwn puts a machine in front of the Own machines of its Need.
func (m *members) pushOwn(at int32) {
	cl := m.cl
	if l := &cl.machines[at]; l.owner >= 0 {
		w := &cl.needs[l.owner]
		l.ownNext, w.own = w.own, at
	}
}

func (c *column) add(v symbol.ID, has bool) {
	if !has {
		c.values = append(c.values, -1)
		return
	}
	c.values = append(c.values, int64(v))
}

// noteColumn makes the column of the key that the first gang of the cluster asks for, from labels that are at hand. Gangs
// mostly ask for one.
func (m *members) noteColumn() {
	cl, x := m.cl, m.x
	inv := m.w.Inventory
	key, ok := m.w.Space.Strings.Find(cl.d.Needs[cl.gangRows[0].row].Form.Same.Key)
	if top := inv.TopologyOf(key); !ok || top == nil || top.ByClass() {
		return
	}
	c := column{key: key, values: make([]int64, 0, len(cl.machines))}
	for at := range cl.machines {
		c.add(inv.ValueOf(cl.machines[at].class, x.labels[at], key))
	}
	cl.columns = append(cl.columns, c)
}

// values returns the column of a topology key, for all local machines.
func (cl *clusterState) values(inv *inventory.Table, key symbol.ID) []int64 {
	var col *column
	for i := range cl.columns {
		if cl.columns[i].key == key {
			col = &cl.columns[i]
		}
	}
	if col == nil {
		n := len(cl.columns)
		cl.columns = slices.Grow(cl.columns, 1)[:n+1] // with the room of one that was dropped
		col = &cl.columns[n]
		col.key, col.values, col.numbers = key, slices.Grow(col.values[:0], len(cl.machines)), col.numbers[:0]
		clear(col.number)
	}
	if len(col.values) == len(cl.machines) {
		return col.values
	}
	top := inv.TopologyOf(key)
	byClass := top != nil && top.ByClass() // a class is read more often than its machines
	for i := len(col.values); i < len(cl.machines); i++ {
		l := &cl.machines[i]
		if byClass {
			col.add(inv.ClassValue(inv.Class(l.class), key))
		} else {
			col.add(inv.ValueOf(l.class, inv.LabelSet(l.idx), key))
		}
	}
	return col.values
}

// numbered returns the column of a topology key, in which values have numbers.
func numbered(cl *clusterState, inv *inventory.Table, key symbol.ID) *column {
	values := cl.values(inv, key)
	c := &cl.columns[slices.IndexFunc(cl.columns, func(c column) bool { return c.key == key })]
	if c.number == nil {
		c.number = map[int64]int32{}
	}
	for _, v := range values[len(c.numbers):] {
		n, known := c.number[v]
		if !known {
			n = int32(len(c.number))
			c.number[v] = n
		}
		c.numbers = append(c.numbers, n)
	}
	return c
}

// noteValue says which value of a key the last local machine has, if the column is complete but for it.
func (cl *clusterState) noteValue(key, v symbol.ID) {
	for i := range cl.columns {
		if c := &cl.columns[i]; c.key == key && len(c.values) == len(cl.machines)-1 {
			c.values = append(c.values, int64(v))
		}
	}
}
