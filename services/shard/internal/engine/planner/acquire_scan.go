package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// classAmounts is what machines of each class have for one gang, found once for all domains.
type classAmounts struct {
	round uint32
	asked []int // dimensions: what is added up
	list  []classAmount
	vec   []int64
}

type classAmount struct {
	round   uint32
	fits    bool
	touches bool // it contributes
}

// begin begins again, for another gang. Sums that others use have all dimensions: asks is nil then.
func (a *classAmounts) begin(cl *clusterState, asks *needState) {
	n := cl.cat.Inventory.Classes()
	if a.round++; len(a.list) < n {
		a.list = make([]classAmount, n)
	}
	a.vec = slices.Grow(a.vec[:0], n*cl.dimensions())[:n*cl.dimensions()]
	a.asked = a.asked[:0]
	for j := range cl.dimensions() {
		if asks == nil || cl.aggregate(asks)[j] > 0 {
			a.asked = append(a.asked, j)
		}
	}
}

// of returns what machines of a class have for the gang.
func (a *classAmounts) of(cl *clusterState, w *needState, class uint32) *classAmount {
	x := &a.list[class]
	if x.round != a.round {
		*x = classAmount{a.round, cl.fits(w, class), match.Touches(cl.f.Supply(class), cl.aggregate(w))}
		if x.fits {
			copy(a.vec[int(class)*cl.dimensions():], cl.amount(w, class))
		}
	}
	return x
}

// add adds up what machines that fit the gang have for it, and counts those that contribute.
func (a *classAmounts) add(cl *clusterState, w *needState, class uint32, n int32, into []int64) (count int32) {
	x := a.of(cl, w, class)
	if !x.fits || n == 0 {
		return 0
	}
	amount := a.vec[int(class)*len(into):][:len(into)]
	for _, j := range a.asked {
		into[j] = resource.AddSat(into[j], resource.MulSat(amount[j], int64(n)))
	}
	if x.touches {
		count = n
	}
	return count
}

// addOne adds what a machine that fits has for the gang beside the shares on it.
func (a *classAmounts) addOne(cl *clusterState, w *needState, l *machineState, buf, into []int64) {
	if l.out < 0 {
		a.add(cl, w, l.class, 1, into)
		return
	}
	worth := cl.worth(w, l, buf)
	for _, j := range a.asked {
		into[j] = resource.AddSat(into[j], worth[j])
	}
}

// score is CappedScore, and whether anything that the gang asks for is there, and all of it.
func (a *classAmounts) score(have, want []int64) (touches, covers bool, sum int64) {
	covers = true
	for _, j := range a.asked {
		touches, covers = touches || have[j] > 0, covers && have[j] >= want[j]
		sum += cappedScore(have[j], want[j])
	}
	return touches, covers, sum
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
	ts.amounts.begin(cl, w)
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
