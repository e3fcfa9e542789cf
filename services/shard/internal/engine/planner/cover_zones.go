package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// zoneKey names the part of a candidate index that lies in one domain of a key that every class has one value of.
type zoneKey struct {
	whole *candidateIndex
	key   symbol.ID
	value symbol.ID
}

// zoneOf returns that part and brings it up to date.
func (c *candidateIndexes) zoneOf(whole *candidateIndex, key, value symbol.ID) *candidateIndex {
	at := zoneKey{whole, key, value}
	k := c.zones[at]
	if k == nil {
		if len(c.zones) > 4*match.CatalogMax {
			clear(c.zones)
		}
		k = &candidateIndex{m: whole.m, f: whole.f, bucket: whole.bucket}
		c.zones[at] = k
	}
	if k.version != whole.version || k.base == nil {
		k.version = whole.version
		c.part = c.part[:0]
		for _, id := range whole.m.Classes {
			if v, has := c.Inventory.ClassValue(c.Inventory.Class(id), key); has && v == value {
				c.part = append(c.part, id)
			}
		}
		c.fillIndex(k, c.part)
	}
	return k
}

// zonesOf returns the parts of a candidate index by domain of a key, up to date.
func (c *candidateIndexes) zonesOf(whole *candidateIndex, top *inventory.Topology) []*candidateIndex {
	if whole.top != top || whole.cut != whole.version || len(whole.zones) != len(top.Domains) {
		whole.zones = whole.zones[:0]
		for d := range top.Domains {
			whole.zones = append(whole.zones, c.zoneOf(whole, top.Key, top.Domains[d].Value))
		}
		whole.top, whole.cut = top, whole.version
	}
	return whole.zones
}

// spreadZone is one domain of a hard spread: a cover that takes one machine at a time.
type spreadZone struct {
	coverer
	own   domainCandidates // used where byZone is false
	value int32            // position in spreading.values
}

// zonePick is a machine that a spread takes: of a group, in a zone.
type zonePick struct{ zone, group int32 }

// zoneEnd is a complete candidate of ENG-13.4: the first at picks, and one more machine.
type zoneEnd struct {
	at   int
	last zonePick
}

// byZone reports whether the free machines of a domain of t follow from classes alone. It is the hook of the candidate indexes by zone.
func (s *spreading) byZone(cl *clusterState, t *topState) bool {
	return !s.off.noZones && t.byClass && len(s.w.Inventory.Avoided(cl.d.ID)) == 0
}

// freeInZone reports whether a zone has a free machine that w could take.
func (s *spreading) freeInZone(cl *clusterState, w *needState, t *topState, d int) bool {
	c := s.cover
	c.free, c.domain, c.mask, c.avoid, c.spare = s.free, nil, nil, c.avoid[:0], c.spare[:0]
	c.mk = s.cat.zonesOf(s.cat.indexOf(cl.matcher(w), cl.f, w.bucket), t.top)[d]
	c.fitUsed()
	c.mk.open(c.free.gen)
	for k := range inventory.Pool(2) {
		c.pool = k
		for g := range c.mk.groups {
			if match.Covers(c.mk.supply(int32(g)), cl.unit(w)) && c.front(int32(g)) >= 0 {
				return true
			}
		}
	}
	return false
}

// pick appends the machines of a pool that w takes, one chosen after the other. Each domain offers what the cover rule would take next, and
// the best offer of the domains that keep the skew is taken (ENG-13.9).
func (s *spreading) pick(cl *clusterState, w *needState, k inventory.Pool, into []free) []free {
	t := s.tops.of(w.key)
	if t == nil {
		return into
	}
	c := s.cover
	s.known(cl, w)
	s.openZones(cl, w, t, k)
	s.picks, s.finish = s.picks[:0], s.finish[:0]
	for len(s.open) > 0 && !match.IsZero(c.rest) {
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
		match.Subtract(c.rest, z.amountOf(best.group))
	}
	return s.cheapest(match.IsZero(c.rest), into)
}

// openZones asks each domain with a counted value. Its candidate index is that of its classes where these have one value of the key, and is
// made from its machines otherwise.
func (s *spreading) openZones(cl *clusterState, w *needState, t *topState, k inventory.Pool) {
	c := s.cover
	whole := s.cat.indexOf(cl.matcher(w), cl.f, w.bucket)
	var zones []*candidateIndex
	if s.byZone(cl, t) {
		zones = s.cat.zonesOf(whole, t.top)
	}
	c.mk = whole
	c.prepare()
	s.open = s.open[:0]
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
		z.value, z.free, z.pool = int32(v), s.free, k
		z.unit, z.input, z.rest, z.active, z.shift, z.whole = c.unit, c.input, c.rest, c.active, c.shift, c.whole
		z.perHost = c.perHost
		if zones != nil {
			z.mk, z.domain, z.avoid, z.spare = zones[d], nil, z.avoid[:0], z.spare[:0]
		} else {
			z.avoidFor(cl, k, s.inDomain(t, d))
			s.tops.candidatesIn(&z.own, cl, w, t, d, k)
			z.mk, z.domain, z.byClass, z.left, z.domainAt = z.own.mk, &t.top.Domains[d], t.byClass, t, int32(d)
		}
		z.fitUsed()
		z.cuts.begin(&z.coverer)
		z.mk.open(z.free.gen)
	}
}

// choose makes the choice of ENG-13.3, and finds the finisher of ENG-13.4, among the zones that may take one more.
func (s *spreading) choose(skew int32) (best, end zonePick) {
	best, end = zonePick{group: -1}, zonePick{group: -1}
	var bestChoice, endChoice chosen
	for i := range s.open {
		z := &s.open[i]
		if !s.mayGo(int(z.value), skew) {
			continue
		}
		got, finish := z.look()
		if at := (zonePick{int32(i), got.group}); got.group >= 0 && (best.group < 0 || s.better(at, got, best, bestChoice)) {
			best, bestChoice = at, got
		}
		if at := (zonePick{int32(i), finish.group}); finish.group >= 0 &&
			(end.group < 0 || finish.cost < endChoice.cost || finish.cost == endChoice.cost && s.first(at) < s.first(end)) {
			end, endChoice = at, finish
		}
	}
	return best, end
}

func (s *spreading) first(p zonePick) uint32 { return s.open[p.zone].first(p.group) }

// better is coverer.better across zones.
func (s *spreading) better(a zonePick, x chosen, b zonePick, y chosen) bool {
	switch d := compareChoice(x, y); {
	case d != 0:
		return d < 0
	}
	return s.first(a) < s.first(b)
}

// cheapest appends the machines of the cheapest complete candidate, or of all picks if none is complete.
func (s *spreading) cheapest(covered bool, into []free) []free {
	cost := func(x zonePick) uint64 { return uint64(s.open[x.zone].mk.tier(x.group).cost) }
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
		into = s.open[x.zone].listed(into, x.group, n)
	}
	return into
}
