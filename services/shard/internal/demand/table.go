package demand

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Cluster is the demand of one cluster. The engine reads it; only the Table writes it.
type Cluster struct {
	ID       symbol.ID // in Space.Clusters
	Name     string
	Needs    []Need     // in allocation order; replaced as a whole, never changed in place
	Holds    []Hold     // of each Need; replaced as a whole
	Unplaced []bool     // of each Need, or nil: covered, but its scheduler could not place Pods (ENG-11.14); replaced as a whole
	Headroom []int64    // of each Need, or nil: min units to have beyond the aggregate (ENG-11.16), or less, if negative (ENG-11.18); replaced as a whole
	Own      []int64    // of each Need, or nil: units that its own machines shall hold if it has headroom, or 0: not known (ENG-11.16); replaced as a whole
	Full     [][]string // of each Need, or nil: values of its spread's key under which its scheduler puts no more of its Pods now (ENG-13.9a); replaced as a whole
	Overhead resource.Vector
	Facts    Facts
	Version  uint64 // grows with every change of what the engine reads

	byKey keyIndex // positions in Needs
	rooms []room   // what its Nodes report, by number of the type; replaced as a whole
}

// Table is the demand of a shard. It is not safe for concurrent use.
type Table struct {
	space        *symbol.Space
	clusters     map[string]*Cluster
	ordered      []*Cluster // by name
	forms        map[string]*Form
	rules        map[string]*rules // by Form.Match
	rulesVersion uint64
	freeForm     []uint32
	formIDs      uint32
	keys         keyUse
	version      uint64
	set          uint64      // version of the set of clusters
	log          []symbol.ID // the last clusters that changed
	logBase      uint64      // number of the first one in log
	rows         int
	scratch      []byte

	part      int      // rows that are taken in or given back at once; PartRows
	discarded [][]Need // left the demand; what they use is still counted

	learnt        map[symbol.ID]int // clusters that have learnt of an instance type
	learntVersion uint64
}

// changeLogMax is how many changes are remembered for readers that follow them. A reader that is further behind starts over.
const changeLogMax = 1 << 14

// NewTable returns an empty table in the given space.
func NewTable(space *symbol.Space) *Table {
	return &Table{space: space, clusters: map[string]*Cluster{}, forms: map[string]*Form{}, rules: map[string]*rules{}, keys: newKeyUse(), part: PartRows,
		learnt: map[symbol.ID]int{}}
}

// Replacement says what Replace did.
type Replacement struct {
	Changed bool // something the engine reads is different now
	Merged  int  // rows that had the row key of another row and were added to it (SHARD-10.5)
	Added   int  // row keys that were not there before
	Removed int  // row keys that are gone
}

// Replace makes rows the whole demand of a cluster. A row key that was there keeps its arrival and its hold; a new one
// arrives at the given time (ENG-4.8). Rows with equal row keys are added up: the aggregate is the sum, the min unit the
// larger amount of each dimension. The rows may be changed by Seal, and are not kept.
func (t *Table) Replace(cluster string, rows []Row, overhead []resource.Quantity, at int64) Replacement {
	did := t.Commit(cluster, t.StageAll(rows), overhead, at)
	for t.Sweep(math.MaxInt) {
	}
	return did
}

// Order takes the next of two steps that bring a replacement of which every row is interned into allocation order, and reports whether one was left. Rows
// that are new arrive with the first one.
func (t *Table) Order(cluster string, s *Staging, at int64) bool {
	switch {
	case s.ordered:
		return false
	case s.arrived:
		s.ordered = true
		sortNeeds(s.needs)
		return true
	}
	s.arrived = true
	c := t.clusters[cluster]
	for i := range s.needs {
		n := &s.needs[i]
		n.Size = SizeOf(t.space, &n.MinUnit)
		n.Arrival = at
		if c != nil {
			if j, ok := c.byKey.find(n.Key); ok {
				n.Arrival = c.Needs[j].Arrival
				continue
			}
		}
		s.added++
	}
	return true
}

