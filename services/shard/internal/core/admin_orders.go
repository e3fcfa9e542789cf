package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// adminAsked carries out an order.
func (c *orders) adminAsked(e AdminAsked) {
	switch e.Command {
	case AdminPause:
		if !e.Check {
			c.guards.setPause(*e.Pause)
		}
		c.answer(e, CodeOK, "", nil)
	case AdminResume:
		c.adminResume(e)
	case AdminDryRun:
		if !e.Check && c.ctl.DryRun != e.DryRun {
			c.ctl.DryRun = e.DryRun
			c.cycle.Redispatch = true
			c.trigger(triggerAdmin)
		}
		c.answer(e, CodeOK, "", nil)
	case AdminRetry:
		c.adminRetry(e)
	case AdminForget:
		c.adminForget(e)
	case AdminAcceptRollup:
		c.adminAccept(e)
	case AdminReconcile:
		c.adminReconcile(e)
	case AdminRetire:
		c.adminRetire(e)
	case AdminUnretire:
		c.adminUnretire(e)
	case AdminAbandon:
		c.adminAbandon(e)
	case AdminClearBackoff:
		c.adminClear(e)
	default:
		c.answer(e, CodeUnimplemented, "unknown order", nil)
	}
}

func (c *orders) adminResume(e AdminAsked) {
	switch {
	case e.PauseID == "flag":
		c.answer(e, CodeAborted, "this pause is the start-up flag --actuation-paused; restart the shard without it", nil)
		return
	case !slices.ContainsFunc(c.ctl.Pauses, func(p Pause) bool { return p.ID == e.PauseID }):
		c.answer(e, CodeNotFound, "no pause has this id", nil)
		return
	}
	if !e.Check {
		c.guards.liftPause(e.PauseID)
	}
	c.answer(e, CodeOK, "", nil)
}

// adminRetry clears the machine's pauses and asks the provider; the answer is adopted.
func (c *orders) adminRetry(e AdminAsked) {
	f := slices.IndexFunc(c.ctl.Forgotten, func(f Forgotten) bool { return f.Machine == e.Machine })
	i, known := c.world.Inventory.Find(e.Machine)
	if !known && f < 0 {
		c.answer(e, CodeNotFound, "no such machine", nil)
		return
	}
	if known && c.world.Inventory.Foreign(i) {
		c.answer(e, CodeNotFound, anothersMachine, nil)
		return
	}
	if e.Check {
		c.answer(e, CodeOK, "", nil)
		return
	}
	name := e.Provider
	if known {
		m := c.world.Inventory.Machine(i)
		name = m.Provider
		delete(c.guards.backoffs, e.Machine)
		c.guards.mark(i)
		if c.world.Inventory.Lift(i, inventory.WithheldDrained, "") {
			c.trigger(triggerAdmin)
		}
		c.pools.clearPool(PoolKey(m.Provider, m.InstanceType, m.Zone, m.CapacityType))
	}
	if f >= 0 {
		c.ctl.Forgotten = slices.Delete(slices.Clone(c.ctl.Forgotten), f, f+1)
		c.emit(Persist{Bucket: BucketForgotten, Key: e.Machine})
	}
	c.waitForGet(e, name)
}

func (c *orders) adminReconcile(e AdminAsked) {
	n := 0
	for _, p := range c.providers {
		if e.Provider != "" && p.Name != e.Provider {
			continue
		}
		n++
		if e.Check {
			continue
		}
		p.NextList = c.now
		p.Waiters = append(p.Waiters, e.Ask)
		c.reconciler.requestList(p, true)
	}
	switch {
	case n == 0:
		c.answer(e, CodeNotFound, "no such provider", nil)
	case e.Check:
		c.answer(e, CodeOK, "", nil)
	default:
		if c.done == nil {
			c.done = map[int64]int{}
		}
		c.done[e.Ask] = n
		c.record(Record{Type: RecordAdmin, Actor: e.Actor, Provider: e.Provider, Outcome: "ok", Detail: "reconcile_now: " + e.Reason})
	}
}

// adminAbandon drops the reservation of a move that the coordinator will not end.
func (c *orders) adminAbandon(e AdminAsked) {
	at := slices.IndexFunc(c.ctl.Reservations, func(r Reservation) bool { return r.Move == e.Move })
	if at < 0 {
		c.answer(e, CodeNotFound, "no reservation for this move", nil)
		return
	}
	r := c.ctl.Reservations[at]
	if !e.Check {
		c.coord.dropReservation(r.Move)
		c.takeBack(r.Move)
	}
	c.answer(e, CodeOK, "", r)
}

// takeBack makes the machines this shard's again that its view gives to the recipient of a move. A view names them from
// the reservation on, and the coordinator that could send another one may be gone.
func (c *orders) takeBack(move string) {
	given := func(x Exception) bool { return x.Move == move }
	if c.ctl.View == nil || !slices.ContainsFunc(c.ctl.View.Out, given) {
		return
	}
	v := c.coord.editView()
	v.Out = slices.DeleteFunc(v.Out, given)
	c.emit(c.coord.keepView())
	c.ownership.reownAll()
	c.trigger(triggerAdmin)
}
