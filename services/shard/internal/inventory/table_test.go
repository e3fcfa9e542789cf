package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// model is the table as anybody would write it, and the oracle of its indexes.
type model struct {
	machines map[string]*modelMachine
	now      int64
}

type modelMachine struct {
	m           Machine
	attribution *Attribution
	promise     *Promise
	marks       map[[2]string]Withheld
	since       int64
	ready       Readiness
	foreign     bool
	stuck       bool
	leaving     bool
	taken       bool // announced as taken back
	node        []Label
}

// labels are those that profiles are matched with: the provider's, with the node's put over them.
func (x *modelMachine) labels() []Label {
	m := x.m
	m.normalise()
	out := slices.DeleteFunc(slices.Clone(m.Labels), func(l Label) bool {
		return slices.ContainsFunc(x.node, func(n Label) bool { return n.Key == l.Key })
	})
	out = append(out, x.node...)
	slices.SortFunc(out, compareLabelKeys)
	return out
}

// seen is the state that plans go by: what is stuck has failed, what certainly goes is going.
func (x *modelMachine) seen() State {
	switch s := x.m.State; {
	case x.stuck:
		return Failed
	case s == Configured && (x.leaving || x.taken):
		return Draining
	case s == Idle && x.taken:
		return Deleting
	}
	return x.m.State
}

func (x *modelMachine) withheldAll() bool {
	for _, w := range x.marks {
		if w.Cluster == "" {
			return true
		}
	}
	return false
}

func (x *modelMachine) member() string {
	s := x.seen()
	switch {
	case s.Bound():
		return x.m.Cluster
	case x.promise != nil && !x.foreign && (s == Creating || s == Idle || s == Draining):
		return x.promise.Cluster
	}
	return ""
}

func (x *modelMachine) pool() (Pool, bool) {
	if x.foreign || x.promise != nil || x.withheldAll() {
		return 0, false
	}
	switch x.seen() {
	case Idle:
		return IdlePool, true
	case Speculative:
		return SpeculativePool, true
	}
	return 0, false
}

func drawMachine(t *rapid.T, id string) Machine {
	pick := func(label string, list ...string) string { return rapid.SampledFrom(list).Draw(t, label) }
	m := Machine{ID: id, Provider: pick("provider", "p", "p", "q"), State: State(rapid.IntRange(1, 8).Draw(t, "state")), InstanceType: pick("type", "", "s", "l"),
		Zone: pick("zone", "", "a", "b"), CapacityType: CapacityType(rapid.IntRange(0, 4).Draw(t, "capacity")),
		Price: int64(rapid.IntRange(0, 3).Draw(t, "price")), HostRef: pick("host", "", "h1", id, strings.Repeat("h", 300)),
		HostProvider: pick("of host", "", "p", "q")}
	if m.State.Bound() || m.State == Draining {
		m.Cluster = pick("cluster", "red", "blue")
	}
	if m.State == Failed {
		m.LastError = "broken"
	}
	m.Resources = []resource.Quantity{{Name: "cpu", Milli: int64(rapid.IntRange(0, 2).Draw(t, "cpu"))}}
	if rapid.Bool().Draw(t, "alloc") {
		m.Allocatable = []resource.Quantity{{Name: "mem", Milli: 5}, {Name: "cpu", Milli: 1}}
	}
	for _, k := range []string{"rack", "disk", ZoneKey} {
		if v := pick(k, "", "x", "y"); v != "" {
			m.Labels = append(m.Labels, Label{k, v})
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "taints") {
		m.Taints = append(m.Taints, Taint{Key: pick("taint", "gpu", "a"), Value: pick("of taint", "", "v", "w"), Effect: pick("effect", "NoSchedule", "NoExecute")})
	}
	if rapid.Bool().Draw(t, "unsorted") { // of labels with one key the last counts
		slices.Reverse(m.Labels)
		m.Labels = append(m.Labels, m.Labels...)
	}
	return m
}

// TestTableAgainstModel: whatever is written in whatever order, each index says what the machines say.
func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := symbol.NewSpace()
		tab := New(space)
		mod := &model{machines: map[string]*modelMachine{}}
		tab.SetTopologyKeys([]string{"rack"})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			step(t, tab, mod)
		}
		compare(t, tab, mod)
		compare(t, tab.Clone(space.Clone()), mod)
		frozen, frozenSpace := tab.Freeze(NewFreezeBuffer(0)), space.Freeze()
		was := &model{machines: map[string]*modelMachine{}, now: mod.now}
		for id, m := range mod.machines {
			c := *m
			c.marks = maps.Clone(m.marks)
			was.machines[id] = &c
		}
		for range rapid.IntRange(0, 20).Draw(t, "steps after") { // what is frozen is of its moment
			step(t, tab, mod)
		}
		thawed := frozenSpace.Thaw()
		other := frozen.Thaw(thawed)
		compare(t, other, was)
		for range rapid.IntRange(0, 20).Draw(t, "steps of the copy") {
			step(t, other, was)
		}
		compare(t, other, was)
		compare(t, tab, mod)
		leaveNothing(t, space, tab, mod)
		leaveNothing(t, thawed, other, was)
	})
}

