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
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// reality is one edit, and the same thing happening for real, written down without the edit's code.
type reality struct {
	edit explain.Edit
	real func(w *engine.World)
}

// drawReality draws an edit of a fleet that was built.
func drawReality(t source, sh shape, f *fleet) reality {
	c := oneOf(t, f.clusters...)
	machine := func() *fleetMachine {
		if len(f.machines) == 0 {
			return nil
		}
		return &f.machines[t.IntN(len(f.machines))]
	}
	rows := func() []demand.Row {
		var out []demand.Row
		for i := range c.rows {
			out = append(out, c.rows[i].row)
		}
		return out
	}
	switch t.IntN(9) {
	case 0: // another roll-up
		var next []demand.Row
		for range t.IntN(3) {
			next = append(next, drawRow(t, sh, &c).row)
		}
		return reality{explain.ReplaceRows{Cluster: c.name, Rows: next, Overhead: c.overhead}, func(w *engine.World) { w.Demand.Replace(c.name, next, c.overhead, w.Inventory.Now()) }}
	case 1: // a row more
		row := drawRow(t, sh, &c).row
		return reality{explain.AddRow{Cluster: c.name, Row: row}, func(w *engine.World) {
			w.Demand.Replace(c.name, append(rows(), row), c.overhead, w.Inventory.Now())
		}}
	case 2:
		return reality{explain.LiftHolds{}, func(w *engine.World) {
			for _, c := range slices.Clone(w.Demand.Clusters()) {
				for i := range c.Needs {
					w.Demand.SetHold(c.Name, c.Needs[i].RowKey(), demand.NotHeld)
				}
			}
		}}
	case 3: // a machine that was not there
		m := inventory.Machine{ID: "new", Provider: "p", State: inventory.Speculative, Zone: "a", CapacityType: inventory.OnDemand, Price: 1,
			Resources: []resource.Quantity{milli("cpu", 8), milli("mem", 8)}, Labels: []inventory.Label{{Key: "rack", Value: "r1"}}}
		return reality{explain.PutMachine{Machine: m}, func(w *engine.World) {
			i, _ := w.Inventory.Put(m)
			w.Inventory.SetSince(i, w.Inventory.Now())
		}}
	case 4:
		if x := machine(); x != nil {
			return reality{explain.RemoveMachine{ID: x.m.ID}, func(w *engine.World) {
				if i, ok := w.Inventory.Find(x.m.ID); ok {
					w.Inventory.Remove(i)
				}
			}}
		}
	case 5: // spot doubles
		return reality{explain.ScalePrice{Pool: explain.Pool{CapacityType: inventory.Spot}, PerMillion: 2_000_000}, func(w *engine.World) {
			for i := range w.Inventory.All() {
				if m := w.Inventory.Machine(i); m.CapacityType == inventory.Spot {
					m.Price *= 2
					w.Inventory.Put(m)
				}
			}
		}}
	case 6:
		return reality{explain.StockOut{Pool: explain.Pool{Zone: "a"}}, func(w *engine.World) {
			for i := range w.Inventory.All() {
				if m := w.Inventory.Machine(i); m.Zone == "a" && m.State == inventory.Speculative {
					w.Inventory.Withhold(i, inventory.Withheld{Reason: inventory.WithheldStockOut})
				}
			}
		}}
	case 7:
		return reality{explain.DrainZone{Zone: "b"}, func(w *engine.World) {
			for i := range w.Inventory.All() {
				if m := w.Inventory.Machine(i); m.Zone == "b" {
					w.Inventory.SetStuck(i, true)
					if m.Exists() {
						m.State, m.Failure = inventory.Failed, inventory.FailureHostLost
						w.Inventory.Put(m)
					}
				}
			}
		}}
	case 8:
		if x := machine(); x != nil && x.m.State.Bound() {
			return reality{explain.SetNode{ID: x.m.ID, Ready: true}, func(w *engine.World) {
				if i, ok := w.Inventory.Find(x.m.ID); ok {
					w.Inventory.SetReadiness(i, inventory.ReadyOnce)
				}
			}}
		}
	}
	return reality{explain.DropCluster{Cluster: c.name}, func(w *engine.World) {
		facts := w.Demand.Cluster(c.name).Facts
		facts.Heard = true
		w.Demand.SetFacts(c.name, facts)
		w.Demand.Replace(c.name, nil, c.overhead, w.Inventory.Now())
	}}
}

