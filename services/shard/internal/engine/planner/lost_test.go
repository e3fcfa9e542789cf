package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-12.5a, ENG-P11: where most machines were bound for one row, and one of higher priority takes some of them, both engines give the same
// bytes, plan after plan.
func TestLosersEqualNaive(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		lost := *f
		boundForOneRow(&lost)
		w := lost.build(straight)
		in := engine.Input{World: w, Policy: f.policy}
		incremental := planner.NewPlanner()
		for range 4 {
			slow, fast := render(w, reference.Plan(in)), incremental.Plan(in)
			if d := difference(slow, render(w, planner.Plan(in))) + difference(slow, render(w, fast)); d != "" {
				return errors.New("- naive, + engine\n" + d)
			}
			explain.CarryOut(w, fast, f.policy)
		}
		return nil
	})
}

// boundForOneRow puts two of three machines down to the second row of the first cluster. Its first row and its third have a higher priority, the
// others the same or a lower one. Pods of the third start together.
func boundForOneRow(f *fleet) {
	f.clusters, f.machines = slices.Clone(f.clusters), slices.Clone(f.machines)
	c := &f.clusters[0]
	if c.facts.Heard = true; len(c.rows) < 2 {
		return
	}
	c.rows = slices.Clone(c.rows)
	for i := range c.rows {
		r := &c.rows[i].row
		r.Group, r.Profile.Priority = fmt.Sprint("g", i), []int32{100, 10, 50, 10, 0}[min(i, 4)]
	}
	c.rows[1].row.Profile.Interruption = 27
	if len(c.rows) > 2 {
		c.rows[2].row.Profile.MinMembers = 9
	}
	p := c.rows[1].row.Profile.Canonical()
	all := inventory.Attribution{Fingerprint: p.Fingerprint(), Group: c.rows[1].row.Group, Priority: p.Priority,
		Interruption: p.Interruption.Penalty(), Reclamation: p.Reclamation.Penalty()}
	for i := range f.machines {
		x := &f.machines[i]
		switch {
		case i%3 == 2:
		case x.m.State.Bound():
			x.m.Cluster, x.attribution = c.name, &all
		case x.promise != nil:
			x.promise = &inventory.Promise{Cluster: c.name, For: all, Cause: x.promise.Cause, Expires: x.promise.Expires}
		}
	}
}