func leaveNothing(t *rapid.T, space *symbol.Space, tab *Table, mod *model) {
	for _, id := range slices.Sorted(maps.Keys(mod.machines)) {
		i, _ := tab.Find(id)
		tab.Remove(i)
	}
	tab.SetTopologyKeys(nil)
	tab.SetMatchKeys(MatchKeys{}) // no machine has them any more
	// ENG-21.11: what is unused is forgotten. Three strings stay: "", and the two keys of the table's own.
	if space.Strings.Live() != 3 || space.Clusters.Live() != 1 || space.Dimensions.Live() != 1 || space.Keys.Live() != 1 {
		t.Fatalf("left over: %d strings, %d clusters, %d dimensions, %d keys", space.Strings.Live(), space.Clusters.Live(),
			space.Dimensions.Live(), space.Keys.Live())
	}
}

func step(t *rapid.T, tab *Table, mod *model) {
	n := rapid.IntRange(0, 12).Draw(t, "machine")
	id := fmt.Sprintf("m%d", n)
	if n%4 == 3 { // longer than one byte can say
		id += strings.Repeat("-long", 20*n)
	}
	x := mod.machines[id]
	op := rapid.IntRange(0, 14).Draw(t, "op")
	if x == nil || op == 0 {
		m := drawMachine(t, id)
		if x == nil {
			x = &modelMachine{marks: map[[2]string]Withheld{}}
			mod.machines[id] = x
		}
		if x.m.Cluster != m.Cluster {
			x.node = nil
		}
		x.m = m
		tab.Put(m)
		return
	}
	i, ok := tab.Find(id)
	if !ok {
		t.Fatalf("%s is lost", id)
	}
	cluster := rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "for")
	switch op {
	case 1:
		delete(mod.machines, id)
		tab.Remove(i)
	case 2, 3:
		s := Attribution{Fingerprint: rapid.SampledFrom([]string{"f1-a", "old"}).Draw(t, "fp"), Priority: int32(op)}
		x.attribution = &s
		tab.SetAttribution(i, &s)
	case 4:
		x.attribution = nil
		tab.SetAttribution(i, nil)
	case 5, 6:
		p := Promise{Cluster: cluster, For: Attribution{Fingerprint: "f1-p"}, Expires: rapid.SampledFrom([]int64{0, 5, 50}).Draw(t, "expires")}
		x.promise = &p
		tab.SetPromise(i, &p)
	case 7:
		x.promise = nil
		tab.SetPromise(i, nil)
	case 8:
		w := Withheld{Reason: WithheldReason(rapid.IntRange(1, 5).Draw(t, "reason")), Cluster: rapid.SampledFrom([]string{"", "red"}).Draw(t, "whom"),
			Until: rapid.SampledFrom([]int64{0, 7, 70}).Draw(t, "until")}
		x.marks[[2]string{fmt.Sprint(w.Reason), w.Cluster}] = w
		tab.Withhold(i, w)
	case 9:
		for _, w := range slices.Clone(tab.Withheld(i)) {
			tab.Lift(i, w.Reason, w.Cluster)
		}
		clear(x.marks)
	case 10:
		x.since = int64(rapid.IntRange(0, 3).Draw(t, "since"))
		tab.SetSince(i, x.since)
		x.ready = Readiness(rapid.IntRange(0, 3).Draw(t, "ready"))
		tab.SetReadiness(i, x.ready)
	case 11:
		x.foreign, x.stuck = rapid.Bool().Draw(t, "foreign"), rapid.Bool().Draw(t, "stuck")
		tab.SetForeign(i, x.foreign)
		tab.SetStuck(i, x.stuck)
		x.leaving, x.taken = rapid.Bool().Draw(t, "leaving"), rapid.IntRange(0, 3).Draw(t, "taken") == 0
		tab.SetLeaving(i, x.leaving)
		tab.SetAnnounced(i, x.taken)
	case 12:
		keys := MatchKeys{Wide: 1}
		if rapid.Bool().Draw(t, "wide keys") {
			keys.Named = namedHosts(rapid.SliceOfDistinct(rapid.SampledFrom([]string{"r1", "r2", "ssd"}), rapid.ID[string]).Draw(t, "named")...)
		}
		for _, k := range []string{"rack", "disk", ZoneKey} {
			switch rapid.IntRange(0, 2).Draw(t, "key use") {
			case 1:
				keys.Values = append(keys.Values, k)
			case 2:
				keys.Presence = append(keys.Presence, k)
			}
		}
		tab.SetMatchKeys(keys)
	case 14:
		x.node = nil
		for _, k := range []string{"arch", "disk", "rack"} {
			if rapid.Bool().Draw(t, "of the node") {
				x.node = append(x.node, Label{k, rapid.SampledFrom([]string{"r1", "ssd"}).Draw(t, "value")})
			}
		}
		tab.SetNodeLabels(i, x.node)
	case 13:
		mod.now += int64(rapid.IntRange(0, 20).Draw(t, "later"))
		tab.Advance(mod.now)
		for _, x := range mod.machines {
			if x.promise != nil && x.promise.Expires != 0 && x.promise.Expires <= mod.now {
				x.promise = nil
			}
			maps.DeleteFunc(x.marks, func(_ [2]string, w Withheld) bool { return w.Until != 0 && w.Until <= mod.now })
		}
	}
}

