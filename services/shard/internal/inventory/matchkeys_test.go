package inventory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// keyFleet is machines that differ in labels, and one class of each of the others.
func keyFleet(machines int) *Table {
	tab := New(symbol.NewSpace())
	for i := range machines {
		m := Machine{ID: fmt.Sprintf("m%05d", i), State: Idle, Provider: "p",
			Labels: []Label{{Key: "arch", Value: []string{"amd64", "arm64"}[i%2]}, {Key: "host", Value: fmt.Sprint("h", i)}}}
		for k := range 3 * spareKeys {
			m.Labels = append(m.Labels, Label{Key: fmt.Sprintf("k%03d", k), Value: "v"})
		}
		tab.Put(m)
	}
	return tab
}

func (t *Table) liveClasses() (n int) {
	for id := range t.Classes() {
		if t.Class(uint32(id)).Serial != 0 {
			n++
		}
	}
	return n
}

// ENG-6.5a: a key that no machine has changes no class, also where its name is known as something else, and is forgotten with its last
// profile.
func TestKeysThatNoMachineHasChangeNothing(t *testing.T) {
	tab := keyFleet(10)
	tab.SetMatchKeys(MatchKeys{Values: []string{"arch"}})
	classes, names := tab.ClassVersion(), tab.space.Strings.Live()
	for i := range 500 {
		key := fmt.Sprint("example.com/", i)
		if i%5 == 0 {
			key = "amd64" // a value of others
		}
		tab.SetMatchKeys(MatchKeys{Values: []string{"arch", key}, Presence: []string{key + "x"}})
	}
	if tab.ClassVersion() != classes || tab.liveClasses() != 2 {
		t.Errorf("%d changes of classes, %d classes", tab.ClassVersion()-classes, tab.liveClasses())
	}
	tab.SetMatchKeys(MatchKeys{Values: []string{"arch"}})
	if n := tab.space.Strings.Live(); n != names {
		t.Errorf("%d strings, %d before", n, names)
	}
}

// ENG-6.5a: a key that machines have classes them once, whichever other keys come and go beside it; also when the presence of a key is asked
// for after its values were.
func TestKeysThatComeAgainChangeNothing(t *testing.T) {
	tab := keyFleet(10)
	tab.SetMatchKeys(MatchKeys{Values: []string{"arch"}})
	tab.SetMatchKeys(MatchKeys{Presence: []string{"k001"}})
	classes := tab.ClassVersion()
	for i := range 100 {
		tab.SetMatchKeys([]MatchKeys{{Values: []string{"arch", fmt.Sprint("none", i)}}, {Presence: []string{"k001"}}, {Presence: []string{"arch"}}, {}}[i%4])
	}
	if tab.ClassVersion() != classes || tab.liveClasses() != 2 {
		t.Errorf("%d changes of classes, %d classes", tab.ClassVersion()-classes, tab.liveClasses())
	}
}

// ENG-6.5a: only machines that have a key are classed again for it.
func TestOnlyMachinesWithTheKeyAreClassedAgain(t *testing.T) {
	tab := keyFleet(10)
	i, _ := tab.Put(Machine{ID: "red1", State: Configured, Cluster: "red", Provider: "p", Labels: []Label{{Key: "team", Value: "red"}}})
	j, _ := tab.Put(Machine{ID: "blue1", State: Configured, Cluster: "blue", Provider: "p"})
	version := func(i Index) uint64 { _, v := tab.Members(tab.Row(i).Cluster); return v }
	red, blue := version(i), version(j)
	tab.SetMatchKeys(MatchKeys{Values: []string{"team"}})
	if version(i) == red {
		t.Error("the cluster of the machine with the key does not know")
	}
	if version(j) != blue {
		t.Error("a cluster without such a machine is disturbed")
	}
}

// ENG-6.5a: what is remembered is bounded: a key that tells all machines apart goes with its last profile, and many keys go together.
func TestSpareKeysAreBounded(t *testing.T) {
	tab := keyFleet(spareValues + 2)
	tab.SetMatchKeys(MatchKeys{Values: []string{"host"}})
	if n := tab.liveClasses(); n != spareValues+2 {
		t.Fatalf("%d classes", n)
	}
	tab.SetMatchKeys(MatchKeys{Values: []string{"arch"}})
	if n := tab.liveClasses(); n != 2 {
		t.Errorf("%d classes remain of a key that tells all machines apart", n)
	}
	tab = keyFleet(2)
	for k := range 3 * spareKeys {
		tab.SetMatchKeys(MatchKeys{Values: []string{fmt.Sprintf("k%03d", k)}})
		if n := len(tab.keys.all()); n > spareKeys+2 {
			t.Fatalf("%d keys are remembered", n)
		}
	}
}

