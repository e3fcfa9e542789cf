package planner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"pgregory.net/rapid"
)

// change makes one random change to a fleet and to the world built from it.
func (f *fleet) change(t source, sh shape, w *engine.World) {
	switch n := t.IntN(12); {
	case n < 4 && len(f.machines) > 0: // another machine behind the same id
		i := t.IntN(len(f.machines))
		x := drawMachine(t, sh, f, i)
		x.m.ID = f.machines[i].m.ID
		if chance(t, 30) {
			x.m.Labels = append(x.m.Labels, inventory.Label{Key: passingKey(t), Value: oneOf(t, "r1", "ssd", "own")})
		}
		f.machines[i] = x
		x.apply(w)
	case n < 5 && len(f.machines) > 0: // only what its node holds, or its price
		i := t.IntN(len(f.machines))
		if x := &f.machines[i]; x.m.Cluster != "" && chance(t, 50) {
			x.drawContents(t)
			x.apply(w)
			return
		}
		f.machines[i].m.Price = int64(t.IntN(sh.prices)) * 100_000
		f.machines[i].apply(w)
	case n < 6:
		f.newcomer(drawMachine(t, sh, f, 40+t.IntN(1000)), w)
	case n < 7 && len(f.machines) > 0:
		i := t.IntN(len(f.machines))
		at, _ := w.Inventory.Find(f.machines[i].m.ID)
		w.Inventory.Remove(at)
		f.machines = slices.Delete(f.machines, i, i+1)
	case n < 8:
		f.now += int64(t.IntN(400)) * engine.Second
	default:
		c := &f.clusters[t.IntN(len(f.clusters))]
		switch t.IntN(5) {
		case 0:
			if len(c.rows) >= 4*sh.rows { // the reference engine takes quadratic time
				break
			}
			row := drawRow(t, sh, c)
			if chance(t, 25) {
				row.row.Profile.Requirements = append(slices.Clone(row.row.Profile.Requirements), drawPassing(t, &row.row.Profile)...)
			}
			c.rows = append(c.rows, row)
		case 1:
			if len(c.rows) > 0 {
				i := t.IntN(len(c.rows))
				c.rows = slices.Delete(slices.Clone(c.rows), i, i+1)
			}
		case 2:
			if len(c.rows) > 0 {
				c.rows = slices.Clone(c.rows)
				r := &c.rows[t.IntN(len(c.rows))]
				r.hold, r.unplaced = oneOf(t, r.hold, 0, 1), chance(t, 20)
			}
		case 3:
			c.facts.Heard, c.facts.SharingPerMille = chance(t, 80), oneOf[int32](t, 1000, 500, 0)
			c.facts.JoinFailures = oneOf[int32](t, 0, 1, 3)
		case 4:
			if c.rooms = slices.Clone(c.rooms); len(c.rooms) > 0 && chance(t, 60) {
				c.rooms = c.rooms[1:]
			} else {
				c.rooms = append(c.rooms, drawRoom(t))
			}
		}
		c.apply(w, straight)
	}
}

// passingKey is a label key that few machines and rows have: it comes into use and goes again, and its number is given to another.
func passingKey(t source) string { return fmt.Sprint("key", t.IntN(8)) }

// drawPassing draws a requirement with such a key.
func drawPassing(t source, p *demand.Profile) []demand.Requirement {
	r := demand.Requirement{Key: passingKey(t), Op: oneOf(t, demand.Same, demand.In, demand.NotIn, demand.Exists, demand.DoesNotExist)}
	switch _, gang := p.SameKey(); {
	case r.Op == demand.Same && (gang || p.MinMembers > 0):
		return nil
	case r.Op == demand.In || r.Op == demand.NotIn:
		r.Values = []string{"r1", "own"}
	}
	return []demand.Requirement{r}
}

func (f *fleet) newcomer(x fleetMachine, w *engine.World) {
	if _, ok := w.Inventory.Find(x.m.ID); !ok {
		f.machines = append(f.machines, x)
		x.apply(w)
	}
}

