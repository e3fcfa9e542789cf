package cover

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Spread chooses machines one by one from several domains (ENG-13.9).
type Spread struct {
	Values []symbol.ID // that count for the skew
	Counts []int32     // machines that the Need has under each

	asked  *Search // with the question
	open   []spreadZone
	picks  []zonePick
	finish []zoneEnd
}

// Find returns where a value is counted, or -1.
func (s *Spread) Find(v symbol.ID) int {
	for i, x := range s.Values {
		if x == v {
			return i
		}
	}
	return -1
}

// Position returns where a value is counted, and adds the value if it is new.
func (s *Spread) Position(v symbol.ID) int {
	if i := s.Find(v); i >= 0 {
		return i
	}
	s.Values, s.Counts = append(s.Values, v), append(s.Counts, 0)
	return len(s.Values) - 1
}

// MayGo reports whether one more machine at a position keeps the skew. Position -1 is an unknown value.
func (s *Spread) MayGo(i int, skew int32) bool {
	count, low := int32(0), int32(0)
	if i >= 0 {
		count, low = s.Counts[i], s.Counts[i]
	}
	for _, c := range s.Counts {
		low = min(low, c)
	}
	return int64(count) <= int64(low)+int64(skew)-1
}

// spreadZone is one domain of a hard spread: a cover that takes one machine at a time.
type spreadZone struct {
	Search
	Own   DomainIndex // used where byZone is false
	value int32       // position in spreading.values
}

// zonePick is a machine that a spread takes: of a group, in a zone.
type zonePick struct{ zone, group int32 }

// zoneEnd is a complete candidate of ENG-13.4: the first at picks, and one more machine.
type zoneEnd struct {
	at   int
	last zonePick
}

// Begin takes over the question that c was asked. whole is the candidate index of all domains together.
func (s *Spread) Begin(c *Search, whole *Index, k inventory.Pool) {
	c.mk, c.pool = whole, k
	c.prepare()
	s.asked, s.open, s.picks, s.finish = c, s.open[:0], s.picks[:0], s.finish[:0]
}

// Add adds a domain, which offers Over or OverOwn something next. value is its position in Values.
func (s *Spread) Add(value int) *spreadZone {
	if len(s.open) == cap(s.open) {
		s.open = append(s.open, spreadZone{})
	} else {
		s.open = s.open[:len(s.open)+1] // with the buffers that it had
	}
	z, c := &s.open[len(s.open)-1], s.asked
	z.value, z.free, z.pool = int32(value), c.free, c.pool
	z.unit, z.input, z.rest, z.active, z.shift, z.whole, z.perHost = c.unit, c.input, c.rest, c.active, c.shift, c.whole, c.perHost
	return z
}

// Over lets a domain offer what a candidate index holds. There is nothing to avoid.
func (z *spreadZone) Over(k *Index) {
	z.mk, z.domain, z.avoid, z.Spare = k, nil, z.avoid[:0], z.Spare[:0]
	z.ready()
}

// OverOwn lets a domain offer what Own holds.
func (z *spreadZone) OverOwn(t *Domains, d int32) {
	z.In(&z.Own, t, d)
	z.ready()
}

func (z *spreadZone) ready() {
	z.fitUsed()
	z.cuts.begin(&z.Search)
}

// Take appends the machines of the answer.
func (s *Spread) Take(skew int32, into []Machine) []Machine {
	rest := s.asked.rest
	for len(s.open) > 0 && !match.IsZero(rest) {
		best, end := s.choose(skew)
		if best.group < 0 {
			break
		}
		if end.group >= 0 {
			s.finish = append(s.finish, zoneEnd{len(s.picks), end})
		}
		s.picks = append(s.picks, best)
		z := &s.open[best.zone]
		z.used[best.group]++
		s.Counts[z.value]++
		match.Subtract(rest, z.amountOf(best.group))
	}
	return s.cheapest(match.IsZero(rest), into)
}

// choose makes the choice of ENG-13.3, and finds the finisher of ENG-13.4, among the zones that may take one more.
func (s *Spread) choose(skew int32) (best, end zonePick) {
	best, end = zonePick{group: -1}, zonePick{group: -1}
	var bestChoice, endChoice chosen
	for i := range s.open {
		z := &s.open[i]
		if !s.MayGo(int(z.value), skew) {
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

func (s *Spread) first(p zonePick) uint32 { return s.open[p.zone].first(p.group) }

// better is Search.better across zones.
func (s *Spread) better(a zonePick, x chosen, b zonePick, y chosen) bool {
	switch d := compareChoice(x, y); {
	case d != 0:
		return d < 0
	}
	return s.first(a) < s.first(b)
}

// cheapest appends the machines of the cheapest complete candidate, or of all picks if none is complete.
func (s *Spread) cheapest(covered bool, into []Machine) []Machine {
	cost := func(x zonePick) uint64 { return uint64(s.open[x.zone].mk.tier(x.group).cost) }
	at, last, bestCount := len(s.picks), zonePick{group: -1}, -1
	var bestTotal Sum
	try := func(n int, end zonePick) {
		var total Sum
		for _, x := range s.picks[:n] {
			total.Add(cost(x), 1)
		}
		count := n
		if end.group >= 0 {
			total.Add(cost(end), 1)
			count++
		}
		if d := total.Compare(bestTotal); bestCount < 0 || d < 0 || d == 0 && count < bestCount {
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
		into = s.open[x.zone].Listed(into, x.group, n)
	}
	return into
}