// ENG-P24, ENG-20.2, ENG-S64: planning with an edit gives the bytes of making the edit and planning, and the world that
// was asked about is as it was.
func TestWhatIfEqualsReality(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		if len(f.clusters) == 0 {
			return nil
		}
		r := rand.New(rand.NewPCG(uint64(len(f.machines)), uint64(len(f.clusters))))
		for range 4 {
			x := drawReality(r, shapes["mixed"], f)
			w := f.build(straight)
			in := engine.Input{World: w, Cycle: 7, Policy: f.policy}
			was := render(w, planner.Plan(in))
			a := explain.WhatIf(in, []explain.Edit{x.edit}, nil, false)
			if d := difference(was, render(w, planner.Plan(in))); d != "" {
				return fmt.Errorf("%T changed the world that it was asked about:\n%s", x.edit, d)
			}
			if d := difference(was, render(w, a.Base)); d != "" {
				return fmt.Errorf("the base is another plan:\n%s", d)
			}
			other := f.build(straight)
			x.real(other)
			if d := difference(render(other, planner.Plan(engine.Input{World: other, Cycle: 7, Policy: f.policy})), render(a.World, a.Final)); d != "" {
				return fmt.Errorf("- for real, + what-if of %T %+v\n%s", x.edit, x.edit, d)
			}
			if err := changesAreRight(w, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// changesAreRight checks ENG-20.3: a row is listed exactly when its verdict differs, and the money is that of the results.
func changesAreRight(w *engine.World, a *explain.Answer) error {
	listed := map[string]bool{}
	name := func(r *engine.Result, ref engine.Ref) string {
		n, cluster := r.Need(ref)
		return cluster + "/" + n.Form.Fingerprint + "/" + n.Group
	}
	for _, c := range a.Changes {
		if !c.Before.None() {
			listed[name(a.Base, c.Before)] = true
		}
		if !c.After.None() {
			listed[name(a.Final, c.After)] = true
		}
	}
	say := func(w *engine.World, r *engine.Result) map[string]string {
		out := map[string]string{}
		for bi, b := range r.Blocks {
			for i := range b.Needs {
				v := b.Verdicts[i]
				missing := ""
				if v.Missing >= 0 {
					m := b.Missing[v.Missing]
					missing = fmt.Sprint(m.Residual.Quantities(w.Space.Dimensions))
				}
				out[name(r, engine.Ref{Block: int32(bi), Row: int32(i)})] = fmt.Sprint(v.Status, v.Detail, v.Reason, v.Hold, b.Domain(int32(i)), v.Cost, missing)
			}
		}
		return out
	}
	before, after := say(w, a.Base), say(a.World, a.Final)
	for k, v := range before {
		if then, ok := after[k]; (!ok || then != v) != listed[k] {
			return fmt.Errorf("row %s: %s, then %s, listed %v", k, v, then, listed[k])
		}
	}
	for k := range after {
		if _, ok := before[k]; !ok && !listed[k] {
			return fmt.Errorf("row %s is new and not listed", k)
		}
	}
	if a.CostNow != a.Base.CostBefore || a.CostBaseline != a.Base.CostAfter || a.CostThen != a.Final.CostAfter {
		return errors.New("the money is not that of the plans")
	}
	return nil
}

// ENG-20.4: settling ends within its rounds for nearly every fleet, every plan on the way keeps the invariants, and where
// it ends nothing is left to do.
func TestSettlingComesToRest(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		a := explain.WhatIf(engine.Input{World: w, Policy: f.policy}, nil, nil, true)
		if err := invariants(a.World, f.policy, a.Final); err != nil {
			return err
		}
		if !a.Settled && a.Rounds < explain.SettleRounds {
			return fmt.Errorf("given up after %d rounds", a.Rounds)
		}
		if !a.Settled {
			return fmt.Errorf("not at rest after %d rounds, still %d actions", a.Rounds, len(a.Final.Actions))
		}
		return nil
	})
}

// ENG-20.1: an edit without effect says so, and changes nothing.
func TestEditsWithoutEffect(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/a cpu=4
		machine m1 cpu=4 price=1 zone=a type=t configured=red for=a
	`)
	red := s.w.Demand.Cluster("red")
	m, _ := s.w.Inventory.Find("m1")
	was := render(s.w, planner.Plan(engine.Input{World: s.w}))
	for _, e := range []explain.Edit{
		explain.RemoveRows{Cluster: "red", Name: "unknown"}, explain.RemoveRows{Cluster: "blue", Name: "a"}, explain.ScaleRows{Cluster: "blue", PerMillion: 1}, explain.ScaleRows{Cluster: "red", PerMillion: 1_000_000}, explain.DropCluster{Cluster: "blue"},
		explain.LiftHolds{}, explain.PutMachine{Machine: s.w.Inventory.Machine(m)}, explain.RemoveMachine{ID: "m9"}, explain.ScalePrice{Pool: explain.Pool{Zone: "x"}, PerMillion: 5}, explain.StockOut{Pool: explain.Pool{}}, explain.Restock{},
		explain.DrainZone{Zone: "x"}, explain.DrainZone{Zone: ""}, explain.SetNode{ID: "m9", Ready: true}, explain.ChangeRow{Cluster: "red", Key: demand.RowKey{Fingerprint: "x"}, Row: demand.Row{}},
	} {
		if warning := e.Apply(s.w); warning == "" {
			t.Errorf("%T %+v says nothing", e, e)
		}
	}
	if d := difference(was, render(s.w, planner.Plan(engine.Input{World: s.w}))); d != "" || s.w.Demand.Cluster("red") != red {
		t.Errorf("something changed:\n%s", d)
	}
}

// ENG-20.1: scaling rounds demand up and saturates.
func TestScaling(t *testing.T) {
	for _, c := range []struct{ v, per, add, want int64 }{
		{1000, 1_500_000, 999_999, 1500}, {1, 1, 999_999, 1}, {0, 5, 999_999, 0}, {1<<63 - 1, 2_000_000, 0, 1<<63 - 1},
		{1<<63 - 1, 1_000_000, 0, 1<<63 - 1}, {3, 500_000, 500_000, 2}, {-5, 10, 0, 0}, {1<<63 - 1, 1<<63 - 1, 999_999, 1<<63 - 1},
	} {
		if got := explain.TimesMillionths(c.v, c.per, c.add); got != c.want {
			t.Errorf("timesMillionths(%d, %d, %d) = %d, want %d", c.v, c.per, c.add, got, c.want)
		}
	}
}
