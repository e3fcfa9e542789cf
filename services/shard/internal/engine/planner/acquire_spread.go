package planner

import (
	"cmp"
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

	match.Rooms
	grows []bool   // by value: a machine is free for the Need
	at    []int32  // by domain: 1 plus where its value is counted, or 0
	full  []string // values under which none is taken
	zones []zone
	picks []spreadPick
	rest  []int64 // scratch
	list  []cover.Machine
}

// zone is a value under which a pool has a machine for the Need.
type zone struct {
	d      int32 // domain
	at     int   // in Values
	target int64
	cost   int64 // of the cheapest machine,
	order  uint32
}

// spreadPick is a machine on paper.
type spreadPick struct {
	cover.Machine
	at    int
	units int64
	cost  uint64
	order uint32
}

// withFree fills in the room that a Need has. Values under which a machine is free for it count, too.
func (s *spreading) withFree(cl *clusterState, w *needState) {
	r := roomsOf(cl, w)
	s.Copy(r)
	s.grows = s.grows[:0]
	for range s.Values {
		s.grows = append(s.grows, false)
	}
	t := s.tops.of(w.key)
	if t == nil {
		return
	}
	s.at = slices.Grow(s.at[:0], len(t.Top.Domains))[:len(t.Top.Domains)]
	clear(s.at)
	for i, v := range s.Values {
		if d, known := t.Top.Domain(v); known {
			s.at[d] = int32(i) + 1
		}
	}
	for d := range t.Top.Domains {
		if !s.freeIn(cl, w, t, d, inventory.IdlePool) && !s.freeIn(cl, w, t, d, inventory.SpeculativePool) {
			continue
		}
		if s.at[d] == 0 {
			s.Values, s.Units, s.grows = append(s.Values, t.Top.Domains[d].Value), append(s.Units, 0), append(s.grows, false)
			s.at[d] = int32(len(s.Values))
		}
		s.grows[s.at[d]-1] = s.open(t, d)
	}
}

// freeIn reports whether a pool of a domain has a machine that w could take.
func (s *spreading) freeIn(cl *clusterState, w *needState, t *topState, d int, k inventory.Pool) bool {
	if !s.free.Any(cl.matcher(w), k) {
		return false
	}
	if s.byZone(cl, t) {
		return s.cover.HasFree(s.free, s.zoneIndexes(cl, w, t)[d], cl.unit(w), k)
	}
	s.cover.AvoidFor(s.free, cl.d.ID, k, s.inDomain(t, d))
	for i, cell := range t.Top.Domains[d].Cells[k] {
		if cl.fits(w, cell.Class) && t.Left(s.free, d, k, i) > s.cover.Avoided(cell.Class) {
			return true
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

// open reports whether machines of a domain may be taken.
func (s *spreading) open(t *topState, d int) bool {
	return len(s.full) == 0 || !slices.Contains(s.full, s.w.Space.Strings.Text(t.Top.Domains[d].Value))
}

// acquire takes free machines until w is covered or nothing helps: room beyond its demand first where kube-scheduler would put its Pods now (ENG-13.9a).
func (s *spreading) acquire(cl *clusterState, w *needState) {
	if !cl.short(w) {
		return
	}
	asked := cl.unitsIn(w, cl.aggregate(w))
	if room := cl.headroomOf(w); room > 0 && len(cl.d.FullOf(int(w.row))) > 0 {
		s.full = cl.d.FullOf(int(w.row))
		s.takeAll(cl, w, min(asked, resource.AddSat(roomsOf(cl, w).Served(), room)))
		s.full = nil
	}
	s.takeAll(cl, w, asked)
}

// takeAll takes free machines, as evenly over the values as units are, until so many units run or nothing helps.
func (s *spreading) takeAll(cl *clusterState, w *needState, asked int64) {
	for took := true; took; {
		idle := s.takeEvenly(cl, w, inventory.IdlePool, asked)
		took = s.takeEvenly(cl, w, inventory.SpeculativePool, asked) || idle
	}
}

// takeEvenly raises the room under each value by machines of one pool.
func (s *spreading) takeEvenly(cl *clusterState, w *needState, k inventory.Pool, asked int64) bool {
	t := s.tops.of(w.key)
	if t == nil || !s.free.Any(cl.matcher(w), k) {
		return false
	}
	s.withFree(cl, w)
	if s.Served() >= asked {
		return false
	}
	s.zones, s.picks = s.zones[:0], s.picks[:0]
	for d := range t.Top.Domains {
		if s.open(t, d) && s.freeIn(cl, w, t, d, k) {
			s.zones = append(s.zones, zone{d: int32(d), at: int(s.at[d]) - 1})
		}
	}
	if len(s.zones) == 0 {
		return false
	}
	s.aim(cl, w, t, k, asked)
	for i := range s.zones {
		if z := &s.zones[i]; z.target > s.Units[z.at] {
			s.pickIn(cl, w, t, k, z)
		}
	}
	s.dropUnneeded(asked)
	for _, p := range s.picks {
		s.acquirer.take(cl, w, p.Index, k)
	}
	cl.recount(w)
	return len(s.picks) > 0
}

// aim says how much room each value shall have: all one unit less than the level, and as many of them the level as it takes, those with the
// cheapest machine first.
func (s *spreading) aim(cl *clusterState, w *needState, t *topState, k inventory.Pool, asked int64) {
	level := s.Level(s.grows, asked)
	extra := int64(len(s.zones))
	if s.Raised(s.grows, level) >= asked {
		extra = asked - s.Raised(s.grows, level-1)
	}
	lower := int64(0)
	for i := range s.zones {
		z := &s.zones[i]
		if z.target = level - 1; s.Units[z.at] < level {
			lower++
		}
	}
	if extra < lower {
		for i := range s.zones {
			z := &s.zones[i]
			s.ask(cl, w, t, k, z, cl.unit(w))
			z.cost, z.order = cover.Cheapest(s.cover)
		}
		slices.SortFunc(s.zones, func(a, b zone) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.order, b.order)) })
	}
	for i := range s.zones {
		if z := &s.zones[i]; extra > 0 && s.Units[z.at] < level {
			z.target = level
			extra--
		}
	}
}

