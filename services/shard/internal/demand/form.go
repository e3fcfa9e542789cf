package demand

import (
	"crypto/sha256"
	"maps"
	"slices"
)

// form returns the Form of a profile in canonical form and adds one user.
func (t *Table) form(p Profile, fingerprint string) *Form {
	f := t.forms[fingerprint]
	if f == nil {
		f = &Form{Profile: p, Fingerprint: fingerprint}
		t.scratch = p.appendMatch(t.scratch[:0])
		if r := t.rules[string(t.scratch)]; r != nil {
			f.Match = r.match
		} else {
			f.Match = string(t.scratch)
		}
		t.share(f)
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
	if r := t.rules[f.Match]; r.refs > 1 {
		r.refs--
	} else {
		delete(t.rules, f.Match)
		t.rulesVersion++
	}
	t.freeForm = append(t.freeForm, f.ID)
	if f.Stripped != f {
		t.dropForm(f.Stripped)
	}
}

// rules are what decides which machines match, and how well. Forms that differ in priority, penalties or spread alone, and most do, share
// them.
type rules struct {
	match        string
	requirements []Requirement
	tolerations  []Toleration
	preferences  []Preference
	refs         int32
}

// share gives a Form that is new in the table the rules of those that match the same machines.
func (t *Table) share(f *Form) {
	r := t.rules[f.Match]
	if r == nil {
		r = &rules{match: f.Match, requirements: f.Requirements, tolerations: f.Tolerations, preferences: f.Preferences}
		t.rules[f.Match] = r
		t.rulesVersion++
	}
	r.refs++
	f.Requirements, f.Tolerations, f.Preferences = r.requirements, r.tolerations, r.preferences
}

// Forms visits every Form, in no order.
func (t *Table) Forms(visit func(f *Form)) {
	for _, f := range t.forms {
		visit(f)
	}
}

// FormLen returns one more than the largest Form.ID in use.
func (t *Table) FormLen() int { return int(t.formIDs) }

// keyUse counts which label keys the profiles in the demand look at, and how (ENG-6.5).
type keyUse struct {
	values   map[string]int // In, NotIn, Gt, Lt, and Same with values listed
	presence map[string]int // Exists, DoesNotExist, Same and hard spread
	topology map[string]int // Same and hard spread
	version  uint64         // grows when a key comes into use or goes out of it
}

func newKeyUse() keyUse {
	return keyUse{values: map[string]int{}, presence: map[string]int{}, topology: map[string]int{}}
}

func (k *keyUse) add(f *Form, by int) {
	for _, r := range f.Requirements {
		switch r.Op {
		case In, NotIn, Gt, Lt:
			k.count(k.values, r.Key, by)
		case Same:
			if len(r.Values) > 0 {
				k.count(k.values, r.Key, by)
			}
			k.count(k.presence, r.Key, by)
			k.count(k.topology, r.Key, by)
		default:
			k.count(k.presence, r.Key, by)
		}
	}
	for _, s := range f.Spread {
		k.count(k.presence, s.Key, by)
		k.count(k.topology, s.Key, by)
	}
	for _, p := range f.Preferences {
		for _, r := range p.Requirements {
			if r.Op == Exists || r.Op == DoesNotExist {
				k.count(k.presence, r.Key, by)
			} else {
				k.count(k.values, r.Key, by)
			}
		}
	}
}

func (k *keyUse) count(m map[string]int, key string, by int) {
	old := m[key]
	if now := old + by; now == 0 {
		delete(m, key)
		k.version++
	} else {
		m[key] = now
		if old == 0 {
			k.version++
		}
	}
}

func (k *keyUse) clone() keyUse {
	return keyUse{values: maps.Clone(k.values), presence: maps.Clone(k.presence), topology: maps.Clone(k.topology), version: k.version}
}

// ValueKeys lists the label keys of which some profile tests the value, ascending.
func (t *Table) ValueKeys() []string { return slices.Sorted(maps.Keys(t.keys.values)) }

// PresenceKeys lists the label keys of which some profile asks whether they are there, ascending.
func (t *Table) PresenceKeys() []string { return slices.Sorted(maps.Keys(t.keys.presence)) }

// TopologyKeys lists the label keys that some profile uses with Same or hard spread, ascending.
func (t *Table) TopologyKeys() []string { return slices.Sorted(maps.Keys(t.keys.topology)) }

// KeysVersion grows when one of the three lists changes.
func (t *Table) KeysVersion() uint64 { return t.keys.version }

// RulesVersion grows when requirements come into the demand or leave it.
func (t *Table) RulesVersion() uint64 { return t.rulesVersion }

// Rules is how many rows differ in what machines they match, of those in the demand, those being taken in, and those that left it and are not swept yet.
func (t *Table) Rules() int { return len(t.rules) }

func eachRequirement(list []Requirement, preferences []Preference, visit func(r *Requirement)) {
	for i := range list {
		visit(&list[i])
	}
	for i := range preferences {
		eachRequirement(preferences[i].Requirements, nil, visit)
	}
}

// ValuesOf is how many values rows name of each label key, up to one more than most.
func ValuesOf(rows []Row, most int) map[string]int {
	named := map[string]map[string]bool{}
	for i := range rows {
		eachRequirement(rows[i].Profile.Requirements, rows[i].Profile.Preferences, func(r *Requirement) {
			seen := named[r.Key]
			if seen == nil && len(r.Values) > 0 {
				seen = map[string]bool{}
				named[r.Key] = seen
			}
			for k := 0; k < len(r.Values) && len(seen) <= most; k++ {
				seen[r.Values[k]] = true
			}
		})
	}
	count := make(map[string]int, len(named))
	for key, values := range named {
		count[key] = len(values)
	}
	return count
}

// Matches is how many rows differ in what machines they match.
func Matches(rows []Row) int {
	seen, b := map[[sha256.Size]byte]bool{}, []byte(nil)
	for i := range rows {
		b = rows[i].Profile.appendMatch(b[:0])
		seen[sha256.Sum256(b)] = true
	}
	return len(seen)
}

// KeysOf lists the label keys that rows name, and those of them that are topology keys, ascending.
func KeysOf(rows []Row) (labels, topology []string) {
	all, top := map[string]bool{}, map[string]bool{}
	for i := range rows {
		p := &rows[i].Profile
		for _, r := range p.Requirements {
			if all[r.Key] = true; r.Op == Same {
				top[r.Key] = true
			}
		}
		for _, s := range p.Spread {
			all[s.Key], top[s.Key] = true, true
		}
		for _, f := range p.Preferences {
			for _, r := range f.Requirements {
				all[r.Key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(top))
}

// KeyTotals is how many label keys the demand names, those twice of which some profile tests the value and another only that they are there, and how many
// topology keys.
func (t *Table) KeyTotals() (labels, topology int) {
	return len(t.keys.values) + len(t.keys.presence), len(t.keys.topology)
}

// NewKeys is how many of some label keys, and of some topology keys, nothing in the demand names.
func (t *Table) NewKeys(labels, topology []string) (newLabels, newTopology int) {
	for _, key := range labels {
		if t.keys.values[key]+t.keys.presence[key] == 0 {
			newLabels++
		}
	}
	for _, key := range topology {
		if t.keys.topology[key] == 0 {
			newTopology++
		}
	}
	return newLabels, newTopology
}
