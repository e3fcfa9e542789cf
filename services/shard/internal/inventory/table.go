package inventory

import (
	"cmp"
	"iter"
	"slices"
	"sort"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Index is the dense number of a machine.
type Index uint32

// None is no machine.
const None = ^Index(0)

// Table is the inventory of a shard. It is not safe for concurrent use.
type Table struct {
	space *symbol.Space

	// By Index.
	rows    rowTable
	labels  []uint32 // in labelSets
	idRef   []textRef
	hostRef []textRef

	ids     texts
	hosts   texts
	byID    idIndex
	order   idOrder
	free    []Index
	removed []Index // since the last Advance
	live    int

	// What few machines have.
	promises   map[Index]Promise
	marks      map[Index][]Withheld
	nodeLabels map[Index]nodeLabels
	errors     map[Index]failure
	expiry     expiryHeap

	// Interned parts.
	shapes       shapes
	recent       []uint32 // shapes, by a hash of what most machines differ in
	labelSets    labelSets
	projected    labelSets
	classes      []Class
	classIDs     map[classKey]uint32
	freeClass    []uint32
	serial       uint32
	classVersion uint64
	attributions attributionTable
	keys         matchKeys
	keysAs       int // classes when they were set
	classed      classedFor
	typeKey      symbol.ID
	zoneKey      symbol.ID
	scratch      []byte
	words        []symbol.ID

	// Indexes and counts.
	clusters         []clusterMembers // by symbol of the cluster
	topology         []*Topology
	topologyOf       map[symbol.ID]*Topology
	walked           []*Topology // those that a machine may be in: each change of a machine looks at them
	domainsMax       int         // DomainsMax, but in tests
	turned           uint64
	release          [2]List // by hold clock: on-demand, spot
	inFlight         List    // in flight, by id
	held             List    // owned, Idle or Speculative, without promise, with a mark; by id
	counts           [states]int
	billed           wide
	clusterLog       clusterLog
	stockVersion     uint64
	elsewhereVersion uint64
	domainsVersion   uint64
	version          uint64
	now              int64
}

type failure struct {
	text  string
	class int32
}

// New returns an empty table in the given space.
func New(space *symbol.Space) *Table {
	t := &Table{space: space, promises: map[Index]Promise{}, marks: map[Index][]Withheld{}, errors: map[Index]failure{},
		shapes: newShapes(), labelSets: newLabelSets(), projected: newLabelSets(), classIDs: map[classKey]uint32{}, attributions: newAttributionTable(),
		domainsMax: DomainsMax}
	t.typeKey, t.zoneKey = space.Strings.Intern(TypeKey), space.Strings.Intern(ZoneKey)
	return t
}

// Put stores what a provider says about a machine: a new one, or new word of one that is known. It touches nothing of
// what the shard remembers. changed is false if that is what the table holds already.
func (t *Table) Put(m Machine) (i Index, changed bool) {
	i, known := t.Find(m.ID)
	switch {
	case !known:
		return t.PutNew(m, 0), true
	case t.Holds(i, &m):
		return i, false
	}
	t.Replace(i, m)
	return i, true
}

// Replace is Put where the caller knows that machine i exists and that m differs from it.
func (t *Table) Replace(i Index, m Machine) {
	m.normalise()
	t.leave(i)
	t.store(i, &m)
	t.enter(i)
}

// PutNew is Put and SetSince where the caller knows that no machine has this id.
func (t *Table) PutNew(m Machine, since int64) Index {
	m.normalise()
	i := t.allot()
	t.idRef[i] = t.ids.add(m.ID)
	t.order.add(t, i)
	t.rows.at(i).flags = isLive
	t.byID.insert(t, i)
	t.live++
	shape, labels := t.internShape(&m), t.internLabels(m.Labels)
	t.rows.at(i).Class, t.labels[i] = t.classFor(shape, labels), labels
	t.fields(i, &m)
	t.rows.at(i).Since = since
	t.enter(i)
	return i
}

// allot returns a number for a new machine, with all its columns zero but for its label.
func (t *Table) allot() Index {
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		return i
	}
	// Each column grows at a pace of its own, so that no step moves all of them (SHARD-4.7).
	i := t.rows.grow()
	t.labels = append(growBy(t.labels, 9), 0)
	t.idRef, t.hostRef = append(growBy(t.idRef, 10), 0), append(growBy(t.hostRef, 11), 0)
	return i
}

// store replaces shape, labels and fields of a known machine.
func (t *Table) store(i Index, m *Machine) {
	r := t.rows.at(i)
	oldShape := t.classes[r.Class].Shape
	if !t.sameShape(oldShape, m) || !t.sameLabels(i, m.Labels) {
		shape, labels := t.internShape(m), t.internLabels(m.Labels)
		oldClass, oldLabels, over := r.Class, t.labels[i], t.nodeLabels[i]
		if t.labels[i] = labels; over.node != 0 {
			t.nodeLabels[i] = nodeLabels{labels, over.node}
			t.labels[i] = t.overlaid(labels, over.node)
		}
		r.Class = t.classFor(shape, t.labels[i])
		t.releaseClass(oldClass)
		t.releaseShape(oldShape)
		t.releaseLabels(oldLabels)
		t.releaseLabels(over.provider)
	}
	t.fields(i, m)
}

