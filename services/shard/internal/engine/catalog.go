package engine

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// catalog is everything a plan knows about classes, kept from plan to plan.
type catalog struct {
	inv      *inventory.Table
	keys     *uint64 // version of the keys that the inventory knows
	version  uint64
	supply   []uint32 // by class: a number for its whole supply; equal supplies have equal numbers
	pile     []int32  // by class: a number for supply, price and probability; a group is mostly one pile of several classes
	piled    []int32  // by pile: how many classes
	piles    map[pileKey]int32
	serial   []uint32
	supplies map[string]uint32
	changed  []uint32 // classes that are other ones since the plan before
	byValue  map[symbol.ID]map[symbol.ID][]uint32
	buckets  [demand.Pinned + 1]bucketShelves
	counts   []int32 // scratch of stockUp, by supply
	from     []int32
	order    []uint32
	grouped  []uint32
	live     []uint32 // classes
	shelves  []uint32 // the supplies that they have, in the order of the first class
	totals   []int32  // by supply: classes
	examples []uint32 // by supply: 1 plus a class that has it, or 0

	forms    []formEntry // by Form.ID
	matchers map[string]*matcher
	frames   map[string]*frame
	framing  sync.Mutex // of frames and everyF, while clusters are credited
	everyM   []*matcher // by id; nil where one was swept away
	freeM    []uint32   // these
	inUse    int        // matchers that the last sweep left
	everyF   []*frame
	markets  map[marketKey]*market
	zones    map[zoneKey]*market
	part     []uint32
	scratch  []byte

	questions questions
}

// bucketShelves is all classes on shelves, for one interruption bucket.
type bucketShelves struct {
	bucket  demand.Bucket
	built   bool
	shelves []*shelf          // by supply
	rank    []uint32          // by class: its place by supply and cost
	parts   map[string]*shelf // by their classes: parts of shelves
}

type pileKey struct {
	supply      uint32
	probability int32
	price       int64
}

// pileUp numbers what looks alike to every Need that matches it. Numbers stay: markets remember them.
func (c *catalog) pileUp() {
	c.pile = slices.Grow(c.pile[:0], len(c.serial))
	clear(c.piled)
	for id := range c.serial {
		cl := c.inv.Class(uint32(id))
		key := pileKey{c.supply[id], cl.Probability, cl.Price}
		if c.serial[id] == 0 {
			key = pileKey{}
		}
		n, ok := c.piles[key]
		if !ok {
			n = int32(len(c.piled))
			c.piles[key] = n
			c.piled = append(c.piled, 0)
		}
		c.pile = append(c.pile, n)
		c.piled[n]++
	}
}

// stackUp cuts the slots of a shelf into groups and notes which of them are piles.
func (c *catalog) stackUp(s *shelf, b demand.Bucket) {
	s.fill(func(class uint32) int64 { return effectiveCost(c.inv.Class(class), b) })
	for i := range s.groups {
		g := &s.groups[i]
		g.pile = c.pileOf(s.slots[g.from:g.to])
	}
}

// pileOf returns the pile that the classes of a group are, or -1.
func (c *catalog) pileOf(slots []slot) int32 {
	n := c.pile[slots[0].class]
	if int(c.piled[n]) != len(slots) {
		return -1
	}
	for _, s := range slots[1:] {
		if c.pile[s.class] != n {
			return -1
		}
	}
	return n
}

type formEntry struct {
	form *demand.Form
	m    *matcher
}

type marketKey struct {
	m      *matcher
	f      *frame
	bucket demand.Bucket
}

func newCatalog() *catalog {
	return &catalog{supplies: map[string]uint32{}, piles: map[pileKey]int32{}, matchers: map[string]*matcher{}, frames: map[string]*frame{}, markets: map[marketKey]*market{},
		zones: map[zoneKey]*market{}}
}

// catalogMax bounds how many sorted things are kept beyond what the demand can need; then all are made anew.
const catalogMax = 4096

