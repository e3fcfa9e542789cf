package planner_test

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// fullOracle judges one large result. It answers match and fit by the literal engine's rules, once per Form and class.
type fullOracle struct {
	w       *engine.World
	r       *engine.Result
	naive   *reference.State
	claimed []engine.Ref // by machine
	acts    []bool
	matches map[matchKey]bool
}

type matchKey struct {
	match string
	class uint32
}

func newFullOracle(w *engine.World, r *engine.Result) *fullOracle {
	n := w.Inventory.Bound()
	o := &fullOracle{w: w, r: r, naive: &reference.State{World: w}, claimed: make([]engine.Ref, n), acts: make([]bool, n), matches: map[matchKey]bool{}}
	for i := range o.claimed {
		o.claimed[i] = engine.NoNeed
	}
	return o
}

// match asks the literal engine, with one machine of the class.
func (o *fullOracle) match(f *demand.Form, i inventory.Index) bool {
	k := matchKey{f.Match, o.w.Inventory.Row(i).Class}
	got, known := o.matches[k]
	if !known {
		m := &reference.Machine{Index: i, Machine: o.w.Inventory.Machine(i)}
		got = o.naive.Match(&reference.Need{Need: demand.Need{Form: f}, Same: f.Same}, m)
		o.matches[k] = got
	}
	return got
}

func (o *fullOracle) supply(i inventory.Index, c *demand.Cluster) resource.Vector {
	s := o.w.Inventory.Class(o.w.Inventory.Row(i).Class).Supply
	if !c.Overhead.IsZero() {
		s = s.Sub(c.Overhead)
	}
	return s
}

// block checks the claims, shares and verdicts of one cluster.
func (o *fullOracle) block(bi int32, b *engine.Block) error {
	inv, c := o.w.Inventory, o.w.Demand.Cluster(b.Cluster)
	if len(b.Verdicts) != len(c.Needs) {
		return fmt.Errorf("%d verdicts on %d rows", len(b.Verdicts), len(c.Needs))
	}
	need := func(row int32) *demand.Need { n, _ := o.r.Need(engine.Ref{Block: bi, Row: row}); return n }
	shared := map[inventory.Index]resource.Vector{}
	for _, s := range b.Shares {
		v := shared[s.Machine]
		shared[s.Machine] = v.Add(need(s.Row).MinUnit.Times(s.Units))
	}
	sums, worth := map[int32]resource.Vector{}, map[int32][]resource.Vector{}
	for _, x := range b.Claims {
		n := need(x.Row)
		if x.Kind != engine.ClaimPromised {
			if !o.claimed[x.Machine].None() {
				return fmt.Errorf("%s is claimed twice", inv.ID(x.Machine))
			}
			o.claimed[x.Machine] = engine.Ref{Block: bi, Row: x.Row}
		}
		s := o.supply(x.Machine, c)
		if !o.match(n.Form, x.Machine) || !s.Covers(&n.MinUnit) {
			return fmt.Errorf("%s does not suit the row that claims it", inv.ID(x.Machine))
		}
		if n.Form.Same != nil && x.Kind != engine.ClaimKept {
			key, _ := o.w.Space.Strings.Find(n.Form.Same.Key)
			if v, _ := inv.Value(x.Machine, key); o.w.Space.Strings.Text(v) != o.r.Domain(engine.Ref{Block: bi, Row: x.Row}) {
				return fmt.Errorf("%s is outside the domain of its gang", inv.ID(x.Machine))
			}
		}
		if x.Kind == engine.ClaimKept {
			continue
		}
		if v, ok := shared[x.Machine]; ok {
			if !s.Covers(&v) {
				return fmt.Errorf("shares on %s do not fit", inv.ID(x.Machine))
			}
			s = s.Sub(v)
		}
		s = (&reference.Need{Need: *n}).Gives(s) // ENG-4.12
		v := sums[x.Row]
		sums[x.Row] = v.Add(s)
		worth[x.Row] = append(worth[x.Row], s)
	}
	for _, s := range b.Shares {
		v := sums[s.Row]
		sums[s.Row] = v.Add(need(s.Row).MinUnit.Times(s.Units))
	}
	return o.verdicts(bi, b, sums, worth)
}

// verdicts checks that what is credited and what is missing add up.
func (o *fullOracle) verdicts(bi int32, b *engine.Block, sums map[int32]resource.Vector, worth map[int32][]resource.Vector) error {
	for row := range b.Verdicts {
		v := &b.Verdicts[row]
		if v.Status == 0 || (v.Status == engine.Short) != (v.Missing >= 0) {
			return fmt.Errorf("row %d has the verdict %+v", row, *v)
		}
		if v.Fold >= 0 {
			continue
		}
		n := &b.Needs[row]
		sum := sums[int32(row)]
		rest := n.Aggregate.Sub(sum)
		if v.Status != engine.Short {
			if !rest.IsZero() {
				return fmt.Errorf("row %d is %s and lacks something", row, v.Status)
			}
			continue
		}
		if len(n.Form.Spread) > 0 && n.Form.Same == nil {
			continue // of which less than the sum counts (ENG-13.9)
		}
		if m := &b.Missing[v.Missing]; m.Row != int32(row) || !m.Residual.Equal(&rest) {
			return fmt.Errorf("row %d lacks %v, the verdict says %v", row, rest, m.Residual)
		}
	}
	for row, list := range worth {
		n, _ := o.r.Need(engine.Ref{Block: bi, Row: row})
		if len(n.Form.Spread) > 0 && n.Form.Same == nil {
			continue
		}
		spare := func(s resource.Vector) bool {
			without := sums[row].Sub(s)
			return without.Covers(&n.Aggregate)
		}
		if !slices.ContainsFunc(list, func(s resource.Vector) bool { return !spare(s) }) {
			return fmt.Errorf("row %d could do without any one of its %d machines", row, len(list))
		}
	}
	return nil
}

// leftOver checks what no Need claims: Configured machines are drained, and no short plain Need could use a free one.
func (o *fullOracle) leftOver() error {
	inv := o.w.Inventory
	free := map[uint32]inventory.Index{} // one free machine of each class that has any
	for i := range inv.All() {
		r := inv.Row(i)
		_, marked := r.Marked()
		switch {
		case !o.claimed[i].None() || r.Foreign():
		case r.Seen() == inventory.Configured:
			if c := o.w.Demand.Cluster(inv.Cluster(i)); c != nil && c.Facts.Heard && !o.acts[i] {
				return fmt.Errorf("%s is claimed by no Need and kept", inv.ID(i))
			}
		case (r.Seen() == inventory.Idle || r.Seen() == inventory.Speculative) && !r.Promised() && !marked:
			free[r.Class] = i
		}
	}
	for _, ref := range o.r.Short {
		n, cluster := o.r.Need(ref)
		c := o.w.Demand.Cluster(cluster)
		if n.Form.Same != nil || len(n.Form.Spread) > 0 || ref.Row < engine.FoldedRow && o.r.Blocks[ref.Block].Verdicts[ref.Row].Hold != demand.NotHeld {
			continue
		}
		rest := n.Aggregate
		if ref.Row < engine.FoldedRow {
			b := o.r.Blocks[ref.Block]
			rest = b.Missing[b.Verdicts[ref.Row].Missing].Residual
		}
		for _, i := range free {
			if s := o.supply(i, c); o.match(n.Form, i) && s.Covers(&n.MinUnit) && s.Touches(&rest) {
				return fmt.Errorf("a row of %s is short and %s is free", cluster, inv.ID(i))
			}
		}
	}
	return nil
}
