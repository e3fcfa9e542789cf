package demand

import (
	"cmp"
	"slices"
)

// Preference is one preferred node affinity term: machines that satisfy it are better than others at the same cost (ENG-7.4a).
type Preference struct {
	Weight       int32         `n:"1"` // 1 to 100
	Requirements []Requirement `n:"2"` // all of them; none is Same
}

// Bounds of preferences.
const (
	PreferencesMax = 8
	weightMax      = 100
)

// What one machine costs more than another of the same price because it is liked less, in millionths of a dollar an hour. All of it together stays
// below a ten-thousandth of a dollar, which is the step in which prices differ.
const TaintDislike = 10 // of a PreferNoSchedule taint that is not tolerated, however many there are

// Dislike is the same for a machine that does not satisfy the preference: 1 to 10.
func (p *Preference) Dislike() int64 { return int64(p.Weight+9) / 10 }

// canonicalPreferences sorts them, largest weight first, and leaves out what is none: a term without requirements, or with Same.
func canonicalPreferences(in []Preference) []Preference {
	var out []Preference
	for _, f := range in {
		if len(f.Requirements) == 0 || slices.ContainsFunc(f.Requirements, func(r Requirement) bool { return r.Op == Same }) {
			continue
		}
		out = append(out, Preference{min(max(1, f.Weight), weightMax), canonicalRequirements(f.Requirements)})
	}
	slices.SortFunc(out, func(a, b Preference) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), slices.CompareFunc(a.Requirements, b.Requirements, compareRequirements))
	})
	return out[:min(len(out), PreferencesMax):min(len(out), PreferencesMax)]
}

// appendPreferences spells out preferences in canonical form; nothing if there are none, so that profiles without any keep their names.
func (p *Profile) appendPreferences(b []byte) []byte {
	if len(p.Preferences) == 0 {
		return b
	}
	b = appendNumber(appendField(b, "preferences"), len(p.Preferences))
	for _, f := range p.Preferences {
		b = appendRequirements(appendNumber(b, int(f.Weight)), f.Requirements)
	}
	return b
}