// fields stores what is not interned: state, cluster, host and error.
func (t *Table) fields(i Index, m *Machine) {
	r := t.rows.at(i)
	r.flags = r.flags&^stateBits | flags(m.State)&stateBits
	t.setCluster(i, r, m.Cluster)
	if !t.sameHost(i, m) {
		t.setHost(i, m)
	}
	if m.LastError == "" && m.Failure == 0 {
		delete(t.errors, i)
	} else {
		t.errors[i] = failure{m.LastError, m.Failure}
	}
}

func (t *Table) setCluster(i Index, r *Row, cluster string) {
	old := r.Cluster
	r.Cluster = t.space.Clusters.Intern(cluster)
	if r.Cluster != old {
		r.held = OccupancyUnknown // what the node held was in the cluster before
		if _, has := t.nodeLabels[i]; has {
			t.setNodeLabels(i, 0)
		}
	}
	t.dropCluster(old)
}

func (t *Table) dropCluster(id symbol.ID) {
	if t.space.Clusters.Release(id) && int(id) < len(t.clusters) {
		t.clusters[id] = clusterMembers{}
	}
}

// same reports whether the table holds exactly this about machine i.
func (t *Table) same(i Index, m *Machine) bool {
	r := t.rows.at(i)
	e := t.errors[i]
	return r.State() == m.State && t.space.Clusters.Text(r.Cluster) == m.Cluster && e.text == m.LastError && e.class == m.Failure &&
		t.sameShape(t.classes[r.Class].Shape, m) && t.sameLabels(i, m.Labels) && t.sameHost(i, m)
}

// Holds reports whether Put would change nothing about machine i.
func (t *Table) Holds(i Index, m *Machine) bool {
	m.normalise()
	return t.same(i, m)
}

// Move stores a transition that the shard made itself: the state, and the cluster, which is empty for states that have
// none. It is Put for these two fields alone.
func (t *Table) Move(i Index, s State, cluster string) bool {
	r := t.rows.at(i)
	if r.State() == s && t.space.Clusters.Text(r.Cluster) == cluster {
		return false
	}
	t.leave(i)
	r.flags = r.flags&^stateBits | flags(s)&stateBits
	t.setCluster(i, r, cluster)
	t.enter(i)
	return true
}

// Remove forgets a machine. Its Index is not given to another before the next Advance.
func (t *Table) Remove(i Index) {
	t.leave(i)
	r := t.rows.at(i)
	t.byID.remove(t, i)
	t.order.drop(t, i)
	t.attributions.release(t.space, r.Attribution)
	if p, ok := t.promises[i]; ok {
		delete(t.promises, i)
		t.releasePromise(p)
	}
	for _, w := range t.marks[i] {
		t.releaseMark(w)
	}
	delete(t.marks, i)
	delete(t.errors, i)
	shape := t.classes[r.Class].Shape
	t.releaseClass(r.Class)
	t.releaseShape(shape)
	t.releaseLabels(t.labels[i])
	if over, has := t.nodeLabels[i]; has {
		t.releaseLabels(over.provider)
		t.releaseLabels(over.node)
		delete(t.nodeLabels, i)
	}
	t.dropCluster(r.Cluster)
	t.ids.drop(t.idRef[i])
	t.dropHost(i)
	*t.rows.at(i) = Row{}
	t.labels[i], t.idRef[i] = 0, 0
	t.live--
	t.removed = append(t.removed, i)
	t.compactIDs()
	t.compactHosts()
}

// SetAttribution stores or, with nil, clears the attribution of a machine.
func (t *Table) SetAttribution(i Index, s *Attribution) bool {
	r := t.rows.at(i)
	if old, has := t.Attribution(i); has == (s != nil) && (s == nil || old == *s) {
		return false
	}
	id := uint32(0)
	if s != nil {
		id = t.attributions.intern(t.space, s)
	}
	old := r.Attribution
	r.Attribution = id
	t.attributions.release(t.space, old)
	t.touch(i)
	return true
}

// SetPromise stores or, with nil, clears the promise of a machine.
func (t *Table) SetPromise(i Index, p *Promise) bool {
	old, has := t.promises[i]
	if has == (p != nil) && (p == nil || old == *p) {
		return false
	}
	t.leave(i)
	r := t.rows.at(i)
	r.flags &^= isPromised
	if p != nil {
		t.promises[i] = *p
		t.space.Clusters.Intern(p.Cluster)
		t.space.Keys.Intern(p.For.Fingerprint, p.For.Group)
		r.flags |= isPromised
		t.expiry.push(p.Expires, i)
	} else {
		delete(t.promises, i)
	}
	if has {
		t.releasePromise(old)
	}
	t.enter(i)
	return true
}

