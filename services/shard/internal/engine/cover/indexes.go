package cover

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
)

// Indexes is all candidate indexes, kept from plan to plan, and what they are made from.
type Indexes struct {
	*match.Catalog
	seen     uint64 // version of the classes, plus 1, that buckets and what follows are about
	dropped  uint64 // of the catalog
	buckets  [demand.Pinned + 1]supplyGroups
	live     []uint32 // classes
	supplies []uint32 // the supplies that they have, in the order of the first class
	totals   []int32  // by supply: classes
	indexes  map[candidateKey]*Index
	zones    map[zoneKey]*Index
	stores   [][demand.Pinned + 1]*Index // of all machines, by frame and bucket
	wholes   []wholeSupplies             // by id of the matcher
	part     []uint32
	counts   []int32 // by supply
	from     []int32
	order    []uint32
	grouped  []uint32
	text     []byte
}

// wholeSupplies says whether a matcher matches all classes or none of each supply, and of which: by supply groups; nil is all.
type wholeSupplies struct {
	m       *match.Matcher
	version uint64
	whole   bool
	mask    []uint64
}

// NewIndexes returns an empty set with a catalog of its own.
func NewIndexes() *Indexes {
	return &Indexes{Catalog: match.New(), indexes: map[candidateKey]*Index{}, zones: map[zoneKey]*Index{}}
}

// Begin brings catalog and candidate indexes up to date with the tables. It reports whether everything was made again: what others remember of
// the old things is then of no use.
func (c *Indexes) Begin(w *engine.World) (fresh bool) {
	if fresh = c.Catalog.Begin(w); fresh {
		*c = Indexes{Catalog: c.Catalog, indexes: map[candidateKey]*Index{}, zones: map[zoneKey]*Index{}}
	}
	if c.dropped != c.Catalog.Dropped || len(c.indexes) > 4*match.CatalogMax+8*w.Demand.FormLen() {
		c.dropped = c.Catalog.Dropped
		clear(c.indexes)
		clear(c.zones)
		c.stores = nil
	}
	if c.seen != c.Version+1 {
		c.seen = c.Version + 1
		c.buckets = [demand.Pinned + 1]supplyGroups{}
		c.listGroups()
	}
	return fresh
}

// supplyGroups is all classes on supply groups, for one interruption bucket.
type supplyGroups struct {
	bucket demand.Bucket
	built  bool
	groups []*supplyGroup          // by supply
	rank   []uint32                // by class: its place by supply and cost
	parts  map[string]*supplyGroup // by their classes: parts of supply groups
}

// cutTiers cuts the slots of a supply group into groups.
func (c *Indexes) cutTiers(s *supplyGroup, b demand.Bucket) {
	s.fill(func(class uint32) int64 { return match.EffectiveCost(c.Inventory.Class(class), b) })
}

type candidateKey struct {
	m      *match.Matcher
	f      *match.Projection
	bucket demand.Bucket
}

// Of returns the candidate index of a Need, up to date.
func (c *Indexes) Of(m *match.Matcher, f *match.Projection, b demand.Bucket) *Index {
	key := candidateKey{m, f, b}
	k := c.indexes[key]
	if k == nil {
		k = &Index{m: m, f: f, bucket: b}
		c.indexes[key] = k
	}
	if k.version != m.Version || k.base == nil {
		k.version = m.Version
		c.fillIndex(k, m.Classes)
	}
	return k
}

// For returns a candidate index and which of its supply groups are for the Need, nil for all. Where a matcher takes all machines
// of a supply or none, what it matches is a part of the candidate index of all machines, so that Needs which differ in the types
// that they name share supply groups and orders.
func (c *Indexes) For(m *match.Matcher, f *match.Projection, b demand.Bucket) (*Index, []uint64) {
	for int(m.ID) >= len(c.wholes) {
		c.wholes = append(c.wholes, wholeSupplies{})
	}
	x := &c.wholes[m.ID]
	if x.m != m || x.version != c.Version {
		*x = wholeSupplies{m: m, version: c.Version}
		x.whole, x.mask = c.place(m)
	}
	if !x.whole {
		return c.Of(m, f, b), nil
	}
	for f.Number >= len(c.stores) {
		c.stores = append(c.stores, [demand.Pinned + 1]*Index{})
	}
	k := c.stores[f.Number][b]
	if k == nil {
		k = &Index{f: f, bucket: b}
		c.stores[f.Number][b] = k
	}
	if k.version != c.Version || k.base == nil {
		k.version = c.Version
		c.fillIndex(k, c.live)
	}
	return k, x.mask
}

// place finds out which supplies a matcher takes as a whole.
func (c *Indexes) place(m *match.Matcher) (whole bool, mask []uint64) {
	if len(m.Classes) == len(c.live) {
		return true, nil
	}
	if len(c.supplies) > wholeMax {
		return false, nil
	}
	c.counts = slices.Grow(c.counts[:0], len(c.Examples))[:len(c.Examples)]
	clear(c.counts)
	for _, id := range m.Classes {
		c.counts[c.SupplyNumber[id]]++
	}
	mask = make([]uint64, (len(c.supplies)+63)/64)
	for s, n := range c.supplies {
		switch c.counts[n] {
		case 0:
		case c.totals[n]:
			mask[s/64] |= 1 << (s % 64)
		default:
			return false, nil
		}
	}
	return true, mask
}

