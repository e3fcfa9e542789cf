package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// planning is one plan at work. Its memory is that of a Planner and used again by the next plan.
type planning struct {
	w      *World
	policy *Policy
	now    int64
	res    *Result

	cat         *catalog
	folding     folding
	foldVersion uint64
	stock       stock
	tops        []*topState
	told        int // how many of stock.list the tops know of

	states    []*clusterState // by block
	places    places          // of all of them
	marks     []uint8         // of each
	reindexed bool            // states were listed anew in this plan
	dirty     []*clusterState
	spoiled   []*clusterState // in this plan; credited anew in the next
	handsOver clusterSet
	loose     clusterSet // may have excess
	expiring  clusterSet // change with time
	gangs     clusterSet // have Same rows
	standing  []standing // Needs short after credit, in turn order
	blocks    []*Block
	total     counted
	receivers int

	plans        uint64
	orders       uint64 // version of Row.Order
	oldStanding  []standing
	started      bool
	lastPolicy   *Policy
	demandSince  uint64
	clusterSince uint64
	setVersion   uint64
	keysVersion  uint64
	lastClasses  uint64
	lastFold     uint64
	lastStock    uint64

	stocked       []uint32 // classes that came into stock since the last plan
	stockFollowed bool     // and these, and those that left it, are all that changed for section 8

	acts    []Action   // what was taken, in the order of the turns
	ids     []uint32   // the order of each machine
	resumed bool       // a Need took after the turns, or something else than in its turn
	muted   bool       // what is taken is no action yet
	queue   []standing // whose turns are taken, in order,
	order   []keyed    // or in this order
	called  []standing // room for those of preemption
	fresh   []turn
	news    []standing
	sorter  turnSorter
	at      int // how many of queue have been visited
	ahead   int // means nothing: see lookAhead
	unmet   unmetNeeds
	late    []turn // a heap: Needs that lost something in turns and take theirs later (12.6)
	runs    runs
	chores  chores
	ownActs int // of acts: what is before was taken in other turns
	cover   coverer
	x       scratch
	crew    []*scratch // of the other goroutines
	ready   []*clusterState
	buf     []int64
	taking  []free
	counts  []int32 // of the buckets
	spilled []int32
	local   market // of one domain
	racks   []*shelf
	keys    []uint64
	view    []int64 // Idle and Speculative of one domain
	skip    []int32 // domains
	here    place   // what is being taken lies there
	spread  spreading

	victims      targets
	excess       targets
	flyers       []flyer // in flight, as 15.4 prefers them
	flyersListed bool
	wish         wish
	drained      []drainage
	drainedAt    map[inventory.Index]int32 // positions there, once somebody asks
	handed       []handed
	byID         []*clusterState // by symbol of the cluster
	displace     int
	bought       bool // some Need took a Speculative machine
	tries        int
	spent        bool
	saved        int64
	old, again   []bought // of a try: what is given back, and what is bought instead
}

// place is a domain.
type place struct {
	top *topState
	d   int32
}

func (p *planning) text(s symbol.ID) string { return p.w.Space.Strings.Text(s) }

// take moves a free machine into a cluster, claimed by w.
func (p *planning) take(cl *clusterState, w *want, i inventory.Index, k inventory.Pool) {
	inv := p.w.Inventory
	r := inv.Row(i)
	p.stock.take(i, r.Class, k)
	p.taken(cl, w, i, k, inv.Class(r.Class), r.Order)
	if w.bits&wSame != 0 {
		p.tell() // this one, too
	}
	if k == inventory.SpeculativePool {
		p.bought = true
		w.bits |= wBought
	}
	cl.keepFree(p, w, i, r.Class, r, p.takesPerTurn())
	p.spoil(cl)
}

// takesPerTurn is how many machines turns have taken so far, on the average, and not 0.
func (p *planning) takesPerTurn() int { return 1 + (len(p.stock.list)-1)/max(p.res.Counters.Turns, 1) }

// keepFree makes a machine that w takes from a free pool one of the cluster. takes is how many each of its Needs will take.
func (cl *clusterState) keepFree(p *planning, w *want, i inventory.Index, class uint32, r *inventory.Row, takes int) {
	inv := p.w.Inventory
	l := local{idx: i, class: class, order: r.Order, state: r.Seen(), bits: lAcquired, claim: -1, next: -1, owner: -1,
		ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(class).Price}
	if r.Stamp != 0 {
		l.recl = inv.StampRow(r.Stamp).Reclamation
	}
	if at := cl.vacated(i); at >= 0 {
		l.used = cl.loc[at].used
		cl.loc[at] = l
		cl.claimFree(w, at)
		return
	}
	if len(cl.loc) == cap(cl.loc) { // by as much as its Needs will take at the least, rather than again and again
		n := min(cl.open*takes, max(len(cl.loc), 32)) // where demand exceeds supply, most will take nothing
		n = max(len(cl.loc)/2, n, 4)
		cl.loc, cl.vec = slices.Grow(cl.loc, n), slices.Grow(cl.vec, n*cl.k())
	}
	cl.loc = append(cl.loc, l)
	if w.bits&wSame != 0 {
		cl.noteValue(w.key, w.domain)
	}
	cl.claimFree(w, int32(len(cl.loc)-1))
}

// vacated returns the place that a machine had in loc before an exchange gave it back, or -1: tries take the same few
// machines again and again.
func (cl *clusterState) vacated(i inventory.Index) int32 {
	for n, at := range cl.empty {
		if cl.loc[at].idx == i {
			cl.empty[n] = cl.empty[len(cl.empty)-1]
			cl.empty = cl.empty[:len(cl.empty)-1]
			return at
		}
	}
	return -1
}

