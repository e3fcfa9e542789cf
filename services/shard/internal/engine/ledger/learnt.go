package ledger

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Learn runs learn, which replaces what the cluster of a block has learnt of its Nodes and reports whether that changed. Rows whose
// machines hold less by it lose as much of their headroom: what their Pods were reported for is known now, and is bought as what they
// lack (ENG-11.16). The block is of the last plan, or nil. Learn reports whether anything was learnt, and whether headroom changed.
func (s *Sharing) Learn(w *engine.World, b *engine.Block, learn func() bool) (learnt, changed bool) {
	if b == nil || s.clusters[b.Cluster] == nil || len(s.clusters[b.Cluster].headroom.rows) == 0 {
		return learn(), false
	}
	rows := s.clusters[b.Cluster].headroom.rows
	before := machinesHold(w, b, rows)
	if !learn() {
		return false, false
	}
	after := machinesHold(w, b, rows)
	for i := range b.Needs {
		n, k := &b.Needs[i], b.Needs[i].RowKey()
		r, had := rows[k]
		lost := unitsLost(w, b, int32(i), before, after)
		if !had || lost <= 0 {
			continue
		}
		r.total, r.pods, r.own, changed = r.total-lost, max(0, r.pods-lost), max(0, r.own-lost), true
		if rows[k] = r.of(unitsOf(n)); r.pods == 0 {
			delete(rows, k)
		}
	}
	return true, changed
}

// onMachine is a row on a machine that it claims or has a share of.
type onMachine struct {
	machine inventory.Index
	row     int32
}

// machinesHold is how many units of each row with headroom its machines hold, if they hold nothing else. Machines that have gone since
// the plan are left out.
func machinesHold(w *engine.World, b *engine.Block, rows map[demand.RowKey]rowHeadroom) map[onMachine]int64 {
	units, cl := map[onMachine]int64{}, w.Demand.Cluster(b.Cluster)
	add := func(i inventory.Index, row int32) {
		if row >= engine.FoldedRow || cl == nil || !w.Inventory.Live(i) {
			return
		}
		n := &b.Needs[row]
		if _, has := rows[n.RowKey()]; has && n.MinUnit.Len() > 0 {
			units[onMachine{i, row}] = unitsOn(w, w.Inventory.Row(i).Class, cl, n)
		}
	}
	for _, c := range b.Claims {
		add(c.Machine, c.Row)
	}
	for _, x := range b.Shares {
		add(x.Machine, x.Row)
	}
	return units
}

// unitsLost is by how much less the claims and shares of a row hold. Of a share it is the part that the whole machine loses.
func unitsLost(w *engine.World, b *engine.Block, row int32, before, after map[onMachine]int64) int64 {
	was, is := newUnitSum(w, &b.Needs[row]), newUnitSum(w, &b.Needs[row])
	for _, c := range b.Claims {
		if at := (onMachine{c.Machine, c.Row}); c.Row == row {
			was.add(c.Machine, before[at])
			is.add(c.Machine, after[at])
		}
	}
	for _, x := range b.Shares {
		if at := (onMachine{x.Machine, x.Row}); x.Row == row && before[at] > 0 {
			was.add(x.Machine, x.Units)
			is.add(x.Machine, min(x.Units, x.Units*after[at]/before[at]))
		}
	}
	return was.units() - is.units()
}