// begin brings the catalog up to date with the tables. It tells the inventory which label keys profiles look at, which
// may split its classes.
//
// It reports whether everything was made anew: what others remember of the old things is then of no use.
func (c *catalog) begin(w *World) (anew bool) {
	d, inv := w.Demand, w.Inventory
	if anew = c.inv != inv || len(c.matchers) > catalogMax+d.FormLen() || len(c.markets) > 4*catalogMax+8*d.FormLen() || len(c.frames) > catalogMax; anew {
		*c = *newCatalog()
		c.inv = inv
	}
	if c.keys == nil || *c.keys != d.KeysVersion() {
		v := d.KeysVersion()
		c.keys = &v
		values, topology := d.ValueKeys(), d.TopologyKeys()
		for _, key := range topology {
			// A class then has one value of these keys, so what is left in a domain need not be counted.
			if key == inventory.ZoneKey || key == inventory.TypeKey {
				values = append(values, key)
			}
		}
		inv.SetMatchKeys(inventory.MatchKeys{Values: values, Presence: d.PresenceKeys()})
		inv.SetTopologyKeys(topology)
	}
	if c.version == inv.ClassVersion() && c.serial != nil {
		return anew
	}
	before := c.version
	c.version = inv.ClassVersion()
	if most := 2*inv.Classes() + 64; len(c.supplies) > most || len(c.piles) > most {
		clear(c.supplies)
		clear(c.piles)
		c.piled = c.piled[:0]
		clear(c.serial)
		clear(c.markets)
		clear(c.zones)
		for _, f := range c.everyF {
			clear(f.stores[:])
		}
	}
	c.changed, c.byValue, c.buckets = c.changed[:0], map[symbol.ID]map[symbol.ID][]uint32{}, [demand.Pinned + 1]bucketShelves{}
	for id := range inv.Classes() {
		cl := inv.Class(uint32(id))
		if id == len(c.serial) {
			c.serial, c.supply = append(c.serial, 0), append(c.supply, 0)
		}
		if c.serial[id] == cl.Serial {
			continue
		}
		c.changed = append(c.changed, uint32(id))
		c.serial[id] = cl.Serial
		if cl.Serial == 0 {
			continue
		}
		c.scratch = cl.Supply.AppendKey(c.scratch[:0])
		n, ok := c.supplies[string(c.scratch)]
		if !ok {
			n = uint32(len(c.supplies) + 1)
			c.supplies[string(c.scratch)] = n
		}
		c.supply[id] = n
	}
	c.examples = slices.Grow(c.examples[:0], len(c.supplies)+1)[:len(c.supplies)+1]
	clear(c.examples)
	for id, n := range c.supply {
		if c.serial[id] != 0 {
			c.examples[n] = uint32(id) + 1
		}
	}
	c.pileUp()
	c.listShelves()
	for _, m := range c.everyM {
		if m != nil {
			m.follow(c, before)
		}
	}
	for _, f := range c.everyF {
		f.sync(inv)
	}
	return anew
}

// matcherOf returns the matcher of a Form, up to date.
func (c *catalog) matcherOf(f *demand.Form) *matcher {
	for int(f.ID) >= len(c.forms) {
		c.forms = append(c.forms, formEntry{})
	}
	e := &c.forms[f.ID]
	if e.form != f {
		m := c.matchers[f.Match]
		if m == nil {
			m = c.newMatcher(f)
		}
		*e = formEntry{f, m}
	}
	e.m.sync(c)
	return e.m
}

// matcherKnown is matcherOf for a Form that it has been asked for in this plan. It is for concurrent use.
func (c *catalog) matcherKnown(f *demand.Form) *matcher { return c.forms[f.ID].m }

