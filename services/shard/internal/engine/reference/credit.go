package reference

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// credit counts the machines of a cluster for its needs, in three rounds: own machines, other bound machines and shares on
// them, machines in flight (ENG-9.3, 9.4, 9.6; ENG-9.5 gives the reasons). Held needs take part (ENG-18.1).
func (n *State) credit(c *Cluster) {
	unclaimed := func(m *Machine) bool { return m.claim == nil }
	for _, d := range c.normalised { // round 1
		if d.Same != nil {
			n.ownDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool { return unclaimed(m) && n.own(d, m) && n.Usable(d, m) }))
	}
	for _, d := range c.normalised { // round 2
		if !n.isShort(d) || d.chosen {
			continue
		}
		if d.Same != nil {
			n.creditDomain(d)
			continue
		}
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool {
			return unclaimed(m) && (m.stamp == nil || !m.stamp.Ours()) && n.Usable(d, m)
		}))
		n.share(d, func(m *Machine) bool { return m.Seen.Bound() })
		n.claimWhileShort(d, n.bound(c, func(m *Machine) bool { return unclaimed(m) && n.Usable(d, m) }))
		n.claimWhileShort(d, n.inFlight(c, func(m *Machine) bool { return unclaimed(m) && n.own(d, m) && n.Usable(d, m) }))
	}
	for _, d := range c.normalised { // round 3
		if !n.isShort(d) {
			continue
		}
		n.share(d, func(m *Machine) bool { return InFlight(m, c) })
		spill := n.selectMachines(func(m *Machine) bool { return InFlight(m, c) && unclaimed(m) && n.Usable(d, m) }, byID)
		if d.Same != nil {
			if !d.chosen {
				d.domain, d.chosen = n.bestBucket(d, spill)
			}
			spill = inDomain(d, spill)
		}
		n.claimWhileShort(d, spill)
	}
}

// own reports whether m was bound or promised for d (ENG-5.7).
func (n *State) own(d *Need, m *Machine) bool {
	if m.Seen.Bound() {
		return m.Cluster == d.Cluster.Name && m.stamp != nil && names(d, m.stamp)
	}
	return InFlight(m, d.Cluster) && names(d, &m.Promise.For)
}

// names reports whether a stamp is that of d, or of a member of d.
func names(d *Need, s *inventory.Stamp) bool {
	if s.Fingerprint == d.Form.Fingerprint && s.Group == d.Group {
		return true
	}
	for _, r := range d.members {
		if x := &d.Cluster.Needs[r]; s.Fingerprint == x.Form.Fingerprint && s.Group == x.Group {
			return true
		}
	}
	return false
}
