package core

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Freeze takes the world in the time that copying the columns of its machines takes (SHARD-23.5).
func (c *reader) Freeze(r *inventory.FreezeBuffer) *Frozen {
	f := &Frozen{world: c.world.Freeze(r), now: c.now, holds: map[string][]demand.Hold{}, study: Study{Policy: c.policy, Cycle: c.cycle.used, At: c.now,
		Paused: c.cfg.Paused || len(c.ctl.Pauses) > 0 || c.coord.frozen(), DryRun: c.cfg.DryRun || c.ctl.DryRun}}
	for _, cl := range c.clusters.ordered {
		d := c.world.Demand.Cluster(cl.Name)
		if !cl.holds || d == nil {
			continue
		}
		list := make([]demand.Hold, len(d.Needs))
		for i := range d.Needs {
			list[i] = c.sessions.hold(cl, &d.Needs[i])
		}
		f.holds[cl.Name] = list
	}
	return f
}

// Thaw makes the study: the world as the next cycle would see it, time passed, quotas and holds brought up to date. It is
// called once, on any goroutine.
func (f *Frozen) Thaw() *Study {
	s := &f.study
	s.World = f.world.Thaw()
	s.World.Inventory.Advance(f.now)
	for _, name := range sortedKeys(f.holds) {
		list := f.holds[name]
		s.World.Demand.SetHolds(name, func(*demand.Need) demand.Hold {
			h := list[0]
			list = list[1:]
			return h
		})
	}
	return s
}

// Input is what the next cycle would plan.
func (s *Study) Input() engine.Input {
	return engine.Input{World: s.World, Cycle: s.Cycle + 1, Policy: s.Policy}
}

// Row spells out one row of a result for readers. What only the core knows (since when it is short, what holds its
// actions back) is not in it.
func Row(w *engine.World, r *engine.Result, ref engine.Ref) (cluster string, row *NeedRow) {
	b := r.Blocks[ref.Block]
	n := spellRow(w, b, int(ref.Row))
	return b.Cluster, &n
}

// spellRow spells out what a result says about a row.
func spellRow(w *engine.World, b *engine.Block, i int) NeedRow {
	dims := w.Space.Dimensions
	need, v := &b.Needs[i], b.Verdicts[i]
	row := NeedRow{Form: need.Form, Group: need.Group, RowID: need.RowID, Aggregate: need.Aggregate.Quantities(dims),
		MinUnit: need.MinUnit.Quantities(dims), Arrival: need.Arrival, Verdict: v, Domain: b.Domain(int32(i))}
	if v.Status == engine.Short && v.Missing >= 0 {
		m := &b.Missing[v.Missing]
		row.Residual = m.Residual.Quantities(dims)
		if m.Freed != nil {
			row.Freed = m.Freed.Quantities(dims)
		}
	}
	return row
}

// RecordOf writes an action of a plan that did not start as a record, as records of what happens are written.
func RecordOf(v *engine.View, provider string) Record {
	return Record{Kind: v.Kind, Machine: v.Machine, Provider: provider, Cluster: v.Cluster, Fingerprint: v.Row.Fingerprint, Group: v.Row.Group,
		RowID: v.RowID, Priority: v.Priority, Cause: v.Cause, Cost: v.Cost, Score: v.Score, Price: v.Price, Grace: v.Grace,
		PreemptorPriority: v.PreemptorPriority, PreemptorCluster: v.PreemptorCluster, PreemptorFingerprint: v.Preemptor.Fingerprint, PreemptorRowID: v.PreemptorRowID,
		Terms: termsOf(v.Terms), Domain: v.Domain}
}

// Planned lists the actions of the last plan, at most n, and how many there are in all.
func (c *reader) Planned(n int) (out []Record, total int) {
	r := c.cycle.result
	if r == nil {
		return nil, 0
	}
	for _, a := range r.Actions[:min(n, len(r.Actions))] {
		v := r.View(c.world, a)
		x := RecordOf(&v, c.world.Inventory.Provider(inventory.Index(a.Machine)))
		x.Cycle, x.Epoch, x.Wall = c.cycle.used, c.epoch, c.cycle.Wall
		out = append(out, x)
	}
	return out, len(r.Actions)
}
