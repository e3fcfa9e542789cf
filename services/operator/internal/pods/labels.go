package pods

import (
	"maps"
	"slices"
	"strings"
	"unique"
)

// LabelSet is a set of labels that equal Pods share in memory. Equal sets compare equal.
type LabelSet struct{ text unique.Handle[string] }

const labelEnd = "\x00" // in no key and no value

// NewLabelSet returns the shared form of labels.
func NewLabelSet(labels map[string]string) LabelSet {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(k + labelEnd + labels[k] + labelEnd)
	}
	return LabelSet{unique.Make(b.String())}
}

// Labels returns the set as a map.
func (s LabelSet) Labels() map[string]string {
	out := map[string]string{}
	if s == (LabelSet{}) {
		return out
	}
	for text := s.text.Value(); text != ""; {
		var k, v string
		k, text, _ = strings.Cut(text, labelEnd)
		v, text, _ = strings.Cut(text, labelEnd)
		out[k] = v
	}
	return out
}
