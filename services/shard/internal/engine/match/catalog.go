package match

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Catalog is what is known about the classes of machines: which match which requirements, and what they supply in the
// dimensions of a cluster. It is kept from plan to plan.
type Catalog struct {
	Inventory    *inventory.Table
	learnt       uint64 // version of the types that clusters have learnt of
	Version      uint64
	SupplyNumber []uint32 // by class: a number for its whole supply; equal supplies have equal numbers
	Serial       []uint32
	learntOf     []bool // by class: whether its number is for machines of its type alone
	supplies     map[string]uint32
	Dropped      uint64   // how often supplies got other numbers
	changed      []uint32 // classes that are other ones since the plan before
	Examples     []uint32 // by supply: 1 plus a class that has it, or 0

	forms    []formEntry // by Form.ID
	Matchers map[string]*Matcher
	frames   map[string]*Projection
	framing  sync.Mutex // of frames and everyF, while clusters are credited
	ByID     []*Matcher // by id; nil where one was swept away
	freeM    []uint32   // these
	inUse    int        // matchers that the last sweep left
	swept    int        // ids that the sweep under way has looked at
	everyF   []*Projection
	sets     map[string]uint32 // numbers of sets of classes,
	lastSet  uint32
	scratch  []byte
}

type formEntry struct {
	form *demand.Form
	m    *Matcher
}

// New returns an empty catalog.
func New() *Catalog {
	return &Catalog{supplies: map[string]uint32{}, Matchers: map[string]*Matcher{}, frames: map[string]*Projection{}}
}

// CatalogMax bounds how many matchers are kept beyond twice those that the demand can use. Then all are rebuilt. Sweep keeps them below: while a large roll-up
// takes another's place, there are those of both and of the one before, which the next plan sweeps away. Projections are rebuilt at twice the clusters and SweepMin.
const CatalogMax = 4096

// relearn renews the classes of types that clusters have learnt of now and had not, or no longer. A type that no machine has changes nothing: what one
// cluster invents must not make the plans of all full ones.
func (c *Catalog) relearn(d *demand.Table) {
	if c.learnt == d.LearntVersion() {
		return
	}
	c.learnt = d.LearntVersion()
	for id, serial := range c.Serial {
		if cl := c.Inventory.Class(uint32(id)); serial != 0 && cl.Serial == serial && c.learntOf[id] != d.Learnt(c.Inventory.Shape(cl.Shape).Type) {
			c.Inventory.RenewClass(uint32(id))
		}
	}
}

// Begin brings the catalog up to date with the tables, whose machines are classed by what the demand looks at.
//
// A key keeps its number while a profile reads it. A number that is given to another key was that of one that no machine has, and so is that of the
// other: what is remembered of machines by the number of a key stays right.
//
// It reports whether everything was rebuilt: ids and pointers of before are then invalid.
func (c *Catalog) Begin(w *engine.World) (fresh bool) {
	d, inv := w.Demand, w.Inventory
	if fresh = c.Inventory != inv || len(c.Matchers) > CatalogMax+2*d.FormLen() || len(c.frames) > SweepMin+2*len(d.Clusters()); fresh {
		*c = *New()
		c.Inventory, c.learnt = inv, d.LearntVersion()
	}
	c.relearn(d)
	inv.ClassFor(d)
	if c.Version == inv.ClassVersion() && c.Serial != nil {
		return fresh
	}
	before := c.Version
	c.Version = inv.ClassVersion()
	if most := 2*inv.Classes() + 64; len(c.supplies) > most {
		clear(c.supplies)
		clear(c.Serial)
		c.Dropped++
	}
	c.changed = c.changed[:0]
	for id := range inv.Classes() {
		cl := inv.Class(uint32(id))
		if id == len(c.Serial) {
			c.Serial, c.SupplyNumber, c.learntOf = append(c.Serial, 0), append(c.SupplyNumber, 0), append(c.learntOf, false)
		}
		if c.Serial[id] == cl.Serial {
			continue
		}
		c.changed = append(c.changed, uint32(id))
		c.Serial[id] = cl.Serial
		if cl.Serial == 0 {
			continue
		}
		c.scratch = cl.Supply.AppendKey(c.scratch[:0])
		typ := inv.Shape(cl.Shape).Type
		if c.learntOf[id] = d.Learnt(typ); c.learntOf[id] { // its supply may be another one in some cluster
			c.scratch = append(c.scratch, byte(typ), byte(typ>>8), byte(typ>>16), byte(typ>>24))
		}
		n, ok := c.supplies[string(c.scratch)]
		if !ok {
			n = uint32(len(c.supplies) + 1)
			c.supplies[string(c.scratch)] = n
		}
		c.SupplyNumber[id] = n
	}
	c.Examples = slices.Grow(c.Examples[:0], len(c.supplies)+1)[:len(c.supplies)+1]
	clear(c.Examples)
	for id, n := range c.SupplyNumber {
		if c.Serial[id] != 0 {
			c.Examples[n] = uint32(id) + 1
		}
	}
	for _, m := range c.ByID {
		if m != nil {
			m.follow(c, before)
		}
	}
	for _, f := range c.everyF {
		f.sync(inv)
	}
	return fresh
}

