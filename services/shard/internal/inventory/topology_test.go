package inventory

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// hasMany reports whether labels of machines, their providers' or their Nodes', have more values of a key than make domains.
func (t *Table) hasMany(key symbol.ID) bool {
	values := map[symbol.ID]bool{}
	for i := range Index(t.rows.n) {
		if t.rows.at(i).flags&isLive == 0 {
			continue
		}
		l := t.nodeLabels[i]
		for _, set := range []uint32{t.labels[i], l.provider, l.node} {
			if v, has := t.labelSets.value(set, key); has {
				values[v] = true
			}
		}
	}
	return len(values) > t.domainsMax
}

// whole compares each topology with what the rows say: counts of free and of owned machines by class, and the order of pools.
func whole(t *rapid.T, tab *Table) {
	for _, top := range tab.topology {
		if top.many && len(top.Domains) > 0 {
			t.Fatalf("%s has many values, and domains", tab.space.Strings.Text(top.Key))
		}
		if many := tab.hasMany(top.Key); top.many != many && !top.byClass && !top.due() {
			t.Fatalf("%s has many values: %v, and it is not counted again", tab.space.Strings.Text(top.Key), many)
		}
		if top.many {
			continue
		}
		if tab.topologyOf[top.Key] != top || len(top.Domains) > 0 && !slices.Contains(tab.walked, top) {
			t.Fatalf("%s is not found", tab.space.Strings.Text(top.Key))
		}
		free, owned, pooled := map[[3]uint64]int32{}, map[[2]uint64]int32{}, map[[2]uint64][]Index{}
		for i := range Index(tab.rows.n) {
			r := tab.rows.at(i)
			v, has := tab.Value(i, top.Key)
			if r.flags&isLive == 0 || !has {
				continue
			}
			if r.sound() {
				owned[[2]uint64{uint64(v), uint64(r.Class)}]++
			}
			if k, ok := r.pool(); ok {
				free[[3]uint64{uint64(k), uint64(v), uint64(r.Class)}]++
				pooled[[2]uint64{uint64(k), uint64(v)}] = append(pooled[[2]uint64{uint64(k), uint64(v)}], i)
			}
		}
		key := tab.space.Strings.Text(top.Key)
		for _, d := range top.Domains {
			for _, c := range d.Owned {
				at := [2]uint64{uint64(d.Value), uint64(c.Class)}
				if owned[at] != c.N {
					t.Fatalf("%s: %d owned machines of a class, want %d", key, c.N, owned[at])
				}
				delete(owned, at)
			}
			for k := range d.Cells {
				for _, c := range d.Cells[k] {
					at := [3]uint64{uint64(k), uint64(d.Value), uint64(c.Class)}
					if free[at] != c.N {
						t.Fatalf("%s: %d free machines of a class, want %d", key, c.N, free[at])
					}
					delete(free, at)
				}
				want := pooled[[2]uint64{uint64(k), uint64(d.Value)}]
				slices.SortFunc(want, func(a, b Index) int {
					if tab.byClass(a, b) {
						return -1
					}
					return 1
				})
				if got := slices.Concat(d.Pools[k].chunks...); !top.byClass && (!slices.Equal(got, want) || d.Pools[k].n != len(want)) {
					t.Fatalf("%s: a pool is %v, want %v", key, got, want)
				}
			}
		}
		if len(owned)+len(free) > 0 {
			t.Fatalf("%s: machines are missing: owned %v, free %v", key, owned, free)
		}
	}
}

// ENG-21.9: whichever topology keys come and go while machines change, each index says what the machines say, and in the end nothing is left.
func TestTopologiesComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := symbol.NewSpace()
		tab := New(space)
		tab.domainsMax = rapid.SampledFrom([]int{1, 2, DomainsMax}).Draw(t, "domains at most")
		mod := &model{machines: map[string]*modelMachine{}}
		keys := []string{"rack", "zone", ZoneKey, TypeKey, "none"}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 5).Draw(t, "other keys") == 0 {
				some := slices.DeleteFunc(slices.Clone(keys), func(string) bool { return rapid.Bool().Draw(t, "without") })
				slices.Sort(some)
				var values []string
				for _, key := range some {
					if key == ZoneKey || key == TypeKey {
						values = append(values, key)
					}
				}
				tab.SetMatchKeys(MatchKeys{Values: values, Presence: some})
				tab.SetTopologyKeys(some)
				for _, top := range tab.topology {
					if top.due() || !top.byClass && top.many != tab.hasMany(top.Key) {
						t.Fatal("what has domains does not follow from the machines")
					}
				}
			}
			step(t, tab, mod)
			whole(t, tab)
		}
		leaveNothing(t, space, tab, mod)
	})
}

// racks is a fleet of free machines with labels, one value in a hundred machines.
func racks(machines, labels int) *Table {
	tab := New(symbol.NewSpace())
	for i := range machines {
		m := Machine{ID: fmt.Sprintf("m%06d", i), State: State(Idle), Provider: "p"}
		for l := range labels {
			m.Labels = append(m.Labels, Label{Key: fmt.Sprintf("label%02d", l), Value: fmt.Sprint("v", i%100)})
		}
		tab.Put(m)
	}
	return tab
}