// anyFree reports whether a pool has anything left that matches.
func (p *planning) anyFree(m *matcher, k inventory.Pool) bool {
	if m.epoch != p.stock.gen {
		m.epoch, m.alive = p.stock.gen, [2]int32{}
	}
	for ; int(m.alive[k]) < len(m.classes); m.alive[k]++ {
		if p.stock.free[k][m.classes[m.alive[k]]] > 0 {
			return true
		}
	}
	return false
}

func (p *planning) state(t turn) (*clusterState, *want) {
	cl := p.states[t.cl]
	return cl, &cl.wants[t.want]
}

func held(w *want) bool { return w.hold != demand.NotHeld }

// spoil marks a cluster whose memory this plan has changed beyond credit.
func (p *planning) spoil(cl *clusterState) {
	if !cl.spoiled {
		cl.spoiled = true
		p.marks[cl.at] |= markSpoiled
		p.spoiled = append(p.spoiled, cl)
		p.loose.add(cl, inLoose)
	}
}

// withExcess lists the heard clusters that may have machines which nobody claims, in order.
func (p *planning) withExcess() []*clusterState {
	return p.loose.of(func(cl *clusterState) bool {
		return cl.d.Facts.Heard && (cl.excess > 0 || len(cl.shunned) > 0 || cl.spoiled)
	})
}

// clusterSet is clusters that had some property when they were added; who no longer has it falls out when it is read.
type clusterSet struct{ list []*clusterState }

type setBits uint8

const (
	inHandsOver setBits = 1 << iota
	inLoose
	inExpiring
	inGangs
)

func (s *clusterSet) add(cl *clusterState, bit setBits) {
	if cl.sets&bit == 0 {
		cl.sets |= bit
		s.list = append(s.list, cl)
	}
}

// of returns the members that still have the property, in the order of clusters. The others stay in the set until they
// are swept: a property may come back.
func (s *clusterSet) of(has func(cl *clusterState) bool) []*clusterState {
	var out []*clusterState
	for _, cl := range s.list {
		if has(cl) {
			out = append(out, cl)
		}
	}
	slices.SortFunc(out, func(a, b *clusterState) int { return int(a.at) - int(b.at) })
	return out
}

// sweep drops the members that lost the property.
func (s *clusterSet) sweep(bit setBits, has func(cl *clusterState) bool) {
	s.list = slices.DeleteFunc(s.list, func(cl *clusterState) bool {
		if has(cl) {
			return false
		}
		cl.sets &^= bit
		return true
	})
}

// What is marked of clusters, by block.
const (
	markDirty uint8 = 1 << iota
	markSpoiled
)

// standing is a Need that was short after credit. It is remembered with its cluster, so that a plan does not touch
// thousands of Needs and clusters to find out that nothing about them has changed.
type standing struct {
	turn       turn
	cluster    symbol.ID
	row        int32
	ask        uint32 // number of its question if it is of one unit, else 0: see run
	matcher    uint32 // in catalog.everyM
	gang       bool
	bare       bool // a gang with nothing of its own; ask is its question
	open       bool // not held
	beyondHelp bool // no class matches and fits
	fixed      bool // the reason of the shortfall lies in the Need and the classes alone
	moved      bool // the classes changed in this plan
	reasoned   bool // see reasonStays
	idle       idle // see noteIdle
}

func (p *planning) stand(s *standing, cl *clusterState, w *want, x *scratch) {
	s.turn, s.cluster, s.row, s.ask, s.open, s.moved = turnOf(cl, w), cl.d.ID, w.row, p.questionOf(cl, w, x), !held(w), false
	s.gang, s.matcher, s.idle, s.reasoned = w.bits&wSame != 0, w.matcher, notIdle, false
	s.bare = s.ask != 0 && s.gang
	if s.ask != 0 { // of Needs of one unit the question says it all
		if x.plan != p.plans || x.noneOf != s.ask {
			x.plan, x.noneOf, x.none = p.plans, s.ask, cl.hopeless(w)
		} else {
			cl.known(w, x.none)
		}
	}
	s.judge(cl, w)
}

// next returns what has the turn i.
func (p *planning) next(i int) *standing {
	if p.order != nil {
		return &p.queue[p.order[i].at]
	}
	return &p.queue[i]
}

// turns reports whether there is a point in a turn.
func (s *standing) turns() bool { return s.open && !s.beyondHelp }

// judge brings what depends on the classes up to date.
func (s *standing) judge(cl *clusterState, w *want) {
	none := cl.hopeless(w)
	s.beyondHelp = none == DetailNoMatch || none == DetailTooSmall
	s.fixed = w.bits&wFolded == 0 && (none != NoDetail || held(w))
}

// stillShort visits every short Need in turn order. s is what is remembered of one whose cluster nothing happened to, and
// nil for the others. Clusters that are known to be covered are passed over.
func (p *planning) stillShort(covered func(cl *clusterState) bool, visit func(t turn, s *standing)) {
	p.fresh = p.fresh[:0]
	for _, cl := range p.spoiled {
		if covered(cl) {
			continue
		}
		for i := range cl.wants {
			if w := &cl.wants[i]; cl.short(w) {
				p.fresh = append(p.fresh, turnOf(cl, w))
			}
		}
	}
	p.sorter.sort(p.fresh)
	at := 0
	for i := range p.standing {
		s := &p.standing[i]
		if p.marks[s.turn.cl]&markSpoiled != 0 {
			continue
		}
		for ; at < len(p.fresh) && compareTurn(p.fresh[at], s.turn) < 0; at++ {
			visit(p.fresh[at], nil)
		}
		visit(s.turn, s)
	}
	for ; at < len(p.fresh); at++ {
		visit(p.fresh[at], nil)
	}
}

// counted is what a cluster adds to the counters.
type counted struct{ open, overdue, guarded int }
