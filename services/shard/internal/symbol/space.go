package symbol

import (
	"maps"
	"slices"
)

// Space is the numbering that the demand and the machines of one core share.
type Space struct {
	Clusters   *Table // cluster ids
	Dimensions *Table // names of resources
	Strings    *Table // label keys and values, types, zones, providers, fingerprints, groups
	Keys       *Pairs // row keys: (fingerprint, group)
}

// NewSpace returns an empty space.
func NewSpace() *Space {
	s := &Space{Clusters: NewTable(), Dimensions: NewTable(), Strings: NewTable()}
	s.Keys = newPairs(s.Strings)
	return s
}

// Clone returns an independent copy in which every number means the same.
func (s *Space) Clone() *Space {
	c := &Space{Clusters: s.Clusters.Clone(), Dimensions: s.Dimensions.Clone(), Strings: s.Strings.Clone()}
	c.Keys = s.Keys.clone(c.Strings)
	return c
}

// Pairs is a counted set of pairs of strings. It holds one user of both strings of each pair it knows.
type Pairs struct {
	strings *Table
	ids     map[pair]ID
	pairs   []pair
	refs    []int32
	free    []ID
}

type pair struct{ a, b ID }

func newPairs(strings *Table) *Pairs {
	return &Pairs{strings: strings, ids: map[pair]ID{{}: 0}, pairs: []pair{{}}, refs: []int32{0}}
}

// Intern returns the number of the pair (a, b) and adds one user. The pair of two empty strings is 0.
func (t *Pairs) Intern(a, b string) ID {
	p := pair{t.strings.Intern(a), t.strings.Intern(b)}
	id, ok := t.ids[p]
	if ok {
		t.strings.Release(p.a)
		t.strings.Release(p.b)
	} else {
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
			t.pairs[id] = p
		} else {
			id = ID(len(t.pairs))
			t.pairs, t.refs = append(t.pairs, p), append(t.refs, 0)
		}
		t.ids[p] = id
	}
	t.Retain(id)
	return id
}

// Find returns the number of (a, b), if it is known, without adding a user.
func (t *Pairs) Find(a, b string) (ID, bool) {
	ia, ok := t.strings.Find(a)
	if !ok {
		return 0, false
	}
	ib, ok := t.strings.Find(b)
	if !ok {
		return 0, false
	}
	id, ok := t.ids[pair{ia, ib}]
	return id, ok
}

// Text returns the two strings behind id.
func (t *Pairs) Text(id ID) (a, b string) {
	p := t.pairs[id]
	return t.strings.Text(p.a), t.strings.Text(p.b)
}

// First returns the number of the first string of id in Space.Strings.
func (t *Pairs) First(id ID) ID { return t.pairs[id].a }

// Retain adds one user.
func (t *Pairs) Retain(id ID) {
	if id != 0 {
		t.refs[id]++
	}
}

// Release removes one user and reports whether that was the last one.
func (t *Pairs) Release(id ID) bool {
	if id == 0 {
		return false
	}
	t.refs[id]--
	if t.refs[id] > 0 {
		return false
	}
	if t.refs[id] < 0 {
		panic("symbol: pair released more often than retained")
	}
	p := t.pairs[id]
	delete(t.ids, p)
	t.pairs[id] = pair{}
	t.strings.Release(p.a)
	t.strings.Release(p.b)
	t.free = append(t.free, id)
	return true
}

// Len returns one more than the largest number in use.
func (t *Pairs) Len() int { return len(t.pairs) }

// Live returns how many pairs are known, the empty one included.
func (t *Pairs) Live() int { return len(t.ids) }

func (t *Pairs) clone(strings *Table) *Pairs {
	return &Pairs{strings: strings, ids: maps.Clone(t.ids), pairs: slices.Clone(t.pairs), refs: slices.Clone(t.refs),
		free: slices.Clone(t.free)}
}
