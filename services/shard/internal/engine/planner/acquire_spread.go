package planner

import (
	"cmp"
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// spreading is the hard spread of one Need (ENG-13.9): the room that it has under each value that counts, and what it takes.
type spreading struct {
	*plan
	free     *cover.FreePool
	tops     *topologies
	acquirer *acquirer
	cover    *cover.Search

	cl    *clusterState
	need  *needState
	top   *topState
	parts []*cover.Index // by domain, see zoneIndexes
	costs []uint64       // by class, where there are none of these: what a machine costs the Need, or cover.None if it cannot use it
	least [2][]uint64    // by pool and domain: cost of the cheapest machine that is free for the Need, or cover.None

	match.Rooms
	at    []int32  // by domain: 1 plus where its value is counted, or 0
	grows []bool   // by value: a machine is free for the Need
	full  []string // values under which none is taken
	zones []zone
	picks []spreadPick
	rest  []int64 // scratch
	list  []cover.Machine
}

// zone is a value under which a pool has a machine for the Need.
type zone struct {
	d      int32 // domain
	k      inventory.Pool
	target int64
	cost   uint64 // of the cheapest machine,
	known  bool   // which is
	first  cover.Machine
	order  uint32
}

// spreadPick is a machine on paper.
type spreadPick struct {
	cover.Machine
	d     int32
	units int64
	cost  uint64
	order uint32
}

// withFree fills in the room that a Need has, and what is free for it. Values under which a machine is free for it count, too.
func (s *spreading) withFree(cl *clusterState, w *needState) {
	s.cl, s.need, s.top = cl, w, s.tops.of(w.key)
	s.Copy(roomsOf(cl, w))
	t := s.top
	if t == nil {
		return
	}
	s.price()
	s.at = slices.Grow(s.at[:0], len(t.Top.Domains))[:len(t.Top.Domains)]
	clear(s.at)
	for i, v := range s.Values {
		if d, known := t.Top.Domain(v); known {
			s.at[d] = int32(i) + 1
		}
	}
	for k := range s.least {
		s.least[k] = s.least[k][:0]
		for d := range t.Top.Domains {
			s.least[k] = append(s.least[k], s.cheapest(int32(d), inventory.Pool(k)))
			if s.at[d] == 0 && s.least[k][d] != cover.None {
				s.Values, s.Units = append(s.Values, t.Top.Domains[d].Value), append(s.Units, 0)
				s.at[d] = int32(len(s.Values))
			}
		}
	}
}

// cheapest is the cost of the cheapest machine of a pool in a domain that the Need could take, or cover.None.
func (s *spreading) cheapest(d int32, k inventory.Pool) (least uint64) {
	if least = cover.None; !s.free.Any(s.cl.matcher(s.need), k) {
		return least
	}
	if s.parts != nil {
		return s.cover.CheapestOf(s.free, s.parts[d], s.cl.unit(s.need), k)
	}
	s.avoid(d, k)
	for i, x := range s.top.Top.Domains[d].Cells[k] {
		if c := s.costs[x.Class]; c < least && s.top.Left(s.free, int(d), k, i) > s.cover.Avoided(x.Class) {
			least = c
		}
	}
	return least
}

// avoid collects the machines of a pool of a domain that the cluster must not take.
func (s *spreading) avoid(d int32, k inventory.Pool) {
	if len(s.w.Inventory.Avoided(s.cl.d.ID)) > 0 {
		s.cover.AvoidFor(s.free, s.cl.d.ID, k, s.inDomain(d))
	}
}

func (s *spreading) inDomain(d int32) func(i inventory.Index) bool {
	return func(i inventory.Index) bool {
		v, has := s.w.Inventory.Value(i, s.top.Top.Key)
		return has && v == s.top.Top.Domains[d].Value
	}
}

// price says what machines of each class cost the Need. If free machines of a domain follow from classes alone, as every class has one value of
// the key, the candidate indexes by domain say it. It is their hook.
func (s *spreading) price() {
	cl, w, inv := s.cl, s.need, s.w.Inventory
	s.cover.AvoidFor(s.free, cl.d.ID, inventory.IdlePool, nil)
	s.parts, s.costs = nil, s.costs[:0]
	if !s.off.noZones && s.top.ByClass && len(inv.Avoided(cl.d.ID)) == 0 {
		s.parts = s.cat.ZonesOf(s.cat.Of(cl.matcher(w), cl.f, w.bucket), s.top.Top)
		return
	}
	for range inv.Classes() {
		s.costs = append(s.costs, cover.None)
	}
	for _, c := range cl.matcher(w).Classes {
		if cl.fits(w, c) {
			s.costs[c] = uint64(cl.matcher(w).Cost(c, inv.Class(c), w.bucket))
		}
	}
}

// room is what the value of a domain has.
func (s *spreading) room(d int32) int64 { return s.Units[s.at[d]-1] }

// open reports whether machines of a domain may be taken.
func (s *spreading) open(d int) bool {
	return len(s.full) == 0 || !slices.Contains(s.full, s.w.Space.Strings.Text(s.top.Top.Domains[d].Value))
}

// acquire takes free machines until w is covered or nothing helps: room beyond its demand first where kube-scheduler would put its Pods now (ENG-13.9a).
func (s *spreading) acquire(cl *clusterState, w *needState) {
	if !cl.short(w) {
		return
	}
	if s.withFree(cl, w); s.top == nil {
		return
	}
	asked := cl.unitsIn(w, cl.aggregate(w))
	if room := cl.headroomOf(w); room > 0 && len(cl.d.FullOf(int(w.row))) > 0 {
		s.full = cl.d.FullOf(int(w.row))
		s.takeAll(min(asked, resource.AddSat(roomsOf(cl, w).Served(), room)))
		s.full = nil
	}
	s.takeAll(asked)
}

// takeAll takes free machines, as evenly over the values as units are, until so many units run or nothing helps.
func (s *spreading) takeAll(asked int64) {
	for took := true; took; {
		idle := s.takeEvenly(inventory.IdlePool, asked)
		took = s.takeEvenly(inventory.SpeculativePool, asked) || idle
	}
}

// takeEvenly raises the room under each value by machines of one pool.
func (s *spreading) takeEvenly(k inventory.Pool, asked int64) bool {
	if s.Served() >= asked {
		return false
	}
	s.zones, s.picks = s.zones[:0], s.picks[:0]
	s.grows = slices.Grow(s.grows[:0], len(s.Values))[:len(s.Values)]
	clear(s.grows)
	for d, at := range s.at {
		if min(s.least[0][d], s.least[1][d]) == cover.None || !s.open(d) {
			continue
		}
		if s.grows[at-1] = true; s.least[k][d] != cover.None {
			s.zones = append(s.zones, zone{d: int32(d), k: k, cost: s.least[k][d]})
		}
	}
	if len(s.zones) == 0 {
		return false
	}
	s.aim(asked)
	for i := range s.zones {
		if z := &s.zones[i]; z.target > s.room(z.d) {
			s.pickIn(z)
		}
	}
	s.dropUnneeded(asked)
	for _, p := range slices.Backward(s.picks) { // as actions are sorted
		s.acquirer.take(s.cl, s.need, p.Index, k)
	}
	s.cl.recount(s.need)
	s.tops.of(s.need.key) // counts what was taken
	for _, p := range s.picks {
		s.least[k][p.d] = s.cheapest(p.d, k)
	}
	return len(s.picks) > 0
}

// aim says how much room each value shall have: all one unit less than the level, and as many of them the level as it takes, those with the
// cheapest machine first.
func (s *spreading) aim(asked int64) {
	level := s.Level(s.grows, asked)
	extra := len(s.zones)
	if s.Raised(s.grows, level) >= asked {
		extra = int(min(int64(extra), asked-s.Raised(s.grows, level-1)))
	}
	lower := 0 // so many come first that have less
	for i := range s.zones {
		if s.zones[i].target = level - 1; s.room(s.zones[i].d) < level {
			s.zones[i], s.zones[lower] = s.zones[lower], s.zones[i]
			lower++
		}
	}
	heap := s.zones[:lower]
	if extra >= lower {
		extra, heap = lower, nil
	}
	for at := len(heap) / 2; at >= 0; at-- {
		s.sift(heap, at)
	}
	for i := range extra {
		if at := lower - 1 - i; heap == nil {
			s.zones[at].target = level
		} else {
			heap[0].target = level
			heap[0], heap[at] = heap[at], heap[0]
			s.sift(heap[:at], 0)
		}
	}
}

// sift moves a zone of a heap to its place among those below it: the one with the cheapest machine comes first.
func (s *spreading) sift(heap []zone, at int) {
	for next := 2*at + 1; next < len(heap); at, next = next, 2*next+1 {
		if next+1 < len(heap) && s.cheaper(&heap[next+1], &heap[next]) {
			next++
		}
		if !s.cheaper(&heap[next], &heap[at]) {
			return
		}
		heap[at], heap[next] = heap[next], heap[at]
	}
}

func (s *spreading) cheaper(a, b *zone) bool {
	if a.cost == b.cost {
		return s.find(a).order < s.find(b).order
	}
	return a.cost < b.cost
}

// find finds the cheapest machine of a zone: of those that cost the same, the first one.
func (s *spreading) find(z *zone) *zone {
	switch {
	case z.known:
		return z
	case s.parts != nil:
		s.ask(z, 1)
		z.first = s.list[0]
		z.order = s.w.Inventory.Row(z.first.Index).Order
	default:
		z.order = math.MaxUint32
		s.avoid(z.d, z.k)
		for _, x := range s.top.Top.Domains[z.d].Cells[z.k] {
			if s.costs[x.Class] == z.cost {
				if m, order := s.cover.FirstOf(&s.top.Domains, z.d, z.k, x.Class); order < z.order {
					z.first, z.order = m, order
				}
			}
		}
	}
	z.known = true
	return z
}

// ask asks the cover rule for machines of one zone with room for so many units, and lists them.
func (s *spreading) ask(z *zone, units int64) {
	c, cl, w := s.cover, s.cl, s.need
	s.rest, s.list = s.rest[:0], s.list[:0]
	for _, u := range cl.unit(w) {
		s.rest = append(s.rest, u*units)
	}
	c.Ask(s.free, cl.d.ID, z.k, cl.unit(w), s.rest, w.bits&wMany != 0, cl.perHost(w))
	if s.parts != nil {
		c.Everywhere(s.parts[z.d])
	} else {
		s.avoid(z.d, z.k)
		s.tops.candidatesIn(&s.acquirer.local, cl, w, s.top, int(z.d), z.k)
		c.In(&s.acquirer.local, &s.top.Domains, z.d)
	}
	c.Run()
	for _, p := range c.Picks {
		s.list = c.Listed(s.list, p.Group, p.N)
	}
}

// pickIn picks machines of a zone up to its target. With room for one unit, the cheapest one is the cover.
func (s *spreading) pickIn(z *zone) {
	if units := z.target - s.room(z.d); units > 1 {
		s.ask(z, units)
	} else {
		s.list = append(s.list[:0], s.find(z).first)
	}
	cl, w, inv := s.cl, s.need, s.w.Inventory
	for _, m := range s.list {
		cost := uint64(cl.matcher(w).Cost(m.Class, inv.Class(m.Class), w.bucket))
		s.picks = append(s.picks, spreadPick{m, z.d, cl.unitsIn(w, cl.amount(w, m.Class)), cost, inv.Row(m.Index).Order})
	}
}

// dropUnneeded leaves out machines without which the Need is covered, too, dearest first.
func (s *spreading) dropUnneeded(asked int64) {
	for _, p := range s.picks {
		at := s.at[p.d] - 1
		s.Units[at] = resource.AddSat(s.Units[at], p.units)
	}
	slices.SortFunc(s.picks, func(a, b spreadPick) int { return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(b.order, a.order)) })
	run, most := s.Served(), s.Most()
	s.picks = slices.DeleteFunc(s.picks, func(p spreadPick) bool {
		had := s.room(p.d)
		if run-min(had, most)+min(had-p.units, most) < asked || !s.Spares(int(s.at[p.d])-1, p.units, asked) { // the others hold no more than before
			return false
		}
		s.Units[s.at[p.d]-1] -= p.units
		run, most = s.Served(), s.Most()
		return true
	})
}

// gains reports whether more units run with so many more under a machine's value. It notes them if so.
func (s *spreading) gains(i inventory.Index, key symbol.ID, units int64) bool {
	v, has := s.w.Inventory.Value(i, key)
	if !has || !s.Helps(v, units) {
		return false
	}
	s.Add(v, units)
	return true
}
