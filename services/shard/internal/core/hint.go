package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// hintSent is the last hint a session got for one shape.
type hintSent struct {
	count      int64
	confidence Confidence
	price      int64
	at         int64
}

// statusSent is the last verdict a session got for one row.
type statusSent struct {
	hash uint64
	at   int64
}

// hintsDue computes the hints of the clusters whose turn it is: each at most once per interval, at most 200 of them and
// so many needs in one step, the others in later steps (SHARD-25.3, 25.4). Hints are advice and reserve nothing.
func (c *Core) hintsDue() {
	done, needs, next := 0, 0, int64(0)
	stock := hintStock{}
	for _, cl := range c.clusters.ordered {
		if !cl.connected() {
			continue
		}
		at := cl.hintedAt + c.cfg.HintInterval
		if cl.hintedAt != 0 && c.now < at {
			continue // the next cycle after that looks again
		}
		if done == hintClustersPerStep || needs >= hintNeedsPerStep {
			next = c.now + c.cfg.CycleMinSpacing
			break
		}
		done++
		cl.hintedAt = c.now
		d := c.world.Demand.Cluster(cl.name)
		if d != nil {
			needs += len(d.Needs)
		}
		c.hintCluster(cl, d, &stock)
	}
	if next > 0 {
		c.timers.add(next, timerDispatch, "")
	}
}

// hintBasis is what the hints of a cluster were computed from. With equal versions they come out the same.
type hintBasis struct{ demand, inventory uint64 }

// hintCluster sends what changed for one cluster.
func (c *Core) hintCluster(cl *cluster, d *demand.Cluster, stock *hintStock) {
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
		for i := range d.Needs { // turn order: priority first
			n := &d.Needs[i]
			fp := n.Form.Stripped.Fingerprint
			if wanted[fp] || len(wanted) == hintsPerCluster {
				continue
			}
			wanted[fp] = true
			c.sendHint(cl, c.hintFor(d, n, stock))
		}
	}
	for _, fp := range sortedKeys(cl.hints) {
		if !wanted[fp] { // said once, then forgotten
			delete(cl.hints, fp)
			c.emit(SendHint{Cluster: cl.name, Session: cl.session, Fingerprint: fp, Confidence: ConfidenceNone})
		}
	}
}

func (c *Core) sendHint(cl *cluster, h SendHint) {
	now := hintSent{h.Count, h.Confidence, h.PriceMicro, c.now}
	if old := cl.hints[h.Fingerprint]; old != nil && old.count == now.count && old.confidence == now.confidence && old.price == now.price {
		return
	}
	cl.hints[h.Fingerprint] = &now
	h.Cluster, h.Session = cl.name, cl.session
	c.emit(h)
}

// hintStock is the classes that hold something free or withheld in this step: few of all there are. Which of them match
// is asked once for all needs with equal requirements.
type hintStock struct {
	known   bool
	classes []uint32
	matches map[string][]bool // by demand.Form.Match, in the order of classes
}

func (s *hintStock) fill(inv *inventory.Table) {
	if s.known {
		return
	}
	s.known, s.matches = true, map[string][]bool{}
	for id := range uint32(inv.Classes()) {
		if x := inv.Class(id).Stock; x[inventory.IdlePool]+x[inventory.SpeculativePool] > 0 {
			s.classes = append(s.classes, id)
		}
	}
}

func (s *hintStock) matching(inv *inventory.Table, f *demand.Form) []bool {
	m := s.matches[f.Match]
	if m == nil {
		m = make([]bool, len(s.classes))
		for k, id := range s.classes {
			m[k] = classMatches(inv, inv.Class(id), f)
		}
		s.matches[f.Match] = m
	}
	return m
}

// hintFor counts the free machines that match and fit a need, by class (SHARD-25.1, 25.2).
func (c *Core) hintFor(d *demand.Cluster, n *demand.Need, stock *hintStock) SendHint {
	inv := c.world.Inventory
	h := SendHint{Fingerprint: n.Form.Stripped.Fingerprint, Requirements: n.Form.Stripped.Requirements, Confidence: ConfidenceNone}
	best := int64(-1)
	var offer *resource.Vector
	var idle, slots, withheld int64
	stock.fill(inv)
	matches := stock.matching(inv, n.Form.Stripped)
	for k, id := range stock.classes {
		if !matches[k] {
			continue
		}
		class := inv.Class(id)
		if !classFits(class, d, n) {
			continue
		}
		i, s := int64(class.Pools[inventory.IdlePool].Len()), int64(class.Pools[inventory.SpeculativePool].Len())
		idle, slots = idle+i, slots+s
		withheld += int64(class.Stock[inventory.IdlePool]) + int64(class.Stock[inventory.SpeculativePool]) - i - s
		if i+s == 0 {
			continue
		}
		price := class.Price + int64(class.Probability)*int64(n.Form.Interruption.Penalty())/2
		if best < 0 || price < best {
			best, offer = price, &class.Supply
		}
	}
	h.Count = idle + slots
	switch {
	case idle > 0:
		h.Confidence = ConfidenceHigh
	case slots > 0:
		h.Confidence = ConfidenceMedium
	case withheld > 0:
		h.Confidence, h.Reason = ConfidenceLow, "machines that fit are promised, withheld or out of stock"
	default:
		h.Reason = "no free machine fits"
	}
	if best >= 0 {
		h.PriceMicro, h.Resources = best, offer.Quantities(c.world.Space.Dimensions)
	}
	return h
}

// classMatches tells whether machines of a class match a profile, by the rules of ENG-6 over class values.
func classMatches(inv *inventory.Table, class *inventory.Class, f *demand.Form) bool {
	for _, r := range f.Requirements {
		value, has := inv.ClassAttr(class, r.Key)
		ok := false
		switch r.Op {
		case demand.In:
			ok = has && slices.Contains(r.Values, value)
		case demand.NotIn:
			ok = !has || !slices.Contains(r.Values, value)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return tolerates(&f.Profile, inv.Shape(class.Shape).Taints)
}

// classFits tells whether a machine of a class has room for the smallest unit of a need beside what the nodes of its
// cluster keep for themselves.
func classFits(class *inventory.Class, d *demand.Cluster, n *demand.Need) bool {
	if !class.Supply.Covers(&n.MinUnit) {
		return false
	}
	if d.Overhead.IsZero() {
		return class.Supply.Touches(&n.Aggregate)
	}
	supply := class.Supply.Sub(d.Overhead)
	return supply.Covers(&n.MinUnit) && supply.Touches(&n.Aggregate)
}

// tolerates is ENG-6.3a: a need whose sender states no tolerations tolerates everything.
func tolerates(p *demand.Profile, taints []inventory.Taint) bool {
	if !p.TolerationsStated {
		return true
	}
	for _, t := range taints {
		if t.Effect != demand.NoSchedule && t.Effect != demand.NoExecute {
			continue
		}
		if !slices.ContainsFunc(p.Tolerations, func(x demand.Toleration) bool {
			return (x.Effect == "" || x.Effect == t.Effect) &&
				(x.Op == demand.TolerationExists && (x.Key == "" || x.Key == t.Key) || x.Op != demand.TolerationExists && x.Key == t.Key && x.Value == t.Value)
		}) {
			return false
		}
	}
	return true
}
