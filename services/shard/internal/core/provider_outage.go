package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// outageSweep bounds the machines that one step marks, so that the outage of a large provider does not stop the loop.
const outageSweep = 8192

// unreadLists is how many of a provider's first Lists have to fail, seven seconds at the least, before the others are planned with without it.
const unreadLists = 4

// outageOf says whether a provider's supply is to be withheld now. A provider whose breaker is half open offers its supply
// again once a List has ended well since the breaker opened; while the one call that is let through is under way, the rest
// is withheld.
func (c *outages) outageOf(p *provider) outage {
	b := &p.Breaker
	switch {
	case b.Open && (b.Probing || c.now < b.Until || p.ListedAt <= b.Tripped):
		return outageBreaker
	case p.Listed && c.now-p.ListedAt > staleInventory:
		return outageStale
	case !p.Listed && p.Fails >= unreadLists:
		return outageUnread
	}
	return outageNone
}

// watchOutages follows each provider into an outage and out of it, and continues the marking of its machines.
func (c *outages) watchOutages() {
	for _, p := range c.providers {
		if o := c.outageOf(p); o != p.Outage {
			c.outageChanged(p, o)
		}
		if b := &p.Breaker; p.Outage == outageBreaker && !b.Probing && c.now >= b.Until && p.Fails == 0 && p.NextList > c.now {
			p.NextList = c.now // a List that ends well is what brings the supply back
		}
		if p.sweeping && c.sweepOutage(p, outageSweep) {
			c.timers.add(c.now+Millisecond, timerList, p.Name)
		}
	}
}

func (c *outages) outageChanged(p *provider, o outage) {
	if (o == outageNone) != (p.Outage == outageNone) {
		p.sweeping, p.swept = true, ""
		detail := "supply is offered again"
		if o != outageNone {
			p.OutageAt = c.now
			detail = fmt.Sprintf("supply is withheld: the provider %s", o)
		}
		c.record(Record{Type: RecordBackoffChanged, Provider: p.Name, Detail: detail})
	}
	if p.Outage = o; o == outageNone {
		p.OutageAt = 0
	}
	c.pub.blocksChanged = true
	c.trigger(triggerExpiry)
}

// sweepOutage marks the next machines of a provider, by id, and reports whether some are left.
func (c *outages) sweepOutage(p *provider, most int) (more bool) {
	var batch []inventory.Index
	for i := range c.world.Inventory.After(p.swept) {
		if len(batch) == most {
			more = true
			break
		}
		batch = append(batch, i)
	}
	for _, i := range batch {
		c.markOutage(i)
	}
	if n := len(batch); n > 0 {
		p.swept = c.world.Inventory.ID(batch[n-1])
	}
	p.sweeping = more
	c.trigger(triggerExpiry)
	return more
}

// finishSweeps marks what is left at once, so that a checkpoint need not say how far the marking got.
func (c *outages) finishSweeps() {
	for _, p := range c.providers {
		for p.sweeping {
			c.sweepOutage(p, outageSweep)
		}
	}
}

// markOutage shows the engine what an outage does to one machine. Free machines and possible victims are withheld. What is
// on its way does not move, so it stops counting as supply; when it arrives it is ordinary supply.
func (c *outages) markOutage(i inventory.Index) {
	inv := c.world.Inventory
	out := c.provider(inv.Provider(i)).Outage != outageNone
	free, moving := false, false
	switch inv.State(i) {
	case inventory.Speculative, inventory.Idle, inventory.Configured:
		free = out
	case inventory.Creating, inventory.Draining:
		moving = out
	case inventory.Configuring:
		moving = out && !inv.Readiness(i).WasReady()
	}
	if free {
		inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldProvider})
	} else {
		inv.Lift(i, inventory.WithheldProvider, "")
	}
	inv.SetStalled(i, moving)
}

// outageMoved keeps the marks of a machine right after a change of its state.
func (c *outages) outageMoved(i inventory.Index) {
	if c.provider(c.world.Inventory.Provider(i)).Outage != outageNone || c.world.Inventory.Stalled(i) {
		c.markOutage(i)
	}
}

// outages names the providers whose supply is withheld, for people: "p1 does not answer commands since 14:02 UTC".
func (c *outages) outages() string {
	text := ""
	for _, p := range c.providers {
		if p.Outage == outageNone {
			continue
		}
		if text != "" {
			text += "; "
		}
		text += fmt.Sprintf("provider %s %s since %s", p.Name, p.Outage, clockText(c.toWall(p.OutageAt)))
	}
	return text
}

// anyOutage reports whether the supply of some provider is withheld.
func (c *outages) anyOutage() bool {
	return slices.ContainsFunc(c.providers, func(p *provider) bool { return p.Outage != outageNone })
}

// clockText writes the time of day of a wall clock, in UTC.
func clockText(wall int64) string {
	minutes := wall / Minute % (24 * 60)
	return fmt.Sprintf("%02d:%02d UTC", minutes/60, minutes%60)
}

// outageReason is how verdicts name the outages that there are: an open circuit breaker, or an inventory that is too old.
func (c *outages) outageReason() blockedReason {
	if slices.ContainsFunc(c.providers, func(p *provider) bool { return p.Outage == outageBreaker }) {
		return blockedBreaker
	}
	return blockedOutage
}
