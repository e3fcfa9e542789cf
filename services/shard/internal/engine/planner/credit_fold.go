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
	version   uint64            // of stock and classes
	forgotten uint64            // of the dimensions
	mu        sync.Mutex        // of what follows, while clusters are credited
	stock     map[string]uint32 // 1 plus a class in stock that could hold the gang, or 0
	names     map[string]string // group by aggregate
}

// folder is what one worker remembers of section 8.
type folder struct {
	last  lastFold
	home  homeClasses
	index map[foldKey]int // of the cluster at work
	mixed []bool          // by fold: its members may not be in order
	key   []byte
}

// homeClasses is the classes of the machines that are bound to or in flight for the cluster that was asked about last.
type homeClasses struct {
	cl   *clusterState
	list []uint32
	seen []uint64 // one bit per class
}

// of returns the classes for a cluster: its gangs are asked about one after the other.
func (h *homeClasses) of(p *planning, cl *clusterState) []uint32 {
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

// gangRow is what the answer of section 8 to a gang hangs on.
type gangRow struct {
	row     int32
	fate    fate
	witness uint32 // byStock: a class in stock that could hold it
}

type fate uint8

const (
	byCluster fate = iota // the Need and its own cluster alone
	byStock               // foldable while a class is in stock
	byNothing             // not foldable while no class that could hold it comes into stock
)

func (r gangRow) folds(cl *clusterState) bool { return cl.needs[cl.rowNeed[r.row]].bits&wFolded != 0 }

// foldable is ENG-8.2: whether some machine could hold the whole gang. A gang whose min unit is more than its aggregate
// asks for more than the aggregate says, and is left alone; so is one that has begun on smaller machines (begun).
func (p *planning) foldable(cl *clusterState, row int, x *scratch) (bool, gangRow) {
	n := &cl.d.Needs[row]
	g := gangRow{row: int32(row)}
	if n.Aggregate.IsZero() || cl.begun[row] || !n.Aggregate.Covers(&n.MinUnit) {
		return false, g
	}
	last := &x.fold.last
	if !last.is(cl.f, n) {
		*last = lastFold{f: cl.f, form: n.Form, want: n.Aggregate, holder: p.holderOf(cl, n, x), at: -1}
	}
	if last.holder > 0 {
		g.fate, g.witness = byStock, last.holder-1
		return true, g
	}
	if last.asked != cl {
		m, want := p.cat.Known(n.Form), cl.projected(&n.Aggregate, x)
		last.asked = cl
		last.home = slices.ContainsFunc(x.fold.home.of(p, cl), func(c uint32) bool { return m.Has(c) && match.Covers(cl.f.Supply(c), want) })
	}
	if last.home {
		return true, g
	}
	g.fate = byNothing
	return false, g
}

// holderOf returns 1 plus a class in stock that could hold a gang, or 0.
func (p *planning) holderOf(cl *clusterState, n *demand.Need, x *scratch) uint32 {
	f, m := &p.folding, p.cat.Known(n.Form)
	x.fold.key = n.Aggregate.AppendKey(append(append(x.fold.key[:0], m.Form.Match...), cl.f.ID...))
	f.mu.Lock()
	holder, known := f.stock[string(x.fold.key)]
	f.mu.Unlock()
	if known {
		return holder
	}
	want := cl.projected(&n.Aggregate, x)
	for _, c := range m.Classes {
		if s := p.w.Inventory.Class(c).Stock; s[0]+s[1] > 0 && match.Covers(cl.f.Supply(c), want) {
			holder = c + 1
			break
		}
	}
	f.mu.Lock()
	f.stock[string(x.fold.key)] = holder
	f.mu.Unlock()
	return holder
}

// projected is a vector of the demand in the frame of the cluster, until the next one.
func (cl *clusterState) projected(v *resource.Vector, x *scratch) []int64 {
	x.rest = slices.Grow(x.rest[:0], cl.dimensions())[:cl.dimensions()]
	cl.f.Project(v, x.rest)
	return x.rest
}

// findFolds finds the gangs that section 8 folds, and the Needs that stand for them.
func (cl *clusterState) findFolds(p *planning, x *scratch) {
	if len(cl.gangRows) > 0 {
		cl.listBegun(p, x)
	}
	for i := range cl.gangRows {
		g := &cl.gangRows[i]
		folds := false
		if folds, *g = p.foldable(cl, int(g.row), x); folds {
			cl.fold(p, g.row, x)
			cl.rowNeed[g.row] = rowFolds
		}
	}
}

// listBegun finds the gangs that have Own machines, bound or in flight, none of which could hold the gang alone. Folded,
// such a gang would be bought again the moment a large machine shows up anywhere in the shard.
func (cl *clusterState) listBegun(p *planning, x *scratch) {
	cl.begun = slices.Grow(cl.begun[:0], len(cl.d.Needs))[:len(cl.d.Needs)]
	clear(cl.begun)
	for at := range cl.machines[:cl.members] {
		if l := &cl.machines[at]; l.owner >= 0 && cl.rowNeed[l.owner] == rowGang && !cl.begun[l.owner] {
			cl.begin(p, int(l.owner), l.class, x)
		}
	}
}

// begin notes that the gang in a row has an Own machine of a class.
func (cl *clusterState) begin(p *planning, row int, class uint32, x *scratch) {
	n, sup := &cl.d.Needs[row], cl.f.Supply(class)
	if !p.cat.Known(n.Form).Has(class) {
		return
	}
	cl.begun[row] = match.Covers(sup, cl.projected(&n.MinUnit, x)) && !match.Covers(sup, cl.projected(&n.Aggregate, x))
}

// fold adds a foldable row to the Need that stands for all like it (ENG-8.3).
func (cl *clusterState) fold(p *planning, row int32, x *scratch) {
	n := &cl.d.Needs[row]
	f := &x.fold
	if len(cl.folds) == 0 {
		if f.index == nil {
			f.index = map[foldKey]int{}
		}
		clear(f.index)
		f.last.at, f.mixed = -1, f.mixed[:0]
	}
	at := f.last.at
	if at < 0 { // foldable was asked about this row last
		k := foldKey{n.Form.Stripped, p.foldGroup(n, x)}
		ok := false
		if at, ok = f.index[k]; !ok {
			at = len(cl.folds)
			f.index[k] = at
			f.mixed = append(f.mixed, false)
			cl.folds = append(cl.folds, engine.Folded{Need: demand.Need{Form: n.Form.Stripped, Group: k.group, MinUnit: n.Aggregate,
				Size: demand.SizeOf(p.w.Space, &n.Aggregate), Arrival: n.Arrival}})
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

// foldGroup is the group of the Need that stands for gangs of one aggregate.
func (p *planning) foldGroup(n *demand.Need, x *scratch) string {
	f := &p.folding
	x.fold.key = n.Aggregate.AppendKey(x.fold.key[:0])
	f.mu.Lock()
	group, ok := f.names[string(x.fold.key)]
	f.mu.Unlock()
	if !ok {
		group = demand.FoldGroup(p.w.Space, &n.Aggregate)
		f.mu.Lock()
		f.names[string(x.fold.key)] = group
		f.mu.Unlock()
	}
	return group
}

// sortFolds adds the folded Needs and puts all Needs back into allocation order.
func (cl *clusterState) sortFolds(p *planning, x *scratch) {
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
			cl.sortMembers(d.Members)
		}
		w := cl.add(p, &d.Need, p.cat.Known(d.Need.Form), engine.FoldedRow+int32(i), hold)
		w.bits |= wFolded
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
func (cl *clusterState) sortMembers(rows []int32) {
	slices.SortFunc(rows, func(a, b int32) int {
		x, y := &cl.d.Needs[a], &cl.d.Needs[b]
		return cmp.Or(demand.CompareArrival(x.Arrival, y.Arrival), strings.Compare(x.Group, y.Group),
			strings.Compare(x.Form.Fingerprint, y.Form.Fingerprint))
	})
}

// foldsValid reports whether section 8 still gives the answers that the cluster was credited with. A cluster that was
// asked in the last plan looks at what has changed since (ENG-21.3).
func (cl *clusterState) foldsValid(p *planning) bool {
	follows := p.stockFollowed && cl.foldVersion == p.lastFold
	for i := range cl.gangRows {
		g := &cl.gangRows[i]
		if follows && !g.mayTurn(p, cl) {
			continue
		}
		p.cat.MatcherOf(cl.d.Needs[g.row].Form)
		folds, now := p.foldable(cl, int(g.row), &p.x)
		if folds != g.folds(cl) {
			return false
		}
		*g = now
	}
	return true
}

// mayTurn reports whether what came into stock or left it since the last plan may change the answer.
func (r gangRow) mayTurn(p *planning, cl *clusterState) bool {
	switch r.fate {
	case byStock:
		s := p.w.Inventory.Class(r.witness).Stock
		return s[0]+s[1] == 0
	case byNothing:
		if len(p.stocked) == 0 {
			return false
		}
		w := &cl.needs[cl.rowNeed[r.row]]
		return slices.ContainsFunc(p.stocked, func(c uint32) bool { return cl.matcher(w).Has(c) && match.Covers(cl.f.Supply(c), cl.aggregate(w)) })
	}
	return false
}

// followFree lists the classes that came into stock since the last plan.
func (p *planning) followFree() {
	inv := p.w.Inventory
	changed, ok := inv.StockChanges(p.lastStock)
	p.stocked = p.stocked[:0]
	for _, c := range changed {
		if s := inv.Class(c).Stock; s[0]+s[1] > 0 && !slices.Contains(p.stocked, c) {
			p.stocked = append(p.stocked, c)
		}
	}
	p.lastStock = inv.StockVersion()
	p.stockFollowed = ok && p.lastClasses == inv.ClassVersion()
}
