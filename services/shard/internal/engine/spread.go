package engine

import (
	"math"
	"math/bits"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// spreading is the work on one hard spread (ENG-13.9): how many machines the Need has under each value that counts, and
// what it could take where.
type spreading struct {
	values []symbol.ID
	counts []int32
	cells  []spreadCell
	seq    []int32 // cells, one for each machine taken
	used   []int32
	ends   []ending

	open   []spreadZone
	picks  []zonePick
	finish []zoneEnd
}

// spreadCell is the free machines of one class in one domain.
type spreadCell struct {
	value int32 // position in values
	d     int32 // domain
	class uint32
	left  int32
	cost  int64
}

// known lists the values that count for the smallest count, and what the Need has under each.
func (p *planning) known(cl *clusterState, w *want) {
	s := &p.spread
	s.values, s.counts = s.values[:0], s.counts[:0]
	values := cl.values(p.w.Inventory, w.key)
	for at := range cl.loc {
		if l := &cl.loc[at]; l.state.Bound() && values[at] >= 0 && cl.usable(w, l) {
			s.position(symbol.ID(values[at]))
		}
	}
	if t := p.topology(w.key); t != nil {
		for d := range t.top.Domains {
			if p.freeForSpread(cl, w, t, d) {
				s.position(t.top.Domains[d].Value)
			}
		}
	}
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		l := &cl.loc[at]
		if values[at] < 0 {
			continue
		}
		v := symbol.ID(values[at])
		if i := s.find(v); i >= 0 {
			s.counts[i]++
		} else if l.bits&lAcquired != 0 {
			s.counts[s.position(v)]++
		}
	}
	for _, m := range cl.promisedTo(w) {
		if v, has := p.w.Inventory.Value(m.idx, w.key); has {
			if i := s.find(v); i >= 0 {
				s.counts[i]++
			}
		}
	}
}

func (s *spreading) find(v symbol.ID) int {
	for i, x := range s.values {
		if x == v {
			return i
		}
	}
	return -1
}

// position returns where a value is counted; it is known from now on.
func (s *spreading) position(v symbol.ID) int {
	if i := s.find(v); i >= 0 {
		return i
	}
	s.values, s.counts = append(s.values, v), append(s.counts, 0)
	return len(s.values) - 1
}

// mayGo reports whether one more machine at a position keeps the skew; -1 is a value that nothing has made known.
func (s *spreading) mayGo(i int, skew int32) bool {
	count, low := int32(0), int32(0)
	if i >= 0 {
		count, low = s.counts[i], s.counts[i]
	}
	for _, c := range s.counts {
		low = min(low, c)
	}
	return int64(count) <= int64(low)+int64(skew)-1
}

// freeForSpread reports whether a domain has anything free that w could take.
func (p *planning) freeForSpread(cl *clusterState, w *want, t *topState, d int) bool {
	if p.byZone(cl, t) {
		return p.freeInZone(cl, w, t, d)
	}
	for k := range inventory.Pool(2) {
		p.cover.stock = &p.stock
		p.cover.avoidFor(cl, k, p.inDomain(t, d))
		for i, cell := range t.top.Domains[d].Cells[k] {
			if cl.fits(w, cell.Class) && p.left(t, d, k, i) > p.cover.avoided(cell.Class) {
				return true
			}
		}
	}
	return false
}

func (p *planning) inDomain(t *topState, d int) func(i inventory.Index) bool {
	return func(i inventory.Index) bool {
		v, has := p.w.Inventory.Value(i, t.top.Key)
		return has && v == t.top.Domains[d].Value
	}
}

// avoided is how many machines of a class avoidFor has noted.
func (c *coverer) avoided(class uint32) int32 {
	for _, a := range c.avoid {
		if a.class == class {
			return a.n
		}
	}
	return 0
}

// acquireSpread takes machines one by one, each where the skew allows, as 13.3 and 13.4 choose.
func (p *planning) acquireSpread(cl *clusterState, w *want, k inventory.Pool) (given bool) {
	t := p.topology(w.key)
	if t == nil {
		return false
	}
	if p.byZone(cl, t) {
		return p.acquireZones(cl, w, t, k)
	}
	s, c := &p.spread, &p.cover
	p.known(cl, w)
	p.spreadCells(cl, w, t, k)
	c.mk = p.cat.marketOf(cl.matcher(w), cl.f, w.bucket)
	c.prepare()
	c.rest = append(c.rest[:0], c.input...)
	s.seq, s.ends = s.seq[:0], s.ends[:0]
	for !zero(c.rest) {
		best, end := p.chooseCell(cl, w, t, k)
		if best < 0 {
			break
		}
		if end >= 0 {
			s.ends = append(s.ends, ending{len(s.seq), end})
		}
		cell := &s.cells[best]
		s.seq = append(s.seq, best)
		s.used[best]++
		s.counts[cell.value]++
		less(c.rest, cl.amount(w, cell.class))
	}
	return p.applySpread(cl, w, t, k)
}

