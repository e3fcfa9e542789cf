package engine

import (
	"math"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// zoneKey names the part of a market that lies in one domain of a key that every class has one value of.
type zoneKey struct {
	whole *market
	key   symbol.ID
	value symbol.ID
}

// zoneOf returns that part, up to date.
func (c *catalog) zoneOf(whole *market, key, value symbol.ID) *market {
	at := zoneKey{whole, key, value}
	k := c.zones[at]
	if k == nil {
		if len(c.zones) > 4*catalogMax {
			clear(c.zones)
		}
		k = &market{m: whole.m, f: whole.f, bucket: whole.bucket}
		c.zones[at] = k
	}
	if k.version != whole.version || k.base == nil {
		k.version = whole.version
		c.part = c.part[:0]
		for _, id := range whole.m.classes {
			if v, has := c.inv.ClassValue(c.inv.Class(id), key); has && v == value {
				c.part = append(c.part, id)
			}
		}
		c.stockUp(k, c.part)
	}
	return k
}

// zonesOf returns the parts of a market by domain of a key, up to date.
func (c *catalog) zonesOf(whole *market, top *inventory.Topology) []*market {
	if whole.top != top || whole.cut != whole.version || len(whole.zones) != len(top.Domains) {
		whole.zones = whole.zones[:0]
		for d := range top.Domains {
			whole.zones = append(whole.zones, c.zoneOf(whole, top.Key, top.Domains[d].Value))
		}
		whole.top, whole.cut = top, whole.version
	}
	return whole.zones
}

// spreadZone is one domain of a hard spread at work: a cover that takes one machine at a time.
type spreadZone struct {
	coverer
	ranked *ranking // its shelves
	value  int32    // position in spreading.values
}

// zonePick is a machine that a spread takes: of a group, in a zone.
type zonePick struct{ zone, group int32 }

// zoneEnd is a finish of 13.4: what the first at picks took, and one more.
type zoneEnd struct {
	at   int
	last zonePick
}

// byZone reports whether what is free for w in a domain of t is a matter of classes alone.
func (p *planning) byZone(cl *clusterState, t *topState) bool {
	return t.byClass && len(p.w.Inventory.Avoided(cl.d.ID)) == 0
}

// freeInZone reports whether a zone has anything free that w could take.
func (p *planning) freeInZone(cl *clusterState, w *want, t *topState, d int) bool {
	c := &p.cover
	c.stock, c.domain, c.mask, c.avoid, c.spare = &p.stock, nil, nil, c.avoid[:0], c.spare[:0]
	c.mk = p.cat.zonesOf(p.cat.marketOf(cl.matcher(w), cl.f, w.bucket), t.top)[d]
	c.fitUsed()
	for k := range inventory.Pool(2) {
		c.pool = k
		for s := range c.mk.shelves {
			if coversAll(c.mk.supply(int32(s)), cl.unit(w)) && c.front(int32(s)) >= 0 {
				return true
			}
		}
	}
	return false
}

// acquireZones is acquireSpread for keys that classes have one value of: each zone offers what the cover rule would take
// next, the best offer among the zones that are eligible is taken.
func (p *planning) acquireZones(cl *clusterState, w *want, t *topState, k inventory.Pool) (given bool) {
	s := &p.spread
	p.known(cl, w)
	whole := p.cat.marketOf(cl.matcher(w), cl.f, w.bucket)
	zones := p.cat.zonesOf(whole, t.top)
	s.open = s.open[:0]
	c := &p.cover
	for d := range t.top.Domains {
		v := s.find(t.top.Domains[d].Value)
		if v < 0 {
			continue
		}
		if len(s.open) == cap(s.open) {
			s.open = append(s.open, spreadZone{})
		} else {
			s.open = s.open[:len(s.open)+1] // with the buffers that it had
		}
		z := &s.open[len(s.open)-1]
		z.value = int32(v)
		z.stock, z.pool, z.domain = &p.stock, k, nil
		z.mk = zones[d]
		z.fitUsed()
	}
	if len(s.open) == 0 {
		return false
	}
	c.mk = whole
	c.prepare()
	for i := range s.open { // they ask the same question
		z := &s.open[i]
		z.unit, z.input, z.rest, z.active, z.shift, z.whole, z.narrow = c.unit, c.input, c.rest, c.active, c.shift, c.whole, c.narrow
		z.narrow.open(&z.coverer)
		z.cuts.begin(&z.coverer)
		z.ranked = z.order()
	}
	s.picks, s.finish = s.picks[:0], s.finish[:0]
	for !zero(c.rest) {
		best, end := s.choose(w.skew)
		if best.group < 0 {
			break
		}
		if end.group >= 0 {
			s.finish = append(s.finish, zoneEnd{len(s.picks), end})
		}
		s.picks = append(s.picks, best)
		z := &s.open[best.zone]
		z.used[best.group]++
		s.counts[z.value]++
		less(c.rest, z.amountOf(best.group))
	}
	return p.applyZones(cl, w, k, zero(c.rest))
}

// choose is the choice of 13.3 and the finisher of 13.4 over the zones that may take one more.
func (s *spreading) choose(skew int32) (best, end zonePick) {
	best, end = zonePick{group: -1}, zonePick{group: -1}
	var bestChoice chosen
	endCost := int64(math.MaxInt64)
	for i := range s.open {
		z := &s.open[i]
		if !s.mayGo(int(z.value), skew) {
			continue
		}
		var limit *chosen
		if best.group >= 0 {
			limit = &bestChoice
		}
		got, g := z.look(z.ranked, limit, endCost)
		if at := (zonePick{int32(i), got.group}); got.group >= 0 && (best.group < 0 || s.better(at, got, best, bestChoice)) {
			best, bestChoice = at, got
		}
		if g >= 0 {
			cost := z.mk.group(g).cost
			if end.group < 0 || cost < endCost || cost == endCost && s.first(zonePick{int32(i), g}) < s.first(end) {
				end, endCost = zonePick{int32(i), g}, cost
			}
		}
	}
	return best, end
}

func (s *spreading) first(p zonePick) uint32 { return s.open[p.zone].first(p.group) }

// better is coverer.better across zones.
func (s *spreading) better(a zonePick, x chosen, b zonePick, y chosen) bool {
	switch d := compareRatio(x.cost, x.share, y.cost, y.share); {
	case d != 0:
		return d < 0
	case x.share != y.share:
		return x.share > y.share
	case x.cost != y.cost:
		return x.cost < y.cost
	}
	return s.first(a) < s.first(b)
}

// applyZones takes the cheapest complete candidate, or all there is.
func (p *planning) applyZones(cl *clusterState, w *want, k inventory.Pool, covered bool) (given bool) {
	s := &p.spread
	cost := func(x zonePick) uint64 { return uint64(s.open[x.zone].mk.group(x.group).cost) }
	at, last, bestCount := len(s.picks), zonePick{group: -1}, -1
	var bestTotal sum128
	try := func(n int, end zonePick) {
		var total sum128
		for _, x := range s.picks[:n] {
			total.add(cost(x), 1)
		}
		count := n
		if end.group >= 0 {
			total.add(cost(end), 1)
			count++
		}
		if d := total.compare(bestTotal); bestCount < 0 || d < 0 || d == 0 && count < bestCount {
			bestTotal, bestCount, at, last = total, count, n, end
		}
	}
	for _, e := range s.finish {
		try(e.at, e.last)
	}
	if covered {
		try(len(s.picks), zonePick{group: -1})
	}
	for _, x := range s.picks {
		s.open[x.zone].used[x.group] = 0
	}
	picks := s.picks[:at]
	if last.group >= 0 {
		picks = append(picks, last)
	}
	p.taking = p.taking[:0]
	for i, x := range picks {
		if x.group < 0 {
			continue
		}
		n := int32(0) // of this group, all at once: each take moves what comes first
		for j := range picks[i:] {
			if y := &picks[i+j]; *y == x {
				n++
				if j > 0 {
					y.group = -1
				}
			}
		}
		p.taking = s.open[x.zone].listed(p.taking, x.group, n)
	}
	return p.takeAll(cl, w, k, covered || last.group >= 0)
}
