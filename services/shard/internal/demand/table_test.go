package demand

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// model is the table as anybody would write it.
type model map[string]*modelCluster

type modelCluster struct {
	rows     map[RowKey]modelRow
	overhead string
	facts    Facts
}

type modelRow struct {
	p         Profile
	id        string
	agg, unit map[string]int64
	arrival   int64
	hold      Hold
	unplaced  bool
	room      int64
}

func amounts(list []resource.Quantity) map[string]int64 {
	out := map[string]int64{}
	for _, q := range list {
		if q.Milli > 0 && q.Name != "" {
			out[q.Name] += q.Milli
		}
	}
	return out
}

func written(m map[string]int64) string { // maps are printed by key
	return fmt.Sprint(m)
}

func drawRow(r *rand.Rand) Row {
	amount := func() (out []resource.Quantity) {
		for range r.IntN(4) {
			out = append(out, resource.Quantity{Name: []string{"cpu", "memory", "gpu", "x", ""}[r.IntN(5)], Milli: int64(r.IntN(4)) * 500})
		}
		return out
	}
	row := Row{Group: []string{"", "g", "h"}[r.IntN(3)], RowID: fmt.Sprint("r", r.IntN(3)), Aggregate: amount(), MinUnit: amount()}
	row.Profile.Priority, row.Profile.Interruption = int32(r.IntN(2)), Bucket(r.IntN(3))
	if r.IntN(2) == 0 {
		row.Profile.Requirements = []Requirement{{Key: "rack", Op: []Operator{Same, Exists, In}[r.IntN(3)], Values: []string{"b", "a"}}}
	}
	return row
}

// replace is ENG-4.1, ENG-4.8 and SHARD-10.5.
func (m model) replace(cluster string, rows []Row, overhead []resource.Quantity, at int64) {
	c := m[cluster]
	if c == nil {
		c = &modelCluster{}
		m[cluster] = c
	}
	next := map[RowKey]modelRow{}
	for _, row := range rows {
		row.Seal()
		k := RowKey{row.Fingerprint, row.Group}
		x, twice := next[k]
		if !twice {
			old := c.rows[k]
			x = modelRow{p: row.Profile, id: row.RowID, agg: map[string]int64{}, unit: map[string]int64{}, arrival: at, hold: old.hold,
				unplaced: old.unplaced, room: old.room}
			if _, there := c.rows[k]; there {
				x.arrival = old.arrival
			}
		}
		for n, v := range amounts(row.Aggregate) {
			x.agg[n] += v
		}
		for n, v := range amounts(row.MinUnit) {
			x.unit[n] = max(x.unit[n], v)
		}
		next[k] = x
	}
	c.rows, c.overhead = next, written(amounts(overhead))
}

// inOrder lists the row keys of a cluster in allocation order (ENG-7.2), literally.
func (c *modelCluster) inOrder() []RowKey {
	return slices.SortedFunc(maps.Keys(c.rows), func(a, b RowKey) int {
		x, y := c.rows[a], c.rows[b]
		when := func(at int64) int64 { return cmp.Or(at, 1<<62) }
		return cmp.Or(-cmp.Compare(x.p.Priority, y.p.Priority), -cmp.Compare(x.p.Interruption, y.p.Interruption), -cmp.Compare(x.p.Reclamation, y.p.Reclamation),
			cmp.Compare(when(x.arrival), when(y.arrival)), -cmp.Compare(x.unit["cpu"], y.unit["cpu"]), -cmp.Compare(x.unit["memory"], y.unit["memory"]),
			strings.Compare(a.Fingerprint, b.Fingerprint), strings.Compare(a.Group, b.Group))
	})
}

func (m model) clone() model {
	out := model{}
	for name, c := range m {
		x := *c
		x.rows = maps.Clone(c.rows)
		out[name] = &x
	}
	return out
}

var names = []string{"blue", "green", "red"}

