package inventory

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// MatchKeys says which label keys profiles look at: some for their values, some only for being there (ENG-6.5, 6.5a).
type MatchKeys struct {
	Values   []string // In, NotIn, Gt, Lt, and Same with values listed
	Presence []string // Exists, DoesNotExist, and Same and hard spread

	// Named lists the values that profiles name of a key, for each the least one that they all answer alike, and the numbers that they compare its values with:
	// ascending and each once, but for alike. It is asked about wide keys alone (ENG-6.5b), and not kept. Without it no key is wide.
	Named func(key string) (values, alike []string, bounds []int64)
	Wide  int // a key is wide of which machines have more values; 0: WideMin
}

// WideMin is how many values of a key tell classes apart whether profiles name them or not, and ClassesMany is of how many classes on each key is wide: several keys with few
// values each tell as many machines apart as one with many.
const WideMin, ClassesMany = 1024, 16_384

// matchKeys is the keys that machines are classed by, as numbers, ascending. It is one user of each, and of the values that are named.
type matchKeys struct {
	values, presence []symbol.ID
	named            map[symbol.ID]*namedValues // by wide key of values
}

// namedValues are the values of a wide key that tell classes apart. Integers that profiles compare with the same result count as one value: its text is an
// integer like them, and none that is named.
type namedValues struct {
	values map[symbol.ID]symbol.ID // what stands for each of them
	bounds []int64
	ranges []symbol.ID // what is below the first bound, equals it, lies between it and the second one, and so on; 0 where nothing is
}

// of returns the value that stands for a value.
func (n *namedValues) of(str *symbol.Table, value symbol.ID) symbol.ID {
	if like, named := n.values[value]; named {
		return like
	}
	if len(n.bounds) > 0 {
		if v, err := strconv.ParseInt(str.Text(value), 10, 64); err == nil {
			at, equal := slices.BinarySearch(n.bounds, v)
			if equal {
				return n.ranges[2*at+1]
			}
			return n.ranges[2*at]
		}
	}
	return Unnamed
}

// newNamedValues makes them from what profiles name, as one user of each text.
func newNamedValues(str *symbol.Table, values, alike []string, bounds []int64) *namedValues {
	n := &namedValues{make(map[symbol.ID]symbol.ID, len(values)), bounds, make([]symbol.ID, 2*len(bounds)+1)}
	for i, v := range values {
		id := str.Intern(v)
		n.values[id], _ = str.Find(alike[i]) // which is v, or came before
	}
	name := func(at int, v int64) {
		text := strconv.FormatInt(v, 10)
		digits, negative := strings.CutPrefix(text, "-")
		for _, taken := slices.BinarySearch(values, text); taken; _, taken = slices.BinarySearch(values, text) {
			if digits = "0" + digits; negative {
				text = "-" + digits
			} else {
				text = digits
			}
		}
		n.ranges[at] = str.Intern(text)
	}
	for i, b := range bounds {
		if b > math.MinInt64 && (i == 0 || bounds[i-1] < b-1) {
			name(2*i, b-1)
		}
		name(2*i+1, b)
		if i == len(bounds)-1 && b < math.MaxInt64 {
			name(2*i+2, b+1)
		}
	}
	return n
}

// release gives back the texts.
func (n *namedValues) release(str *symbol.Table) {
	for _, id := range append(slices.Sorted(maps.Keys(n.values)), n.ranges...) {
		str.Release(id)
	}
}

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

// project returns what of a label tells classes apart, if anything does.
func (k *matchKeys) project(str *symbol.Table, key, value symbol.ID) (symbol.ID, bool) {
	switch k.use(key) {
	case byValue:
		if named := k.named[key]; named != nil {
			return named.of(str, value), true
		}
		return value, true
	case byPresence:
		return presence, true
	}
	return 0, false
}

// all lists the keys; one may come twice.
func (k *matchKeys) all() []symbol.ID { return slices.Concat(k.values, k.presence) }

func (k *matchKeys) clone() matchKeys {
	return matchKeys{slices.Clone(k.values), slices.Clone(k.presence), k.named} // which never changes
}

// Keys that no profile looks at any more are remembered up to these bounds, because they may come again.
const (
	spareKeys   = 64
	spareValues = 1024 // of one key among the classes: one with more would split them for nothing
	// spareDomains is how many domains the topologies of such keys have together.
	spareDomains = 1 << 16
)

// SetMatchKeys states which keys profiles look at. Machines that have a label by which classes now differ in another way are
// classed again. No other machine is touched: a key that no machine has costs nothing, however often such keys come and go.
func (t *Table) SetMatchKeys(k MatchKeys) {
	if narrow, left := t.setMatchKeys(k, nil); narrow && (len(t.classIDs) > ClassesMany || left != nil) {
		k.Wide = 1
		t.setMatchKeys(k, left)
	}
}

