package inventory

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// nodeLabels are two sets of labels of a machine whose node has labels that its provider did not state. What profiles are
// matched with, Table.labels, is the first with the second put over it.
type nodeLabels struct{ provider, node uint32 }

// SetNodeLabels lays the labels of a machine's node over those that its provider states, or takes them away if there are none.
// A machine that leaves its cluster loses them.
func (t *Table) SetNodeLabels(i Index, list []Label) bool {
	old := t.nodeLabels[i]
	node := t.internLabels(list)
	if node == old.node {
		t.releaseLabels(node)
		return false
	}
	t.leave(i)
	t.setNodeLabels(i, node)
	t.enter(i)
	return true
}

// NodeLabels are the labels of a machine as profiles are matched with them, sorted by key.
func (t *Table) NodeLabels(i Index) []Label { return t.listLabels(t.labels[i]) }

// OfNode are the labels that SetNodeLabels stored, sorted by key.
func (t *Table) OfNode(i Index) []Label { return t.listLabels(t.nodeLabels[i].node) }

// setNodeLabels puts a set of labels of the node in the place of the one that a machine has, if any, and classes the machine. It takes
// over the caller's use of the set.
func (t *Table) setNodeLabels(i Index, node uint32) {
	old, had := t.nodeLabels[i]
	before, provider := t.labels[i], t.labels[i]
	if had {
		provider = old.provider
	}
	if node == 0 {
		delete(t.nodeLabels, i)
		t.labels[i] = provider
	} else {
		if t.nodeLabels == nil {
			t.nodeLabels = map[Index]nodeLabels{}
		}
		t.nodeLabels[i] = nodeLabels{provider, node}
		t.labels[i] = t.overlaid(provider, node)
	}
	r := t.rows.at(i)
	class := r.Class
	r.Class = t.classFor(t.classes[class].Shape, t.labels[i])
	t.releaseClass(class)
	if had {
		t.releaseLabels(before)
		t.releaseLabels(old.node)
	}
}

// overlaid is one set with another put over it, with one user more.
func (t *Table) overlaid(under, over uint32) uint32 {
	var words []symbol.ID
	top := t.labelSets.get(over)
	words = append(words, top...)
	for w := t.labelSets.get(under); len(w) > 0; w = w[2:] {
		if _, hidden := t.labelSets.value(over, w[0]); !hidden {
			words = append(words, w[0], w[1])
		}
	}
	sortPairs(words)
	id, isNew := t.labelSets.intern(words)
	if isNew { // a new set has a user of each of its symbols
		t.walk(words)
		for _, w := range words {
			t.space.Strings.Intern(t.space.Strings.Text(w))
		}
	}
	return id
}

func (t *Table) listLabels(set uint32) (out []Label) {
	str := t.space.Strings
	for w := t.labelSets.get(set); len(w) > 0; w = w[2:] {
		out = append(out, Label{str.Text(w[0]), str.Text(w[1])})
	}
	slices.SortFunc(out, compareLabelKeys)
	return out
}

// providerLabels is the set of the labels that a machine's provider states.
func (t *Table) providerLabels(i Index) uint32 {
	if l, has := t.nodeLabels[i]; has {
		return l.provider
	}
	return t.labels[i]
}