// compare checks the table against the model, every index included.
func compare(t *rapid.T, tab *Table, mod *model) {
	var ids []string
	for i := range tab.All() {
		ids = append(ids, tab.ID(i))
	}
	if want := slices.Sorted(maps.Keys(mod.machines)); !slices.Equal(ids, want) {
		t.Fatalf("machines %v, want %v", ids, want)
	}
	members, pool, billed := map[string][]string{}, map[string][]string{}, int64(0)
	var release, racks []string
	for id, x := range mod.machines {
		i, _ := tab.Find(id)
		m, want := tab.Machine(i), x.m
		want.normalise()
		want.Resources = slices.DeleteFunc(slices.Clone(want.Resources), func(q resource.Quantity) bool { return q.Milli == 0 })
		slices.SortFunc(want.Allocatable, func(a, b resource.Quantity) int { return strings.Compare(a.Name, b.Name) })
		if fmt.Sprint(m) != fmt.Sprint(want) {
			t.Fatalf("machine\n%+v, want\n%+v", m, want)
		}
		if got, want := tab.NodeLabels(i), x.labels(); !slices.Equal(got, want) {
			t.Fatalf("labels of %s are %v, want %v", id, got, want)
		}
		for _, key := range []string{"arch", "disk", "rack"} {
			at := slices.IndexFunc(x.labels(), func(l Label) bool { return l.Key == key })
			id, known := tab.space.Strings.Find(key)
			v, has := symbol.ID(0), false
			if known {
				v, has = tab.Value(i, id)
			}
			if has != (at >= 0) || has && tab.space.Strings.Text(v) != x.labels()[at].Value {
				t.Fatalf("%s of %v is %v, %v", key, x.labels(), v, has)
			}
		}
		s, has := tab.Attribution(i)
		if has != (x.attribution != nil) || has && s != *x.attribution {
			t.Fatalf("attribution of %s: %v", id, s)
		}
		if tab.Since(i) != x.since || tab.Readiness(i) != x.ready || tab.Foreign(i) != x.foreign || tab.Seen(i) != x.seen() ||
			tab.Announced(i) != x.taken || tab.Stuck(i) != x.stuck {
			t.Fatalf("fields of %s", id)
		}
		if c := x.member(); c != "" {
			members[c] = append(members[c], id)
		}
		if k, ok := x.pool(); ok {
			pool[fmt.Sprint(k)] = append(pool[fmt.Sprint(k)], id)
			for _, l := range x.labels() {
				if l.Key == "rack" {
					racks = append(racks, fmt.Sprintf("%d %s %s", k, l.Value, id))
				}
			}
		}
		stays := slices.ContainsFunc(slices.Collect(maps.Values(x.marks)), func(w Withheld) bool { return w.Reason.BlocksRelease() })
		if x.seen() == Idle && !x.foreign && x.promise == nil && !stays && x.m.CapacityType.Elastic() {
			release = append(release, fmt.Sprintf("%d %d %s", x.m.CapacityType, x.since, id))
		}
		if !x.foreign && x.m.Exists() {
			billed += x.m.Price
		}
	}
	for _, c := range []string{"red", "blue"} {
		var got []string
		if id, ok := tab.space.Clusters.Find(c); ok {
			list, _ := tab.Members(id)
			for _, i := range list {
				got = append(got, tab.ID(i))
			}
		}
		slices.Sort(got)
		slices.Sort(members[c])
		if !slices.Equal(got, members[c]) {
			t.Fatalf("members of %s: %v, want %v", c, got, members[c])
		}
	}
	got := map[string][]string{}
	for c := range tab.Classes() {
		for k := range Pool(pools) {
			last := ""
			for _, chunk := range tab.Class(uint32(c)).Pools[k].Chunks() {
				for _, i := range chunk {
					if tab.ID(i) <= last {
						t.Fatalf("pool out of order at %s", tab.ID(i))
					}
					last = tab.ID(i)
					got[fmt.Sprint(k)] = append(got[fmt.Sprint(k)], last)
				}
			}
		}
	}
	for _, k := range []string{"0", "1"} {
		slices.Sort(got[k])
		slices.Sort(pool[k])
		if !slices.Equal(got[k], pool[k]) {
			t.Fatalf("pool %s: %v, want %v", k, got[k], pool[k])
		}
	}
	var gotRelease, gotRacks []string
	for _, c := range []CapacityType{OnDemand, Spot} {
		for _, chunk := range tab.Releasable(c).Chunks() {
			for _, i := range chunk {
				gotRelease = append(gotRelease, fmt.Sprintf("%d %d %s", c, tab.Since(i), tab.ID(i)))
			}
		}
	}
	if id, ok := tab.space.Strings.Find("rack"); ok {
		if top := tab.TopologyOf(id); top != nil {
			for d := range top.Domains {
				for k := range Pool(pools) {
					for _, chunk := range top.Domains[d].Pools[k].Chunks() {
						for _, i := range chunk {
							gotRacks = append(gotRacks, fmt.Sprintf("%d %s %s", k, tab.space.Strings.Text(top.Domains[d].Value), tab.ID(i)))
						}
					}
				}
			}
		}
	}
	for _, l := range [][]string{gotRelease, release, gotRacks, racks} {
		slices.Sort(l)
	}
	if !slices.Equal(gotRelease, release) || !slices.Equal(gotRacks, racks) {
		t.Fatalf("release %v, want %v; racks %v, want %v", gotRelease, release, gotRacks, racks)
	}
	if tab.Billed() != billed {
		t.Fatalf("billed %d, want %d", tab.Billed(), billed)
	}
}

