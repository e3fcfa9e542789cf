package planner_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// inputs spells out everything that a plan is given (ENG-2.5).
func inputs(w *engine.World) string {
	var b strings.Builder
	inv := w.Inventory
	for i := range inventory.Index(inv.Bound()) {
		if inv.ID(i) == "" {
			continue
		}
		m := inv.Machine(i)
		attribution, attributed := inv.Attribution(i)
		promise, promised := inv.Promise(i)
		fmt.Fprintf(&b, "%+v %+v %v %+v %v %+v %+v\n", m, attribution, attributed, promise, promised, inv.Withheld(i), *inv.Row(i))
	}
	for _, c := range w.Demand.Clusters() {
		fmt.Fprintf(&b, "%s %+v %v %v version %d\n", c.Name, c.Facts, c.Holds, c.Overhead.Quantities(w.Space.Dimensions), c.Version)
		for i := range c.Needs {
			n := &c.Needs[i]
			fmt.Fprintf(&b, "  %s %q %v %v %d room %d\n", n.Form.Fingerprint, n.Group, n.Aggregate.Quantities(w.Space.Dimensions),
				n.MinUnit.Quantities(w.Space.Dimensions), n.Arrival, c.HeadroomOf(i))
		}
	}
	return b.String()
}

// ENG-2.5, ENG-2.1: a plan changes nothing of what it is given: machines, attributions, promises, marks, rows, facts.
func TestAPlanChangesNoInput(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		planner.Plan(engine.Input{World: w, Policy: f.policy}) // the inventory may cut its classes for the keys of the demand
		before, policy := inputs(w), *f.policy
		planner.Plan(engine.Input{World: w, Policy: f.policy})
		if d := difference(before, inputs(w)); d != "" {
			return errors.New("- before, + after\n" + d)
		}
		if !reflect.DeepEqual(*f.policy, policy) {
			return errors.New("the policy is another")
		}
		return nil
	})
}

// ENG-2.13: the higher priority may take everything, whatever else a tenant has: nothing is kept for the others.
func TestPriorityIsTheOnlyThrottle(t *testing.T) {
	s := newScript()
	s.lines(`
		need blue/web cpu=8 unit=cpu:4 priority=10
		need red/all cpu=40 unit=cpu:4 priority=11
		machines m01..m10 idle cpu=4`)
	r := planner.Plan(engine.Input{World: s.w})
	for _, a := range r.Actions {
		if _, cluster := r.Need(a.Need); cluster != "red" || a.Kind != engine.Bootstrap {
			t.Errorf("%s for %s", a.Kind, cluster)
		}
	}
	if len(r.Actions) != 10 || len(r.Short) != 1 {
		t.Errorf("%d actions, %d short", len(r.Actions), len(r.Short))
	}
	for _, of := range []any{engine.Policy{}, demand.Facts{}, demand.Profile{}} { // and nothing can be plugged in that weighs otherwise
		for i := range reflect.TypeOf(of).NumField() {
			if f := reflect.TypeOf(of).Field(i); f.Type.Kind() == reflect.Func || f.Type.Kind() == reflect.Interface {
				t.Errorf("%T.%s is code", of, f.Name)
			}
		}
	}
}

// ENG-4.1: how many machines a Need gets follows from amounts and not from a count: four Pods of 4 cpu are one machine of 16 or
// four of 4. A group is opaque: rows that differ in it alone are two Needs, whatever it is called.
func TestANeedIsAmounts(t *testing.T) {
	for _, world := range []struct {
		machines string
		actions  int
	}{{"machine m1 idle cpu=16", 1}, {"machines m1..m8 idle cpu=4", 4}} {
		s := newScript()
		s.lines("need red/web cpu=16 unit=cpu:4\n" + world.machines)
		if r := planner.Plan(engine.Input{World: s.w}); len(r.Actions) != world.actions || len(r.Short) > 0 {
			t.Errorf("%s: %d actions, %d short", world.machines, len(r.Actions), len(r.Short))
		}
	}
	for _, groups := range [][2]string{{"a", "b"}, {"4", "job with spaces"}} {
		s := newScript()
		s.lines("machine m1 idle cpu=4")
		for i, g := range groups {
			alias := fmt.Sprintf("red/w%d", i)
			s.do("need " + alias + " cpu=4 unit=cpu:4")
			s.rows[alias].row.Group = g
		}
		s.replace("red")
		r := planner.Plan(engine.Input{World: s.w})
		if b := r.Blocks[0]; len(b.Verdicts) != 2 || b.Verdicts[0].Status != engine.OnTheWay || b.Verdicts[1].Status != engine.Short {
			t.Errorf("groups %q: %+v", groups, b.Verdicts)
		}
	}
}