// squeeze brings machines whose ids all lie between the same two, until the inventory has to number all of them again.
func (f *fleet) squeeze(t source, sh shape, w *engine.World) {
	if len(f.machines) == 0 {
		return
	}
	after := oneOf(t, f.machines...).m.ID
	for k := range 16 {
		x := drawMachine(t, sh, f, 0)
		x.m.ID = fmt.Sprintf("%s-%02d", after, 99-k)
		f.newcomer(x, w)
	}
}

// shrink removes machines of a fleet that has more than most: squeeze brings more than go, and the reference engine takes quadratic time.
func (f *fleet) shrink(t source, w *engine.World, most int) {
	for len(f.machines) > most {
		i := t.IntN(len(f.machines))
		at, _ := w.Inventory.Find(f.machines[i].m.ID)
		w.Inventory.Remove(at)
		f.machines = slices.Delete(f.machines, i, i+1)
	}
}

// ENG-21.1, ENG-21.12, ENG-P11, ENG-2.4: after each step of a random history the Planner gives the bytes of the full plan and of the
// literal one, whatever it remembers (pools and orders, ENG-21.8; domains, ENG-21.9; verdicts, ENG-21.4; what expires, ENG-21.5) and
// whenever it is made to forget.
func TestIncrementalEqualsFull(t *testing.T) {
	for _, theme := range themes {
		t.Run(theme, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))
				f := drawFleet(r, shapes[theme])
				w := f.build(straight)
				inc := planner.NewPlanner()
				for step := range rapid.IntRange(1, 12).Draw(rt, "steps") {
					if err := f.goOn(r, shapes[theme], w, inc, step, 1+r.IntN(3)); err != nil {
						rt.Fatalf("step %d: %v", step, err)
					}
				}
			})
		})
	}
}

// ENG-S65: the same over one history of 10,000 events, with a look after each. What a Planner remembers is as old as that.
func TestLongHistoryEqualsFull(t *testing.T) {
	for seed := range uint64(times(1)) {
		r, sh := rand.New(rand.NewPCG(seed, 3)), shapes["mixed"]
		f := drawFleet(r, sh)
		w := f.build(straight)
		inc := planner.NewPlanner()
		for event := range 10_000 {
			if err := f.goOn(r, sh, w, inc, event, 1); err != nil {
				t.Fatalf("seed %d, event %d: %v", seed, event, err)
			}
		}
	}
}

// goOn lets some things happen, and compares what the Planner then says.
func (f *fleet) goOn(r *rand.Rand, sh shape, w *engine.World, inc *planner.Planner, step, changes int) error {
	for range changes {
		f.change(r, sh, w)
	}
	for chance(r, 30) { // of one cluster after the other, perhaps
		f.creditAhead(r, sh, w, inc)
	}
	if chance(r, 3) {
		f.squeeze(r, sh, w)
		f.shrink(r, w, 100)
	}
	w.Inventory.Advance(f.now)
	if chance(r, 5) {
		inc.Forget()
	}
	in := engine.Input{World: w, Cycle: int64(step), Policy: f.policy}
	return sameAnswers(w, inc.Plan(in), planner.Plan(in), reference.Plan(in))
}

// creditAhead credits a cluster before the plan, and now and then changes something meanwhile, or leaves it half done.
func (f *fleet) creditAhead(r *rand.Rand, sh shape, w *engine.World, inc *planner.Planner) {
	list := w.Demand.Clusters()
	if len(list) == 0 {
		return
	}
	name := oneOf(r, list...).Name
	for part := range planner.AheadParts(len(w.Demand.Cluster(name).Needs)) {
		if chance(r, 10) {
			f.change(r, sh, w)
		}
		if chance(r, 10) {
			return
		}
		inc.CreditAhead(engine.Input{World: w, Policy: f.policy}, name, part)
	}
}

