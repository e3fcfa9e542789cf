// Package symbol turns the strings of the shard's core into small numbers, so that passes over half a million machines
// compare integers and touch no string.
//
// A Table holds each string once and counts its users; a string without users is forgotten and its number is given
// to a later one (ENG-21.11). Numbers therefore depend on history: they MUST NOT decide anything, break a tie or leave
// the process. Code that orders things orders them by text (ENG-2.2).
//
// A Space is the set of tables that one demand.Table and one inventory.Table share, so that a row key on a machine and
// the same row key in the demand are one number. The tables above own the counting: callers of the core never do.
//
// Nothing here is safe for concurrent mutation. Start at Table and Space.
package symbol

import (
	"maps"
	"slices"
)

// ID names a string in one Table. 0 is always the empty string, which is never counted and never forgotten.
type ID uint32

// Table is a counted set of strings.
type Table struct {
	ids  map[string]ID
	text []string
	refs []int32
	free []ID
	gone uint64
}

// NewTable returns a table that holds the empty string only.
func NewTable() *Table {
	return &Table{ids: map[string]ID{"": 0}, text: []string{""}, refs: []int32{0}}
}

// Intern returns the number of s and adds one user.
func (t *Table) Intern(s string) ID {
	id, ok := t.ids[s]
	if !ok {
		if n := len(t.free); n > 0 {
			id, t.free = t.free[n-1], t.free[:n-1]
			t.text[id] = s
		} else {
			id = ID(len(t.text))
			t.text, t.refs = append(t.text, s), append(t.refs, 0)
		}
		t.ids[s] = id
	}
	t.Retain(id)
	return id
}

// Find returns the number of s, if it is known, without adding a user.
func (t *Table) Find(s string) (ID, bool) {
	id, ok := t.ids[s]
	return id, ok
}

// Text returns the string behind id.
func (t *Table) Text(id ID) string { return t.text[id] }

// Retain adds one user.
func (t *Table) Retain(id ID) {
	if id != 0 {
		t.refs[id]++
	}
}

// Release removes one user and reports whether that was the last one: then the string is forgotten and id is free.
func (t *Table) Release(id ID) bool {
	if id == 0 {
		return false
	}
	t.refs[id]--
	if t.refs[id] > 0 {
		return false
	}
	if t.refs[id] < 0 {
		panic("symbol: released more often than retained: " + t.text[id])
	}
	delete(t.ids, t.text[id])
	t.text[id] = ""
	t.free = append(t.free, id)
	t.gone++
	return true
}

// Len returns one more than the largest number in use: the length an array indexed by ID needs.
func (t *Table) Len() int { return len(t.text) }

// Forgotten counts the strings that were forgotten. While it stays the same, every number means what it meant.
func (t *Table) Forgotten() uint64 { return t.gone }

// Live returns how many strings are known, the empty one included.
func (t *Table) Live() int { return len(t.ids) }

// Clone returns an independent copy in which every number means the same.
func (t *Table) Clone() *Table {
	return &Table{ids: maps.Clone(t.ids), text: slices.Clone(t.text), refs: slices.Clone(t.refs), free: slices.Clone(t.free), gone: t.gone}
}