// Commit ends a replacement of which every row is interned. What the demand before it used is given back by Sweep if that is much.
func (t *Table) Commit(cluster string, s *Staging, overhead []resource.Quantity, at int64) Replacement {
	for t.Order(cluster, s, at) {
	}
	c := t.ensure(cluster)
	did := Replacement{Merged: s.merged, Added: s.added, Removed: len(c.Needs) - (len(s.needs) - s.added)}
	needs, byKey, old := s.needs, s.seen, c.byKey
	over := resource.Intern(t.space.Dimensions, overhead)
	did.Changed = !over.Equal(&c.Overhead) || !equalNeeds(needs, c.Needs)

	holds := make([]Hold, len(needs))
	for i := range needs {
		if j, ok := old.find(needs[i].Key); ok {
			holds[i] = c.Holds[j]
		}
		byKey.set(needs[i].Key, i)
	}
	before := c.Needs
	c.Overhead.Release(t.space.Dimensions)
	t.rows += len(needs) - len(c.Needs)
	c.Unplaced, c.Headroom, c.Own, c.Full = carry(c, needs, c.Unplaced), carry(c, needs, c.Headroom), carry(c, needs, c.Own), carry(c, needs, c.Full)
	c.Needs, c.Holds, c.byKey, c.Overhead = needs, holds, byKey, over
	t.discard(before) // after the new rows were counted, so that what stays is never forgotten in between
	if did.Changed {
		t.touch(c)
	}
	return did
}

// carry moves what is known of the Needs of c to the positions of the new ones; nil stays nil.
func carry[T any](c *Cluster, needs []Need, of []T) []T {
	if of == nil {
		return nil
	}
	out := make([]T, len(needs))
	for i := range needs {
		if j, ok := c.byKey.find(needs[i].Key); ok {
			out[i] = of[j]
		}
	}
	return out
}

func equalNeeds(a, b []Need) bool {
	return slices.EqualFunc(a, b, func(x, y Need) bool {
		return x.Key == y.Key && x.Arrival == y.Arrival && x.RowID == y.RowID && x.Aggregate.Equal(&y.Aggregate) &&
			x.MinUnit.Equal(&y.MinUnit)
	})
}

// ensure returns the cluster, new if need be.
func (t *Table) ensure(name string) *Cluster {
	c := t.clusters[name]
	if c == nil {
		c = &Cluster{ID: t.space.Clusters.Intern(name), Name: name}
		t.clusters[name] = c
		i, _ := slices.BinarySearchFunc(t.ordered, name, func(c *Cluster, s string) int { return strings.Compare(c.Name, s) })
		t.ordered = slices.Insert(t.ordered, i, c)
		t.set++
		t.touch(c)
	}
	return c
}

func (t *Table) touch(c *Cluster) {
	t.version++
	c.Version = t.version
	if len(t.log) == changeLogMax {
		t.log = append(t.log[:0], t.log[changeLogMax/2:]...)
		t.logBase += changeLogMax / 2
	}
	t.log = append(t.log, c.ID)
}

// Changes returns the clusters that changed since the number that an earlier call returned, perhaps more than once, and
// the number to give next time. ok is false if not all are remembered. A number may be that of another cluster by now if
// SetVersion has grown.
func (t *Table) Changes(since uint64) (changed []symbol.ID, next uint64, ok bool) {
	next = t.logBase + uint64(len(t.log))
	if since < t.logBase || since > next {
		return nil, next, false
	}
	return t.log[since-t.logBase:], next, true
}

// SetVersion grows when a cluster comes or goes.
func (t *Table) SetVersion() uint64 { return t.set }

