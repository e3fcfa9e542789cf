package core

import (
	"cmp"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"slices"
)

// boundState reports whether machines in a state have a cluster.
func boundState(s inventory.State) bool {
	return s == inventory.Configuring || s == inventory.Configured || s == inventory.Draining
}

// count keeps the per-cluster counts of bound machines in step with the inventory. Every change of state or cluster
// goes through move, put or removeMachine, and nowhere else.
func (c *Core) count(s inventory.State, name string, by int) {
	if name == "" {
		return
	}
	cl := c.clusters.ensure(name)
	cl.counts[s] += by
	cl.changed()
}

// move stores a transition of our own making.
func (c *Core) move(i inventory.Index, to inventory.State, name string) {
	inv := c.world.Inventory
	from, old := inv.State(i), inv.Cluster(i)
	if from == to && old == name {
		return
	}
	c.count(from, old, -1)
	inv.Move(i, to, name)
	c.count(to, name, 1)
	if from != to {
		inv.SetSince(i, c.now)
		if limit := c.stuckAfter(i); limit > 0 {
			c.timers.add(c.now+limit, timerStuck, inv.ID(i))
		}
	}
	c.cols.grow(inv.Bound())
	c.touched(i)
	c.trigger(triggerMachine)
}

// put stores the provider's word.
func (c *Core) put(m inventory.Machine) (i inventory.Index, changed bool) {
	inv := c.world.Inventory
	if old, known := inv.Find(m.ID); known {
		if inv.Holds(old, &m) { // nearly every row of a full List
			return old, false
		}
		c.count(inv.State(old), inv.Cluster(old), -1)
	}
	known := inv.Len()
	i, changed = inv.Put(m)
	c.provider(m.Provider).machines += inv.Len() - known
	c.count(inv.State(i), inv.Cluster(i), 1)
	c.cols.grow(inv.Bound())
	if changed {
		c.trigger(triggerMachine)
	}
	return i, changed
}

// removeMachine forgets a machine and everything that hangs on it.
func (c *Core) removeMachine(i inventory.Index) {
	inv := c.world.Inventory
	id := inv.ID(i)
	c.count(inv.State(i), inv.Cluster(i), -1)
	if cl := c.clusters.get(inv.Cluster(i)); cl != nil {
		delete(cl.nodes, id)
	}
	c.provider(inv.Machine(i).Provider).machines--
	if inv.Foreign(i) {
		c.coord.foreign--
	}
	c.coord.setOwner(id, "")
	inv.Remove(i)
	*c.cols.at(i) = column{}
	c.rails.forgetMachine(id)
	c.pools.removed(id)
	c.pub.untell(id)
	delete(c.pub.acquired, id)
	c.trigger(triggerMachine)
}

// shownTo is the cluster that is to see a machine as its own: the one it is bound to, or the one it is being made for.
// A machine is first shown when the provider has accepted the command, so that a roll-back leaves no object behind
// (SHARD-18.4, 18.6).
func (c *Core) shownTo(i inventory.Index) (string, bool) {
	inv := c.world.Inventory
	id, told := inv.ID(i), ""
	told = c.pub.told[id]
	accepted := true
	if o := c.ops.byMachine[id]; o != nil && !o.drains() {
		accepted = o.Phase == phaseWaiting || o.Accepted != 0
	}
	var to string
	switch inv.State(i) {
	case inventory.Configured, inventory.Draining:
		to = inv.Cluster(i)
	case inventory.Configuring:
		if to = inv.Cluster(i); !accepted && told != to {
			to = ""
		}
	case inventory.Creating:
		if p, ok := inv.Promise(i); ok && p.Cause == inventory.ForCreate {
			if to = p.Cluster; !accepted && told != to {
				to = ""
			}
		}
	case inventory.Idle:
		if p, ok := inv.Promise(i); ok && p.Cluster == told {
			to = told // between Create and Configure of one hand-over
		}
	case inventory.Failed:
		if to = inv.Cluster(i); to == "" {
			to = told
		}
	}
	return to, to != ""
}

// tell notes which cluster was shown a machine.
func (p *publisher) tell(id, to string) {
	if before := p.told[id]; before == to {
		return
	}
	p.untell(id)
	p.told[id] = to
	m := p.toldTo[to]
	if m == nil {
		m = map[string]bool{}
		p.toldTo[to] = m
	}
	m[id] = true
}

func (p *publisher) untell(id string) {
	before, known := p.told[id]
	if !known {
		return
	}
	delete(p.told, id)
	if m := p.toldTo[before]; len(m) > 1 {
		delete(m, id)
	} else {
		delete(p.toldTo, before)
	}
}

// machinesOf lists, by id, every machine that is bound to a cluster or that it was shown: a look at those alone, since a
// shard has a hundred times as many. Whatever binds a machine or changes it announces it, so nothing else can be its.
func (c *Core) machinesOf(cl *cluster) []inventory.Index {
	inv := c.world.Inventory
	var out []inventory.Index
	if id, known := c.world.Space.Clusters.Find(cl.name); known {
		members, _ := inv.Members(id)
		out = append(out, members...)
	}
	for id := range c.pub.toldTo[cl.name] { // sorted below
		if i, known := inv.Find(id); known {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b inventory.Index) int { return cmp.Compare(inv.Row(a).Order, inv.Row(b).Order) })
	return slices.Compact(out)
}

// announce tells the clusters concerned that something about a machine changed: the one that loses it first
// (SHARD-18.1, 18.2).
func (c *Core) announce(i inventory.Index) {
	id := c.world.Inventory.ID(i)
	to, shown := c.shownTo(i)
	if before := c.pub.told[id]; before != "" && before != to {
		c.release(i, before, c.world.Inventory.Machine(i))
	}
	if !shown {
		return
	}
	c.pub.tell(id, to)
	if cl := c.clusters.get(to); cl != nil && cl.connected() {
		c.sendNodeState(i, cl, false)
	}
}

// release tells a cluster that a machine is no longer its own.
func (c *Core) release(i inventory.Index, name string, m inventory.Machine) {
	c.pub.untell(m.ID)
	cl := c.clusters.get(name)
	if cl == nil {
		return
	}
	delete(cl.nodes, m.ID)
	if cl.connected() {
		m.Cluster = name
		c.emit(SendNodeState{Cluster: name, Session: cl.session, Machine: m, Released: true, Since: c.toWall(c.now)})
	}
}

// announceRollback takes back what a rolled-back operation may have shown.
func (c *Core) announceRollback(o *operation) {
	if i, ok := c.world.Inventory.Find(o.Machine); ok && i == o.Index {
		c.announce(i)
	}
}

func (c *Core) sendNodeState(i inventory.Index, cl *cluster, released bool) {
	inv := c.world.Inventory
	m := inv.Machine(i)
	s := SendNodeState{Cluster: cl.name, Session: cl.session, Machine: m, Released: released, Since: c.toWall(inv.Since(i))}
	s.Machine.Cluster = cl.name
	if n := cl.nodes[m.ID]; n != nil {
		s.Node = n.name
	}
	stamp, ok := inv.Stamp(i)
	if p, promised := inv.Promise(i); promised && p.Cluster == cl.name {
		stamp, ok = p.For, true
	}
	if ok {
		s.For = demand.RowKey{Fingerprint: stamp.Fingerprint, Group: stamp.Group}
		if at, found := c.world.Demand.Position(cl.name, s.For); found {
			s.RowID = c.world.Demand.Cluster(cl.name).Needs[at].RowID
		}
	}
	c.pub.tell(m.ID, cl.name)
	c.emit(s)
}