// wholeMax bounds how many supply groups a Need passes over that are not for it.
const wholeMax = 512

// listGroups lists the live classes and, the supplies that they have.
func (c *Indexes) listGroups() {
	c.live, c.supplies = c.live[:0], c.supplies[:0]
	c.totals = slices.Grow(c.totals[:0], len(c.Examples))[:len(c.Examples)]
	clear(c.totals)
	for id, n := range c.SupplyNumber {
		if c.Serial[id] == 0 {
			continue
		}
		c.live = append(c.live, uint32(id))
		if c.totals[n] == 0 {
			c.supplies = append(c.supplies, n)
		}
		c.totals[n]++
	}
}

// fillIndex puts classes on the supply groups of a candidate index: on supply groups of its own where they are not all that have their supply.
func (c *Indexes) fillIndex(k *Index, classes []uint32) {
	all := c.groupsOf(k.bucket)
	c.counts = slices.Grow(c.counts[:0], len(all.groups))[:len(all.groups)]
	clear(c.counts)
	c.order = c.order[:0]
	for _, id := range classes {
		n := c.SupplyNumber[id]
		if c.counts[n] == 0 {
			c.order = append(c.order, n)
		}
		c.counts[n]++
	}
	c.from = slices.Grow(c.from[:0], len(all.groups))[:len(all.groups)]
	c.grouped = slices.Grow(c.grouped[:0], len(classes))[:len(classes)]
	at := int32(0)
	for _, n := range c.order {
		c.from[n] = at
		at += c.counts[n]
	}
	for _, id := range classes {
		n := c.SupplyNumber[id]
		c.grouped[c.from[n]] = id
		c.from[n]++
	}
	k.groups = slices.Grow(k.groups[:0], len(c.order))
	for _, n := range c.order {
		whole := all.groups[n]
		if int(c.counts[n]) < len(whole.slots) {
			whole = c.partOf(whole, c.grouped[c.from[n]-c.counts[n]:c.from[n]], all)
		}
		k.groups = append(k.groups, whole)
	}
	k.index()
}

// partOf is a supply group of some of the classes of another. Indexes with the same ones share it.
func (c *Indexes) partOf(whole *supplyGroup, classes []uint32, all *supplyGroups) *supplyGroup {
	part := c.text[:0]
	for _, id := range classes {
		part = binary.LittleEndian.AppendUint32(part, id)
	}
	c.text = part
	s := all.parts[string(part)]
	if s != nil {
		return s
	}
	s = &supplyGroup{slots: make([]Slot, 0, len(classes))}
	if all.parts == nil {
		all.parts = map[string]*supplyGroup{}
	}
	all.parts[string(part)] = s
	for _, id := range classes {
		s.slots = append(s.slots, Slot{Class: id})
	}
	slices.SortFunc(s.slots, func(a, b Slot) int { return cmp.Compare(all.rank[a.Class], all.rank[b.Class]) })
	c.cutTiers(s, all.bucket)
	return s
}

// groupsOf returns all classes on supply groups, for one bucket.
func (c *Indexes) groupsOf(b demand.Bucket) *supplyGroups {
	all := &c.buckets[b]
	if all.built {
		return all
	}
	type entry struct {
		supply, class uint32
		cost          int64
	}
	list := make([]entry, 0, c.Inventory.Classes())
	most := uint32(0)
	for id := range c.Inventory.Classes() {
		if cl := c.Inventory.Class(uint32(id)); cl.Serial != 0 {
			list = append(list, entry{c.SupplyNumber[id], uint32(id), match.EffectiveCost(cl, b)})
			most = max(most, c.SupplyNumber[id])
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.supply, b.supply), cmp.Compare(a.cost, b.cost), cmp.Compare(a.class, b.class))
	})
	*all = supplyGroups{built: true, bucket: b, groups: make([]*supplyGroup, most+1), rank: make([]uint32, c.Inventory.Classes())}
	for i, e := range list {
		all.rank[e.class] = uint32(i)
		s := all.groups[e.supply]
		if s == nil {
			s = &supplyGroup{}
			all.groups[e.supply] = s
		}
		s.slots = append(s.slots, Slot{Class: e.class})
	}
	for _, s := range all.groups {
		if s != nil {
			c.cutTiers(s, b)
		}
	}
	return all
}

// Sweep forgets the matchers that are not used, by id, and the candidate indexes that are for them.
func (c *Indexes) Sweep(used []bool) {
	c.Catalog.Sweep(used)
	dead := func(k *Index) bool { return k.m != nil && c.ByID[k.m.ID] != k.m }
	maps.DeleteFunc(c.zones, func(_ zoneKey, k *Index) bool { return dead(k) })
	maps.DeleteFunc(c.indexes, func(_ candidateKey, k *Index) bool { return dead(k) })
}

// Size is how many candidate indexes are kept.
func (c *Indexes) Size() int { return len(c.indexes) }