// Remove forgets a cluster: its rows, holds and facts (SHARD-2.4 says when that is right).
func (t *Table) Remove(cluster string) bool {
	c := t.clusters[cluster]
	if c == nil {
		return false
	}
	c.Overhead.Release(t.space.Dimensions)
	t.releaseRooms(c.rooms)
	t.discard(c.Needs)
	t.rows -= len(c.Needs)
	delete(t.clusters, cluster)
	t.ordered = slices.DeleteFunc(t.ordered, func(x *Cluster) bool { return x == c })
	t.space.Clusters.Release(c.ID)
	t.version++
	t.set++
	return true
}

// SetHold holds a Need or lets it go, and reports whether that changed anything. A row key that is not in the demand is
// left alone.
func (t *Table) SetHold(cluster string, key RowKey, h Hold) bool {
	c := t.clusters[cluster]
	if c == nil {
		return false
	}
	i, ok := t.position(c, key)
	if !ok || c.Holds[i] == h {
		return false
	}
	c.Holds = slices.Clone(c.Holds)
	c.Holds[i] = h
	t.touch(c)
	return true
}

// SetHolds is SetHold for all Needs of a cluster at once; f is asked for each one.
func (t *Table) SetHolds(cluster string, f func(n *Need) Hold) bool {
	c := t.clusters[cluster]
	if c == nil {
		return false
	}
	holds := make([]Hold, len(c.Needs))
	for i := range c.Needs {
		holds[i] = f(&c.Needs[i])
	}
	if slices.Equal(holds, c.Holds) {
		return false
	}
	c.Holds = holds
	t.touch(c)
	return true
}

// SetUnplaced marks the Needs of a cluster whose Pods its scheduler could not place; f is asked for each one. The mark
// shows in verdicts and changes no decision (ENG-11.14).
func (t *Table) SetUnplaced(cluster string, f func(n *Need) bool) bool {
	return set(t, cluster, f, func(c *Cluster) *[]bool { return &c.Unplaced }, same)
}

// SetHeadroom sets how many min units the Needs of a cluster shall have beyond what they ask for, because the scheduler could not
// place Pods on what covers them (ENG-11.16), or below that, because their Pods run on machines of other Needs (ENG-11.18: negative);
// f is asked for each one.
func (t *Table) SetHeadroom(cluster string, f func(n *Need) int64) bool {
	return set(t, cluster, f, func(c *Cluster) *[]int64 { return &c.Headroom }, same)
}

// SetOwn sets how many min units the own machines of Needs with headroom shall hold: no share stands for those of them that they do not hold
// yet (ENG-11.16). 0 is not known.
func (t *Table) SetOwn(cluster string, f func(n *Need) int64) bool {
	return set(t, cluster, f, func(c *Cluster) *[]int64 { return &c.Own }, same)
}

// SetFull sets under which values of the key of its spread the scheduler puts no more Pods of a Need now (ENG-13.9a); f is asked for each one.
func (t *Table) SetFull(cluster string, f func(n *Need) []string) bool {
	return set(t, cluster, f, func(c *Cluster) *[][]string { return &c.Full }, slices.Equal)
}

// set replaces what is said of each Need of a cluster, and reports whether it differs. Where nothing is said of any, the list is nil.
func set[T any](t *Table, cluster string, f func(n *Need) T, of func(c *Cluster) *[]T, equal func(a, b T) bool) bool {
	c := t.clusters[cluster]
	if c == nil {
		return false
	}
	var list []T
	var nothing T
	for i := range c.Needs {
		if v := f(&c.Needs[i]); !equal(v, nothing) {
			if list == nil {
				list = make([]T, len(c.Needs))
			}
			list[i] = v
		}
	}
	if slices.EqualFunc(list, *of(c), equal) {
		return false
	}
	*of(c) = list
	t.touch(c)
	return true
}

func same[T comparable](a, b T) bool { return a == b }

// FullOf is what SetFull said of the Need at a position.
func (c *Cluster) FullOf(i int) []string {
	if i < 0 || i >= len(c.Full) {
		return nil
	}
	return c.Full[i]
}