func (t *Table) releasePromise(p Promise) {
	if id, ok := t.space.Clusters.Find(p.Cluster); ok {
		t.dropCluster(id)
	}
	if id, ok := t.space.Keys.Find(p.For.Fingerprint, p.For.Group); ok {
		t.space.Keys.Release(id)
	}
}

// Withhold adds a mark, or replaces the one with the same reason and cluster.
func (t *Table) Withhold(i Index, w Withheld) bool {
	list := slices.Clone(t.marks[i])
	at := slices.IndexFunc(list, func(x Withheld) bool { return x.Reason == w.Reason && x.Cluster == w.Cluster })
	switch {
	case at < 0:
		list = append(list, w)
	case list[at] == w:
		return false
	default:
		list[at] = w
	}
	slices.SortFunc(list, func(a, b Withheld) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), strings.Compare(a.Cluster, b.Cluster))
	})
	t.setMarks(i, list)
	t.expiry.push(w.Until, i)
	return true
}

// Lift takes away the mark with this reason and cluster.
func (t *Table) Lift(i Index, r WithheldReason, cluster string) bool {
	list := slices.DeleteFunc(slices.Clone(t.marks[i]), func(x Withheld) bool { return x.Reason == r && x.Cluster == cluster })
	if len(list) == len(t.marks[i]) {
		return false
	}
	t.setMarks(i, list)
	return true
}

func (t *Table) setMarks(i Index, list []Withheld) {
	t.leave(i)
	old := t.marks[i]
	for _, w := range list { // so that the cluster has a number for as long as the mark stands
		t.space.Clusters.Intern(w.Cluster)
	}
	r := t.rows.at(i)
	r.flags &^= markedAll | markedSome | markedStays
	for _, w := range list {
		if w.Cluster == "" {
			r.flags |= markedAll
		} else {
			r.flags |= markedSome
		}
		if w.Reason.BlocksRelease() {
			r.flags |= markedStays
		}
	}
	if len(list) == 0 {
		delete(t.marks, i)
	} else {
		t.marks[i] = list
	}
	t.enter(i)
	for _, w := range old {
		t.releaseMark(w)
	}
}

func (t *Table) releaseMark(w Withheld) {
	if id, ok := t.space.Clusters.Find(w.Cluster); ok {
		t.dropCluster(id)
	}
}

// Advance sets the time of the next plan. It drops promises and marks that have expired at it and returns them, by
// machine id. It also frees the numbers of machines removed since the last call.
func (t *Table) Advance(now int64) []Lapse {
	t.now = now
	t.free = append(t.free, t.removed...)
	t.removed = t.removed[:0]
	var out []Lapse
	for {
		i, ok := t.expiry.pop(now)
		if !ok {
			break
		}
		if t.rows.at(i).flags&isLive == 0 {
			continue
		}
		if p, has := t.promises[i]; has && p.Expires != 0 && p.Expires <= now {
			out = append(out, Lapse{Index: i, Promise: &p})
			t.SetPromise(i, nil)
		}
		for _, w := range slices.Clone(t.marks[i]) {
			if w.Until != 0 && w.Until <= now {
				out = append(out, Lapse{Index: i, Withheld: w})
				t.Lift(i, w.Reason, w.Cluster)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Lapse) int { return cmp.Compare(t.rows.at(a.Index).Order, t.rows.at(b.Index).Order) })
	if len(t.expiry) > 1024+4*(len(t.promises)+len(t.marks)) {
		t.rebuildExpiry()
	}
	return out
}

// Lapse is a promise or a mark that expired.
type Lapse struct {
	Index    Index
	Promise  *Promise // nil if it was a mark
	Withheld Withheld
}

// Find returns the machine with an id.
func (t *Table) Find(id string) (Index, bool) { return t.byID.find(t, id) }

// All visits every machine by id, ascending.
func (t *Table) All() iter.Seq[Index] {
	return func(yield func(Index) bool) {
		for _, c := range t.order.all.chunks {
			for _, i := range c {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// After visits the machines whose ids follow the given one, ascending. Finding the first takes two binary searches, so a
// reader that goes through the table in parts pays for its part alone.
func (t *Table) After(id string) iter.Seq[Index] {
	return func(yield func(Index) bool) {
		chunks := t.order.all.chunks
		at := sort.Search(len(chunks), func(k int) bool { return t.ID(chunks[k][len(chunks[k])-1]) > id })
		for ; at < len(chunks); at++ {
			c := chunks[at]
			for _, i := range c[sort.Search(len(c), func(k int) bool { return t.ID(c[k]) > id }):] {
				if !yield(i) {
					return
				}
			}
		}
	}
}
