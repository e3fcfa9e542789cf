package symbol

import "slices"

// Frozen is a Space at one moment, taken in little time: what can be found out again is left out, and Thaw finds it out,
// on any goroutine.
type Frozen struct {
	clusters, dimensions, strings *Table
	keys                          *Pairs
}

// Freeze copies what Thaw needs. The space may change at once.
func (s *Space) Freeze() *Frozen {
	k := s.Keys
	return &Frozen{clusters: s.Clusters.freeze(), dimensions: s.Dimensions.freeze(), strings: s.Strings.freeze(),
		keys: &Pairs{pairs: slices.Clone(k.pairs), refs: slices.Clone(k.refs), free: slices.Clone(k.free)}}
}

func (t *Table) freeze() *Table {
	return &Table{text: slices.Clone(t.text), refs: slices.Clone(t.refs), free: slices.Clone(t.free), gone: t.gone}
}

// Thaw returns an independent copy of the space as it was, in which every number means the same. It is called once.
func (f *Frozen) Thaw() *Space {
	for _, t := range []*Table{f.clusters, f.dimensions, f.strings} {
		t.ids = make(map[string]ID, len(t.text))
		for id, s := range t.text {
			if id == 0 || t.refs[id] > 0 {
				t.ids[s] = ID(id)
			}
		}
	}
	k := f.keys
	k.strings, k.ids = f.strings, make(map[pair]ID, len(k.pairs))
	for id, p := range k.pairs {
		if id == 0 || k.refs[id] > 0 {
			k.ids[p] = ID(id)
		}
	}
	return &Space{Clusters: f.clusters, Dimensions: f.dimensions, Strings: f.strings, Keys: k}
}
