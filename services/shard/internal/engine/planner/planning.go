package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// planning is one plan at work. Its memory is that of a Planner and used again by the next plan.
type planning struct {
	off    fastPaths
	w      *engine.World
	policy *engine.Policy
	now    int64
	res    *engine.Result

	cat         *candidateIndexes
	questions   questions
	freeFrom    []freeFrom      // by id of the matcher
	lowest      []lowestTargets // by id of the matcher
	folding     folding
	foldVersion uint64
	free        freePool
	tops        []*topState
	notified    int // how many of stock.list the tops know of

	states        []*clusterState // by block
	places        places          // of all of them
	marks         []uint8         // of each
	reindexed     bool            // states were listed again in this plan
	dirty         []*clusterState
	stale         []*clusterState // in this plan; credited again in the next
	handsOver     clusterSet
	withUnclaimed clusterSet    // may have excess
	expiring      clusterSet    // change with time
	gangs         clusterSet    // have Same rows
	pendingNeeds  []pendingNeed // Needs short after credit, in allocation order
	blocks        []*engine.Block
	total         counted
	recipients    int

	plans           uint64
	orders          uint64 // version of Row.Order
	oldPendingNeeds []pendingNeed
	started         bool
	lastPolicy      *engine.Policy
	demandSince     uint64
	clusterSince    uint64
	setVersion      uint64
	keysVersion     uint64
	lastClasses     uint64
	lastFold        uint64
	lastStock       uint64

	stocked       []uint32 // classes that came into stock since the last plan
	stockFollowed bool     // and these, and those that left it, are all that changed for section 8

	acts            []engine.Action // what was taken, in the order of the allocations
	ids             []uint32        // the order of each machine
	resumed         bool            // a Need took after the allocations, or something else than in its allocation
	muted           bool            // what is taken is no action yet
	allocationOrder []pendingNeed   // whose allocations are taken, in order,
	order           []keyed         // or in this order
	called          []pendingNeed   // room for those of preemption
	fresh           []allocation
	news            []pendingNeed
	sorter          allocationSorter
	at              int // how many of the order have been visited
	unmet           unmetNeeds
	requeued        []allocation // a heap: Needs that lost something in allocations and take theirs later (12.6)
	runs            runs
	cover           coverer
	x               scratch
	workerPool      []*scratch // of the other goroutines
	ready           []*clusterState
	buf             []int64
	taking          []free
	counts          []int32 // of the buckets
	spilled         []int32
	local           domainCandidates
	keys            []uint64
	view            []int64 // Idle and Speculative of one domain
	skip            []int32 // domains
	here            place   // what is being taken lies there
	spread          spreading

	victims        targets
	excess         targets
	inFlight       []inFlight // in flight, as 15.4 prefers them
	inFlightListed bool
	request        request
	drained        []drainPlan
	drainedAt      map[inventory.Index]int32 // positions there, once somebody asks
	handed         []handed
	byID           []*clusterState // by symbol of the cluster
	displace       int
	bought         bool // some Need took a Speculative machine
	tries          int
	spent          bool
	saved          int64
	old, again     []bought // of a try: what is given back, and what is bought instead
}

// place is a domain.
type place struct {
	top *topState
	d   int32
}

func (p *planning) text(s symbol.ID) string { return p.w.Space.Strings.Text(s) }

// take moves a free machine into a cluster, claimed by w.
func (p *planning) take(cl *clusterState, w *needState, i inventory.Index, k inventory.Pool) {
	inv := p.w.Inventory
	r := inv.Row(i)
	p.free.take(i, r.Class, k)
	p.taken(cl, w, i, k, inv.Class(r.Class), r.Order)
	if w.bits&wSame != 0 {
		p.notify() // this one, too
	}
	if k == inventory.SpeculativePool {
		p.bought = true
		w.bits |= wBought
	}
	cl.keepFree(p, w, i, r.Class, r, p.takesPerAllocation())
	p.markStale(cl)
}

// takesPerAllocation is how many machines allocations have taken so far, on the average, and not 0.
func (p *planning) takesPerAllocation() int {
	return 1 + (len(p.free.list)-1)/max(p.res.Counters.Allocations, 1)
}

// keepFree makes a machine that w takes from a free pool one of the cluster. takes is how many each of its Needs will take.
func (cl *clusterState) keepFree(p *planning, w *needState, i inventory.Index, class uint32, r *inventory.Row, takes int) {
	inv := p.w.Inventory
	l := machineState{idx: i, class: class, order: r.Order, state: r.Seen(), bits: lAcquired, claim: -1, next: -1, owner: -1,
		ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(class).Price}
	if r.Stamp != 0 {
		l.recl = inv.StampRow(r.Stamp).Reclamation
	}
	if at := cl.vacated(i); at >= 0 {
		l.used = cl.machines[at].used
		cl.machines[at] = l
		cl.claimFree(w, at)
		return
	}
	if len(cl.machines) == cap(cl.machines) { // by as much as its Needs will take at the least, rather than again and again
		n := min(cl.open*takes, max(len(cl.machines), 32)) // where demand exceeds supply, most will take nothing
		n = max(len(cl.machines)/2, n, 4)
		cl.machines, cl.vec = slices.Grow(cl.machines, n), slices.Grow(cl.vec, n*cl.dimensions())
	}
	cl.machines = append(cl.machines, l)
	if w.bits&wSame != 0 {
		cl.noteValue(w.key, w.domain)
	}
	cl.claimFree(w, int32(len(cl.machines)-1))
}