// ReservedOf is how many units of what the Need at a position lacks shares do not serve: those of its headroom that its own machines do not
// hold yet, of which they hold so many units.
func (c *Cluster) ReservedOf(i int, held int64) int64 {
	room := max(0, c.HeadroomOf(i))
	own := c.OwnOf(i)
	if own == 0 {
		return room
	}
	return max(0, min(room, own-held))
}

// OwnOf is how many units the own machines of the Need at a position shall hold; 0 is not known, or it asks for nothing.
func (c *Cluster) OwnOf(i int) int64 {
	if i < 0 || i >= len(c.Own) || c.Needs[i].Aggregate.IsZero() {
		return 0
	}
	return c.Own[i]
}

// HeadroomOf is the headroom of the Need at a position; negative if so many of its units are served by machines of other Needs.
func (c *Cluster) HeadroomOf(i int) int64 {
	if i < 0 || i >= len(c.Headroom) {
		return 0
	}
	return c.Headroom[i]
}

// SetFacts replaces the facts of a cluster, which need not have rows, and reports whether that changed anything.
func (t *Table) SetFacts(cluster string, f Facts) bool {
	if c := t.clusters[cluster]; c != nil && c.Facts == f {
		return false
	}
	c := t.ensure(cluster)
	c.Facts = f
	t.touch(c)
	return true
}

// Cluster returns the demand of one cluster, or nil. It stays current until the next write to that cluster.
func (t *Table) Cluster(name string) *Cluster { return t.clusters[name] }

// Clusters returns all clusters by name, ascending. The slice is the table's own and valid until the next write.
func (t *Table) Clusters() []*Cluster { return t.ordered }

// Position returns where a row key is in the Needs of a cluster.
func (t *Table) Position(cluster string, key RowKey) (int, bool) {
	c := t.clusters[cluster]
	if c == nil {
		return 0, false
	}
	return t.position(c, key)
}

func (t *Table) position(c *Cluster, key RowKey) (int, bool) {
	id, ok := t.space.Keys.Find(key.Fingerprint, key.Group)
	if !ok {
		return 0, false
	}
	return c.byKey.find(id)
}

// Rows is the number of Needs in the table.
func (t *Table) Rows() int { return t.rows }

// Version grows with every change of what the engine reads, in any cluster.
func (t *Table) Version() uint64 { return t.version }

// Space returns the numbering the table uses.
func (t *Table) Space() *symbol.Space { return t.space }

// Clone returns an independent copy in a clone of the space. Forms are shared: they are never changed.
func (t *Table) Clone(space *symbol.Space) *Table {
	c := &Table{space: space, clusters: make(map[string]*Cluster, len(t.clusters)), ordered: make([]*Cluster, len(t.ordered)),
		forms: make(map[string]*Form, len(t.forms)), rules: make(map[string]*rules, len(t.rules)), freeForm: slices.Clone(t.freeForm), formIDs: t.formIDs,
		keys: t.keys.clone(), rulesVersion: t.rulesVersion, version: t.version, set: t.set, rows: t.rows, part: t.part, learnt: maps.Clone(t.learnt), learntVersion: t.learntVersion}
	copies := make(map[*Form]*Form, len(t.forms))
	for fp, f := range t.forms {
		g := *f
		c.forms[fp], copies[f] = &g, &g
	}
	for _, g := range c.forms {
		g.Stripped = copies[g.Stripped]
		c.share(g)
	}
	for i, old := range t.ordered {
		n := *old
		n.Needs = slices.Clone(old.Needs)
		for j := range n.Needs {
			n.Needs[j].Form = copies[n.Needs[j].Form]
		}
		n.byKey = slices.Clone(old.byKey)
		c.ordered[i], c.clusters[n.Name] = &n, &n
	}
	return c
}

// Row returns the position in Needs of a row key of Space.Keys.
func (c *Cluster) Row(key symbol.ID) (int, bool) {
	return c.byKey.find(key)
}
