package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// spreading is the hard spread of one Need (ENG-13.9): the values that count, and where its machines may go.
type spreading struct {
	*plan
	free  *cover.FreePool
	tops  *topologies
	cover *cover.Search

	cover.Spread
}

// known lists the values that count for the skew, and how many machines the Need has under each.
func (s *spreading) known(cl *clusterState, w *needState) {
	s.Values, s.Counts = s.Values[:0], s.Counts[:0]
	values := cl.values(s.w.Inventory, w.key)
	for at := range cl.machines {
		if l := &cl.machines[at]; l.state.Bound() && values[at] >= 0 && cl.usable(w, l) {
			s.Position(symbol.ID(values[at]))
		}
	}
	if t := s.tops.of(w.key); t != nil {
		for d := range t.Top.Domains {
			if s.freeForSpread(cl, w, t, d) {
				s.Position(t.Top.Domains[d].Value)
			}
		}
	}
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		l := &cl.machines[at]
		if values[at] < 0 {
			continue
		}
		v := symbol.ID(values[at])
		if i := s.Find(v); i >= 0 {
			s.Counts[i]++
		} else if l.bits&lAcquired != 0 {
			s.Counts[s.Position(v)]++
		}
	}
	for _, m := range cl.promisedTo(w) {
		if v, has := s.w.Inventory.Value(m.idx, w.key); has {
			if i := s.Find(v); i >= 0 {
				s.Counts[i]++
			}
		}
	}
}

// freeForSpread reports whether a domain has a free machine that w could take.
func (s *spreading) freeForSpread(cl *clusterState, w *needState, t *topState, d int) bool {
	if s.byZone(cl, t) {
		return s.cover.HasFree(s.free, s.zoneIndexes(cl, w, t)[d], cl.unit(w))
	}
	for k := range inventory.Pool(2) {
		s.cover.AvoidFor(s.free, cl.d.ID, k, s.inDomain(t, d))
		for i, cell := range t.Top.Domains[d].Cells[k] {
			if cl.fits(w, cell.Class) && t.Left(s.free, d, k, i) > s.cover.Avoided(cell.Class) {
				return true
			}
		}
	}
	return false
}

func (s *spreading) inDomain(t *topState, d int) func(i inventory.Index) bool {
	return func(i inventory.Index) bool {
		v, has := s.w.Inventory.Value(i, t.Top.Key)
		return has && v == t.Top.Domains[d].Value
	}
}

// byZone reports whether the free machines of a domain of t follow from classes alone. It is the hook of the candidate indexes by zone.
func (s *spreading) byZone(cl *clusterState, t *topState) bool {
	return !s.off.noZones && t.ByClass && len(s.w.Inventory.Avoided(cl.d.ID)) == 0
}

// zoneIndexes returns the candidate indexes of a Need by domain of a key that every class has one value of.
func (s *spreading) zoneIndexes(cl *clusterState, w *needState, t *topState) []*cover.Index {
	return s.cat.ZonesOf(s.cat.Of(cl.matcher(w), cl.f, w.bucket), t.Top)
}

// pick appends the machines of a pool that w takes, one chosen after the other. Each domain offers what the cover rule would take next, and
// the best offer of the domains that keep the skew is taken. The candidate index of a domain is that of its classes where these have one value of
// the key, and is made from its machines otherwise.
func (s *spreading) pick(cl *clusterState, w *needState, k inventory.Pool, into []cover.Machine) []cover.Machine {
	t := s.tops.of(w.key)
	if t == nil {
		return into
	}
	s.known(cl, w)
	s.Begin(s.cover, s.cat.Of(cl.matcher(w), cl.f, w.bucket), k)
	var zones []*cover.Index
	if s.byZone(cl, t) {
		zones = s.zoneIndexes(cl, w, t)
	}
	for d := range t.Top.Domains {
		v := s.Find(t.Top.Domains[d].Value)
		if v < 0 {
			continue
		}
		z := s.Add(v)
		if zones != nil {
			z.Over(zones[d])
			continue
		}
		z.AvoidFor(s.free, cl.d.ID, k, s.inDomain(t, d))
		s.tops.candidatesIn(&z.Own, cl, w, t, d, k)
		z.OverOwn(&t.Domains, int32(d))
	}
	return s.Take(w.skew, into)
}
