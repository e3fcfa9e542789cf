package planner

import (
	"cmp"
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
	last  lastFold
	home  homeClasses
	index map[foldKey]int // of the cluster at work
	mixed []bool          // by fold: its members may not be in order
	most  int             // folds that there most likely are
	key   []byte
}

// homeClasses is the classes of the machines that are bound to or in flight for the cluster that was asked about last.
type homeClasses struct {
	cl   *clusterState
	list []uint32
	seen []uint64 // one bit per class
}

// of returns the classes for a cluster: its gangs are asked about one after the other.
func (h *homeClasses) of(p *plan, cl *clusterState) []uint32 {
	if h.cl == cl {
		return h.list
	}
	if n := (p.w.Inventory.Classes() + 63) / 64; len(h.seen) < n {
		h.seen = append(h.seen, make([]uint64, n-len(h.seen))...)
	}
	h.cl, h.list = cl, h.list[:0]
	for at := range cl.machines[:cl.members] {
		c := cl.machines[at].class
		if bit := uint64(1) << (c % 64); h.seen[c/64]&bit == 0 {
			h.seen[c/64] |= bit
			h.list = append(h.list, c)
		}
	}
	for _, c := range h.list {
		h.seen[c/64] = 0
	}
	return h.list
}

// lastFold is the row that was asked last: rows of a kind lie side by side.
type lastFold struct {
	f      *match.Projection
	form   *demand.Form
	want   resource.Vector
	holder uint32 // as in folding.stock
	asked  *clusterState
	home   bool // a machine of the cluster that was asked could hold it
	at     int  // in folds, or -1
}

func (l *lastFold) is(f *match.Projection, n *demand.Need) bool {
	return l.f == f && l.form == n.Form && l.want.Equal(&n.Aggregate)
}

type foldKey struct {
	form  *demand.Form
	group string
}

func (f *folding) begin(w *engine.World) {
	if f.stock == nil {
		f.stock, f.names = map[string]uint32{}, map[string]string{}
	}
	if v := w.Inventory.StockVersion() + w.Inventory.ClassVersion(); f.version != v {
		f.version = v
		clear(f.stock)
	}
	if n := w.Space.Dimensions.Forgotten(); f.forgotten != n || len(f.names) > match.CatalogMax {
		f.forgotten = n
		clear(f.names)
	}
	if len(f.stock) > 16*match.CatalogMax {
		clear(f.stock)
	}
}

// foldable is ENG-8.2: whether some machine could hold the whole gang. A gang whose min unit is more than its aggregate
// asks for more than the aggregate says, and is left alone; so is one that has begun on smaller machines (begun).
func (f *folding) foldable(cl *clusterState, row int32, x *scratch) bool {
	n := &cl.d.Needs[row]
	if n.Aggregate.IsZero() || cl.begun[row] || cl.d.HeadroomOf(int(row)) > 0 || !n.Aggregate.Covers(&n.MinUnit) || n.Form.MaxPerHost > 0 && !n.Aggregate.Equal(&n.MinUnit) {
		return false
	}
	last := &x.fold.last
	if !last.is(cl.f, n) {
		*last = lastFold{f: cl.f, form: n.Form, want: n.Aggregate, holder: f.holderOf(cl, n, x), at: -1}
	}
	if last.holder > 0 {
		return true
	}
	if last.asked != cl {
		m, want := f.cat.Known(n.Form), cl.projected(&n.Aggregate, x)
		last.asked = cl
		last.home = slices.ContainsFunc(x.fold.home.of(f.plan, cl), func(c uint32) bool { return m.Has(c) && match.Covers(cl.f.Supply(c), want) })
	}
	return last.home
}

// holderOf returns 1 plus a class that could hold a gang and has machines that are not withheld from all clusters, or 0.
func (f *folding) holderOf(cl *clusterState, n *demand.Need, x *scratch) uint32 {
	m := f.cat.Known(n.Form)
	x.fold.key = n.Aggregate.AppendKey(append(append(x.fold.key[:0], m.Form.Match...), cl.f.ID...))
	f.mu.Lock()
	holder, known := f.stock[string(x.fold.key)]
	f.mu.Unlock()
	if known {
		return holder
	}
	want := cl.projected(&n.Aggregate, x)
	for _, c := range m.Classes {
		if f.w.Inventory.Class(c).Obtainable > 0 && match.Covers(cl.f.Supply(c), want) {
			holder = c + 1
			break
		}
	}
	f.mu.Lock()
	f.stock[string(x.fold.key)] = holder
	f.mu.Unlock()
	return holder
}

// findFolds finds the gangs in some rows that section 8 folds, and the Needs that stand for them.
func (nz *normalising) findFolds(from, end int) {
	cl, x := nz.cl, nz.x
	at, _ := slices.BinarySearch(cl.gangRows, int32(from))
	for _, row := range cl.gangRows[at:] {
		if int(row) >= end {
			break
		}
		if nz.folding.foldable(cl, row, x) {
			nz.fold(row)
			cl.rowNeed[row] = rowFolds
		}
	}
}

// listBegun finds the gangs that have Own machines, bound or in flight, none of which could hold the gang alone. Folded,
// such a gang would be bought again the moment a large machine shows up anywhere in the shard.
func (nz *normalising) listBegun() {
	cl := nz.cl
	cl.begun = slices.Grow(cl.begun[:0], len(cl.d.Needs))[:len(cl.d.Needs)]
	clear(cl.begun)
	for at := range cl.machines[:cl.members] {
		if l := &cl.machines[at]; l.owner >= 0 && cl.d.Needs[l.owner].Form.Same != nil && !cl.begun[l.owner] {
			nz.begin(int(l.owner), l.class)
		}
	}
}

// begin notes that the gang in a row has an Own machine of a class.
func (nz *normalising) begin(row int, class uint32) {
	cl, x := nz.cl, nz.x
	n, sup := &cl.d.Needs[row], cl.f.Supply(class)
	if !nz.cat.Known(n.Form).Has(class) {
		return
	}
	cl.begun[row] = match.Covers(sup, cl.projected(&n.MinUnit, x)) && !match.Covers(sup, cl.projected(&n.Aggregate, x))
}

// fold adds a foldable row to the folded Need of all rows like it (ENG-8.3).
func (nz *normalising) fold(row int32) {
	cl, x := nz.cl, nz.x
	n := &cl.d.Needs[row]
	f := &x.fold
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
		if c := engine.CompareAllocation(cl.need(a), "", cl.need(b), ""); c != 0 {
			return c
		}
		return cmp.Compare(len(cl.membersOf(a)), len(cl.membersOf(b)))
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
	for _, row := range cl.gangRows {
		f.cat.MatcherOf(cl.d.Needs[row].Form)
		if f.foldable(cl, row, x) != (cl.needs[cl.rowNeed[row]].bits&wFolded != 0) {
			return false
		}
	}
	return true
}
