package inventory

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Shape is everything about a machine but its identity, its labels and its state: what exchange calls a class of
// hardware (ENG-13.10). Machines that are alike share one.
type Shape struct {
	Provider, Type, Zone symbol.ID // in Space.Strings
	Capacity             CapacityType
	Price                int64
	Probability          int32
	DrainSeconds         int32
	Resources            resource.Vector
	Allocatable          resource.Vector
	Supply               resource.Vector // Allocatable, or Resources if that is empty (ENG-3.6)
	Taints               []Taint

	refs int32
	// stock counts owned Speculative machines without promise and mark, so that a plan sees which shapes ran out.
	stock int32
	key   shapeKey
}

type shapeKey struct {
	provider, typ, zone symbol.ID
	capacity            CapacityType
	probability         int32
	drainSeconds        int32
	price               int64
	vectors             string // both vectors and the taints, spelled out
}

// shapes interns Shapes.
type shapes struct {
	ids  map[shapeKey]uint32
	all  []Shape
	free []uint32
}

func newShapes() shapes { return shapes{ids: map[shapeKey]uint32{}} }

// recentShapes is how many shapes are found without spelling a machine out.
const recentShapes = 1 << 12

// recentShape is where the shape of a machine like this one was noted. It is a guess: sameShape decides.
func (t *Table) recentShape(m *Machine) *uint32 {
	if t.recent == nil {
		t.recent = make([]uint32, recentShapes)
	}
	h := hashNumbers(hashText(m.InstanceType), hashText(m.Zone), uint64(m.Price), uint64(m.Probability)<<8|uint64(m.CapacityType))
	return &t.recent[h%recentShapes]
}

// internShape returns the shape of a machine and adds one user.
func (t *Table) internShape(m *Machine) uint32 {
	guess := t.recentShape(m)
	if id := *guess; int(id) < len(t.shapes.all) && t.shapes.all[id].refs > 0 && t.sameShape(id, m) {
		t.shapes.all[id].refs++
		return id
	}
	id := t.spellShape(m)
	*guess = id
	return id
}

// spellShape is internShape for any machine.
func (t *Table) spellShape(m *Machine) uint32 {
	str := t.space.Strings
	k := shapeKey{provider: str.Intern(m.Provider), typ: str.Intern(m.InstanceType), zone: str.Intern(m.Zone),
		capacity: m.CapacityType, probability: m.Probability, drainSeconds: m.DrainSeconds, price: m.Price}
	res := resource.Intern(t.space.Dimensions, m.Resources)
	alloc := resource.Intern(t.space.Dimensions, m.Allocatable)
	k.vectors = spell(t.scratch[:0], &res, &alloc, m.Taints)
	id, ok := t.shapes.ids[k]
	if ok {
		for _, s := range []symbol.ID{k.provider, k.typ, k.zone} {
			str.Release(s)
		}
		res.Release(t.space.Dimensions)
		alloc.Release(t.space.Dimensions)
		t.shapes.all[id].refs++
		return id
	}
	s := Shape{Provider: k.provider, Type: k.typ, Zone: k.zone, Capacity: m.CapacityType, Price: m.Price, Probability: m.Probability,
		DrainSeconds: m.DrainSeconds, Resources: res, Allocatable: alloc, Supply: alloc, Taints: slices.Clone(m.Taints), refs: 1, key: k}
	if alloc.IsZero() {
		s.Supply = res
	}
	if n := len(t.shapes.free); n > 0 {
		id, t.shapes.free = t.shapes.free[n-1], t.shapes.free[:n-1]
		t.shapes.all[id] = s
	} else {
		id = uint32(len(t.shapes.all))
		t.shapes.all = append(t.shapes.all, s)
	}
	t.shapes.ids[k] = id
	return id
}

// spell writes vectors and taints as a string that is equal exactly if they are.
func spell(b []byte, res, alloc *resource.Vector, taints []Taint) string {
	number := func(n uint64) {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		b = append(b, byte(n))
	}
	for _, v := range []*resource.Vector{res, alloc} {
		number(uint64(v.Len()))
		for i := range v.Len() {
			number(uint64(v.Dim(i)))
			number(uint64(v.Val(i)))
		}
	}
	for _, x := range taints {
		for _, s := range []string{x.Key, x.Value, x.Effect} {
			number(uint64(len(s)))
			b = append(b, s...)
		}
	}
	return string(b)
}

func (t *Table) releaseShape(id uint32) {
	s := &t.shapes.all[id]
	if s.refs--; s.refs > 0 {
		return
	}
	for _, x := range []symbol.ID{s.Provider, s.Type, s.Zone} {
		t.space.Strings.Release(x)
	}
	s.Resources.Release(t.space.Dimensions)
	s.Allocatable.Release(t.space.Dimensions)
	delete(t.shapes.ids, s.key)
	*s = Shape{}
	t.shapes.free = append(t.shapes.free, id)
}

// sameShape reports whether a machine still has the shape it had, without interning anything.
func (t *Table) sameShape(id uint32, m *Machine) bool {
	s := &t.shapes.all[id]
	str := t.space.Strings
	return s.Price == m.Price && s.Probability == m.Probability && s.DrainSeconds == m.DrainSeconds && s.Capacity == m.CapacityType && str.Text(s.Type) == m.InstanceType &&
		str.Text(s.Zone) == m.Zone && str.Text(s.Provider) == m.Provider && t.sameVector(&s.Resources, m.Resources) &&
		t.sameVector(&s.Allocatable, m.Allocatable) && slices.Equal(s.Taints, m.Taints)
}

// sameVector compares a vector with a list in which each name occurs once; a list with twins just compares as different.
func (t *Table) sameVector(v *resource.Vector, list []resource.Quantity) bool {
	positive := 0
	for i := range list {
		if list[i].Milli <= 0 || list[i].Name == "" {
			continue
		}
		positive++
		found := false
		for j := range v.Len() {
			if v.Val(j) == list[i].Milli && t.space.Dimensions.Text(v.Dim(j)) == list[i].Name {
				found = true
				break
			}
		}
		if !found {
			return false
		}
	}
	return positive == v.Len()
}

func (s *shapes) clone() shapes {
	return shapes{ids: maps.Clone(s.ids), all: slices.Clone(s.all), free: slices.Clone(s.free)}
}
