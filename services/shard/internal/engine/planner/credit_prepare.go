package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
)

// makeRoom makes room for the short Needs of the clusters that are credited: for all of their rows.
func (p *planning) makeRoom() {
	rows := 0
	for _, cl := range p.clusters.dirty {
		cl.newsAt = rows
		rows += len(cl.d.Needs)
	}
	p.pending.news = slices.Grow(p.pending.news[:0], rows)[:rows]
}

// findMatchers looks up the matchers of all rows, and of what gangs may fold to, in the order in which they are first seen, on one goroutine. Rows are many in
// a cold plan, and their profiles few. The rest of what clusters share (frames, the answers of section 8) is looked up as they are credited.
func (p *planning) findMatchers() {
	rows := 0
	for _, cl := range p.clusters.dirty {
		if !cl.again {
			rows += len(cl.d.Needs)
		}
	}
	if rows > p.w.Demand.FormLen() {
		p.w.Demand.Forms(func(f *demand.Form) { p.cat.MatcherOf(f) })
		return
	}
	for _, cl := range p.clusters.dirty {
		for i := 0; i < len(cl.d.Needs) && !cl.again; i++ {
			p.findMatcher(cl.d.Needs[i].Form)
		}
	}
}

func (p *planning) findMatcher(f *demand.Form) {
	p.cat.MatcherOf(f)
	if f.Stripped != f {
		p.cat.MatcherOf(f.Stripped)
	}
}

// rowFolds is the value of rowNeed before the Needs are made if the row is part of a folded Need.
const rowFolds = -2

// normalising is section 8 for one cluster: it makes the Needs of the rows of demand.
type normalising struct {
	*plan
	folding *folding
	cl      *clusterState
	x       *scratch
}

// clear forgets what the cluster was credited with.
func (nz *normalising) clear(left []int32) {
	cl := nz.cl
	cl.cat, cl.judged, cl.made = nz.cat, 0, 0
	cl.left, cl.gangRows, cl.dims = left, cl.gangRows[:0], cl.dims[:0]
	cl.rowNeed = slices.Grow(cl.rowNeed[:0], len(cl.d.Needs))[:len(cl.d.Needs)]
	clear(cl.rowNeed)
	many := 0 // Needs of more than one unit, and gangs
	for i := range cl.d.Needs {
		n := &cl.d.Needs[i]
		cl.dims = match.AddDims(match.AddDims(cl.dims, &n.Aggregate), &n.MinUnit)
		if !n.Aggregate.Equal(&n.MinUnit) || n.Form.Same != nil {
			many++
		}
		if n.Form.Same != nil {
			cl.gangRows = append(cl.gangRows, gangRow{row: int32(i)})
		}
	}
	slices.Sort(cl.dims)
	k := len(cl.dims)
	cl.vec = slices.Grow(cl.vec[:0], 3*k*len(cl.d.Needs)+(k+2)*many)
	cl.needs, cl.folds = slices.Grow(cl.needs[:0], len(cl.d.Needs)), nil
	cl.demandVersion, cl.policy, cl.classVersion = cl.d.Version, nz.policy, nz.w.Inventory.ClassVersion()
	nz.clearCredit()
}

// clearCredit forgets what the Needs were credited with, but for what they say themselves.
func (nz *normalising) clearCredit() {
	cl := nz.cl
	clear(cl.gains.list)
	cl.gains.list, cl.shares, cl.unpacked = cl.gains.list[:0], cl.shares[:0], cl.unpacked[:0]
	cl.more, cl.empty = cl.more[:0], cl.empty[:0]
	cl.spares.begin(nz.off.atOnce)
	_, cl.supplyVersion = nz.w.Inventory.Members(cl.d.ID)
	cl.foldVersion = nz.folding.version
	cl.stale, cl.block = false, nil
	cl.rooms.forgetAll()
}

// setUpRows makes the Needs of some rows. It reads of the catalog what findMatchers has looked up.
func (nz *normalising) setUpRows(from, end int) {
	cl := nz.cl
	for i := from; i < end; i++ {
		if cl.rowNeed[i] != rowFolds {
			n := &cl.d.Needs[i]
			nz.add(n, nz.cat.Known(n.Form), int32(i), cl.d.Holds[i])
		}
	}
}

// endSetUp makes the Needs that stand for folded rows, and files all of them by row.
func (nz *normalising) endSetUp() {
	cl := nz.cl
	if len(cl.folds) > 0 {
		nz.sortFolds()
	}
	for i := range cl.needs {
		w := &cl.needs[i]
		w.at = int32(i)
		if w.bits&wFolded == 0 {
			cl.rowNeed[w.row] = int32(i)
			continue
		}
		for _, m := range cl.membersOf(w) {
			cl.rowNeed[m] = int32(i)
		}
	}
	nz.measureUnits()
	cl.made = len(cl.vec)
}

func (nz *normalising) add(n *demand.Need, m *match.Matcher, row int32, hold demand.Hold) *needState {
	cl := nz.cl
	cl.needs = append(cl.needs, needState{row: row, hold: hold, priority: n.Form.Priority, matcher: m.ID, bucket: n.Form.Interruption, claims: -1,
		lastOne: -1, own: -1, slot: -1, received: -1})
	w := &cl.needs[len(cl.needs)-1]
	str := nz.w.Space.Strings
	switch {
	case n.Form.Same != nil:
		w.bits |= wSame
		w.key, _ = str.Find(n.Form.Same.Key)
		if len(n.Form.Spread) > 0 {
			w.bits |= wSpare
		}
	case len(n.Form.Spread) > 0:
		w.bits |= wSpread
		w.key, _ = str.Find(n.Form.Spread[0].Key)
	}
	nz.measure(w, n)
	return w
}

// measure makes the vectors of a Need from its demand.
func (nz *normalising) measure(w *needState, n *demand.Need) {
	cl := nz.cl
	w.vec = cl.alloc(3)
	cl.f.Project(&n.Aggregate, cl.aggregate(w))
	cl.f.Project(&n.MinUnit, cl.unit(w))
	if w.bits&wSpread != 0 {
		match.RoundUp(cl.aggregate(w), cl.unit(w))
	}
	match.AddHeadroom(cl.aggregate(w), cl.unit(w), cl.headroomOf(w))
	copy(cl.rest(w), cl.aggregate(w))
	k := match.UnitsOf(cl.aggregate(w), cl.unit(w))
	if k > 0 || !match.IsZero(cl.unit(w)) {
		w.bits |= wUnit
	}
	if k == 0 && match.IsZero(cl.aggregate(w)) {
		w.bits |= wZero
	}
	perHost := int64(n.Form.MaxPerHost)
	switch {
	case k == 1 && w.bits&wSame != 0: // domains differ in how many units they hold (ENG-10.6)
		perHost = 0
		fallthrough
	case k > 1, k == 1 && cl.headroomOf(w) < 0: // it asks for more, with what is served elsewhere (ENG-11.18)
		w.bits |= wWhole | wMany
		cl.alloc(1)
		cl.vec = append(cl.vec, 0, perHost)
	case k == 1:
		w.bits |= wWhole
	}
	if w.bits&(wSpread|wWhole|wZero) == wSpread {
		w.bits ^= wSpread | wSpare
	}
	if n.Form.MinMembers > 0 {
		w.bits |= wGang
	}
}
