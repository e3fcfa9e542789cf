package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// candidatesIn fills a candidate index with what one domain has left for w.
func (ts *topologies) candidatesIn(into *cover.DomainIndex, cl *clusterState, w *needState, t *topState, d int, k inventory.Pool) {
	ts.slots = ts.slots[:0]
	for i, cell := range t.Top.Domains[d].Cells[k] {
		if n := t.Left(ts.free, d, k, i); n > 0 && cl.fits(w, cell.Class) {
			ts.slots = append(ts.slots, cover.Slot{Class: cell.Class, N: n})
		}
	}
	into.Fill(ts.cat, cl.matcher(w), cl.f, w.bucket, ts.slots)
}
