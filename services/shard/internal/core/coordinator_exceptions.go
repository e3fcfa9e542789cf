package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// How an ownership exception ends (COORD-9.7). The shard that holds it stops acting on the machine; when that is on the
// disk the coordinator hears of it, and only then may the machine be somebody else's.

// endExceptions gives back the machines that are gone and those that are this shard's without an exception.
func (c *ownership) endExceptions() {
	inv := c.world.Inventory
	c.giveBack(func(e Exception) bool {
		i, known := inv.Find(e.Machine)
		if !known {
			return c.allListed()
		}
		m := inv.Machine(i)
		return c.ctl.View.covers(&m)
	})
}

// slotReturned gives a machine back that came as a host or became one, and is a slot again. One whose Create failed is kept:
// it was moved to be created.
func (c *ownership) slotReturned(id string, from inventory.State) {
	if from != 0 && from != inventory.Creating {
		c.giveBack(func(e Exception) bool { return e.Machine == id })
	}
}

// giveBack ends exceptions, but for those of moves that the leader has not decided: it would not know what is returned.
func (c *ownership) giveBack(over func(Exception) bool) {
	v := c.ctl.View
	if v == nil {
		return
	}
	ended := func(e Exception) bool { return !slices.Contains(v.Arriving, e.Move) && over(e) }
	if !slices.ContainsFunc(v.In, ended) {
		return
	}
	next := c.coord.editView()
	next.In = slices.DeleteFunc(next.In, ended)
	var ids []string
	for _, e := range v.In {
		if ended(e) {
			next.Returned, ids = append(next.Returned, e), append(ids, e.Machine)
		}
	}
	for _, id := range ids {
		if i, known := c.world.Inventory.Find(id); known {
			c.reown(i)
		}
	}
	c.record(Record{Type: RecordOwnership, Detail: clipText(fmt.Sprintf("returned to its owner, because the exception ended: %s", strings.Join(ids, ", ")))})
	c.emit(Notice{GivenBack: ids, Store: []Persist{c.coord.keepView()}})
}

// keepReturned leaves out of a new view what was given back before the leader heard of it.
func (c *ownership) keepReturned(v *View) {
	if c.ctl.View == nil {
		return
	}
	for _, e := range c.ctl.View.Returned {
		if slices.Contains(v.In, e) {
			v.In = slices.DeleteFunc(slices.Clone(v.In), func(x Exception) bool { return x == e })
			v.Returned = append(v.Returned, e)
		}
	}
}

// noticeReturned tells again, after a start, what the stored view says was given back.
func (c *ownership) noticeReturned() {
	if v := c.ctl.View; v != nil && len(v.Returned) > 0 {
		var ids []string
		for _, e := range v.Returned {
			ids = append(ids, e.Machine)
		}
		c.emit(Notice{GivenBack: ids})
	}
}

// suspectIntruder looks at a refused Configure: a provider that says that a machine under an exception is not Idle says
// that somebody else acted on it (COORD-12.19).
func (c *ownership) suspectIntruder(o *operation, code Code) {
	if o.rpc() != RPCConfigure || code != CodeAborted && code != CodeAlreadyExists || c.ctl.View == nil ||
		!slices.ContainsFunc(c.ctl.View.In, func(e Exception) bool { return e.Machine == o.Machine }) {
		return
	}
	c.sample(MetricOwnershipViolations, "", 1)
	c.record(Record{Type: RecordOwnership, Machine: o.Machine, Provider: o.Provider, Cluster: o.Cluster,
		Detail: "a move gave this machine to this shard, but the provider rejects Configure: another process acted on it"})
	c.emit(Notice{Violated: o.Machine})
}
