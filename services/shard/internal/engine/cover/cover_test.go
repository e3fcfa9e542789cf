package cover_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// market is a few free machines and one question about them.
type market struct {
	w        *engine.World
	cat      *cover.Indexes
	free     cover.FreePool
	form     *demand.Form
	cluster  *demand.Cluster
	proj     *match.Projection
	supply   [][]int64 // by machine, as projected
	price    []int64
	index    []inventory.Index
	taken    []bool
	unit     []int64
	rest     []int64
	inUnits  bool
	mostEach int32
}

func newMarket(r *rand.Rand) *market {
	m := &market{w: engine.NewWorld()}
	amounts := func(cpu, mem int64) []resource.Quantity {
		return []resource.Quantity{{Name: "cpu", Milli: cpu}, {Name: "mem", Milli: mem}}
	}
	row := demand.Row{Aggregate: amounts(1+int64(r.IntN(40)), int64(r.IntN(30))), MinUnit: amounts(1+int64(r.IntN(4)), int64(r.IntN(3)))}
	if row.MinUnit[1].Milli > row.Aggregate[1].Milli || row.Aggregate[1].Milli == 0 {
		row.Aggregate, row.MinUnit = row.Aggregate[:1], row.MinUnit[:1]
	}
	row.Seal()
	m.w.Demand.SetFacts("red", demand.Facts{Heard: true})
	m.w.Demand.Replace("red", []demand.Row{row}, nil, 1)
	for i := range 1 + r.IntN(9) {
		x := inventory.Machine{ID: fmt.Sprintf("m%02d", i), Provider: "p", State: inventory.Speculative, Price: int64(r.IntN(12)),
			Resources: amounts(int64(r.IntN(16)), int64(r.IntN(12)))}
		at, _ := m.w.Inventory.Put(x)
		m.index, m.price = append(m.index, at), append(m.price, x.Price)
	}
	m.w.Inventory.Advance(1)
	m.cat = cover.NewIndexes()
	m.cat.Begin(m.w)
	m.cluster = m.w.Demand.Cluster("red")
	need := &m.cluster.Needs[0]
	m.form = need.Form
	m.cat.MatcherOf(m.form)
	var last match.LastProjection
	m.proj = m.cat.ProjectionOf(m.cluster, match.DimsOf(m.cluster.Needs), &last)
	m.free.Begin(m.w.Inventory)
	n := len(m.proj.Dims)
	m.unit, m.rest = make([]int64, n), make([]int64, n)
	m.proj.Project(&need.MinUnit, m.unit)
	m.proj.Project(&need.Aggregate, m.rest)
	m.inUnits, m.mostEach = r.IntN(2) == 0, int32(r.IntN(3))
	if m.inUnits { // such a residual is a number of units
		k := 1 + int64(r.IntN(9))
		for j := range m.rest {
			m.rest[j] = m.unit[j] * k
		}
		m.inUnits = k > 1
	}
	m.taken = make([]bool, len(m.index))
	for i := range m.index {
		class := m.w.Inventory.Row(m.index[i]).Class
		s := slices.Clone(m.proj.Supply(class))
		if m.inUnits {
			match.WholeUnits(s, s, m.unit, m.mostEach)
		}
		m.supply = append(m.supply, s)
		if r.IntN(6) == 0 {
			m.free.Take(m.index[i], class, inventory.SpeculativePool)
			m.taken[i] = true
		}
	}
	return m
}

// usable reports whether a machine is free and holds one unit (ENG-6.3).
func (m *market) usable(i int) bool {
	return !m.taken[i] && match.Covers(m.proj.Supply(m.w.Inventory.Row(m.index[i]).Class), m.unit)
}

// covers reports whether the machines of a set cover the residual, and what they cost.
func (m *market) covers(set int) (covered bool, cost int64) {
	rest := slices.Clone(m.rest)
	for i := range m.index {
		if set&(1<<i) != 0 {
			match.Subtract(rest, m.supply[i])
			cost += m.price[i]
		}
	}
	return match.IsZero(rest), cost
}

// ask returns the answer of the cover rule as a set of machines.
func (m *market) ask(t *testing.T) (set int, covered bool) { return m.askOf(t, &cover.Search{}) }

// askOf asks a Search that may remember earlier questions.
func (m *market) askOf(t *testing.T, c *cover.Search) (set int, covered bool) {
	c.Ask(&m.free, m.cluster.ID, inventory.SpeculativePool, m.unit, m.rest, m.inUnits, m.mostEach)
	if !c.Everywhere(m.cat.Of(m.cat.Known(m.form), m.proj, m.form.Interruption)) {
		return 0, false
	}
	covered = c.Run()
	for _, p := range c.Picks {
		list := c.Listed(nil, p.Group, p.N)
		if len(list) != int(p.N) {
			t.Fatalf("%d machines of a group are picked and %d listed", p.N, len(list))
		}
		for _, x := range list {
			set |= 1 << slices.Index(m.index, x.Index)
		}
	}
	return set, covered
}