// setMatchKeys also classes the machines with the sets of labels that an attempt before it has left.
func (t *Table) setMatchKeys(k MatchKeys, sets []bool) (narrow bool, left []bool) {
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
	next := matchKeys{values: intern(k.Values), presence: intern(k.Presence)}
	t.spare(&next, here)
	narrow = t.name(&next, k, here)
	old := t.keys
	var differ []symbol.ID
	for _, id := range append(old.all(), next.all()...) {
		if (old.use(id) != next.use(id) || !old.namesAlike(&next, id)) && has(id) {
			differ = append(differ, id)
		}
	}
	t.keys = next
	if sets = t.labelSets.projectedApart(t.space.Strings, differ, &old, &next, sets); sets != nil && !t.classAgain(sets, narrow) {
		left = sets
	}
	t.keysAs = len(t.classIDs)
	for _, id := range old.all() {
		t.space.Strings.Release(id)
	}
	for _, id := range slices.Sorted(maps.Keys(old.named)) {
		old.named[id].release(t.space.Strings)
	}
	return narrow, left
}

// namesAlike reports whether the same values of a key tell classes apart.
func (k *matchKeys) namesAlike(other *matchKeys, key symbol.ID) bool {
	a, b := k.named[key], other.named[key]
	return a == b || a != nil && b != nil && maps.Equal(a.values, b.values) && slices.Equal(a.bounds, b.bounds)
}

// namedMax is how many values of a wide key all clusters together may tell apart; of more, all values tell classes apart.
const namedMax = 1 << 16

// name finds the wide keys, and the values of them that profiles name, and reports whether some key of several values is none. A key stays wide while it is in use.
func (t *Table) name(next *matchKeys, k MatchKeys, here map[symbol.ID]map[symbol.ID]bool) (narrow bool) {
	if k.Named == nil {
		return false
	}
	least := min(cmp.Or(k.Wide, WideMin), spareValues) // of more, here has not all
	var wide, fresh []symbol.ID
	for _, id := range next.values {
		switch {
		case id == t.typeKey || id == t.zoneKey || k.Wide == 0 && len(here[id]) == 0: // those have one value in a class, and no machine has these
		case t.keys.named[id] != nil || t.keys.use(id) == byValue && len(here[id]) > least:
			wide = append(wide, id)
		case k.Wide > 0 || t.keys.use(id) != byValue: // or here is not complete
			fresh = append(fresh, id)
		default:
			narrow = narrow || len(here[id]) > 1
		}
	}
	freshWide := t.labelSets.wide(fresh, least)
	narrow = narrow || least > 1 && len(freshWide) < len(fresh)
	next.named = map[symbol.ID]*namedValues{}
	for _, id := range append(wide, freshWide...) {
		if next.named[id] != nil { // it is listed twice
			continue
		}
		values, alike, bounds := k.Named(t.space.Strings.Text(id))
		if differ := len(slices.Compact(slices.Sorted(slices.Values(alike)))); differ+len(bounds) <= namedMax {
			next.named[id] = newNamedValues(t.space.Strings, values, alike, bounds)
		}
	}
	return narrow
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

// classAgain finds the classes of the machines with these sets of labels. If some key may become wide it gives up when so many classes have come that it
// will: numbers of classes are never fewer, and each requirement has a bit for each.
func (t *Table) classAgain(sets []bool, narrow bool) (done bool) {
	most := len(t.classIDs) + ClassesMany
	for i := range Index(t.rows.n) {
		if narrow && len(t.classIDs) > most {
			return false
		}
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
	return true
}

// projectedApart says of which sets a label with one of some keys counts as another one than before, beside those that are given, or nil if of none.
func (l *labelSets) projectedApart(str *symbol.Table, keys []symbol.ID, before, now *matchKeys, sets []bool) []bool {
	l.each(keys, func(set int, key, value symbol.ID) {
		was, had := before.project(str, key, value)
		if is, has := now.project(str, key, value); was != is || had != has {
			if sets == nil {
				sets = make([]bool, len(l.sets))
			}
			sets[set] = true
		}
	})
	return sets
}

// wide returns those of the keys of which the sets have more than so many values.
func (l *labelSets) wide(keys []symbol.ID, least int) (out []symbol.ID) {
	values := map[symbol.ID]map[symbol.ID]bool{}
	for _, key := range keys {
		values[key] = map[symbol.ID]bool{}
	}
	l.each(keys, func(_ int, key, value symbol.ID) {
		if seen := values[key]; len(seen) <= least {
			seen[value] = true
		}
	})
	for _, key := range keys {
		if len(values[key]) > least {
			out = append(out, key)
		}
	}
	return out
}

// each visits the labels with some keys.
func (l *labelSets) each(keys []symbol.ID, visit func(set int, key, value symbol.ID)) {
	if len(keys) == 0 {
		return
	}
	slices.Sort(keys)
	for id := range l.sets {
		for w := l.get(uint32(id)); len(w) > 0; w = w[2:] {
			if _, in := slices.BinarySearch(keys, w[0]); in {
				visit(id, w[0], w[1])
			}
		}
	}
}