// namedHosts says that profiles name some values of each key.
func namedHosts(values ...string) func(string) (values, alike []string, bounds []int64) {
	return func(string) ([]string, []string, []int64) { return values, values, nil }
}

// ENG-6.5b: of a key that tells all machines apart, only the values that profiles name tell classes apart, and only the machines with a value that comes into
// use or goes out of it are classed again.
func TestValuesThatNoProfileNamesSplitNoClass(t *testing.T) {
	const machines = WideMin + 100
	tab := keyFleet(machines)
	hosts := func(values ...string) MatchKeys {
		return MatchKeys{Values: []string{"host"}, Named: namedHosts(values...)}
	}
	for _, x := range []struct {
		keys MatchKeys
		want int
	}{
		{hosts(), 1}, {hosts("h7", "h8", "nowhere"), 3}, {hosts("h8"), 2},
		{MatchKeys{Values: []string{"host"}, Presence: []string{"host"}, Named: namedHosts("h7")}, 2},
		{MatchKeys{Values: []string{"host"}}, machines},
		{hosts("h7", "late"), 2},
	} {
		tab.SetMatchKeys(x.keys)
		if n := tab.liveClasses(); n != x.want {
			t.Errorf("%d classes, want %d", n, x.want)
		}
	}
	value := func(i Index) string {
		v, _ := tab.ClassAttr(tab.Class(tab.Row(i).Class), "host")
		return v
	}
	at := func(host string) Index {
		i, _ := tab.Put(Machine{ID: host, State: Idle, Provider: "p", Labels: []Label{{Key: "host", Value: host}}})
		return i
	}
	if a, b := at("late"), at("other"); value(a) != "late" || value(b) != "" || tab.liveClasses() != 3 {
		t.Errorf("machines that come later have %q and %q, of %d classes", value(a), value(b), tab.liveClasses())
	}
	version := tab.ClassVersion()
	tab.SetMatchKeys(hosts("h7", "late", "nowhere"))
	if tab.ClassVersion() != version {
		t.Error("a value that no machine has changes classes")
	}
	tab.SetMatchKeys(MatchKeys{})
	if _, known := tab.space.Strings.Find("nowhere"); known {
		t.Error("a value is remembered that nothing names")
	}
}

// ENG-6.5b: a key that becomes wide while it is in use is found then.
func TestKeysBecomeWideAsMachinesCome(t *testing.T) {
	tab := New(symbol.NewSpace())
	keys := MatchKeys{Values: []string{"host"}, Named: namedHosts("h7")}
	tab.SetMatchKeys(keys)
	for i := range 4 * WideMin {
		tab.Put(Machine{ID: fmt.Sprint("m", i), State: Idle, Provider: "p", Labels: []Label{{Key: "host", Value: fmt.Sprint("h", i)}}})
		if tab.matchKeysDue() {
			tab.SetMatchKeys(keys)
		}
	}
	if n := tab.liveClasses(); n != 2 || !tab.wide() {
		t.Errorf("%d classes", n)
	}
}

// ENG-6.5b: keys with few values each that tell many machines apart together, as a rack and a place in it, count by the values that profiles name; whether the keys come
// first or the machines.
func TestKeysThatTellManyApartTogetherAreWide(t *testing.T) {
	const racks, places = 200, 100
	keys := MatchKeys{Values: []string{"rack", "place"}, Named: func(key string) (values, alike []string, bounds []int64) {
		return []string{key + "7"}, []string{key + "7"}, nil
	}}
	put := func(tab *Table) {
		for i := range racks * places {
			tab.Put(Machine{ID: fmt.Sprintf("m%05d", i), State: Idle, Provider: "p",
				Labels: []Label{{Key: "rack", Value: fmt.Sprint("rack", i%racks)}, {Key: "place", Value: fmt.Sprint("place", i/racks)}}})
		}
	}
	late, early := New(symbol.NewSpace()), New(symbol.NewSpace())
	put(late)
	late.SetMatchKeys(keys)
	early.SetMatchKeys(keys)
	put(early)
	if early.matchKeysDue() {
		early.SetMatchKeys(keys)
	}
	for _, tab := range []*Table{late, early} {
		for range 2 { // and it stays so
			if n := tab.liveClasses(); n != 4 {
				t.Errorf("%d classes, want those of one rack or another and of one place or another", n)
			}
			tab.SetMatchKeys(keys)
		}
	}
}