// sameAnswers compares the incremental answer with the others.
func sameAnswers(w *engine.World, inc, full, slow *engine.Result) error {
	got := render(w, inc)
	for _, o := range []struct {
		name string
		r    *engine.Result
	}{{"full", full}, {"naive", slow}} {
		if d := difference(render(w, o.r), got); d != "" {
			return fmt.Errorf("- %s, + incremental\n%s", o.name, d)
		}
		if want, is := countersOf(o.r), countersOf(inc); want != is {
			return fmt.Errorf("%s counts %+v, incremental %+v", o.name, want, is)
		}
	}
	if full.Counters.Allocations != inc.Counters.Allocations {
		return fmt.Errorf("%d allocations, incremental %d", full.Counters.Allocations, inc.Counters.Allocations)
	}
	return nil
}

// countersOf is what a plan counts, whatever it remembers (section 22).
func countersOf(r *engine.Result) engine.Counters {
	c := &r.Counters
	return engine.Counters{OpenNeeds: c.OpenNeeds, Displaced: c.Displaced, Shares: c.Shares, JoinOverdue: c.JoinOverdue, JoinGuarded: c.JoinGuarded,
		PromisesCreate: c.PromisesCreate, PromisesPreempt: c.PromisesPreempt, ExchangeTries: c.ExchangeTries, ExchangeSaved: c.ExchangeSaved,
		ReclaimMatchesUnmet: c.ReclaimMatchesUnmet}
}

// ENG-2.2, ENG-P11: neither the order in which things were inserted nor what was there before shows in the bytes.
func TestInsertionOrderDoesNotShow(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		r := rand.New(rand.NewPCG(uint64(len(f.machines)), 7))
		w := f.build(straight)
		want := render(w, planner.Plan(engine.Input{World: w, Policy: f.policy}))

		other := engine.NewWorld() // numbers were given to others before
		for i := range 5 {
			other.Inventory.Put(inventory.Machine{ID: fmt.Sprintf("old%d", i), State: inventory.Speculative,
				Labels: []inventory.Label{{Key: fmt.Sprint("k", i), Value: "v"}}})
		}
		for i := range 5 {
			at, _ := other.Inventory.Find(fmt.Sprintf("old%d", i))
			other.Inventory.Remove(at)
		}
		f.fill(other, r.Perm)
		if d := difference(want, render(other, planner.Plan(engine.Input{World: other, Policy: f.policy}))); d != "" {
			return errors.New(d)
		}
		return nil
	})
}

// ENG-P21: label keys that no profile looks at, made visible, split classes and change nothing.
func TestClassSplitsDoNotShow(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		want := render(w, planner.Plan(engine.Input{World: w, Policy: f.policy}))
		before := w.Inventory.Classes()
		all := inventory.MatchKeys{Values: append(w.Demand.ValueKeys(), "rack", "disk", inventory.ZoneKey, inventory.TypeKey), Presence: w.Demand.PresenceKeys()}
		named := all // ENG-6.5b: only the values that rows name
		named.Named, named.Wide = w.Demand.Values, 1
		for _, keys := range []inventory.MatchKeys{all, named} {
			w.Inventory.SetMatchKeys(keys) // which the plan keeps: the demand is as it was
			if d := difference(want, render(w, planner.Plan(engine.Input{World: w, Policy: f.policy}))); d != "" {
				return fmt.Errorf("%d classes, then %d\n%s", before, w.Inventory.Classes(), d)
			}
		}
		return nil
	})
}

// ENG-21.1, ENG-P11: the same when what changes is what the plan itself did. What a plan took is counted off as it goes,
// and then the inventory says the same once more.
func TestIncrementalEqualsFullAsPlansAreCarriedOut(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		pl := planner.NewPlanner()
		for round := range 4 {
			in := engine.Input{World: w, Policy: f.policy}
			r := pl.Plan(in)
			if d := difference(render(w, planner.Plan(in)), render(w, r)); d != "" {
				return fmt.Errorf("round %d: - full, + incremental\n%s", round, d)
			}
			explain.CarryOut(w, r, f.policy)
		}
		return nil
	})
}