// MatcherOf returns the matcher of a Form, up to date.
func (c *Catalog) MatcherOf(f *demand.Form) *Matcher {
	for int(f.ID) >= len(c.forms) {
		c.forms = append(c.forms, formEntry{})
	}
	e := &c.forms[f.ID]
	if e.form != f || c.ByID[e.m.ID] != e.m { // or it was swept away
		m := c.Matchers[f.Match]
		if m == nil {
			m = c.newMatcher(f)
		}
		*e = formEntry{f, m}
	}
	e.m.Sync(c)
	return e.m
}

// Known is MatcherOf for a Form that it has been asked for in this plan. It is for concurrent use.
func (c *Catalog) Known(f *demand.Form) *Matcher { return c.forms[f.ID].m }

// LastProjection caches the last projection that was looked up: clusters with equal dimensions and overhead follow each other.
type LastProjection struct {
	Projection *Projection
	key        []byte
}

// ProjectionOf returns the projection of a cluster, up to date. It is for concurrent use; x remembers the last one.
func (c *Catalog) ProjectionOf(d *demand.Cluster, dims []resource.Dim, x *LastProjection) *Projection {
	if f := x.Projection; f != nil && slices.Equal(f.Dims, dims) && f.cluster.Overhead.Equal(&d.Overhead) && f.cluster.SameRooms(d) &&
		f.sameLimits(c.Inventory.Space().Dimensions) {
		return f
	}
	b := d.AppendSupplyKey(x.key[:0])
	for _, n := range dims {
		b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	for _, n := range dims { // the number of a limit may be given to a resource that is none
		b = binary.LittleEndian.AppendUint64(b, uint64(resource.Unstated(c.Inventory.Space().Dimensions.Text(n))))
	}
	x.key = b
	c.framing.Lock()
	defer c.framing.Unlock()
	f := c.frames[string(b)]
	if f == nil {
		f = &Projection{Number: len(c.everyF), Dims: slices.Clone(dims), cluster: supplyOf(d)}
		for _, n := range dims {
			f.unstated = append(f.unstated, resource.Unstated(c.Inventory.Space().Dimensions.Text(n)))
		}
		c.frames[string(b)] = f
		c.everyF = append(c.everyF, f)
	}
	f.sync(c.Inventory)
	x.Projection = f
	return f
}

// supplyOf keeps of a cluster what its supplies depend on.
func supplyOf(d *demand.Cluster) *demand.Cluster {
	c := &demand.Cluster{Overhead: d.Overhead}
	c.CopyRooms(d)
	return c
}

// Supplies is the length of an array indexed by supply.
func (c *Catalog) Supplies() int { return len(c.Examples) }

// Example returns a class that has a supply, if there is one.
func (c *Catalog) Example(supply uint32) (class uint32, ok bool) {
	return c.Examples[supply] - 1, c.Examples[supply] != 0
}

// setsMax bounds how many sets of classes are remembered with their numbers.
const setsMax = 4096

// SetOf numbers what a matcher matches: matchers with one number match the same classes. Rows may each exclude something else that no
// machine has, and so have as many matchers with one answer.
func (c *Catalog) SetOf(m *Matcher) uint32 {
	if m.number != 0 && m.as >= m.Changed {
		return m.number
	}
	if c.sets == nil || len(c.sets) >= setsMax {
		c.sets = map[string]uint32{}
	}
	c.scratch = c.scratch[:0]
	for _, word := range m.set {
		c.scratch = binary.LittleEndian.AppendUint64(c.scratch, word)
	}
	c.scratch = bytes.TrimRight(c.scratch, "\x00") // it grows with the classes
	n := c.sets[string(c.scratch)]
	if n == 0 {
		c.lastSet++
		n = c.lastSet
		c.sets[string(c.scratch)] = n
	}
	m.number, m.as = n, m.Version
	return n
}

// SweepMin is how many matchers are not worth a sweep.
const SweepMin = 64

// newMatcher makes the matcher of the requirements of a Form.
func (c *Catalog) newMatcher(f *demand.Form) *Matcher {
	m := &Matcher{Form: f, ID: uint32(len(c.ByID))}
	if n := len(c.freeM); n > 0 {
		m.ID, c.freeM = c.freeM[n-1], c.freeM[:n-1]
		c.ByID[m.ID] = m
	} else {
		c.ByID = append(c.ByID, m)
	}
	c.Matchers[f.Match] = m
	return m
}

// SweepDue reports whether the matchers in use are less than half of all, or a sweep was begun then.
func (c *Catalog) SweepDue() bool { return c.swept > 0 || len(c.Matchers) >= SweepMin+2*c.inUse }

// Sweep forgets the matchers that are not used, by id, of the next so many.
func (c *Catalog) Sweep(used []bool, most int) {
	for end := min(len(c.ByID), c.swept+most); c.swept < end; c.swept++ {
		if m := c.ByID[c.swept]; m != nil && !used[c.swept] {
			delete(c.Matchers, m.Form.Match)
			m.set, m.Classes = nil, nil // forms that come again find that it is gone
			c.ByID[c.swept] = nil
			c.freeM = append(c.freeM, uint32(c.swept))
		}
	}
	if c.swept == len(c.ByID) {
		c.swept, c.inUse = 0, len(c.Matchers)
	}
}

// EffectiveCost is the price of a class plus the risk of an interruption times half its penalty (ENG-7.4). Parts per million
// times half a dollar is half a millionth of a dollar.
func EffectiveCost(c *inventory.Class, b demand.Bucket) int64 {
	return resource.AddSat(c.Price, (int64(c.Probability)*int64(b.Penalty())+1)/2)
}
