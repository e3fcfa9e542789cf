package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// spreading is the state of one hard spread (ENG-13.9): the machines that the Need has under each value, and its choices so far.
type spreading struct {
	*plan
	free  *freePool
	tops  *topologies
	cover *coverer

	values []symbol.ID
	counts []int32

	open   []spreadZone
	picks  []zonePick
	finish []zoneEnd
}

// known lists the values that count for the skew, and how many machines the Need has under each.
func (s *spreading) known(cl *clusterState, w *needState) {
	s.values, s.counts = s.values[:0], s.counts[:0]
	values := cl.values(s.w.Inventory, w.key)
	for at := range cl.machines {
		if l := &cl.machines[at]; l.state.Bound() && values[at] >= 0 && cl.usable(w, l) {
			s.position(symbol.ID(values[at]))
		}
	}
	if t := s.tops.of(w.key); t != nil {
		for d := range t.top.Domains {
			if s.freeForSpread(cl, w, t, d) {
				s.position(t.top.Domains[d].Value)
			}
		}
	}
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		l := &cl.machines[at]
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
		if v, has := s.w.Inventory.Value(m.idx, w.key); has {
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

// position returns where a value is counted, and adds the value if it is new.
func (s *spreading) position(v symbol.ID) int {
	if i := s.find(v); i >= 0 {
		return i
	}
	s.values, s.counts = append(s.values, v), append(s.counts, 0)
	return len(s.values) - 1
}

// mayGo reports whether one more machine at a position keeps the skew. Position -1 is an unknown value.
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

// freeForSpread reports whether a domain has a free machine that w could take.
func (s *spreading) freeForSpread(cl *clusterState, w *needState, t *topState, d int) bool {
	if s.byZone(cl, t) {
		return s.freeInZone(cl, w, t, d)
	}
	for k := range inventory.Pool(2) {
		s.cover.free = s.free
		s.cover.avoidFor(cl, k, s.inDomain(t, d))
		for i, cell := range t.top.Domains[d].Cells[k] {
			if cl.fits(w, cell.Class) && s.tops.left(t, d, k, i) > s.cover.avoided(cell.Class) {
				return true
			}
		}
	}
	return false
}

func (s *spreading) inDomain(t *topState, d int) func(i inventory.Index) bool {
	return func(i inventory.Index) bool {
		v, has := s.w.Inventory.Value(i, t.top.Key)
		return has && v == t.top.Domains[d].Value
	}
}

// avoided is how many machines of a class avoidFor has collected.
func (c *coverer) avoided(class uint32) int32 {
	for _, a := range c.avoid {
		if a.class == class {
			return a.n
		}
	}
	return 0
}
