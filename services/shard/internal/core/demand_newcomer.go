package core

import (
	"maps"
	"slices"
)

// A cluster that another shard served until a moment ago may have machines that were configured after this shard last
// read its providers; planned at once, they would be bought again. So a cluster that is new here acquires nothing until a
// List of each provider has been merged that began after its first roll-up (SHARD-12.7).

// newcomer begins the hold of a cluster whose session has just delivered its first roll-up. One that was at home here
// has no machines that this shard did not configure itself, and neither has any cluster of a fleet of one shard. That a
// view names it proves nothing: a person may have bound it here before it came.
func (c *rollups) newcomer(cl *cluster) {
	switch v := c.ctl.View; {
	case !c.cfg.Coordinated || c.coord.home[cl.Name]:
		return
	case v != nil && v.OnlyShard:
		c.coord.atHome(cl.Name)
		return
	}
	if cl.ReadFrom == 0 {
		c.reading = append(c.reading, cl)
	}
	cl.ReadFrom, cl.ReadUntil, cl.holds = c.reconciler.lists+1, c.now+newcomerIntervals*c.cfg.ReconcileInterval, true
	c.bootstraps.holdsEnd(cl, cl.ReadUntil)
}

func (c *coordinatorState) atHome(cluster string) {
	if c.home == nil {
		c.home = map[string]bool{}
	}
	c.home[cluster] = true
}

// keepHome forgets the clusters that a new view gives to others.
func (c *ownership) keepHome(v *View) {
	old := c.ctl.View
	maps.DeleteFunc(c.coord.home, func(name string, _ bool) bool {
		left := old != nil && slices.Contains(old.Clusters, name) && !slices.Contains(v.Clusters, name)
		return left || slices.Contains(v.Released, name)
	})
}

// unread reports whether some provider has still to be read before the cluster may acquire.
func (c *rollups) unread(cl *cluster) bool {
	return cl.ReadFrom != 0 && slices.ContainsFunc(c.providers, func(p *provider) bool { return c.unreadAt(cl, p) })
}

// unreadAt is the same of one provider. One that does not answer must not keep a cluster waiting forever.
func (c *rollups) unreadAt(cl *cluster, p *provider) bool {
	v := c.ctl.View
	return v != nil && !v.OnlyShard && p.Read < cl.ReadFrom && c.now < cl.ReadUntil
}

// mustRead reports whether a List of a provider is wanted now, for clusters that wait for one. A provider whose Lists take
// long is read no more often for this than for machines on their way (SHARD-13.3).
func (c *rollups) mustRead(p *provider) bool {
	if !p.Listed || !slices.ContainsFunc(c.reading, func(cl *cluster) bool { return c.unreadAt(cl, p) }) {
		return false
	}
	at := p.NextList
	if p.Fails == 0 {
		at = min(at, p.ListedAt+max(c.cfg.CycleMinSpacing, 4*p.LastTook))
	}
	if c.now < at {
		c.timers.add(at, timerList, p.Name)
		return false
	}
	return true
}

// releaseNewcomers ends the holds that have nothing left to wait for.
func (c *rollups) releaseNewcomers() {
	c.reading = slices.DeleteFunc(c.reading, func(cl *cluster) bool {
		if c.unread(cl) || c.ctl.View == nil && c.now < cl.ReadUntil {
			return false
		}
		cl.ReadFrom, cl.ReadUntil, cl.holds = 0, 0, true
		cl.changed()
		c.coord.atHome(cl.Name)
		c.trigger(triggerMachine)
		return true
	})
}
