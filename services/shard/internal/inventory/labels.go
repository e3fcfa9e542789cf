package inventory

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// labelSets holds each distinct set of labels once. A set is a run of key and value symbols in one array, by key symbol.
// Set 0 is the empty one.
type labelSets struct {
	words []symbol.ID
	sets  []labelSet
	index hashIndex
	free  []uint32
	dead  int // words of forgotten sets
}

type labelSet struct {
	at, n uint32 // words
	refs  int32
}

func newLabelSets() labelSets { return labelSets{sets: []labelSet{{}}} }

// get returns the words of a set.
func (l *labelSets) get(id uint32) []symbol.ID {
	s := l.sets[id]
	return l.words[s.at : s.at+s.n]
}

// value returns the value of a key in a set.
func (l *labelSets) value(id uint32, key symbol.ID) (symbol.ID, bool) {
	w := l.get(id)
	for i := 0; i < len(w); i += 2 {
		if w[i] == key {
			return w[i+1], true
		}
	}
	return 0, false
}

// values says how many values the sets have of the keys of topologies.
func (l *labelSets) values(of []*Topology) map[symbol.ID]int {
	var keys []symbol.ID
	for _, top := range of {
		keys = append(keys, top.Key)
	}
	out, seen := map[symbol.ID]int{}, map[symbol.ID][]uint64{} // a bit for each value
	l.each(keys, func(_ int, key, value symbol.ID) {
		bits, at := seen[key], int(value/64)
		if at >= len(bits) {
			bits = append(bits, make([]uint64, at+1-len(bits))...)
			seen[key] = bits
		}
		if bit := uint64(1) << (value % 64); bits[at]&bit == 0 {
			bits[at] |= bit
			out[key]++
		}
	})
	return out
}

func hashWords(w []symbol.ID) uint64 {
	h := uint64(len(w)) * 0x9E3779B97F4A7C15
	for _, x := range w {
		h = (h ^ uint64(x)) * 0xD6E8FEB86659FD93
		h ^= h >> 32
	}
	return h
}

// intern returns the id of a set of words, which must be sorted by key, and adds one user. A new set takes one user of
// each of its symbols; of a known one, the caller's symbols are released by the caller.
func (l *labelSets) intern(words []symbol.ID) (id uint32, isNew bool) {
	if len(words) == 0 {
		return 0, false
	}
	h := hashWords(words)
	if id, known := l.index.find(h, func(id uint32) bool { return slices.Equal(l.get(id), words) }); known {
		l.sets[id].refs++
		return id, false
	}
	if n := len(l.free); n > 0 {
		id, l.free = l.free[n-1], l.free[:n-1]
	} else {
		id = uint32(len(l.sets))
		l.sets = append(l.sets, labelSet{})
	}
	l.sets[id] = labelSet{at: uint32(len(l.words)), n: uint32(len(words)), refs: 1}
	l.words = append(l.words, words...)
	l.index.insert(h, id, l.hash)
	return id, true
}

func (l *labelSets) hash(id uint32) uint64 { return hashWords(l.get(id)) }

// release removes one user and returns the words of the set if it was the last one; they are valid until the next call.
func (l *labelSets) release(id uint32) []symbol.ID {
	if id == 0 {
		return nil
	}
	if l.sets[id].refs--; l.sets[id].refs > 0 {
		return nil
	}
	words := slices.Clone(l.get(id))
	l.index.remove(hashWords(words), id, l.hash)
	l.sets[id].n = 0
	l.dead += len(words)
	l.free = append(l.free, id)
	if l.dead > len(l.words)/2 && l.dead > 1024 {
		l.compact()
	}
	return words
}

func (l *labelSets) compact() {
	words := make([]symbol.ID, 0, len(l.words)-l.dead)
	for id := range l.sets {
		s := &l.sets[id]
		at := uint32(len(words))
		words = append(words, l.words[s.at:s.at+s.n]...)
		s.at = at
	}
	l.words, l.dead = words, 0
}

func (l *labelSets) clone() labelSets {
	return labelSets{words: slices.Clone(l.words), sets: slices.Clone(l.sets), index: l.index.clone(),
		free: slices.Clone(l.free), dead: l.dead}
}