// step makes one random change to both.
func step(r *rand.Rand, tab *Table, m model) {
	name := names[r.IntN(len(names))]
	c := m[name]
	switch op := r.IntN(8); {
	case op < 3 || c == nil:
		var rows []Row
		for range r.IntN(6) {
			rows = append(rows, drawRow(r))
		}
		over, at := drawRow(r).Aggregate, int64(r.IntN(3))
		m.replace(name, rows, over, at)
		if r.IntN(2) == 0 {
			tab.Replace(name, rows, over, at)
			return
		}
		given := tab.Stage(slices.Clone(rows)) // SHARD-8.9: in parts, with one that is given up on the way
		tab.StageMore(given, r.IntN(3))
		tab.Sweep(r.IntN(4))
		taken := tab.Stage(rows)
		for tab.StageMore(taken, 1) {
		}
		tab.Drop(given)
		tab.Commit(name, taken, over, at)
	case op == 3:
		tab.Remove(name)
		delete(m, name)
	case op == 4:
		c.facts.Heard, c.facts.JoinFailures = r.IntN(2) == 0, int32(r.IntN(2))
		tab.SetFacts(name, c.facts)
	default:
		for _, k := range c.inOrder() {
			x := c.rows[k]
			switch op {
			case 5:
				x.hold = Hold(r.IntN(3))
			case 6:
				x.unplaced = r.IntN(3) == 0
			case 7:
				x.room = int64(r.IntN(3))
			}
			c.rows[k] = x
		}
		row := func(n *Need) modelRow { return c.rows[n.RowKey()] }
		tab.SetHolds(name, func(n *Need) Hold { return row(n).hold })
		tab.SetUnplaced(name, func(n *Need) bool { return row(n).unplaced })
		tab.SetHeadroom(name, func(n *Need) int64 { return row(n).room })
	}
}

func compareTable(t *rapid.T, tab *Table, m model) {
	var got []string
	rows := 0
	for _, c := range tab.Clusters() {
		got = append(got, c.Name)
	}
	if want := slices.Sorted(maps.Keys(m)); !slices.Equal(got, want) {
		t.Fatalf("clusters %v, want %v", got, want)
	}
	for name, want := range m {
		c, order := tab.Cluster(name), want.inOrder()
		rows += len(order)
		if len(c.Needs) != len(order) || len(c.Holds) != len(order) || c.Facts != want.facts ||
			written(amounts(c.Overhead.Quantities(tab.space.Dimensions))) != want.overhead {
			t.Fatalf("%s: %+v, want %d rows, %+v, overhead %s", name, c, len(order), want.facts, want.overhead)
		}
		for i, k := range order {
			n, x := &c.Needs[i], want.rows[k]
			if at, ok := tab.Position(name, k); !ok || at != i || n.RowKey() != k {
				t.Fatalf("%s: row %d is %v, found at %d (%v), want %v", name, i, n.RowKey(), at, ok, k)
			}
			dims := tab.space.Dimensions
			_, same := x.p.SameKey()
			if written(amounts(n.Aggregate.Quantities(dims))) != written(x.agg) || written(amounts(n.MinUnit.Quantities(dims))) != written(x.unit) ||
				n.Arrival != x.arrival || c.Holds[i] != x.hold || c.HeadroomOf(i) != x.room || (c.Unplaced != nil && c.Unplaced[i]) != x.unplaced ||
				n.RowID != x.id || fmt.Sprint(n.Form.Profile) != fmt.Sprint(x.p) || (n.Form.Same != nil) != same ||
				n.Form.Stripped.Fingerprint != x.p.WithoutSame().Fingerprint() {
				t.Fatalf("%s: row %d is %+v (hold %d, room %d), want %+v", name, i, n, c.Holds[i], c.HeadroomOf(i), x)
			}
		}
	}
	if tab.Rows() != rows {
		t.Fatalf("%d rows, want %d", tab.Rows(), rows)
	}
}

