package engine

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// market is what Needs with one matcher, one frame and one interruption bucket can choose from, sorted for the cover
// rule. Classes with equal supply form a stack, and inside a stack classes with equal effective cost a group. What is
// not the cheapest of its stack is never better than what is (ENG-13), so a choice looks at one group per stack. The
// order does not depend on what is free and is kept from plan to plan.
//
// Groups are cut by full supply, not by class: how labels split classes must not change a choice (ENG-6.5).
type market struct {
	m       *matcher
	f       *frame
	bucket  demand.Bucket
	version uint64
	stacks  []stack
	groups  []group // by stack, then cost
	slots   []slot  // of each group
	gen     uint32  // of the stock that head is about
	head    [2][]int32
}

type stack struct {
	from, to int32  // groups
	class    uint32 // one that has its supply
}

type group struct {
	cost     int64
	stack    int32
	from, to int32 // slots
}

// slot is one class of a group. n is used by markets of one domain only: how many are free there.
type slot struct {
	class uint32
	n     int32
}

// effectiveCost is ENG-7.4: half a dollar times parts per million is half a millionth of a dollar.
func effectiveCost(c *inventory.Class, b demand.Bucket) int64 {
	return resource.AddSat(c.Price, (int64(c.Probability)*int64(b.Penalty())+1)/2)
}

// sync rebuilds the market if the classes have changed.
func (k *market) sync(cat *catalog) {
	if k.version == k.m.version && k.slots != nil {
		return
	}
	k.version = k.m.version
	k.slots = k.slots[:0]
	for _, c := range k.m.classes {
		k.slots = append(k.slots, slot{class: c})
	}
	k.arrange(cat)
	k.gen = 0
}

// arrange sorts the slots and cuts them into groups and stacks.
func (k *market) arrange(cat *catalog) {
	inv := cat.inv
	slices.SortFunc(k.slots, func(a, b slot) int {
		if d := cmp.Compare(cat.supply[a.class], cat.supply[b.class]); d != 0 {
			return d
		}
		return cmp.Or(cmp.Compare(effectiveCost(inv.Class(a.class), k.bucket), effectiveCost(inv.Class(b.class), k.bucket)),
			cmp.Compare(a.class, b.class))
	})
	k.groups, k.stacks = k.groups[:0], k.stacks[:0]
	for i, s := range k.slots {
		cost := effectiveCost(inv.Class(s.class), k.bucket)
		sameStack := i > 0 && cat.supply[k.slots[i-1].class] == cat.supply[s.class]
		if sameStack && k.groups[len(k.groups)-1].cost == cost {
			k.groups[len(k.groups)-1].to++
			continue
		}
		if !sameStack {
			k.stacks = append(k.stacks, stack{from: int32(len(k.groups)), to: int32(len(k.groups)), class: s.class})
		}
		k.groups = append(k.groups, group{cost: cost, stack: int32(len(k.stacks) - 1), from: int32(i), to: int32(i + 1)})
		k.stacks[len(k.stacks)-1].to++
	}
}

// heads returns, for each stack, from which group on something may be free in a pool.
func (k *market) heads(s *stock, pool inventory.Pool) []int32 {
	if k.gen != s.gen || len(k.head[pool]) != len(k.stacks) {
		k.gen = s.gen
		for p := range k.head {
			k.head[p] = k.head[p][:0]
			for i := range k.stacks {
				k.head[p] = append(k.head[p], k.stacks[i].from)
			}
		}
	}
	return k.head[pool]
}

// catalog is everything a plan knows about classes, kept from plan to plan.
type catalog struct {
	inv      *inventory.Table
	keys     *uint64 // version of the keys that the inventory knows
	version  uint64
	supply   []uint32 // by class: a number for its whole supply; equal supplies have equal numbers
	serial   []uint32
	supplies map[string]uint32

	forms    []formEntry // by Form.ID
	matchers map[string]*matcher
	frames   map[string]*frame
	everyM   []*matcher
	everyF   []*frame
	markets  map[marketKey]*market
	scratch  []byte
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
	return &catalog{supplies: map[string]uint32{}, matchers: map[string]*matcher{}, frames: map[string]*frame{}, markets: map[marketKey]*market{}}
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
	c.version = inv.ClassVersion()
	if len(c.supplies) > 2*inv.Classes()+64 {
		clear(c.supplies)
		clear(c.serial)
		clear(c.markets)
	}
	for id := range inv.Classes() {
		cl := inv.Class(uint32(id))
		if id == len(c.serial) {
			c.serial, c.supply = append(c.serial, 0), append(c.supply, 0)
		}
		if cl.Serial == 0 || c.serial[id] == cl.Serial {
			continue
		}
		c.serial[id] = cl.Serial
		c.scratch = cl.Supply.AppendKey(c.scratch[:0])
		n, ok := c.supplies[string(c.scratch)]
		if !ok {
			n = uint32(len(c.supplies) + 1)
			c.supplies[string(c.scratch)] = n
		}
		c.supply[id] = n
	}
	for _, m := range c.everyM {
		m.sync(inv)
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
			m = &matcher{form: f}
			c.matchers[f.Match] = m
			c.everyM = append(c.everyM, m)
		}
		*e = formEntry{f, m}
	}
	e.m.sync(c.inv)
	return e.m
}

// frameOf returns the frame of a cluster, up to date.
func (c *catalog) frameOf(d *demand.Cluster, dims []resource.Dim) *frame {
	b := d.Overhead.AppendKey(c.scratch[:0])
	for _, x := range dims {
		b = append(b, byte(x), byte(x>>8), byte(x>>16), byte(x>>24))
	}
	c.scratch = b
	f := c.frames[string(b)]
	if f == nil {
		f = &frame{id: string(b), dims: slices.Clone(dims), overhead: d.Overhead}
		c.frames[string(b)] = f
		c.everyF = append(c.everyF, f)
	}
	f.sync(c.inv)
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
	k.sync(c)
	return k
}
