package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Evictee is a machine that a Need of another shard may have drained (COORD-12.13).
type Evictee struct {
	Machine inventory.Index
	Grace   int64 // seconds, by the table of ENG-15.11
	Score   int64
	Terms   engine.ScoreTerms
}

// Evictable lists the claimed, owned Configured machines of heard clusters whose effective priority and whose
// interruption penalty are below those of the requester, best victim first by the score of preemption (ENG-15.9). r is a
// result of the present world.
func Evictable(w *engine.World, p *engine.Policy, r *engine.Result, priority int32, interruption demand.Bucket) (out []Evictee) {
	p = p.OrDefault()
	pl := plan{w: w, policy: p}
	inv := w.Inventory
	for bi, b := range r.Blocks {
		if c := w.Demand.Cluster(b.Cluster); c == nil || !c.Facts.Heard {
			continue
		}
		holders := map[inventory.Index]*demand.Need{}
		above := map[inventory.Index]int32{} // highest priority that counts on a machine
		note := func(i inventory.Index, row int32) {
			n, _ := r.Need(engine.Ref{Block: int32(bi), Row: row})
			if old, ok := above[i]; !ok || n.Form.Priority > old {
				above[i], holders[i] = n.Form.Priority, n
			}
		}
		for _, c := range b.Claims {
			note(c.Machine, c.Row)
		}
		for _, s := range b.Shares {
			note(s.Machine, s.Row)
		}
		for i, top := range above { // sorted below
			row := inv.Row(i)
			if !inv.Live(i) || row.Seen() != inventory.Configured || row.Foreign() || row.Promised() {
				continue
			}
			penalty := holders[i].Form.Interruption.Canonical()
			if row.Attribution != 0 {
				s := inv.AttributionRow(row.Attribution)
				top, penalty = max(top, s.Priority), max(penalty, demand.BucketOf(s.Interruption))
			}
			if top >= priority || penalty >= interruption.Canonical() {
				continue
			}
			gap := int64(priority) - int64(top)
			t := pl.scoreTerms(i, gap)
			out = append(out, Evictee{Machine: i, Grace: p.Grace(gap), Score: t.Sum(), Terms: t})
		}
	}
	slices.SortFunc(out, func(a, b Evictee) int {
		x, y := inv.Row(a.Machine), inv.Row(b.Machine)
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(x.Occupancy().Rank(), y.Occupancy().Rank()), cmp.Compare(inv.Price(a.Machine), inv.Price(b.Machine)),
			cmp.Compare(x.Order, y.Order))
	})
	return out
}