// ENG-21.9: a key that comes again finds its index. What is kept is bounded: a key that no machine has is not, and all have so many domains together.
func TestTopologiesAreRemembered(t *testing.T) {
	tab := racks(2000, 3)
	for i := range spareDomains - 150 {
		tab.Put(Machine{ID: fmt.Sprintf("h%06d", i), State: Idle, Provider: "p", Labels: []Label{{Key: "host", Value: fmt.Sprint(i)}}})
	}
	find := func(key string) *Topology {
		id, _ := tab.space.Strings.Find(key)
		return tab.TopologyOf(id)
	}
	tab.SetTopologyKeys([]string{"host", "label00", "unknown"})
	first, hosts := find("label00"), find("host")
	tab.SetTopologyKeys([]string{"label01"})
	tab.SetTopologyKeys([]string{"label00"})
	if find("label00") != first || find("host") != hosts || find("label01") == nil {
		t.Error("an index of machines was made again, or forgotten")
	}
	tab.SetTopologyKeys([]string{"label02"})
	if find("host") != nil || find("unknown") != nil || find("label00") != first {
		t.Error("a key that no machine has is remembered, or more domains than are kept")
	}
	for k := range 3 * spareKeys {
		key := fmt.Sprint("many", k)
		tab.Put(Machine{ID: "x" + key, State: Idle, Provider: "p", Labels: []Label{{Key: key, Value: "v"}}})
		tab.SetTopologyKeys([]string{key})
		if n := len(tab.topology); n > spareKeys+1 {
			t.Fatalf("%d topologies are kept", n)
		}
	}
}

// ENG-10.14: a key of which machines have more values than make domains has none, which is what machines say and not what they said, and costs nothing but
// a look at all labels.
func TestTopologyKeysThatTellMachinesApart(t *testing.T) {
	tab := New(symbol.NewSpace())
	put := func(i int, host string) {
		tab.Put(Machine{ID: fmt.Sprint("m", i), State: Idle, Provider: "p", Labels: []Label{{Key: "host", Value: host}}})
	}
	key := tab.space.Strings.Intern("host")
	d := &keysOf{topology: []string{"host"}}
	domains := func(want int) {
		t.Helper()
		tab.ClassFor(d)
		if n := len(tab.TopologyOf(key).Domains); n != want || tab.HasDomains("host") != (want > 0) {
			t.Errorf("%d domains, want %d", n, want)
		}
	}
	for i := range DomainsMax {
		put(i, fmt.Sprint("h", i))
	}
	domains(DomainsMax)
	put(DomainsMax, "h0") // a machine more, and no value
	domains(DomainsMax)
	put(DomainsMax, "another")
	before := tab.Turned()
	domains(0)
	put(DomainsMax+1, "one more")
	domains(0)
	put(DomainsMax+1, "h0")
	put(DomainsMax, "h0")
	domains(DomainsMax)
	if n := tab.Turned() - before; n != 2 {
		t.Errorf("%d changes, want 2", n)
	}
}

// keysOf is demand that names these keys.
type keysOf struct{ topology []string }

func (d *keysOf) ValueKeys() []string                                    { return nil }
func (d *keysOf) PresenceKeys() []string                                 { return nil }
func (d *keysOf) TopologyKeys() []string                                 { return d.topology }
func (d *keysOf) Values(string) (values, alike []string, bounds []int64) { return nil, nil, nil }
func (d *keysOf) KeysVersion() uint64                                    { return 1 }
func (d *keysOf) RulesVersion() uint64                                   { return 1 }

// ENG-21.9: what a change of a machine costs does not depend on how many topology keys all clusters name together: those of machines are looked at. A key becomes
// one of them with the first machine that has it.
func TestTopologyKeysOfManyClusters(t *testing.T) {
	tab := racks(10, 2)
	var keys []string
	for k := range 64 * 1000 {
		keys = append(keys, fmt.Sprintf("example.com/k%05d", k))
	}
	tab.SetTopologyKeys(append(keys, "label00"))
	if n := len(tab.walked); n != 1 {
		t.Errorf("a change of a machine looks at %d topologies; machines have one of the keys", n)
	}
	tab.Put(Machine{ID: "new", State: Idle, Provider: "p", Labels: []Label{{Key: keys[7], Value: "v"}}})
	id, _ := tab.space.Strings.Find(keys[7])
	if top := tab.TopologyOf(id); len(tab.walked) != 2 || len(top.Domains) != 1 || top.Domains[0].Pools[IdlePool].n != 1 {
		t.Errorf("a machine with another of the keys is not in its topology: %+v", top)
	}
}

// ENG-21.9: as many new topology keys as a roll-up may name, which no machine has, do not each go through all machines: together they take less
// than a few times what one look at each machine takes here. Each for itself took 64 times as long.
func TestTopologyKeysThatNoMachineHasCostNothing(t *testing.T) {
	const keys = 64
	tab := racks(100_000, 3)
	label, _ := tab.space.Strings.Find("label00")
	look, all, round := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64), 0
	for range 7 {
		began, found := time.Now(), 0
		for i := range Index(tab.rows.n) {
			if _, has := tab.Value(i, label); has {
				found++
			}
		}
		look = min(look, time.Since(began))
		if found != 100_000 {
			t.Fatal(found)
		}
		var some []string
		for k := range keys {
			some = append(some, fmt.Sprintf("example.com/%d-%02d", round, k))
		}
		round++
		began = time.Now()
		tab.SetTopologyKeys(some)
		all = min(all, time.Since(began))
	}
	t.Logf("one look at each machine %s, %d new keys %s", look, keys, all)
	if all > 8*look {
		t.Errorf("%d keys that no machine has took %s, and one look at each machine %s", keys, all, look)
	}
}
