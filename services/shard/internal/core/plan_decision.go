package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"

// decisionOf makes a decision of an action of the last plan, spelled out.
func (c *step) decisionOf(a engine.Action) *decision {
	d := &decision{action: a, index: a.Machine, machine: c.world.Inventory.ID(a.Machine), cycle: c.cycle.N, planned: c.now}
	c.spell(d)
	return d
}

// spell fills in what a start needs.
func (c *step) spell(d *decision) {
	r := c.cycle.result
	d.view = r.View(c.world, d.action)
	if e := d.evict; e != nil {
		d.view.Grace, d.view.Score, d.view.Terms, d.view.PreemptorPriority = e.Grace, e.Score, e.Terms, e.priority
	}
	if t := c.cfg.DrainDeadline; t > 0 && d.action.Kind == KindReclaim && d.view.Grace == c.policy.ReclaimGrace {
		d.view.Grace = t / Second
	}
	if d.action.Kind == KindBootstrap || d.action.Kind == KindProvision {
		d.attribution = r.Attribution(d.action.Need)
		n, _ := r.Need(d.action.Need)
		d.reqs = n.Form.Requirements
		d.view.Row = n.RowKey()
	}
	if p, ok := r.Promise(d.action, c.now, c.policy); ok {
		d.promise = &p
	}
}
