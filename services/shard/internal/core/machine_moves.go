package core

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// count keeps the per-cluster counts of bound machines in step with the inventory. Every change of state, cluster or owner
// goes through move, putKnown, putNew, own or removeMachine, and nowhere else. Another shard's machines are not counted: what is held,
// paced and published of a cluster here is about those that this shard can act on.
func (c *machines) count(i inventory.Index, by int) {
	inv := c.world.Inventory
	if inv.Cluster(i) == "" || inv.Foreign(i) {
		return
	}
	cl := c.clusters.ensure(inv.Cluster(i))
	cl.counts[inv.State(i)] += by
	cl.changed()
}

// own marks a machine as ours or another shard's and reports whether that is new.
func (c *machines) own(i inventory.Index, mine bool) bool {
	inv := c.world.Inventory
	if inv.Foreign(i) != mine {
		return false
	}
	if mine {
		c.coord.foreign--
	} else {
		c.coord.foreign++
	}
	c.count(i, -1)
	inv.SetForeign(i, !mine)
	c.count(i, 1)
	return true
}

// move stores a transition of our own making.
func (c *machines) move(i inventory.Index, to inventory.State, name string) {
	inv := c.world.Inventory
	from, old := inv.State(i), inv.Cluster(i)
	if from == to && old == name {
		return
	}
	was := c.risks.hostOf(i)
	c.count(i, -1)
	inv.Move(i, to, name)
	c.count(i, 1)
	c.risks.hosted(i, was)
	if from != to {
		inv.SetSince(i, c.now)
		if limit := c.stuckAfter(i); limit > 0 {
			c.timers.add(c.now+limit, timerStuck, inv.ID(i))
		}
	}
	c.outages.outageMoved(i)
	c.cols.grow(inv.Bound())
	c.touched(i)
	c.trigger(triggerMachine)
}

// putKnown stores the provider's word on a machine that is known, and reports whether it is news.
func (c *machines) putKnown(i inventory.Index, m inventory.Machine) bool {
	inv := c.world.Inventory
	if inv.Holds(i, &m) { // nearly every row of a full List
		return false
	}
	was := c.risks.hostOf(i)
	c.count(i, -1)
	inv.Replace(i, m)
	c.count(i, 1)
	c.risks.hosted(i, was)
	c.outages.outageMoved(i)
	c.trigger(triggerMachine)
	return true
}

// putNew stores the provider's word on a machine that is not known, in its state since a moment.
func (c *machines) putNew(m inventory.Machine, since int64) inventory.Index {
	inv := c.world.Inventory
	i := inv.PutNew(m, since)
	c.provider(m.Provider).machines++
	c.count(i, 1)
	c.cols.grow(inv.Bound())
	c.risks.hosted(i, hosting{})
	c.outages.outageMoved(i)
	c.trigger(triggerMachine)
	return i
}

// removeMachine forgets a machine and everything that hangs on it.
func (c *machines) removeMachine(i inventory.Index) {
	inv := c.world.Inventory
	id := inv.ID(i)
	if was := c.risks.hostOf(i); was.counts {
		if r := c.risks.of(was.key, c.now); r != nil {
			r.hosts--
		}
	}
	c.count(i, -1)
	if cl := c.clusters.get(inv.Cluster(i)); cl != nil {
		delete(cl.nodes, id)
	}
	p := c.provider(inv.Provider(i))
	p.machines--
	if p.list != nil && c.cols.at(i).listed == p.list.id {
		p.list.shown--
	}
	if inv.Foreign(i) {
		c.coord.foreign--
	}
	c.coord.setOwner(id, "")
	inv.Remove(i)
	c.unsubscribe(i)
	*c.cols.at(i) = column{}
	c.guards.forgetMachine(id)
	c.pools.removed(id)
	delete(c.pub.acquired, id)
	c.trigger(triggerMachine)
}

// shownTo is the cluster that is to see a machine as its own: the one it is bound to, or the one it is being made for.
// A machine is first shown when the provider has accepted the command, so that a roll-back leaves no object behind
// (SHARD-18.4, 18.6).
func (c *machines) shownTo(i inventory.Index) (string, bool) {
	inv := c.world.Inventory
	id, shown := inv.ID(i), c.subscribed(i)
	accepted := true
	if o := c.ops.byMachine[id]; o != nil && !o.drains() {
		accepted = o.Phase == phaseWaiting || o.Accepted != 0
	}
	var to string
	switch inv.State(i) {
	case inventory.Configured, inventory.Draining:
		to = inv.Cluster(i)
	case inventory.Configuring:
		if to = inv.Cluster(i); !accepted && shown != to {
			to = ""
		}
	case inventory.Creating:
		if p, ok := inv.Promise(i); ok && p.Cause == inventory.ForCreate {
			if to = p.Cluster; !accepted && shown != to {
				to = ""
			}
		}
	case inventory.Idle:
		if p, ok := inv.Promise(i); ok && p.Cluster == shown {
			to = shown // between Create and Configure of one hand-over
		}
	case inventory.Failed:
		if to = inv.Cluster(i); to == "" {
			to = shown
		}
	}
	return to, to != ""
}

