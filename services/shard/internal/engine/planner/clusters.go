package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// clusters is the state of all clusters, and which of them changed or are stale.
type clusters struct {
	*plan
	folding *folding
	x       *scratch

	states    []*clusterState // by block
	byID      []*clusterState // by symbol of the cluster
	leaving   []*clusterState // those that were there when they were last listed
	marks     []uint8         // of each
	reindexed bool            // states were listed again in this plan
	dirty     []*clusterState // credited again in this plan
	stale     []*clusterState // changed in this plan; credited again in the next
	ahead     []*clusterState // credited since the last plan (credit_ahead.go)
	covered   []covered       // Needs that were covered in their allocation by what is bound to their clusters
	total     counted

	handsOver     clusterSet
	withUnclaimed clusterSet // may have excess
	expiring      clusterSet // change with time
	gangs         clusterSet // have Same rows

	started      bool
	lastPolicy   *engine.Policy
	demandSince  uint64
	clusterSince uint64
	setVersion   uint64
}

// forget drops every cluster: what they remember is about matchers and projections that are gone.
func (cs *clusters) forget() { *cs = clusters{plan: cs.plan, folding: cs.folding, x: cs.x} }

func (cs *clusters) state(t allocation) (*clusterState, *needState) {
	cl := cs.states[t.cl]
	return cl, &cl.needs[t.need]
}

func held(w *needState) bool { return w.hold != demand.NotHeld }

// markStale marks a cluster whose memory this plan has changed beyond credit.
func (cs *clusters) markStale(cl *clusterState) {
	if !cl.stale {
		cl.stale = true
		cs.marks[cl.at] |= staleMark
		cs.stale = append(cs.stale, cl)
		cs.withUnclaimed.add(cl, inUnclaimed)
	}
}

// withExcess lists the heard clusters that may have unclaimed machines, in order.
func (cs *clusters) withExcess() []*clusterState {
	return cs.withUnclaimed.of(func(cl *clusterState) bool {
		return cl.d.Facts.Heard && (cl.excess > 0 || len(cl.excluded) > 0 || cl.stale)
	})
}

// clusterSet is clusters that had some property when they were added. Readers pass over those that lost it.
type clusterSet struct{ list, found []*clusterState }

type setBits uint8

const (
	inHandsOver setBits = 1 << iota
	inUnclaimed
	inExpiring
	inGangs
)

func (s *clusterSet) add(cl *clusterState, bit setBits) {
	if cl.sets&bit == 0 {
		cl.sets |= bit
		s.list = append(s.list, cl)
	}
}