// spreadCells lists what is free where, for w.
func (p *planning) spreadCells(cl *clusterState, w *want, t *topState, k inventory.Pool) {
	s, c := &p.spread, &p.cover
	s.cells, s.used = s.cells[:0], s.used[:0]
	all := len(c.stock.inv.Avoided(cl.d.ID)) > 0
	for d := range t.top.Domains {
		v := s.find(t.top.Domains[d].Value)
		if v < 0 {
			continue
		}
		if all {
			c.avoidFor(cl, k, p.inDomain(t, d))
		}
		for i, cell := range t.top.Domains[d].Cells[k] {
			if !cl.fits(w, cell.Class) {
				continue
			}
			if n := p.left(t, d, k, i) - c.avoided(cell.Class); n > 0 {
				s.cells = append(s.cells, spreadCell{value: int32(v), d: int32(d), class: cell.Class, left: n,
					cost: effectiveCost(p.w.Inventory.Class(cell.Class), w.bucket)})
				s.used = append(s.used, 0)
			}
		}
	}
	c.avoidFor(cl, k, nil)
}

// chooseCell is coverer.choose with one machine at a time, over the domains that are eligible now.
func (p *planning) chooseCell(cl *clusterState, w *want, t *topState, k inventory.Pool) (best, end int32) {
	s, c := &p.spread, &p.cover
	best, end = -1, -1
	var bestShare uint64
	for i := range s.cells {
		cell := &s.cells[i]
		if s.used[i] == cell.left || !s.mayGo(int(cell.value), w.skew) {
			continue
		}
		sup := cl.amount(w, cell.class)
		share, covers := uint64(0), true
		for a, j := range c.active {
			x := sup[j]
			if r := c.rest[j]; x < r {
				covers = false
			} else {
				x = r
			}
			var carry uint64
			if share, carry = bits.Add64(share, uint64(x)<<c.shift[a], 0); carry != 0 {
				share = math.MaxUint64
			}
		}
		if share == 0 {
			continue
		}
		if covers && (end < 0 || cell.cost < s.cells[end].cost ||
			cell.cost == s.cells[end].cost && p.firstOf(t, k, int32(i)) < p.firstOf(t, k, end)) {
			end = int32(i)
		}
		if best < 0 {
			best, bestShare = int32(i), share
			continue
		}
		b := &s.cells[best]
		ahi, alo := bits.Mul64(uint64(cell.cost), bestShare)
		bhi, blo := bits.Mul64(uint64(b.cost), share)
		better := false
		switch {
		case ahi != bhi:
			better = ahi < bhi
		case alo != blo:
			better = alo < blo
		case share != bestShare:
			better = share > bestShare
		case cell.cost != b.cost:
			better = cell.cost < b.cost
		default:
			better = p.firstOf(t, k, int32(i)) < p.firstOf(t, k, best)
		}
		if better {
			best, bestShare = int32(i), share
		}
	}
	return best, end
}

// firstOf is the order of the first machine of a cell that is not taken, tentatively or for good.
func (p *planning) firstOf(t *topState, k inventory.Pool, i int32) uint32 {
	n := p.spread.used[i]
	order := uint32(math.MaxUint32)
	p.cellMachines(t, k, i, func(m inventory.Index) bool {
		if n == 0 {
			order = p.w.Inventory.Row(m).Order
			return false
		}
		n--
		return true
	})
	return order
}

// cellMachines visits the free machines of a cell by id.
func (p *planning) cellMachines(t *topState, k inventory.Pool, i int32, yield func(m inventory.Index) bool) {
	cell := &p.spread.cells[i]
	c := &p.cover
	c.pool, c.domain, c.byClass, c.left, c.domainAt = k, &t.top.Domains[cell.d], t.byClass, t, cell.d
	var w walker
	for c.walk(&w, cell.class); w.order != atEnd && yield(w.at); c.find(&w) {
		w.pos++
	}
	c.domain = nil
}

// applySpread takes the cheapest complete candidate, or all there is.
func (p *planning) applySpread(cl *clusterState, w *want, t *topState, k inventory.Pool) (given bool) {
	s := &p.spread
	end, at := int32(-1), len(s.seq)
	var bestTotal sum128
	bestCount := -1
	try := func(n int, last int32) {
		var total sum128
		for _, i := range s.seq[:n] {
			total.add(uint64(s.cells[i].cost), 1)
		}
		count := n
		if last >= 0 {
			total.add(uint64(s.cells[last].cost), 1)
			count++
		}
		if d := total.compare(bestTotal); bestCount < 0 || d < 0 || d == 0 && count < bestCount {
			bestTotal, bestCount, at, end = total, count, n, last
		}
	}
	for _, e := range s.ends {
		try(e.at, e.group)
	}
	if zero(p.cover.rest) {
		try(len(s.seq), -1)
	}
	clear(s.used)
	for _, i := range s.seq[:at] {
		s.used[i]++
	}
	if end >= 0 {
		s.used[end]++
	}
	p.taking = p.taking[:0]
	for i, n := range s.used {
		if n == 0 {
			continue
		}
		p.cellMachines(t, k, int32(i), func(m inventory.Index) bool {
			p.taking = append(p.taking, free{m, p.w.Inventory.Row(m).Class})
			n--
			return n > 0
		})
	}
	return p.takeAll(cl, w, k, end >= 0 || zero(p.cover.rest))
}