// subscribed returns the cluster that was shown a machine.
func (c *machines) subscribed(i inventory.Index) string {
	return c.pub.subscribers[c.cols.at(i).subscriber].cluster
}

// subscribe notes which cluster was shown a machine.
func (c *machines) subscribe(i inventory.Index, to string) {
	if c.subscribed(i) == to {
		return
	}
	c.unsubscribe(i)
	p := c.pub
	n, known := p.byCluster[to]
	if !known {
		if last := len(p.unused) - 1; last >= 0 {
			n, p.unused = p.unused[last], p.unused[:last]
		} else {
			n = uint32(len(p.subscribers))
			p.subscribers = append(p.subscribers, subscriber{})
		}
		p.byCluster[to], p.subscribers[n].cluster = n, to
	}
	a, x := &p.subscribers[n], c.cols.at(i)
	x.subscriber, x.subscriberAt = n, uint32(len(a.machines))
	a.machines = append(a.machines, i)
}

func (c *machines) unsubscribe(i inventory.Index) {
	x := c.cols.at(i)
	if x.subscriber == 0 {
		return
	}
	p := c.pub
	a := &p.subscribers[x.subscriber]
	last := a.machines[len(a.machines)-1]
	a.machines[x.subscriberAt] = last
	c.cols.at(last).subscriberAt = x.subscriberAt
	a.machines = a.machines[:len(a.machines)-1]
	if len(a.machines) == 0 {
		delete(p.byCluster, a.cluster)
		p.unused = append(p.unused, x.subscriber)
		*a = subscriber{}
	}
	x.subscriber, x.subscriberAt = 0, 0
}

// machinesOf lists, by id, every machine that is bound to a cluster or that it was shown: a look at those alone, since a
// shard has a hundred times as many. Whatever binds a machine or changes it announces it, so nothing else can be its.
func (c *machines) machinesOf(cl *cluster) []inventory.Index {
	inv := c.world.Inventory
	var out []inventory.Index
	if id, known := c.world.Space.Clusters.Find(cl.Name); known {
		members, _ := inv.Members(id)
		out = append(out, members...)
	}
	if n, known := c.pub.byCluster[cl.Name]; known {
		out = append(out, c.pub.subscribers[n].machines...)
	}
	slices.SortFunc(out, func(a, b inventory.Index) int { return cmp.Compare(inv.Row(a).Order, inv.Row(b).Order) })
	return slices.Compact(out)
}

// announce notifies the clusters concerned that something about a machine changed: the one that loses it first
// (SHARD-18.1, 18.2).
func (c *machines) announce(i inventory.Index) {
	to, shown := c.shownTo(i)
	if before := c.subscribed(i); before != "" && before != to {
		c.release(i, before, c.world.Inventory.Machine(i))
	}
	if !shown {
		return
	}
	c.subscribe(i, to)
	if cl := c.clusters.get(to); cl != nil && cl.connected() {
		c.sendNodeState(i, cl, false)
	}
}

// release notifies a cluster that a machine is no longer its own.
func (c *machines) release(i inventory.Index, name string, m inventory.Machine) {
	c.unsubscribe(i)
	cl := c.clusters.get(name)
	if cl == nil {
		return
	}
	delete(cl.nodes, m.ID)
	delete(cl.out, m.ID)
	c.world.Inventory.SetOutOfService(i, false)
	if cl.connected() {
		m.Cluster = name
		c.emit(SendNodeState{Cluster: name, Session: cl.Session, Machine: m, Released: true, Since: c.toWall(c.now)})
	}
}

// announceRollback takes back what a rolled-back operation may have shown.
func (c *machines) announceRollback(o *operation) {
	if i, ok := c.world.Inventory.Find(o.Machine); ok && i == o.Index {
		c.announce(i)
	}
}

func (c *machines) sendNodeState(i inventory.Index, cl *cluster, released bool) {
	inv := c.world.Inventory
	m := inv.Machine(i)
	s := SendNodeState{Cluster: cl.Name, Session: cl.Session, Machine: m, Released: released, Since: c.toWall(inv.Since(i))}
	s.Machine.Cluster = cl.Name
	if n := cl.nodes[m.ID]; n != nil {
		s.Node = n.name
	}
	attribution, ok := inv.Attribution(i)
	if p, promised := inv.Promise(i); promised && p.Cluster == cl.Name {
		attribution, ok = p.For, true
	}
	if ok {
		s.For = demand.RowKey{Fingerprint: attribution.Fingerprint, Group: attribution.Group}
		if at, found := c.world.Demand.Position(cl.Name, s.For); found {
			s.RowID = c.world.Demand.Cluster(cl.Name).Needs[at].RowID
		}
	}
	c.subscribe(i, cl.Name)
	c.emit(s)
}