// frameOf returns the frame of a cluster, up to date. It is for concurrent use; x remembers the last one.
func (c *catalog) frameOf(d *demand.Cluster, dims []resource.Dim, x *scratch) *frame {
	if f := x.frame; f != nil && slices.Equal(f.dims, dims) && f.overhead.Equal(&d.Overhead) {
		return f
	}
	b := d.Overhead.AppendKey(x.key[:0])
	for _, n := range dims {
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	x.key = b
	c.framing.Lock()
	defer c.framing.Unlock()
	f := c.frames[string(b)]
	if f == nil {
		f = &frame{id: string(b), dims: slices.Clone(dims), overhead: d.Overhead}
		c.frames[string(b)] = f
		c.everyF = append(c.everyF, f)
	}
	f.sync(c.inv)
	x.frame = f
	return f
}

// marketOf returns the market of a Need, up to date.
func (c *catalog) marketOf(m *matcher, f *frame, b demand.Bucket) *market {
	key := marketKey{m, f, b}
	k := c.markets[key]
	if k == nil {
		k = &market{m: m, f: f, bucket: b}
		c.markets[key] = k
	}
	if k.version != m.version || k.base == nil {
		k.version = m.version
		c.stockUp(k, m.classes)
	}
	return k
}

// storeOf returns a market and which of its shelves are for the Need, nil for all. Where a matcher takes all machines
// of a supply or none, what it matches is a part of the market of all machines, so that Needs which differ in the types
// that they name share shelves and orders.
func (c *catalog) storeOf(m *matcher, f *frame, b demand.Bucket) (*market, []uint64) {
	if m.placed != c.version+1 {
		m.placed = c.version + 1
		c.place(m)
	}
	if !m.whole {
		return c.marketOf(m, f, b), nil
	}
	k := f.stores[b]
	if k == nil {
		k = &market{f: f, bucket: b}
		f.stores[b] = k
	}
	if k.version != c.version || k.base == nil {
		k.version = c.version
		c.stockUp(k, c.live)
	}
	return k, m.mask
}

// place finds out which supplies a matcher takes as a whole.
func (c *catalog) place(m *matcher) {
	m.whole, m.mask = false, nil
	if len(m.classes) == len(c.live) {
		m.whole = true
		return
	}
	if len(c.shelves) > wholeMax {
		return
	}
	c.counts = slices.Grow(c.counts[:0], len(c.examples))[:len(c.examples)]
	clear(c.counts)
	for _, id := range m.classes {
		c.counts[c.supply[id]]++
	}
	mask := make([]uint64, (len(c.shelves)+63)/64)
	for s, n := range c.shelves {
		switch c.counts[n] {
		case 0:
		case c.totals[n]:
			mask[s/64] |= 1 << (s % 64)
		default:
			return
		}
	}
	m.whole, m.mask = true, mask
}

// wholeMax bounds how many shelves a Need passes over that are not for it.
const wholeMax = 512

// listShelves lists the live classes and, in the order of stockUp, the supplies that they have.
func (c *catalog) listShelves() {
	c.live, c.shelves = c.live[:0], c.shelves[:0]
	c.totals = slices.Grow(c.totals[:0], len(c.examples))[:len(c.examples)]
	clear(c.totals)
	for id, n := range c.supply {
		if c.serial[id] == 0 {
			continue
		}
		c.live = append(c.live, uint32(id))
		if c.totals[n] == 0 {
			c.shelves = append(c.shelves, n)
		}
		c.totals[n]++
	}
}

// stockUp puts classes on the shelves of a market: on shelves of its own where they are not all that have their supply.
func (c *catalog) stockUp(k *market, classes []uint32) {
	all := c.shelvesOf(k.bucket)
	c.counts = slices.Grow(c.counts[:0], len(all.shelves))[:len(all.shelves)]
	clear(c.counts)
	c.order = c.order[:0]
	for _, id := range classes {
		n := c.supply[id]
		if c.counts[n] == 0 {
			c.order = append(c.order, n)
		}
		c.counts[n]++
	}
	c.from = slices.Grow(c.from[:0], len(all.shelves))[:len(all.shelves)]
	c.grouped = slices.Grow(c.grouped[:0], len(classes))[:len(classes)]
	at := int32(0)
	for _, n := range c.order {
		c.from[n] = at
		at += c.counts[n]
	}
	for _, id := range classes {
		n := c.supply[id]
		c.grouped[c.from[n]] = id
		c.from[n]++
	}
	k.shelves = slices.Grow(k.shelves[:0], len(c.order))
	for _, n := range c.order {
		whole := all.shelves[n]
		if int(c.counts[n]) < len(whole.slots) {
			whole = c.partOf(whole, c.grouped[c.from[n]-c.counts[n]:c.from[n]], all)
		}
		k.shelves = append(k.shelves, whole)
	}
	k.index()
}

// partOf is a shelf of some of the classes of another. Markets with the same ones share it.
func (c *catalog) partOf(whole *shelf, classes []uint32, all *bucketShelves) *shelf {
	part := c.scratch[:0]
	for _, id := range classes {
		part = binary.LittleEndian.AppendUint32(part, id)
	}
	c.scratch = part
	s := all.parts[string(part)]
	if s != nil {
		return s
	}
	s = &shelf{slots: make([]slot, 0, len(classes))}
	if all.parts == nil {
		all.parts = map[string]*shelf{}
	}
	all.parts[string(part)] = s
	for _, id := range classes {
		s.slots = append(s.slots, slot{class: id})
	}
	slices.SortFunc(s.slots, func(a, b slot) int { return cmp.Compare(all.rank[a.class], all.rank[b.class]) })
	c.stackUp(s, all.bucket)
	return s
}

// shelvesOf returns all classes on shelves, for one bucket.
func (c *catalog) shelvesOf(b demand.Bucket) *bucketShelves {
	all := &c.buckets[b]
	if all.built {
		return all
	}
	type entry struct {
		supply, class uint32
		cost          int64
	}
	list := make([]entry, 0, c.inv.Classes())
	most := uint32(0)
	for id := range c.inv.Classes() {
		if cl := c.inv.Class(uint32(id)); cl.Serial != 0 {
			list = append(list, entry{c.supply[id], uint32(id), effectiveCost(cl, b)})
			most = max(most, c.supply[id])
		}
	}
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.supply, b.supply), cmp.Compare(a.cost, b.cost), cmp.Compare(a.class, b.class))
	})
	*all = bucketShelves{built: true, bucket: b, shelves: make([]*shelf, most+1), rank: make([]uint32, c.inv.Classes())}
	for i, e := range list {
		all.rank[e.class] = uint32(i)
		s := all.shelves[e.supply]
		if s == nil {
			s = &shelf{}
			all.shelves[e.supply] = s
		}
		s.slots = append(s.slots, slot{class: e.class})
	}
	for _, s := range all.shelves {
		if s != nil {
			c.stackUp(s, b)
		}
	}
	return all
}

// supplyLen is the length of an array indexed by supply.
func (c *catalog) supplyLen() int { return len(c.examples) }

// example returns a class that has a supply, if there is one.
func (c *catalog) example(supply uint32) (class uint32, ok bool) {
	e := c.examples[supply]
	return e - 1, e != 0
}

// classesWith returns the classes with one value of a key that profiles test for its values, ascending.
func (c *catalog) classesWith(key, value symbol.ID) []uint32 {
	values := c.byValue[key]
	if values == nil {
		values = map[symbol.ID][]uint32{}
		for id := range c.inv.Classes() {
			cl := c.inv.Class(uint32(id))
			if cl.Serial == 0 {
				continue
			}
			if v, has := c.inv.ClassValue(cl, key); has {
				values[v] = append(values[v], uint32(id))
			}
		}
		c.byValue[key] = values
	}
	return values[value]
}
