package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// classAmounts is what machines of each class have for one gang. It is found once for all domains.
type classAmounts struct {
	round uint32
	list  []classAmount
	vec   []int64
}

type classAmount struct {
	round   uint32
	fits    bool
	touches bool // it contributes
}

// begin begins again, for another gang.
func (a *classAmounts) begin(cl *clusterState) {
	n := cl.cat.Inventory.Classes()
	if a.round++; len(a.list) < n {
		a.list = make([]classAmount, n)
	}
	a.vec = slices.Grow(a.vec[:0], n*cl.dimensions())[:n*cl.dimensions()]
}

// add adds up what machines that fit the gang have for it, and counts those that contribute.
func (a *classAmounts) add(cl *clusterState, w *needState, class uint32, n int32, into []int64) (count int32) {
	k := len(into)
	x, amount := &a.list[class], a.vec[int(class)*k:][:k]
	if x.round != a.round {
		*x = classAmount{a.round, cl.fits(w, class), match.Touches(cl.f.Supply(class), cl.aggregate(w))}
		if x.fits {
			copy(amount, cl.amount(w, class))
		}
	}
	if !x.fits || n == 0 {
		return 0
	}
	for j, s := range amount {
		into[j] = resource.AddSat(into[j], resource.MulSat(s, int64(n)))
	}
	if x.touches {
		count = n
	}
	return count
}

// addCells adds up the machines of cells.
func (a *classAmounts) addCells(cl *clusterState, w *needState, cells []inventory.Cell, into []int64) {
	for _, cell := range cells {
		a.add(cl, w, cell.Class, cell.N, into)
	}
}

// scan is topologies.best without sums: it looks at what each domain has free.
func (ts *topologies) scan(cl *clusterState, w *needState, t *topState, skip []int32) (at int32, satisfiable bool) {
	var best domainPlace
	agg, k := cl.aggregate(w), cl.dimensions()
	ts.amounts.begin(cl)
	ts.view = slices.Grow(ts.view[:0], 2*k)[:2*k]
	idle, total := ts.view[:k], ts.view[k:]
	at = -1
	for d := range t.Top.Domains {
		if slices.Contains(skip, int32(d)) {
			continue
		}
		clear(ts.view)
		n := ts.addFree(cl, w, t, d, inventory.IdlePool, idle)
		copy(total, idle)
		if n += ts.addFree(cl, w, t, d, inventory.SpeculativePool, total); n == 0 || best.first >= satisfiableBit && !match.Covers(total, agg) {
			continue
		}
		if p := placeOf(idle, total, total, agg, n, t.rank[d]); at < 0 || p.better(&best) {
			at, best = int32(d), p
		}
	}
	return at, best.first >= satisfiableBit
}

// addFree adds up what the plan has left of a pool of a domain.
func (ts *topologies) addFree(cl *clusterState, w *needState, t *topState, d int, k inventory.Pool, into []int64) (n int32) {
	for i, cell := range t.Top.Domains[d].Cells[k] {
		n += ts.amounts.add(cl, w, cell.Class, t.Left(ts.free, d, k, i), into)
	}
	return n
}
