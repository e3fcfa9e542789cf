package planner

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// folding remembers answers of section 8 that many gangs share.
type folding struct {
	*plan
	version   uint64            // of stock and classes
	forgotten uint64            // of the dimensions
	mu        sync.Mutex        // of what follows, while clusters are credited
	stock     map[string]uint32 // 1 plus a class that could hold the gang and can be had, or 0
	names     map[string]string // name of the folded group, by aggregate

	last uint64 // version in the plan before
}

// folder is what one worker remembers of section 8.
type folder struct {
	last   lastFold
	home   []uint32        // classes of the machines that are bound to or in flight for
	homeOf *clusterState   // this cluster
	index  map[foldKey]int // of the cluster at work
	mixed  []bool          // by fold: its members may not be in order
	most   int             // folds that there most likely are
	key    []byte
}

// homeClasses returns those classes for a cluster: its gangs are asked about one after the other.
func (f *folder) homeClasses(cl *clusterState) []uint32 {
	if f.homeOf == cl {
		return f.home
	}
	f.homeOf, f.home = cl, f.home[:0]
	for at := range cl.machines[:cl.members] {
		if c, n := cl.machines[at].class, len(f.home); n == 0 || f.home[n-1] != c { // machines of one class mostly follow each other
			f.home = append(f.home, c)
		}
	}
	slices.Sort(f.home)
	f.home = slices.Compact(f.home)
	return f.home
}

// lastFold is the row that was asked last: rows of a kind lie side by side.
type lastFold struct {
	f          *match.Projection
	form       *demand.Form
	want, unit resource.Vector
	holder     uint32 // as in folding.stock
	asked      *clusterState
	home       bool // a machine of the cluster that was asked could hold it
	smaller    bool // and a smaller class a part of it
	at         int  // in folds, or -1
}

type foldKey struct {
	form  *demand.Form
	group string
}

func (f *folding) begin(w *engine.World) {
	if f.stock == nil {
		f.stock, f.names = map[string]uint32{}, map[string]string{}
	}
	if v := w.Inventory.StockVersion() + w.Inventory.ClassVersion(); f.version != v || len(f.stock) > 16*match.CatalogMax {
		f.version = v
		clear(f.stock)
	}
	if n := w.Space.Dimensions.Forgotten(); f.forgotten != n || len(f.names) > match.CatalogMax {
		f.forgotten = n
		clear(f.names)
	}
}

// gangRow is a row with Same.
type gangRow struct {
	row    int32
	byRoom bool // it folds as far as its own cluster has room: no machine that could hold it can be had, and there are smaller classes (leave)
}

// foldable is ENG-8.2: whether some machine could hold the whole gang. A gang whose min unit is more than its aggregate
// asks for more than the aggregate says, and is left alone; so is one that has begun on smaller machines (owns).
func (f *folding) foldable(cl *clusterState, row int32, x *scratch) (folds, byRoom bool) {
	n := &cl.d.Needs[row]
	if n.Aggregate.IsZero() || cl.owns[row] == ownsSmall || cl.d.HeadroomOf(int(row)) > 0 || !n.Aggregate.Covers(&n.MinUnit) || n.Form.MaxPerHost > 0 && !n.Aggregate.Equal(&n.MinUnit) {
		return false, false
	}
	last := &x.fold.last
	if last.f != cl.f || last.form != n.Form || !last.want.Equal(&n.Aggregate) || !last.unit.Equal(&n.MinUnit) {
		*last = lastFold{f: cl.f, form: n.Form, want: n.Aggregate, unit: n.MinUnit, holder: f.holderOf(cl, n, x), at: -1}
	}
	if last.holder > 0 {
		return true, false
	}
	if last.asked != cl {
		var buf [8]int64
		unit := append(buf[:0], cl.projected(&n.MinUnit, x)...)
		m, want := f.cat.Known(n.Form), cl.projected(&n.Aggregate, x)
		last.asked = cl
		last.home = slices.ContainsFunc(x.fold.homeClasses(cl), func(c uint32) bool { return m.Has(c) && match.Covers(cl.f.Supply(c), want) })
		last.smaller = last.home && slices.ContainsFunc(m.Classes, func(c uint32) bool { return match.Covers(cl.f.Supply(c), unit) && !match.Covers(cl.f.Supply(c), want) })
	}
	_, left := slices.BinarySearch(cl.left, row)
	byRoom = last.home && last.smaller
	return last.home && !(byRoom && left), byRoom
}