// TestOrderLabels: labels compare as ids do, for streams that are sorted, reversed, shuffled, or all go to one place.
func TestOrderLabels(t *testing.T) {
	streams := map[string]func(k int) string{
		"ascending":  func(k int) string { return fmt.Sprintf("m%06d", k) },
		"descending": func(k int) string { return fmt.Sprintf("m%06d", 999999-k) },
		"shuffled":   func(k int) string { return fmt.Sprintf("m%06d", k*7919%1000003) },
		"one gap":    func(k int) string { return []string{"a", "z"}[k&1] + fmt.Sprintf("%06d", k) },
		"inwards":    func(k int) string { return []string{fmt.Sprintf("a%06d", k), fmt.Sprintf("b%06d", 999999-k)}[k&1] },
	}
	for name, id := range streams {
		t.Run(name, func(t *testing.T) {
			tab := New(symbol.NewSpace())
			for k := range 30000 {
				tab.Put(Machine{ID: id(k), State: Speculative})
			}
			last, lastID, n := int64(-1), "", 0
			for i := range tab.All() {
				if o := int64(tab.Row(i).Order); o <= last || tab.ID(i) <= lastID {
					t.Fatalf("%s has label %d after %s with %d", tab.ID(i), o, lastID, last)
				}
				last, lastID, n = int64(tab.Row(i).Order), tab.ID(i), n+1
			}
			if n != 30000 {
				t.Fatal(n)
			}
		})
	}
}

