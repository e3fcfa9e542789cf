package inventory

import (
	"fmt"
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