// ENG-6.5b: numbers of classes are never fewer, and so keys that would make a class of each machine together do not make them first.
func TestKeysThatBecomeWideMakeFewClasses(t *testing.T) {
	const side = 230
	tab := New(symbol.NewSpace())
	for i := range side * side {
		row := 0
		if i > side*side/2 {
			row = i % 1000
		}
		tab.Put(Machine{ID: fmt.Sprintf("m%05d", i), State: Idle, Provider: "p",
			Labels: []Label{{Key: "rack", Value: fmt.Sprint("rack", i%side)}, {Key: "place", Value: fmt.Sprint("place", i/side)}, {Key: "row", Value: fmt.Sprint("row", row)}}})
	}
	for _, keys := range [][]string{{"rack", "place", "row"}, {"place", "row"}, {"rack"}, {"place", "rack"}, {"place", "rack", "row"}} {
		tab.SetMatchKeys(MatchKeys{Values: keys, Named: namedHosts("rack7", "row7")})
		if live, all := tab.liveClasses(), tab.Classes(); live > 300 || all > ClassesMany+10 {
			t.Errorf("%v: %d classes, of %d numbers", keys, live, all)
		}
	}
}

// ENG-6.5b: where profiles compare values of a wide key with numbers, integers that every comparison answers alike count as one, and what is no integer
// counts as one more. No text that profiles name stands for others.
func TestIntegersBetweenBoundsAreOneValue(t *testing.T) {
	tab := New(symbol.NewSpace())
	slots := map[Index]int64{}
	for i := range int64(WideMin + 100) {
		at, _ := tab.Put(Machine{ID: fmt.Sprint("m", i), State: Idle, Provider: "p", Labels: []Label{{Key: "slot", Value: fmt.Sprint(i - 500)}}})
		slots[at] = i - 500
	}
	for _, other := range []string{"none", "1e3", "00", "007", "9223372036854775807", "-9223372036854775808"} {
		at, _ := tab.Put(Machine{ID: other, State: Idle, Provider: "p", Labels: []Label{{Key: "slot", Value: other}}})
		if n, err := strconv.ParseInt(other, 10, 64); err == nil {
			slots[at] = n
		}
	}
	before := tab.space.Strings.Live()
	for _, x := range []struct {
		values []string
		bounds []int64
		want   int
	}{
		{nil, []int64{0}, 4},
		{nil, []int64{-1, 0, 7}, 7}, // nothing lies between -1 and 0
		{[]string{"-1", "0", "1", "6", "8"}, []int64{0, 7}, 11},
		{nil, []int64{math.MinInt64, math.MaxInt64}, 4},
	} {
		tab.SetMatchKeys(MatchKeys{Values: []string{"slot"}, Named: func(string) (values, alike []string, bounds []int64) {
			return x.values, x.values, x.bounds
		}})
		if n := tab.liveClasses(); n != x.want {
			t.Errorf("%v and %v: %d classes, want %d", x.values, x.bounds, n, x.want)
		}
		for i := range tab.All() {
			value, _ := tab.ClassAttr(tab.Class(tab.Row(i).Class), "slot")
			own := tab.Machine(i).Labels[0].Value
			if named := slices.Contains(x.values, own); named != (own == value) && slices.Contains(x.values, value) {
				t.Errorf("%q is classed by %q", own, value)
			}
			n, isNumber := slots[i]
			stands, err := strconv.ParseInt(value, 10, 64)
			if isNumber != (err == nil) {
				t.Fatalf("%q is classed by %q", own, value)
			}
			for _, b := range x.bounds {
				if isNumber && cmp.Compare(n, b) != cmp.Compare(stands, b) {
					t.Errorf("%q is classed by %q, and compared with %d", own, value, b)
				}
			}
		}
	}
	tab.SetMatchKeys(MatchKeys{})
	if n := tab.space.Strings.Live(); n != before {
		t.Errorf("%d strings remain, of %d", n, before)
	}
}