// SHARD-23.3: a reader that goes through the table in parts sees each machine once, whatever the size of the parts.
func TestPartsMakeTheWhole(t *testing.T) {
	table := New(symbol.NewSpace())
	for i := range 1500 {
		table.Put(Machine{ID: fmt.Sprintf("m%05d", i*7919%1500*3), Provider: "p", State: Speculative})
	}
	var all []string
	for i := range table.All() {
		all = append(all, table.ID(i))
	}
	for _, part := range []int{1, 255, 256, 257, 4096} {
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			n := 0
			for i := range table.After(after) {
				if n == part {
					break
				}
				got = append(got, table.ID(i))
				n++
			}
			if n < part {
				break
			}
		}
		if !slices.Equal(got, all) {
			t.Errorf("in parts of %d: %d machines, not the %d of the whole in its order", part, len(got), len(all))
		}
	}
	for i := range table.After("m00001") { // an id that is not there
		if table.ID(i) != "m00003" {
			t.Errorf("after m00001 comes %s", table.ID(i))
		}
		break
	}
}

func TestLegalEdges(t *testing.T) {
	// ENG-5.2, ENG-P20: every move passes Idle, nothing moves from cluster to cluster directly.
	want := "1>2 2>3 2>8 3>4 3>7 4>3 4>5 4>8 5>6 6>3 6>8 7>1 7>8"
	var got []string
	for from := Speculative; from <= Failed; from++ {
		for to := Speculative; to <= Failed; to++ {
			if legal(from, to) {
				got = append(got, fmt.Sprintf("%d>%d", from, to))
			}
		}
	}
	if s := strings.Join(got, " "); s != want {
		t.Fatalf("edges %s, want %s", s, want)
	}
}

func TestMoney(t *testing.T) {
	for dollars, want := range map[float64]int64{0: 0, 0.1: 100_000, 1e-9: 0, 0.0000005: 1, 1e300: 1<<63 - 1} {
		if got := PriceOfDollars(dollars); got != want {
			t.Errorf("price %v is %d, want %d", dollars, got, want)
		}
	}
	for p, want := range map[float64]int32{0: 0, 1e-12: 1, 0.05: 50_000, 1: 1_000_000, 2: 1_000_000} {
		if got := ProbabilityOf(p); got != want {
			t.Errorf("probability %v is %d, want %d", p, got, want)
		}
	}
}
