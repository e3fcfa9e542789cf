package core

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"

// hintsDue computes the hints of the clusters whose turn it is: each at most once per interval, at most 200 of them and
// so many needs in one step, the others in later steps (SHARD-25.3, 25.4). Hints are advice and reserve nothing.
func (c *publisher) hintsDue() {
	done, needs, next := 0, 0, int64(0)
	for _, cl := range c.clusters.ordered {
		if !cl.connected() {
			continue
		}
		at := cl.HintedAt + c.cfg.HintInterval
		if cl.HintedAt != 0 && c.now < at {
			continue // the next cycle after that looks again
		}
		if done == hintClustersPerStep || needs >= hintNeedsPerStep {
			next = c.now + c.cfg.CycleMinSpacing
			break
		}
		done++
		cl.HintedAt = c.now
		d := c.world.Demand.Cluster(cl.Name)
		if d != nil {
			needs += len(d.Needs)
		}
		c.hintCluster(cl, d)
	}
	if next > 0 {
		c.timers.add(next, timerHints, restOfHints)
	}
}

// restOfHints is the subject of the deadline at which hintsDue continues. It is no reason for a cycle: with 5,000 clusters
// there are 25 such steps in each interval.
const restOfHints = "rest"

// hintCluster sends what changed for one cluster.
func (c *publisher) hintCluster(cl *cluster, d *demand.Cluster) {
	basis := hintBasis{inventory: c.world.Inventory.Version() + 1}
	if d != nil {
		basis.demand = d.Version
	}
	if cl.hintBasis == basis {
		return
	}
	cl.hintBasis = basis
	wanted := map[string]bool{}
	if d != nil {
		for i := range d.Needs { // allocation order: priority first
			n := &d.Needs[i]
			fp := n.Form.Stripped.Fingerprint
			if wanted[fp] || len(wanted) == hintsPerCluster {
				continue
			}
			wanted[fp] = true
			c.sendHint(cl, c.hintFor(d, n))
		}
	}
	for _, fp := range sortedKeys(cl.hints) {
		if !wanted[fp] { // said once, then forgotten
			c.emit(SendHint{Cluster: cl.Name, Session: cl.Session, Fingerprint: fp, Requirements: cl.hints[fp].reqs, Confidence: ConfidenceNone,
				Reason: "no need requests this shape any more"})
			delete(cl.hints, fp)
		}
	}
}

func (c *publisher) sendHint(cl *cluster, h SendHint) {
	now := hintSent{h.Count, h.Confidence, h.PriceMicro, c.now, h.Requirements}
	if old := cl.hints[h.Fingerprint]; old != nil && old.count == now.count && old.confidence == now.confidence && old.price == now.price {
		return
	}
	cl.hints[h.Fingerprint] = &now
	h.Cluster, h.Session = cl.Name, cl.Session
	c.emit(h)
}

// hintFor counts the free machines that match and fit a need (SHARD-25.1, 25.2).
func (c *publisher) hintFor(d *demand.Cluster, n *demand.Need) SendHint {
	h := SendHint{Fingerprint: n.Form.Stripped.Fingerprint, Requirements: n.Form.Stripped.Requirements, Confidence: ConfidenceNone}
	o := c.offers.For(c.world, d, n)
	h.Count = o.Idle + o.Speculative
	switch {
	case o.Idle > 0:
		h.Confidence = ConfidenceHigh
	case o.Speculative > 0:
		h.Confidence = ConfidenceMedium
	case o.Withheld > 0:
		h.Confidence = ConfidenceLow
	}
	h.Reason = h.Confidence.Why()
	if o.Cost >= 0 {
		h.PriceMicro, h.Resources = o.Cost, o.Supply.Quantities(c.world.Space.Dimensions)
	}
	return h
}
