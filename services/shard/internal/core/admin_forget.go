package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// adminForget drops an unbound machine from the inventory; a bound one only when Get reports that it does not exist.
func (c *orders) adminForget(e AdminAsked) {
	i, known := c.world.Inventory.Find(e.Machine)
	if !known {
		if slices.ContainsFunc(c.ctl.Forgotten, func(f Forgotten) bool { return f.Machine == e.Machine }) {
			c.answer(e, CodeOK, "", nil)
			return
		}
		c.answer(e, CodeNotFound, "no such machine", nil)
		return
	}
	if c.world.Inventory.Foreign(i) {
		c.answer(e, CodeNotFound, anothersMachine, nil)
		return
	}
	if c.ops.byMachine[e.Machine] != nil {
		c.answer(e, CodeAborted, "an operation is running on the machine; wait until it ends, or pause the shard first", nil)
		return
	}
	m := c.world.Inventory.Machine(i)
	if m.Cluster != "" && (boundState(m.State) || m.State == inventory.Failed) {
		c.waitForGet(e, m.Provider)
		return
	}
	c.forgetNow(e, i)
}

// forgetNow carries the order out and answers with what the machine cost an hour.
func (c *orders) forgetNow(e AdminAsked, i inventory.Index) {
	m := c.world.Inventory.Machine(i)
	cost := ForgottenCost{}
	if m.Exists() {
		cost.PriceMicro = m.Price
	}
	if !e.Check {
		c.forget(i)
	}
	c.answer(e, CodeOK, "", cost)
}

// forgetAfterGet judges the order to forget a bound machine by what its provider says now. A provider may allow nothing from FAILED, so a
// machine that failed in its cluster is forgotten for a person who names that cluster.
func (c *orders) forgetAfterGet(e AdminAsked, d GetDone) {
	i, known := c.world.Inventory.Find(e.Machine)
	switch {
	case d.NotFound:
		c.answer(e, CodeOK, "the provider does not know the machine; it is gone from the inventory", nil)
		return
	case d.Code != CodeOK:
		c.answer(e, CodeUnavailable, "the machine is bound to a cluster, and its provider did not answer whether it still exists: "+d.Code.String(), nil)
		return
	case !known:
		c.answer(e, CodeNotFound, "no such machine", nil)
		return
	}
	m := c.world.Inventory.Machine(i)
	switch {
	case m.State != inventory.Failed || m.Cluster == "":
		c.answer(e, CodeAborted, "the machine is "+m.State.String()+" for cluster "+m.Cluster+" at its provider", nil)
	case c.ops.byMachine[e.Machine] != nil:
		c.answer(e, CodeAborted, "an operation is running on the machine; wait until it ends, or pause the shard first", nil)
	case e.Cluster == "":
		c.answer(e, CodeAborted, "the machine failed while it was bound to cluster "+m.Cluster+", and its provider still lists it; name the cluster to forget it anyway", nil)
	case e.Cluster != m.Cluster:
		c.answer(e, CodeAborted, "the machine failed in cluster "+m.Cluster+", not in "+e.Cluster, nil)
	default:
		c.forgetNow(e, i)
	}
}

func (c *orders) forget(i inventory.Index) {
	id := c.world.Inventory.ID(i)
	list := slices.DeleteFunc(slices.Clone(c.ctl.Forgotten), func(f Forgotten) bool { return f.Machine == id })
	list = append(list, Forgotten{Machine: id, State: uint8(c.world.Inventory.State(i))})
	slices.SortFunc(list, func(a, b Forgotten) int { return strings.Compare(a.Machine, b.Machine) })
	c.ctl.Forgotten = list
	if to, shown := c.machines.shownTo(i); shown {
		c.machines.release(i, to, c.world.Inventory.Machine(i))
	}
	c.machines.removeMachine(i)
}

// forgotten reports whether an order says to leave a machine alone that is not in the inventory. The order ends when the
// provider shows another state.
func (c *orders) forgotten(f Fact) bool {
	at := slices.IndexFunc(c.ctl.Forgotten, func(x Forgotten) bool { return x.Machine == f.Machine.ID })
	if at < 0 {
		return false
	}
	if c.ctl.Forgotten[at].State == uint8(f.Machine.State) {
		return true
	}
	c.ctl.Forgotten = slices.Delete(slices.Clone(c.ctl.Forgotten), at, at+1)
	c.emit(Persist{Bucket: BucketForgotten, Key: f.Machine.ID})
	return false
}