// holderOf returns 1 plus a class that could hold a gang and has machines that are not withheld from all clusters, or 0.
func (f *folding) holderOf(cl *clusterState, n *demand.Need, x *scratch) uint32 {
	m := f.cat.Known(n.Form)
	x.fold.key = binary.LittleEndian.AppendUint32(n.Aggregate.AppendKey(append(x.fold.key[:0], m.Form.Match...)), uint32(cl.f.Number))
	f.mu.Lock()
	holder, known := f.stock[string(x.fold.key)]
	f.mu.Unlock()
	if known {
		return holder
	}
	want := cl.projected(&n.Aggregate, x)
	if i := slices.IndexFunc(m.Classes, func(c uint32) bool {
		return f.w.Inventory.Class(c).Obtainable > 0 && match.Covers(cl.f.Supply(c), want)
	}); i >= 0 {
		holder = m.Classes[i] + 1
	}
	f.mu.Lock()
	f.stock[string(x.fold.key)] = holder
	f.mu.Unlock()
	return holder
}

// findFolds finds the gangs in some rows that section 8 folds, and the Needs that stand for them.
func (nz *normalising) findFolds(from, end int) {
	cl, x := nz.cl, nz.x
	at, _ := slices.BinarySearchFunc(cl.gangRows, from, func(g gangRow, row int) int { return cmp.Compare(int(g.row), row) })
	for ; at < len(cl.gangRows) && int(cl.gangRows[at].row) < end; at++ {
		g := &cl.gangRows[at]
		folds := false
		if folds, g.byRoom = nz.folding.foldable(cl, g.row, x); folds {
			nz.fold(g.row)
			cl.rowNeed[g.row] = rowFolds
		}
	}
}

// owns says which Own machines, bound or in flight, a gang has that match and fit it.
type owns uint8

const (
	ownsNothing owns = iota
	ownsLarge        // each could hold it alone
	ownsSmall        // one could not: folded, it would be bought again the moment a large machine shows up anywhere in the shard
)

// listOwns finds what gangs own.
func (nz *normalising) listOwns() {
	cl, x := nz.cl, nz.x
	cl.owns = slices.Grow(cl.owns[:0], len(cl.d.Needs))[:len(cl.d.Needs)]
	clear(cl.owns)
	for at := range cl.machines[:cl.members] {
		l := &cl.machines[at]
		if l.owner < 0 || cl.d.Needs[l.owner].Form.Same == nil || cl.owns[l.owner] == ownsSmall {
			continue
		}
		n, sup, o := &cl.d.Needs[l.owner], cl.f.Supply(l.class), &cl.owns[l.owner]
		if nz.cat.Known(n.Form).Has(l.class) && match.Covers(sup, cl.projected(&n.MinUnit, x)) {
			if *o = ownsSmall; match.Covers(sup, cl.projected(&n.Aggregate, x)) {
				*o = ownsLarge
			}
		}
	}
}

// leave takes gangs out of folds that the cluster has no room for, if nothing may give way to them, there are smaller machines, and they own none: the
// last ones, as many as lack room (ENG-8.2a). It reports whether any left.
func (nz *normalising) leave() bool {
	cl, before := nz.cl, len(nz.cl.left)
	for i := range cl.folds {
		members := cl.folds[i].Members
		w := &cl.needs[cl.rowNeed[members[0]]]
		lacks := unitsFor(cl.rest(w), cl.unit(w))
		if w.priority > min(0, cl.needs[len(cl.needs)-1].priority) {
			continue
		}
		for j := len(members) - 1; j >= 0 && lacks > 0; j-- {
			if _, byRoom := nz.folding.foldable(cl, members[j], nz.x); byRoom && cl.owns[members[j]] == ownsNothing {
				cl.left = append(cl.left, members[j])
				lacks--
			}
		}
	}
	slices.Sort(cl.left)
	return len(cl.left) > before
}

