package cover

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Indexes is all candidate indexes, kept from plan to plan, and what they are made from.
type Indexes struct {
	*match.Catalog
	seen    uint64                      // version of the classes, plus 1, that ranks are about
	dropped uint64                      // of the catalog
	ranks   [demand.Pinned + 1][]uint32 // by bucket and class: its place by supply and effective cost
	indexes map[candidateKey]*Index
	slots   []Slot
	byRank  []Slot   // room for ranked, and
	places  []uint64 // bit by place: there is a slot
	Fills   int      // how often an index was filled
}

// NewIndexes returns an empty set with a catalog of its own.
func NewIndexes() *Indexes {
	return &Indexes{Catalog: match.New(), indexes: map[candidateKey]*Index{}}
}

// Begin brings catalog and candidate indexes up to date with the tables. It reports whether everything was made again: what others remember of
// the old things is then of no use.
func (c *Indexes) Begin(w *engine.World) (fresh bool) {
	if fresh = c.Catalog.Begin(w); fresh {
		*c = Indexes{Catalog: c.Catalog, indexes: map[candidateKey]*Index{}}
	}
	if c.dropped != c.Catalog.Dropped || len(c.indexes) > 4*match.CatalogMax+8*w.Demand.FormLen() {
		c.dropped = c.Catalog.Dropped
		clear(c.indexes)
	}
	if c.seen != c.Version+1 {
		c.seen = c.Version + 1
		clear(c.ranks[:])
	}
	return fresh
}

type candidateKey struct {
	m      *match.Matcher // nil: any that matches set
	set    uint32
	f      *match.Projection
	bucket demand.Bucket
}

// Of returns the candidate index of a Need, up to date.
func (c *Indexes) Of(m *match.Matcher, f *match.Projection, b demand.Bucket) *Index {
	key := candidateKey{m: m, f: f, bucket: b}
	if m.Indifferent() { // so what it matches tells all
		key.m, key.set = nil, c.SetOf(m)
	}
	k := c.indexes[key]
	if k == nil {
		k = &Index{f: f, bucket: b}
		c.indexes[key] = k
	}
	if k.version < m.Changed || k.base == nil {
		k.m, k.version = m, m.Version
		c.slots = c.slots[:0]
		for _, id := range m.Classes {
			c.slots = append(c.slots, Slot{Class: id})
		}
		c.fill(k, c.slots)
	}
	return k
}

// fill puts classes on the supply groups of a candidate index.
func (c *Indexes) fill(k *Index, slots []Slot) {
	c.Fills++
	k.groups, k.slots, k.tiers = k.groups[:0], slices.Grow(k.slots[:0], len(slots)), slices.Grow(k.tiers[:0], len(slots))
	cost := func(class uint32) int64 { return k.m.Cost(class, c.Inventory.Class(class), k.bucket) }
	if k.m.Indifferent() {
		c.ranked(k, slots)
	} else {
		k.slots = append(k.slots, slots...)
		slices.SortFunc(k.slots, func(a, b Slot) int {
			return cmp.Or(cmp.Compare(c.SupplyNumber[a.Class], c.SupplyNumber[b.Class]), cmp.Compare(cost(a.Class), cost(b.Class)), cmp.Compare(a.Class, b.Class))
		})
	}
	for rest := k.slots; len(rest) > 0; {
		n := 1
		for n < len(rest) && c.SupplyNumber[rest[n].Class] == c.SupplyNumber[rest[0].Class] {
			n++
		}
		k.addGroup(rest[:n], cost)
		rest = rest[n:]
	}
	k.index()
}

// ranked adds the slots by supply and by effective cost, where that is the same for all Needs with the bucket.
func (c *Indexes) ranked(k *Index, slots []Slot) {
	rank := c.rankOf(k.bucket)
	words := (len(rank) + 63) / 64
	c.places, c.byRank = slices.Grow(c.places[:0], words)[:words], slices.Grow(c.byRank[:0], len(rank))[:len(rank)]
	clear(c.places)
	for _, s := range slots {
		at := rank[s.Class]
		c.places[at/64] |= 1 << (at % 64)
		c.byRank[at] = s
	}
	for w, word := range c.places {
		for ; word != 0; word &= word - 1 {
			k.slots = append(k.slots, c.byRank[w*64+bits.TrailingZeros64(word)])
		}
	}
}

// rankOf sorts the classes by supply and by effective cost in one bucket.
func (c *Indexes) rankOf(b demand.Bucket) []uint32 {
	if c.ranks[b] != nil {
		return c.ranks[b]
	}
	list := make([]uint32, 0, c.Inventory.Classes())
	for id := range c.Inventory.Classes() {
		if c.Inventory.Class(uint32(id)).Serial != 0 {
			list = append(list, uint32(id))
		}
	}
	cost := func(class uint32) int64 { return match.EffectiveCost(c.Inventory.Class(class), b) }
	slices.SortFunc(list, func(x, y uint32) int {
		return cmp.Or(cmp.Compare(c.SupplyNumber[x], c.SupplyNumber[y]), cmp.Compare(cost(x), cost(y)), cmp.Compare(x, y))
	})
	c.ranks[b] = make([]uint32, c.Inventory.Classes())
	for i, class := range list {
		c.ranks[b][class] = uint32(i)
	}
	return c.ranks[b]
}

// Sweep forgets the matchers that are not used, by id, of the next so many, and behind the last one the candidate indexes that are for them.
func (c *Indexes) Sweep(used []bool, most int) {
	if c.Catalog.Sweep(used, most); c.SweepDue() {
		return
	}
	maps.DeleteFunc(c.indexes, func(_ candidateKey, k *Index) bool { return c.ByID[k.m.ID] != k.m })
}

// Size is how many candidate indexes are kept.
func (c *Indexes) Size() int { return len(c.indexes) }

// zones is the parts of a candidate index by domain of a key that every class has one value of.
type zones struct {
	list    []*Index
	version uint64 // of the whole
}

// zonesMost is of how many topologies an index has its parts. Few keys are such, but a topology that comes again is another one.
const zonesMost = 4

// ZonesOf returns these parts, up to date.
func (c *Indexes) ZonesOf(whole *Index, top *inventory.Topology) []*Index {
	z := whole.zones[top]
	if z == nil {
		if len(whole.zones)%zonesMost == 0 {
			whole.zones = map[*inventory.Topology]*zones{}
		}
		z = &zones{}
		whole.zones[top] = z
	}
	if z.version != whole.version || len(z.list) != len(top.Domains) {
		parts := make([][]Slot, len(top.Domains))
		for _, id := range whole.m.Classes {
			if v, has := c.Inventory.ClassValue(c.Inventory.Class(id), top.Key); has {
				if d, known := top.Domain(v); known {
					parts[d] = append(parts[d], Slot{Class: id})
				}
			}
		}
		for d, slots := range parts {
			if d == len(z.list) {
				z.list = append(z.list, &Index{m: whole.m, f: whole.f, bucket: whole.bucket})
			}
			c.fill(z.list[d], slots)
		}
		z.version = whole.version
	}
	return z.list
}