// ask asks the cover rule for machines of one domain.
func (s *spreading) ask(cl *clusterState, w *needState, t *topState, k inventory.Pool, z *zone, rest []int64) {
	c := s.cover
	c.Ask(s.free, cl.d.ID, k, cl.unit(w), rest, w.bits&wMany != 0, cl.perHost(w))
	if s.byZone(cl, t) {
		c.Everywhere(s.zoneIndexes(cl, w, t)[z.d])
		return
	}
	c.AvoidFor(s.free, cl.d.ID, k, s.inDomain(t, int(z.d)))
	s.tops.candidatesIn(&s.acquirer.local, cl, w, t, int(z.d), k)
	c.In(&s.acquirer.local, &t.Domains, z.d)
}

// pickIn picks machines of a domain up to its target.
func (s *spreading) pickIn(cl *clusterState, w *needState, t *topState, k inventory.Pool, z *zone) {
	s.rest = s.rest[:0]
	for _, u := range cl.unit(w) {
		s.rest = append(s.rest, u*(z.target-s.Units[z.at]))
	}
	s.ask(cl, w, t, k, z, s.rest)
	c := s.cover
	c.Run()
	for _, p := range c.Picks {
		s.list = c.Listed(s.list[:0], p.Group, p.N)
		for _, m := range s.list {
			s.picks = append(s.picks, spreadPick{m, z.at, cl.unitsIn(w, cl.amount(w, m.Class)), c.CostOf(p), s.w.Inventory.Row(m.Index).Order})
		}
	}
}

// dropUnneeded leaves out machines without which the Need is covered, too, dearest first.
func (s *spreading) dropUnneeded(asked int64) {
	for _, p := range s.picks {
		s.Add(s.Values[p.at], p.units)
	}
	slices.SortFunc(s.picks, func(a, b spreadPick) int { return cmp.Or(cmp.Compare(b.cost, a.cost), cmp.Compare(b.order, a.order)) })
	s.picks = slices.DeleteFunc(s.picks, func(p spreadPick) bool {
		spared := s.Spares(p.at, p.units, asked)
		if spared {
			s.Units[p.at] -= p.units
		}
		return spared
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
