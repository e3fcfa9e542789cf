package inventory

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// MatchKeys says which label keys profiles look at: some for their values, some only for being there (ENG-6.5, 6.5a).
type MatchKeys struct {
	Values   []string // In, NotIn, Gt, Lt, and Same with values listed
	Presence []string // Exists, DoesNotExist, and Same and hard spread
}

// matchKeys is the keys that machines are classed by, as numbers, ascending. It is one user of each.
type matchKeys struct{ values, presence []symbol.ID }

// keyUse says what of a label tells classes apart.
type keyUse uint8

const (
	notUsed keyUse = iota
	byPresence
	byValue
)

func (k *matchKeys) use(key symbol.ID) keyUse {
	if _, ok := slices.BinarySearch(k.values, key); ok {
		return byValue
	}
	if _, ok := slices.BinarySearch(k.presence, key); ok {
		return byPresence
	}
	return notUsed
}

// all lists the keys; one may come twice.
func (k *matchKeys) all() []symbol.ID { return slices.Concat(k.values, k.presence) }

func (k *matchKeys) clone() matchKeys {
	return matchKeys{slices.Clone(k.values), slices.Clone(k.presence)}
}

// Keys that no profile looks at any more are remembered up to these bounds, because they may come again.
const (
	spareKeys   = 64
	spareValues = 1024 // of one key among the classes: one with more would split them for nothing
)

// SetMatchKeys states which keys profiles look at. Machines that have a label by which classes now differ in another way are
// classed again. No other machine is touched: a key that no machine has costs nothing, however often such keys come and go.
func (t *Table) SetMatchKeys(k MatchKeys) {
	here := t.keyValues()
	has := func(id symbol.ID) bool { return len(here[id]) > 0 }
	intern := func(keys []string) (ids []symbol.ID) {
		for _, key := range keys {
			_, known := t.space.Strings.Find(key)
			id := t.space.Strings.Intern(key)
			if known && here[id] == nil && t.keys.use(id) == notUsed { // it may be a label of machines
				here[id] = map[symbol.ID]bool{presence: true}
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		return ids
	}
	next := matchKeys{intern(k.Values), intern(k.Presence)}
	t.spare(&next, here)
	old := t.keys
	var differ []symbol.ID
	for _, id := range append(old.all(), next.all()...) {
		if old.use(id) != next.use(id) && has(id) {
			differ = append(differ, id)
		}
	}
	t.keys = next
	if sets := t.labelSets.having(differ); sets != nil {
		t.classAgain(sets)
	}
	for _, id := range old.all() {
		t.space.Strings.Release(id)
	}
}

// keyValues is the values by which classes differ, by key; of each key a few more than spareValues at most.
func (t *Table) keyValues() map[symbol.ID]map[symbol.ID]bool {
	out := map[symbol.ID]map[symbol.ID]bool{}
	for id := range t.projected.sets {
		for w := t.projected.get(uint32(id)); len(w) > 0; w = w[2:] {
			values := out[w[0]]
			if values == nil {
				values = map[symbol.ID]bool{}
				out[w[0]] = values
			}
			if len(values) <= spareValues {
				values[w[1]] = true
			}
		}
	}
	return out
}

// spare adds to the next keys those of now that are worth remembering, or none if they are many.
func (t *Table) spare(next *matchKeys, here map[symbol.ID]map[symbol.ID]bool) {
	worth := func(id symbol.ID) bool {
		return t.keys.use(id) > next.use(id) && len(here[id]) > 0 && len(here[id]) <= spareValues
	}
	values := slices.DeleteFunc(slices.Clone(t.keys.values), func(id symbol.ID) bool { return !worth(id) })
	exists := slices.DeleteFunc(slices.Clone(t.keys.presence), func(id symbol.ID) bool { return !worth(id) })
	if len(values)+len(exists) > spareKeys {
		return
	}
	for _, id := range append(slices.Clone(values), exists...) {
		t.space.Strings.Retain(id)
	}
	next.values, next.presence = append(next.values, values...), append(next.presence, exists...)
	slices.Sort(next.values)
	slices.Sort(next.presence)
}

// classAgain finds the classes of the machines with these sets of labels.
func (t *Table) classAgain(sets []bool) {
	for i := range Index(t.rows.n) {
		if t.rows.at(i).flags&isLive == 0 || !sets[t.labels[i]] {
			continue
		}
		old := t.rows.at(i).Class
		if id := t.classFor(t.classes[old].Shape, t.labels[i]); id != old {
			t.leave(i)
			t.rows.at(i).Class = id
			t.enter(i)
		}
		t.releaseClass(old) // classFor has added a user, the same one or another
	}
}

// having says which sets have one of some keys, or nil if none has.
func (l *labelSets) having(keys []symbol.ID) (sets []bool) {
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	for id := range l.sets {
		for w := l.get(uint32(id)); len(w) > 0; w = w[2:] {
			if _, in := slices.BinarySearch(keys, w[0]); in {
				if sets == nil {
					sets = make([]bool, len(l.sets))
				}
				sets[id] = true
				break
			}
		}
	}
	return sets
}