// ENG-13.2 to 13.7: against all sets of a small market. The answer covers whenever any set does, uses only what is free and holds a unit, has no
// machine too many, no single machine that a cheaper one could replace, and is seldom dearer than the cheapest set.
func TestCoverAgainstAllSets(t *testing.T) {
	var covered, cheapest, short int
	for seed := range uint64(4000) {
		m := newMarket(rand.New(rand.NewPCG(seed, 7)))
		set, got := m.ask(t)
		all, best := 0, int64(-1)
		for i := range m.index {
			if m.usable(i) {
				all |= 1 << i
			} else if set&(1<<i) != 0 {
				t.Fatalf("seed %d: machine %d is taken and not usable", seed, i)
			}
		}
		for s := range 1 << len(m.index) {
			if s&^all != 0 {
				continue
			}
			if ok, cost := m.covers(s); ok && (best < 0 || cost < best) {
				best = cost
			}
		}
		ok, cost := m.covers(set)
		if got != (best >= 0) || got != ok {
			t.Fatalf("seed %d: the answer says covered %v; it is %v, and the cheapest set costs %d", seed, got, ok, best)
		}
		if !got {
			short++
			m.checkShort(t, seed, set, all)
			continue
		}
		covered++
		if cost == best {
			cheapest++
		}
		m.checkMinimal(t, seed, set, all)
	}
	if covered < 500 || short < 500 {
		t.Fatalf("%d markets cover and %d do not: the markets show too little", covered, short)
	}
	if 100*cheapest < 97*covered {
		t.Errorf("%d of %d answers are as cheap as the cheapest set", cheapest, covered)
	}
}

// checkShort is ENG-13.7: what does not cover takes everything until nothing left contributes.
func (m *market) checkShort(t *testing.T, seed uint64, set, all int) {
	rest := slices.Clone(m.rest)
	for i := range m.index {
		if set&(1<<i) != 0 {
			match.Subtract(rest, m.supply[i])
		}
	}
	for i := range m.index {
		if (all&^set)&(1<<i) != 0 && match.Touches(m.supply[i], rest) {
			t.Fatalf("seed %d: machine %d contributes and is left", seed, i)
		}
	}
}

// checkMinimal is ENG-13.5 and 13.6.
func (m *market) checkMinimal(t *testing.T, seed uint64, set, all int) {
	_, cost := m.covers(set)
	for out := range m.index {
		if set&(1<<out) == 0 {
			continue
		}
		fewer := set &^ (1 << out)
		if ok, _ := m.covers(fewer); ok {
			t.Fatalf("seed %d: machine %d is not needed", seed, out)
		}
		for in := range m.index {
			if (all&^set)&(1<<in) == 0 {
				continue
			}
			if ok, k := m.covers(fewer | 1<<in); ok && k < cost {
				t.Fatalf("seed %d: machine %d instead of %d costs %d instead of %d", seed, in, out, k, cost)
			}
		}
	}
}

// ENG-13.3: machines that are alike are taken by id, and what is given back is found again.
func TestCoverTakesTheSmallestIDs(t *testing.T) {
	for seed := range uint64(500) {
		m := newMarket(rand.New(rand.NewPCG(seed, 8)))
		set, _ := m.ask(t)
		for i := range m.index {
			for j := range i { // j has the smaller id
				if m.usable(j) && m.price[i] == m.price[j] && m.w.Inventory.Row(m.index[i]).Class == m.w.Inventory.Row(m.index[j]).Class &&
					set&(1<<i) != 0 && set&(1<<j) == 0 {
					t.Fatalf("seed %d: machine %d is taken, and its twin %d is not", seed, i, j)
				}
			}
		}
		for i := range m.index {
			if set&(1<<i) != 0 {
				class := m.w.Inventory.Row(m.index[i]).Class
				m.free.Take(m.index[i], class, inventory.SpeculativePool)
				m.free.GiveBack(m.index[i], class, inventory.SpeculativePool)
			}
		}
		if again, _ := m.ask(t); again != set {
			t.Fatalf("seed %d: %b at first, %b after all was given back", seed, set, again)
		}
	}
}

// ENG-13.2, ENG-21.4: a Search answers each of many questions as one that remembers none does, while machines are taken and given back.
func TestCoverRemembersNoWrongAnswer(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 9))
		m, c := newMarket(r), &cover.Search{}
		all, units := slices.Clone(m.rest), slices.Clone(m.unit)
		for step := range 12 {
			m.inUnits, m.mostEach = r.IntN(2) == 0, int32(r.IntN(2))
			for j := range m.rest {
				m.rest[j], m.unit[j] = all[j], units[j]
			}
			switch r.IntN(3) {
			case 0: // one unit
				m.inUnits = false
				copy(m.rest, units)
			case 1: // as much, on a machine that holds twice that
				m.inUnits = false
				copy(m.rest, units)
				match.Add(m.unit, units)
			}
			c.NewAllocation()
			set, covered := m.askOf(t, c)
			if want, ok := m.ask(t); set != want || covered != ok {
				t.Fatalf("seed %d, step %d: %b (covered %v), without a memory %b (%v)", seed, step, set, covered, want, ok)
			}
			for i := range m.index {
				class := m.w.Inventory.Row(m.index[i]).Class
				if give := m.taken[i] && r.IntN(8) == 0; give {
					m.free.GiveBack(m.index[i], class, inventory.SpeculativePool)
					m.taken[i] = false
				} else if set&(1<<i) != 0 && r.IntN(3) > 0 {
					m.free.Take(m.index[i], class, inventory.SpeculativePool)
					m.taken[i] = true
				}
			}
		}
	}
}