// of returns the members that still have the property, in the order of clusters, until the next call. The others stay in the set until
// they are swept: a property may come back.
func (s *clusterSet) of(has func(cl *clusterState) bool) []*clusterState {
	out := s.found[:0]
	for _, cl := range s.list {
		if has(cl) {
			out = append(out, cl)
		}
	}
	s.found = out
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

// relabel brings up to date what is remembered of the order of ids.
func (cs *clusters) relabel() {
	for _, cl := range cs.states {
		for i := range cl.machines {
			cl.machines[i].order = cs.w.Inventory.Row(cl.machines[i].idx).Order
		}
	}
}

// findDirty follows what has changed since the last plan. It reports false if that cannot be known.
func (cs *clusters) findDirty() bool {
	d, inv := cs.w.Demand, cs.w.Inventory
	byDemand, nextDemand, ok := d.Changes(cs.demandSince)
	bySupply, nextCluster, ok2 := inv.ClusterChanges(cs.clusterSince)
	cs.demandSince, cs.clusterSince = nextDemand, nextCluster
	if !ok || !ok2 || !cs.started || cs.setVersion != d.SetVersion() || cs.lastPolicy != cs.policy {
		cs.started, cs.setVersion, cs.lastPolicy = true, d.SetVersion(), cs.policy
		return false
	}
	for _, id := range byDemand {
		cs.check(cs.byID[id])
	}
	for _, id := range bySupply {
		if int(id) < len(cs.byID) && cs.byID[id] != nil && !cs.byID[id].gone {
			cs.check(cs.byID[id])
		}
	}
	for _, cl := range cs.stale {
		cs.check(cl)
	}
	if cs.lastClasses != inv.ClassVersion() && cs.total.settled > 0 {
		for _, cl := range cs.states {
			cs.check(cl)
		}
	}
	for _, cl := range cs.expiring.list {
		cs.check(cl)
	}
	if cs.folding.last != cs.folding.version {
		for _, cl := range cs.gangs.list {
			cs.check(cl)
		}
	}
	slices.SortFunc(cs.dirty, func(a, b *clusterState) int { return int(a.at) - int(b.at) })
	return true
}

// check puts a cluster among the dirty ones if what is remembered of it is not right any more.
func (cs *clusters) check(cl *clusterState) {
	if !cl.isDirty && !cl.gone && !cs.valid(cl) {
		cl.isDirty = true
		cs.marks[cl.at] |= dirtyMark
		cs.dirty = append(cs.dirty, cl)
	}
}

// checkAll looks at every cluster, and at which there are.
func (cs *clusters) checkAll() {
	for _, cl := range cs.states {
		cl.gone = true
	}
	cs.leaving = append(cs.leaving[:0], cs.states...)
	cs.states = cs.states[:0]
	cs.reindexed = true
	cs.marks = slices.Grow(cs.marks[:0], len(cs.w.Demand.Clusters()))[:len(cs.w.Demand.Clusters())]
	clear(cs.marks)
	cs.total = counted{}
	for at, d := range cs.w.Demand.Clusters() {
		for int(d.ID) >= len(cs.byID) {
			cs.byID = append(cs.byID, nil)
		}
		cl := cs.byID[d.ID]
		if cl == nil || cl.d != d {
			cl = &clusterState{d: d, stale: true}
			cs.byID[d.ID] = cl
		}
		cl.at, cl.gone = int32(at), false
		cl.isDirty = !cs.valid(cl)
		if cl.isDirty {
			cs.dirty = append(cs.dirty, cl)
			cs.marks[at] |= dirtyMark
			cl.counted = counted{}
		}
		cs.total.add(cl.counted, 1)
		cs.states = append(cs.states, cl)
	}
}

func (c *counted) add(o counted, by int) {
	c.open, c.overdue, c.protected, c.settled = c.open+by*o.open, c.overdue+by*o.overdue, c.protected+by*o.protected, c.settled+by*o.settled
}

// file puts the clusters that were credited where later steps and later plans look for them.
func (cs *clusters) file() {
	cs.handsOver.sweep(inHandsOver, func(cl *clusterState) bool { return !cl.gone && cl.handsOver })
	cs.withUnclaimed.sweep(inUnclaimed, func(cl *clusterState) bool { return !cl.gone && cl.mayGive() })
	cs.expiring.sweep(inExpiring, func(cl *clusterState) bool { return !cl.gone && cl.expires != 0 })
	left := cs.reindexed // a cluster is gone or has no gang any more; the set is long and seldom read
	for _, cl := range cs.dirty {
		left = left || cl.sets&inGangs != 0 && len(cl.gangRows) == 0
		cs.total.add(cl.counted, -1)
		cl.counted = counted{cl.open, cl.overdue, len(cl.protected), 0}
		cs.total.add(cl.counted, 1)
		if cl.handsOver {
			cs.handsOver.add(cl, inHandsOver)
		}
		if cl.mayGive() {
			cs.withUnclaimed.add(cl, inUnclaimed)
		}
		if cl.expires != 0 {
			cs.expiring.add(cl, inExpiring)
		}
		if len(cl.gangRows) > 0 {
			cs.gangs.add(cl, inGangs)
		}
	}
	if left {
		cs.gangs.sweep(inGangs, func(cl *clusterState) bool { return !cl.gone && len(cl.gangRows) > 0 })
	}
}

// covered is a short Need that was covered in its allocation by what is bound to its cluster.
type covered struct {
	cl *clusterState
	s  *pendingNeed
}

// settle keeps clusters in which allocations took nothing from elsewhere and left no Need short but those that no machine of any class helps. The
// next plan would come to the same, so that it goes on from there: it counts their allocations, but makes none.
func (cs *clusters) settle() {
	for _, c := range cs.covered {
		for i := range c.cl.needs {
			if w := &c.cl.needs[i]; c.cl.short(w) && (held(w) || !c.cl.beyondHelp(w)) {
				cs.markStale(c.cl)
				break
			}
		}
	}
	for _, c := range cs.covered {
		if !c.cl.stale {
			c.s.covered = true
			c.cl.counted.settled++
			c.cl.domainsVersion = cs.w.Inventory.DomainsVersion()
			cs.total.settled++
		}
	}
	clear(cs.covered)
	cs.covered = cs.covered[:0]
}

// endCredit ends what holds only while clusters are credited.
func (cs *clusters) endCredit() {
	for _, cl := range cs.dirty {
		cl.isDirty = false
		cs.marks[cl.at] &^= dirtyMark
	}
	for _, cl := range cs.leaving {
		if cl.gone && cs.byID[cl.d.ID] == cl { // else another cluster has the number now
			cs.byID[cl.d.ID] = nil
		}
	}
	cs.leaving, cs.reindexed = nil, false
}

// valid reports whether what is remembered of a cluster is still right.
func (cs *clusters) valid(cl *clusterState) bool {
	_, version := cs.w.Inventory.Members(cl.d.ID)
	if cl.counted.settled > 0 && (cl.classVersion != cs.w.Inventory.ClassVersion() || cl.domainsVersion != cs.w.Inventory.DomainsVersion()) {
		return false
	}
	if cl.stale || cl.policy != cs.policy || cl.demandVersion != cl.d.Version || cl.supplyVersion != version ||
		cl.expires != 0 && cl.expires <= cs.now {
		return false
	}
	if cl.foldVersion == cs.folding.version {
		return true
	}
	if !cs.folding.valid(cl, cs.x) { // asked again, it says so again
		return false
	}
	cl.foldVersion = cs.folding.version
	return true
}

// mayGive reports whether the cluster may have machines that none of its Needs claims.
func (cl *clusterState) mayGive() bool { return cl.excess > 0 || len(cl.excluded) > 0 || cl.freed }

// counted is what a cluster adds to the counters.
type counted struct {
	open, overdue, protected int
	settled                  int // allocations that are not made again: see settle
}