// ENG-4.2, ENG-5.5: rows that differ in a penalty alone are two, and each machine carries the attribution of the one that took it, whole.
func TestPenaltiesArePartOfTheProfile(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/low cpu=4 unit=cpu:4 priority=7 interruption=5 reclamation=2
		need red/high cpu=4 unit=cpu:4 priority=7 interruption=5 reclamation=8
		machines m1..m2 idle cpu=4`)
	for _, row := range s.rows {
		row.row.Group = ""
	}
	s.replace("red")
	r := planner.Plan(engine.Input{World: s.w})
	seen := map[inventory.Attribution]bool{}
	for _, a := range r.Actions {
		attribution := r.Attribution(a.Need)
		n, _ := r.Need(a.Need)
		want := inventory.Attribution{Fingerprint: n.Form.Fingerprint, Group: n.Group, Priority: 7, Interruption: n.Form.Interruption.Penalty(),
			Reclamation: n.Form.Reclamation.Penalty()}
		if attribution != want || attribution.Fingerprint == "" || attribution.Interruption == 0 {
			t.Errorf("attribution %+v, want %+v", attribution, want)
		}
		seen[attribution] = true
	}
	if len(seen) != 2 {
		t.Errorf("%d attributions for two rows", len(seen))
	}
}

// ENG-5.11: what is stuck is Failed for the engine, from the moment at which the core says so and until it says otherwise; no time
// that passes makes it so.
func TestStuckIsFailed(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=4 unit=cpu:4
		machine m1 configuring=red for=web cpu=4
		machine m2 idle cpu=4`)
	for _, step := range []struct {
		change  string
		actions int
	}{{"", 0}, {"machine m1 stuck=yes", 1}, {"machine m1 stuck=no", 0}} {
		s.lines(step.change)
		s.w.Inventory.Advance(s.w.Inventory.Now() + 365*24*3600*engine.Second)
		r := planner.Plan(engine.Input{World: s.w})
		bootstraps := 0
		for _, a := range r.Actions {
			if a.Kind == engine.Bootstrap {
				bootstraps++
			}
		}
		if bootstraps != step.actions {
			t.Errorf("%q: %d of m2", step.change, bootstraps)
		}
	}
}

// ENG-18.4: a gang that gets machines in every plan, here and there in turn, and is never covered better, is parked like one that
// gets nothing.
func TestAcquiringIsNoProgress(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/gang cpu=12 unit=cpu:4 same=rack
		machines a1..a2 idle cpu=4 label.rack=a
		machines b1..b2 failed cpu=4 label.rack=b`)
	var parking ledger.Parking
	key := s.w.Demand.Clusters()[0].Needs[0].RowKey()
	for cycle := range s.policy.ParkAfter + 1 {
		if parking.Parked("red", key, s.policy) {
			t.Fatalf("parked after %d cycles", cycle)
		}
		r := planner.Plan(engine.Input{World: s.w, Cycle: cycle})
		if len(r.Actions) != 2 {
			t.Fatalf("%d actions in cycle %d", len(r.Actions), cycle)
		}
		parking.Observe(r, cycle)
		here, there := "a", "b"
		if cycle%2 == 1 {
			here, there = there, here
		}
		s.lines("machines " + here + "1.." + here + "2 failed\nmachines " + there + "1.." + there + "2 idle")
	}
	if !parking.Parked("red", key, s.policy) {
		t.Error("not parked")
	}
}