// fold adds a foldable row to the folded Need of all rows like it (ENG-8.3).
func (nz *normalising) fold(row int32) {
	cl, x := nz.cl, nz.x
	n, f := &cl.d.Needs[row], &x.fold
	if len(cl.folds) == 0 {
		if f.index == nil {
			f.index = map[foldKey]int{}
		}
		clear(f.index)
		f.last.at, f.mixed, cl.folds = -1, f.mixed[:0], make([]engine.Folded, 0, f.most)
	}
	at := f.last.at
	if at < 0 { // foldable was asked about this row last
		k := foldKey{n.Form.Stripped, nz.folding.foldGroup(n, x)}
		ok := false
		if at, ok = f.index[k]; !ok {
			at = len(cl.folds)
			f.index[k] = at
			f.mixed = append(f.mixed, false)
			cl.folds = append(cl.folds, engine.Folded{Need: demand.Need{Form: n.Form.Stripped, Group: k.group, MinUnit: n.Aggregate,
				Size: demand.SizeOf(nz.w.Space, &n.Aggregate), Arrival: n.Arrival}})
		}
		f.last.at = at
	}
	d := &cl.folds[at]
	if k := len(d.Members); k > 0 { // rows of one profile and size are in order
		before := &cl.d.Needs[d.Members[k-1]]
		f.mixed[at] = f.mixed[at] || before.Form != n.Form || before.Size != n.Size
	}
	d.Members = append(d.Members, row)
	if demand.CompareArrival(n.Arrival, d.Need.Arrival) < 0 {
		d.Need.Arrival = n.Arrival
	}
}

// foldGroup returns the group of the folded Need of gangs with one aggregate.
func (f *folding) foldGroup(n *demand.Need, x *scratch) string {
	x.fold.key = n.Aggregate.AppendKey(x.fold.key[:0])
	f.mu.Lock()
	group, ok := f.names[string(x.fold.key)]
	f.mu.Unlock()
	if !ok {
		group = demand.FoldGroup(f.w.Space, &n.Aggregate)
		f.mu.Lock()
		f.names[string(x.fold.key)] = group
		f.mu.Unlock()
	}
	return group
}

// sortFolds adds the folded Needs and puts all Needs back into allocation order.
func (nz *normalising) sortFolds() {
	cl, x := nz.cl, nz.x
	plain := len(cl.needs) // these are in order
	for i := range cl.folds {
		d := &cl.folds[i]
		first := &cl.d.Needs[d.Members[0]]
		d.Need.Aggregate = first.Aggregate.Times(int64(len(d.Members)))
		hold := cl.d.Holds[d.Members[0]]
		for _, row := range d.Members[1:] {
			if cl.d.Holds[row] == demand.NotHeld {
				hold = demand.NotHeld
			}
		}
		if x.fold.mixed[i] {
			nz.sortMembers(d.Members)
		}
		w := nz.add(&d.Need, nz.cat.Known(d.Need.Form), engine.FoldedRow+int32(i), hold)
		w.bits = w.bits&^wGang | wFolded // each unit is a whole gang
	}
	before := func(a, b *needState) int {
		return cmp.Or(engine.CompareAllocation(cl.need(a), "", cl.need(b), ""), cmp.Compare(len(cl.membersOf(a)), len(cl.membersOf(b))))
	}
	folded := slices.Clone(cl.needs[plain:])
	slices.SortFunc(folded, func(a, b needState) int { return before(&a, &b) })
	for to := len(cl.needs) - 1; len(folded) > 0; to-- { // merge from the end
		last := &folded[len(folded)-1]
		if plain > 0 && before(&cl.needs[plain-1], last) > 0 {
			plain--
			cl.needs[to] = cl.needs[plain]
			continue
		}
		cl.needs[to] = *last
		folded = folded[:len(folded)-1]
	}
}

// sortMembers puts the rows of a folded Need into their order (ENG-8.5).
func (nz *normalising) sortMembers(rows []int32) {
	cl := nz.cl
	slices.SortFunc(rows, func(a, b int32) int {
		x, y := &cl.d.Needs[a], &cl.d.Needs[b]
		return cmp.Or(demand.CompareArrival(x.Arrival, y.Arrival), strings.Compare(x.Group, y.Group),
			strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint))
	})
}

// valid reports whether section 8 still gives the answers that the cluster was credited with (ENG-21.3).
func (f *folding) valid(cl *clusterState, x *scratch) bool {
	for i := range cl.gangRows {
		g := &cl.gangRows[i]
		f.cat.MatcherOf(cl.d.Needs[g.row].Form)
		folds, byRoom := f.foldable(cl, g.row, x)
		if folds != (cl.needs[cl.rowNeed[g.row]].bits&wFolded != 0) || byRoom && !g.byRoom {
			return false
		}
		g.byRoom = byRoom
	}
	return true
}
