package inventory

import (
	"cmp"
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Frozen is a Table at one moment, taken in little time: columns and interned parts are copied, indexes and counts are
// left out. Thaw makes those again, on any goroutine.
type Frozen struct {
	table      Table
	topologies []frozenTopology
}

type frozenTopology struct {
	key    symbol.ID
	values []symbol.ID
}

// Room is memory for the columns of a frozen table. New memory is slow at its first use; a Room was used.
type FreezeBuffer struct {
	rows         []*rowBlock
	labels       []uint32
	idRef, hosts []textRef
}

// NewFreezeBuffer returns a buffer for so many machines.
func NewFreezeBuffer(machines int) *FreezeBuffer {
	n := machines + machines/16 + 64
	r := &FreezeBuffer{labels: make([]uint32, n), idRef: make([]textRef, n), hosts: make([]textRef, n)}
	for i := range n {
		r.labels[i], r.idRef[i], r.hosts[i] = 1, 1, 1
	}
	for range n/rowBlockLen + 1 {
		b := new(rowBlock)
		for i := range b {
			b[i].Order = 1
		}
		r.rows = append(r.rows, b)
	}
	return r
}

// Freeze takes the table as it is, in time that the columns take to copy. The table may change at once.
func (t *Table) Freeze(r *FreezeBuffer) *Frozen {
	f := &Frozen{table: Table{
		rows: t.rows.clone(r.rows), labels: append(r.labels[:0], t.labels...),
		idRef: append(r.idRef[:0], t.idRef...), hostRef: append(r.hosts[:0], t.hostRef...),
		ids: t.ids.clone(), hosts: t.hosts.clone(), order: idOrder{version: t.order.version},
		free: slices.Clone(t.free), removed: slices.Clone(t.removed), live: t.live,
		promises: maps.Clone(t.promises), marks: maps.Clone(t.marks), errors: maps.Clone(t.errors), expiry: slices.Clone(t.expiry),
		nodeLabels: maps.Clone(t.nodeLabels),
		shapes:     shapes{all: slices.Clone(t.shapes.all), free: slices.Clone(t.shapes.free)},
		labelSets:  t.labelSets.clone(), projected: t.projected.clone(), attributions: t.attributions.clone(),
		classes: slices.Clone(t.classes), freeClass: slices.Clone(t.freeClass), serial: t.serial, classVersion: t.classVersion,
		keys: t.keys.clone(), keysAs: t.keysAs, typeKey: t.typeKey, zoneKey: t.zoneKey,
		version: t.version, now: t.now, elsewhereVersion: t.elsewhereVersion, domainsMax: t.domainsMax, turned: t.turned,
	}}
	for _, top := range t.topology {
		x := frozenTopology{key: top.Key, values: make([]symbol.ID, len(top.Domains))}
		for d := range top.Domains {
			x.values[d] = top.Domains[d].Value
		}
		f.topologies = append(f.topologies, x)
	}
	return f
}

// Thaw returns an independent copy of the table as it was, in the thawed space. Indexes of machines mean the same. It is
// called once.
func (f *Frozen) Thaw(space *symbol.Space) *Table {
	t := &f.table
	t.space = space
	t.shapes.ids = make(map[shapeKey]uint32, len(t.shapes.all))
	for id := range t.shapes.all {
		if s := &t.shapes.all[id]; s.refs > 0 {
			t.shapes.ids[s.key], s.stock = uint32(id), 0
		}
	}
	t.classIDs = make(map[classKey]uint32, len(t.classes))
	for id := range t.classes {
		c := &t.classes[id]
		c.Counts, c.Stock, c.Obtainable, c.Pools, c.Elsewhere = [states]int32{}, [pools]int32{}, 0, [pools]List{}, 0
		if c.refs > 0 {
			t.classIDs[classKey{c.Shape, c.labels}] = uint32(id)
		}
	}
	all := make([]Index, 0, t.live)
	for i := range Index(t.rows.n) {
		if t.rows.at(i).flags&isLive != 0 {
			all = append(all, Index(i))
		}
	}
	slices.SortFunc(all, func(a, b Index) int { return cmp.Compare(t.rows.at(a).Order, t.rows.at(b).Order) })
	for part := range slices.Chunk(all, chunkMax*3/4) {
		t.order.all.chunks = append(t.order.all.chunks, slices.Clone(part))
	}
	t.order.all.n = len(all)
	for _, i := range all {
		t.byID.insert(t, i)
		t.enter(i)
	}
	keys := make([]string, 0, len(f.topologies))
	for _, x := range f.topologies {
		keys = append(keys, space.Strings.Text(x.key))
	}
	t.SetTopologyKeys(keys)
	for _, x := range f.topologies { // what the old ones held; the new ones hold their own
		space.Strings.Release(x.key)
		for _, v := range x.values {
			space.Strings.Release(v)
		}
	}
	return t
}
