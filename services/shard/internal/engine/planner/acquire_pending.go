package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// pendingList is the Needs that are short after credit, in allocation order.
type pendingList struct {
	*plan
	clusters  *clusters
	questions *questions
	free      *cover.FreePool

	list   []pendingNeed // in order,
	order  []keyed       // or in this order
	old    []pendingNeed // room for the next list
	news   []pendingNeed // of the clusters that were credited in this plan
	sorter allocationSorter
	fresh  []allocation
}

// pendingNeed is a Need that was short after credit. It is remembered with its cluster, so that a plan does not touch
// thousands of Needs and clusters to find out that nothing about them has changed.
type pendingNeed struct {
	allocation  allocation
	cluster     symbol.ID
	row         int32
	ask         uint32    // number of its question if it is of one unit, else 0: see run
	matcher     uint32    // in Catalog.ByID
	key         symbol.ID // whose domains it looks at, or 0
	open        bool      // not held
	beyondHelp  bool      // no class matches and fits
	fixed       bool      // the reason of the shortfall lies in the Need and the classes alone
	moved       bool      // the classes changed in this plan
	reasonValid bool      // see reasonStays
	idle        idle      // see noteIdle
	covered     bool      // see clusters.settle: it has no allocation any more
}

func (pl *pendingList) note(s *pendingNeed, cl *clusterState, w *needState, x *scratch) {
	s.allocation, s.cluster, s.row, s.ask, s.open, s.moved = allocationOf(cl, w), cl.d.ID, w.row, pl.questions.numberOf(cl, w, x), !held(w), false
	s.matcher, s.idle, s.reasonValid, s.covered = w.matcher, notIdle, false, false
	if s.key = 0; w.bits&(wSame|wSpread) != 0 {
		s.key = w.key
	}
	if s.ask != 0 { // of Needs of one unit the question says it all
		if x.plan != pl.plans || x.noneOf != s.ask {
			x.plan, x.noneOf, x.none, x.unfit = pl.plans, s.ask, cl.hopeless(w), w.unfit
		} else {
			cl.known(w, x.none, x.unfit)
		}
	}
	s.judge(cl, w)
}

// worthAllocating reports whether there is a point in an allocation.
func (s *pendingNeed) worthAllocating() bool { return s.open && !s.beyondHelp && !s.covered }

// judge brings what depends on the classes up to date.
func (s *pendingNeed) judge(cl *clusterState, w *needState) {
	none := cl.hopeless(w)
	s.beyondHelp = w.unfit
	s.fixed = w.bits&wFolded == 0 && (none != engine.NoDetail || held(w))
}

// stillShort visits every short Need in allocation order. s is what is remembered of one whose cluster nothing happened to, and
// nil for the others. Clusters that are known to be covered are passed over.
func (pl *pendingList) stillShort(covered func(cl *clusterState) bool, visit func(t allocation, s *pendingNeed)) {
	pl.fresh = pl.fresh[:0]
	for _, cl := range pl.clusters.stale {
		if covered(cl) {
			continue
		}
		for i := range cl.needs {
			if w := &cl.needs[i]; cl.short(w) {
				pl.fresh = append(pl.fresh, allocationOf(cl, w))
			}
		}
	}
	pl.sorter.sort(pl.fresh)
	at := 0
	for i := range pl.list {
		s := &pl.list[i]
		if pl.clusters.marks[s.allocation.cl]&staleMark != 0 || s.covered {
			continue
		}
		for ; at < len(pl.fresh) && compareAllocations(pl.fresh[at], s.allocation) < 0; at++ {
			visit(pl.fresh[at], nil)
		}
		visit(s.allocation, s)
	}
	for ; at < len(pl.fresh); at++ {
		visit(pl.fresh[at], nil)
	}
}

// listShort records the short Needs of a cluster that was just credited.
func (pl *pendingList) listShort(cl *clusterState, x *scratch) {
	if cl.shorts == 0 {
		return
	}
	at := cl.newsAt
	for i := range cl.needs {
		if w := &cl.needs[i]; cl.short(w) {
			pl.note(&pl.news[at], cl, w, x)
			at++
		}
	}
}

// closeUp moves what clusters have noted together: there was room for all of their rows.
func (pl *pendingList) closeUp() {
	n := 0
	for _, cl := range pl.clusters.dirty {
		if cl.newsAt > n {
			copy(pl.news[n:], pl.news[cl.newsAt:cl.newsAt+cl.shorts])
		}
		n += cl.shorts
	}
	pl.news = pl.news[:n]
}

// merge replaces the entries of dirty clusters, and brings the others up to date with the classes.
func (pl *pendingList) merge() {
	if len(pl.list) == 0 {
		pl.list, pl.news = pl.news, nil
		pl.order = pl.sorter.order(pl.list)
		return
	}
	pl.order = nil
	pl.sorter.sortPending(pl.news)
	out, at := pl.old[:0], 0
	moved := pl.lastClasses != pl.w.Inventory.ClassVersion()
	for i := range pl.list {
		s := &pl.list[i]
		if pl.clusters.reindexed {
			cl := pl.clusters.byID[s.cluster]
			if cl.gone {
				continue
			}
			s.allocation.cl = cl.at
		}
		if pl.clusters.marks[s.allocation.cl]&dirtyMark != 0 {
			continue
		}
		if s.moved = moved; moved && pl.clusters.marks[s.allocation.cl]&staleMark == 0 { // a stale cluster may have no Needs: it was begun ahead
			s.idle, s.reasonValid = notIdle, false
			s.judge(pl.clusters.state(s.allocation))
		}
		for ; at < len(pl.news) && compareAllocations(pl.news[at].allocation, s.allocation) < 0; at++ {
			out = append(out, pl.news[at])
		}
		out = append(out, *s)
	}
	out = append(out, pl.news[at:]...)
	pl.old, pl.list = pl.list, out
}

// dropStale sorts the list if it has not been sorted, and drops the Needs of stale clusters: the next plan credits those again. In a cold plan
// nearly all are stale, so only the order is computed before the allocations.
func (pl *pendingList) dropStale() {
	if pl.order == nil {
		return
	}
	left := 0
	for i := range pl.list {
		if pl.clusters.marks[pl.list[i].allocation.cl]&staleMark == 0 {
			left++
		}
	}
	list := make([]pendingNeed, 0, left)
	for _, k := range pl.order {
		if s := &pl.list[k.at]; pl.clusters.marks[s.allocation.cl]&staleMark == 0 {
			list = append(list, *s)
		}
	}
	pl.list, pl.order = list, nil
}
