package inventory

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Class is machines that no Need can distinguish, but for their values of topology keys (ENG-6.5): one Shape, and equal
// labels as far as some profile looks at them. How machines are split into classes changes no result.
type Class struct {
	Serial      uint32 // never given twice, so that a cached class whose number was given away is recognised
	Shape       uint32
	Price       int64
	Probability int32
	Supply      resource.Vector
	Counts      [states]int32 // machines by state as the engine sees it, owned or not
	Stock       [pools]int32  // owned Idle and Speculative machines, whatever their promises and marks
	Obtainable  int32         // those of Stock that are not withheld from all clusters
	Pools       [pools]List   // owned, without promise and without a mark for all; by id
	Elsewhere   int32         // Idle and Speculative machines of other shards

	labels uint32 // in Table.projected
	refs   int32
}

// What stands in projected labels for "the key is there", where no profile asks for the value, and for every value that no profile names.
const (
	presence = ^symbol.ID(0)
	Unnamed  = presence - 1
)

type classKey struct{ shape, labels uint32 }

// classFor returns the class for a shape and a label set and adds one user. The shape's own count is not touched.
func (t *Table) classFor(shape, labels uint32) uint32 {
	t.words = t.words[:0]
	for w := t.labelSets.get(labels); len(w) > 0; w = w[2:] {
		if v, use := t.keys.project(t.space.Strings, w[0], w[1]); use {
			t.words = append(t.words, w[0], v)
		}
	}
	proj, _ := t.projected.intern(t.words)
	k := classKey{shape, proj}
	id, ok := t.classIDs[k]
	if ok {
		t.projected.release(proj)
		t.classes[id].refs++
		return id
	}
	s := &t.shapes.all[shape]
	t.serial++
	c := Class{Serial: t.serial, Shape: shape, Price: s.Price, Probability: s.Probability, Supply: s.Supply, labels: proj, refs: 1}
	if n := len(t.freeClass); n > 0 {
		id, t.freeClass = t.freeClass[n-1], t.freeClass[:n-1]
		t.classes[id] = c
	} else {
		id = uint32(len(t.classes))
		t.classes = append(t.classes, c)
	}
	t.classIDs[k] = id
	t.classVersion++
	return id
}

func (t *Table) releaseClass(id uint32) {
	c := &t.classes[id]
	if c.refs--; c.refs > 0 {
		return
	}
	t.projected.release(c.labels)
	delete(t.classIDs, classKey{c.Shape, c.labels})
	*c = Class{}
	t.freeClass = append(t.freeClass, id)
	t.classVersion++
}

// RenewClass gives a class another serial: what its machines count for is another now, for a reason that is not in the table.
func (t *Table) RenewClass(id uint32) {
	t.serial++
	t.classes[id].Serial = t.serial
	t.classVersion++
}

// Classes is the length of an array indexed by class. Class returns one; a class without machines has Serial 0.
func (t *Table) Classes() int            { return len(t.classes) }
func (t *Table) LiveClasses() int        { return len(t.classIDs) } // those with machines
func (t *Table) Class(id uint32) *Class  { return &t.classes[id] }
func (t *Table) Shape(id uint32) *Shape  { return &t.shapes.all[id] }
func (t *Table) Shapes() int             { return len(t.shapes.all) }
func (t *Table) ClassVersion() uint64    { return t.classVersion }
func (s *Shape) SpeculativeStock() int32 { return s.stock }

// ClassAttr looks up a key of a class as profiles see it (ENG-6.1). A value is known only for the keys of
// MatchKeys.Values and for the two that machines have fields for; for other keys only whether they are there.
func (t *Table) ClassAttr(c *Class, key string) (value string, has bool) {
	s := &t.shapes.all[c.Shape]
	switch {
	case key == TypeKey && s.Type != 0:
		return t.space.Strings.Text(s.Type), true
	case key == ZoneKey && s.Zone != 0:
		return t.space.Strings.Text(s.Zone), true
	}
	id, ok := t.space.Strings.Find(key)
	if !ok {
		return "", false
	}
	v, has := t.projected.value(c.labels, id)
	if has && v < Unnamed {
		value = t.space.Strings.Text(v)
	}
	return value, has
}

// The label keys that a machine answers from its own fields.
const (
	TypeKey = "node.kubernetes.io/instance-type"
	ZoneKey = "topology.kubernetes.io/zone"
)

// Value looks up any key of a machine. The value is in Space.Strings.
func (t *Table) Value(i Index, key symbol.ID) (symbol.ID, bool) {
	return t.ValueIn(t.rows.at(i).Class, i, key)
}

// ValueIn is Value where the caller knows the class of the machine: its row, a line of memory, is not read.
func (t *Table) ValueIn(class uint32, i Index, key symbol.ID) (symbol.ID, bool) {
	return t.ValueOf(class, t.labels[i], key)
}

// LabelSet is the number of the labels of a machine: machines with equal labels have equal ones.
func (t *Table) LabelSet(i Index) uint32 { return t.labels[i] }

// ValueOf is ValueIn where the caller knows the labels, too.
func (t *Table) ValueOf(class, labels uint32, key symbol.ID) (symbol.ID, bool) {
	s := &t.shapes.all[t.classes[class].Shape]
	switch {
	case key == t.typeKey && s.Type != 0:
		return s.Type, true
	case key == t.zoneKey && s.Zone != 0:
		return s.Zone, true
	}
	return t.labelSets.value(labels, key)
}

// ClassValue is ClassAttr in symbols. Of a key that only presence is known of, the value means nothing. It is Unnamed if no profile names it.
func (t *Table) ClassValue(c *Class, key symbol.ID) (symbol.ID, bool) {
	s := &t.shapes.all[c.Shape]
	switch {
	case key == t.typeKey && s.Type != 0:
		return s.Type, true
	case key == t.zoneKey && s.Zone != 0:
		return s.Zone, true
	}
	return t.projected.value(c.labels, key)
}
