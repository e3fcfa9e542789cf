package demand

import (
	"maps"
	"slices"
)

// form returns the Form of a profile in canonical form and adds one user.
func (t *Table) form(p Profile, fingerprint string) *Form {
	f := t.forms[fingerprint]
	if f == nil {
		f = &Form{Profile: p, Fingerprint: fingerprint}
		if n := len(t.freeForm); n > 0 {
			f.ID, t.freeForm = t.freeForm[n-1], t.freeForm[:n-1]
		} else {
			f.ID = t.formIDs
			t.formIDs++
		}
		t.forms[fingerprint] = f
		f.Stripped = f
		if same, ok := p.SameKey(); ok {
			f.Same = &same
			bare := p.WithoutSame()
			f.Stripped = t.form(bare, bare.Fingerprint())
		}
	}
	f.refs++
	return f
}

func (t *Table) dropForm(f *Form) {
	f.refs--
	if f.refs > 0 {
		return
	}
	delete(t.forms, f.Fingerprint)
	t.freeForm = append(t.freeForm, f.ID)
	if f.Stripped != f {
		t.dropForm(f.Stripped)
	}
}

// FormLen returns one more than the largest Form.ID in use.
func (t *Table) FormLen() int { return int(t.formIDs) }

// keyUse counts which label keys the profiles in the demand look at, and how (ENG-6.5).
type keyUse struct {
	match    map[string]int // In, NotIn, Exists, DoesNotExist
	topology map[string]int // Same and hard spread
	version  uint64         // grows when a key comes into use or goes out of it
}

func newKeyUse() keyUse { return keyUse{match: map[string]int{}, topology: map[string]int{}} }

func (k *keyUse) add(f *Form, by int) {
	for _, r := range f.Requirements {
		if r.Op == Same {
			k.count(k.topology, r.Key, by)
			// The listed values and the presence of a Same key are tested through the column of the key.
			continue
		}
		k.count(k.match, r.Key, by)
	}
	for _, s := range f.Spread {
		k.count(k.topology, s.Key, by)
	}
}

func (k *keyUse) count(m map[string]int, key string, by int) {
	old := m[key]
	switch now := old + by; {
	case now == 0:
		delete(m, key)
		k.version++
	default:
		m[key] = now
		if old == 0 {
			k.version++
		}
	}
}

func (k *keyUse) clone() keyUse {
	return keyUse{match: maps.Clone(k.match), topology: maps.Clone(k.topology), version: k.version}
}

// MatchKeys lists the label keys that some profile tests with In, NotIn, Exists or DoesNotExist, ascending.
func (t *Table) MatchKeys() []string { return slices.Sorted(maps.Keys(t.keys.match)) }

// TopologyKeys lists the label keys that some profile uses with Same or hard spread, ascending.
func (t *Table) TopologyKeys() []string { return slices.Sorted(maps.Keys(t.keys.topology)) }

// KeysVersion grows when MatchKeys or TopologyKeys changes.
func (t *Table) KeysVersion() uint64 { return t.keys.version }