// vacated returns the place that a machine had in loc before an exchange gave it back, or -1: tries take the same few
// machines again and again.
func (cl *clusterState) vacated(i inventory.Index) int32 {
	for n, at := range cl.empty {
		if cl.machines[at].idx == i {
			cl.empty[n] = cl.empty[len(cl.empty)-1]
			cl.empty = cl.empty[:len(cl.empty)-1]
			return at
		}
	}
	return -1
}

// freeFrom is from where on the classes of a matcher may hold something free, by pool.
type freeFrom struct {
	gen uint32 // of the stock
	at  [2]int32
}

// firstFree is the position of the first class of a matcher of which a pool has anything left.
func (p *planning) firstFree(m *match.Matcher, k inventory.Pool) int {
	for int(m.ID) >= len(p.freeFrom) {
		p.freeFrom = append(p.freeFrom, freeFrom{})
	}
	x := &p.freeFrom[m.ID]
	if x.gen != p.free.gen {
		*x = freeFrom{gen: p.free.gen}
	}
	for int(x.at[k]) < len(m.Classes) && p.free.free[k][m.Classes[x.at[k]]] <= 0 {
		x.at[k]++
	}
	return int(x.at[k])
}

// anyFree reports whether a pool has anything left that matches.
func (p *planning) anyFree(m *match.Matcher, k inventory.Pool) bool {
	return p.firstFree(m, k) < len(m.Classes)
}

func (p *planning) state(t allocation) (*clusterState, *needState) {
	cl := p.states[t.cl]
	return cl, &cl.needs[t.need]
}

func held(w *needState) bool { return w.hold != demand.NotHeld }

// markStale marks a cluster whose memory this plan has changed beyond credit.
func (p *planning) markStale(cl *clusterState) {
	if !cl.stale {
		cl.stale = true
		p.marks[cl.at] |= staleMark
		p.stale = append(p.stale, cl)
		p.withUnclaimed.add(cl, inLoose)
	}
}

// withExcess lists the heard clusters that may have machines which nobody claims, in order.
func (p *planning) withExcess() []*clusterState {
	return p.withUnclaimed.of(func(cl *clusterState) bool {
		return cl.d.Facts.Heard && (cl.excess > 0 || len(cl.excluded) > 0 || cl.stale)
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
	dirtyMark uint8 = 1 << iota
	staleMark
)

// standing is a Need that was short after credit. It is remembered with its cluster, so that a plan does not touch
// thousands of Needs and clusters to find out that nothing about them has changed.
type pendingNeed struct {
	allocation  allocation
	cluster     symbol.ID
	row         int32
	ask         uint32 // number of its question if it is of one unit, else 0: see run
	matcher     uint32 // in catalog.everyM
	open        bool   // not held
	beyondHelp  bool   // no class matches and fits
	fixed       bool   // the reason of the shortfall lies in the Need and the classes alone
	moved       bool   // the classes changed in this plan
	reasonValid bool   // see reasonStays
	idle        idle   // see noteIdle
}

func (p *planning) notePending(s *pendingNeed, cl *clusterState, w *needState, x *scratch) {
	s.allocation, s.cluster, s.row, s.ask, s.open, s.moved = allocationOf(cl, w), cl.d.ID, w.row, p.questionOf(cl, w, x), !held(w), false
	s.matcher, s.idle, s.reasonValid = w.matcher, notIdle, false
	if s.ask != 0 { // of Needs of one unit the question says it all
		if x.plan != p.plans || x.noneOf != s.ask {
			x.plan, x.noneOf, x.none = p.plans, s.ask, cl.hopeless(w)
		} else {
			cl.known(w, x.none)
		}
	}
	s.judge(cl, w)
}

// next returns what has the allocation i.
func (p *planning) next(i int) *pendingNeed {
	if p.order != nil {
		return &p.allocationOrder[p.order[i].at]
	}
	return &p.allocationOrder[i]
}

// worthAllocating reports whether there is a point in an allocation.
func (s *pendingNeed) worthAllocating() bool { return s.open && !s.beyondHelp }

// judge brings what depends on the classes up to date.
func (s *pendingNeed) judge(cl *clusterState, w *needState) {
	none := cl.hopeless(w)
	s.beyondHelp = none == engine.DetailNoMatch || none == engine.DetailTooSmall
	s.fixed = w.bits&wFolded == 0 && (none != engine.NoDetail || held(w))
}

// stillShort visits every short Need in allocation order. s is what is remembered of one whose cluster nothing happened to, and
// nil for the others. Clusters that are known to be covered are passed over.
func (p *planning) stillShort(covered func(cl *clusterState) bool, visit func(t allocation, s *pendingNeed)) {
	p.fresh = p.fresh[:0]
	for _, cl := range p.stale {
		if covered(cl) {
			continue
		}
		for i := range cl.needs {
			if w := &cl.needs[i]; cl.short(w) {
				p.fresh = append(p.fresh, allocationOf(cl, w))
			}
		}
	}
	p.sorter.sort(p.fresh)
	at := 0
	for i := range p.pendingNeeds {
		s := &p.pendingNeeds[i]
		if p.marks[s.allocation.cl]&staleMark != 0 {
			continue
		}
		for ; at < len(p.fresh) && compareAllocations(p.fresh[at], s.allocation) < 0; at++ {
			visit(p.fresh[at], nil)
		}
		visit(s.allocation, s)
	}
	for ; at < len(p.fresh); at++ {
		visit(p.fresh[at], nil)
	}
}

// counted is what a cluster adds to the counters.
type counted struct{ open, overdue, protected int }