// ENG-4.8, ENG-7.2, SHARD-10.5, ENG-21.11: whatever is sent in whatever order, each row has what was asked for it, in allocation order, with the
// arrival, hold, mark and room that its key had before. Copies of every kind are of their moment, and nothing is left of what goes.
func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 5))
		space := symbol.NewSpace()
		tab, m := NewTable(space), model{}
		tab.part = rapid.IntRange(0, 3).Draw(rt, "part")
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			step(r, tab, m)
			compareTable(rt, tab, m)
		}
		was := m.clone()
		for tab.Sweep(1) { // a copy counts what is not swept, and does not know of it
		}
		copied, frozen, frozenSpace := tab.Clone(space.Clone()), tab.Freeze(), space.Freeze()
		saved := NewTable(symbol.NewSpace())
		for _, c := range tab.Clusters() {
			rows, over := tab.Save(c.Name)
			saved.Restore(c.Name, rows, over)
			saved.SetFacts(c.Name, c.Facts)
		}
		for range 10 {
			step(r, tab, m)
		}
		compareTable(rt, tab, m)
		thawed := frozen.Thaw(frozenSpace.Thaw())
		for _, other := range []*Table{copied, thawed, saved} {
			compareTable(rt, other, was)
			then := was.clone()
			for range 5 {
				step(r, other, then)
			}
			compareTable(rt, other, then)
			leaveNothing(rt, other)
		}
		leaveNothing(rt, tab)
	})
}

func leaveNothing(t *rapid.T, tab *Table) {
	for _, c := range slices.Clone(tab.Clusters()) {
		tab.Remove(c.Name)
	}
	for tab.Sweep(2) {
	}
	// An empty table of numbers has one, of the empty text.
	if s := tab.Space(); s.Dimensions.Live() != 1 || s.Keys.Live() != 1 || s.Clusters.Live() != 1 || len(tab.forms) != 0 || tab.Rows() != 0 ||
		len(tab.ValueKeys())+len(tab.PresenceKeys())+len(tab.TopologyKeys()) != 0 {
		t.Fatalf("left over: %d dimensions, %d keys, %d clusters, %d forms, %d rows, label keys %v %v %v", s.Dimensions.Live(), s.Keys.Live(), s.Clusters.Live(),
			len(tab.forms), tab.Rows(), tab.ValueKeys(), tab.PresenceKeys(), tab.TopologyKeys())
	}
}

// ENG-21.2: a reader that follows the changes hears of each cluster that changed, and of no other; one that is too far behind learns that.
func TestChangesAreFollowed(t *testing.T) {
	tab := NewTable(symbol.NewSpace())
	for _, name := range names {
		tab.SetFacts(name, Facts{})
	}
	_, since, _ := tab.Changes(0)
	start := since
	for k := range 3 * changeLogMax {
		name, version := names[k%len(names)], tab.Version()
		if tab.SetFacts(name, Facts{JoinFailures: int32(1 + k/len(names))}); tab.Version() == version {
			t.Fatal("a change without a version")
		}
		tab.SetHold(name, RowKey{"unknown", ""}, HeldParked) // changes nothing
		changed, next, ok := tab.Changes(since)
		if !ok || len(changed) != 1 || tab.Cluster(name).ID != changed[0] {
			t.Fatalf("after change %d of %s: %v, %v", k, name, changed, ok)
		}
		since = next
	}
	if changed, next, ok := tab.Changes(since); !ok || len(changed) != 0 || next != since {
		t.Errorf("without a change: %v, %v", changed, ok)
	}
	if _, _, ok := tab.Changes(start); ok {
		t.Error("what is long forgotten is said to be known")
	}
	if changed, _, ok := tab.Changes(since - 100); !ok || len(changed) != 100 {
		t.Errorf("the last hundred changes are %d, %v", len(changed), ok)
	}
}
