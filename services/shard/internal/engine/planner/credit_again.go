package planner

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"

// Machines of a cluster come, go and change more often than its demand. Then its Needs are made again from those of the last credit, which takes less
// than looking at its rows (ENG-21.2).

// stays reports whether the rows of demand give the Needs that the cluster was credited with: only machines have changed, the same gangs fold, and none left.
func (p *planning) stays(cl *clusterState, x *scratch) bool {
	if p.off.noAgain || cl.made == 0 || len(cl.left) > 0 || cl.demandVersion != cl.d.Version || cl.policy != p.policy || cl.classVersion != p.w.Inventory.ClassVersion() ||
		cl.f != p.cat.ProjectionOf(cl.d, cl.dims, &x.frames) {
		return false
	}
	if len(cl.gangRows) == 0 {
		return true
	}
	p.readAgain(cl, x)
	return p.folding.valid(cl, x)
}

// readAgain reads the machines of a cluster with gangs before it is known whether these fold.
func (p *planning) readAgain(cl *clusterState, x *scratch) {
	_, cl.supplyVersion = p.w.Inventory.Members(cl.d.ID)
	for i := range cl.gangRows { // those of folded rows may be swept away
		p.cat.MatcherOf(cl.d.Needs[cl.gangRows[i].row].Form)
	}
	(&members{&p.plan, cl, x}).read()
	(&normalising{&p.plan, &p.folding, cl, x}).listOwns()
	cl.gathered = 0 // they are not in order yet
	x.fold.homeOf, x.fold.last = nil, lastFold{}
}

// makeAgain makes the Needs of a cluster that stay, and reads its machines.
func (p *planning) makeAgain(cl *clusterState, x *scratch) {
	(&normalising{&p.plan, &p.folding, cl, x}).clearCredit()
	cl.vec = cl.vec[:cl.made]
	for i := range cl.needs {
		w := &cl.needs[i]
		if w.hold == demand.HeldPostponed { // by the plan before
			w.hold = demand.NotHeld
		}
		*w = needState{row: w.row, at: w.at, priority: w.priority, matcher: w.matcher, vec: w.vec, key: w.key, bits: w.bits & wMade, hold: w.hold, bucket: w.bucket,
			none: w.none, unfit: w.unfit, claims: -1, lastOne: -1, own: -1, slot: -1, received: -1}
		copy(cl.rest(w), cl.aggregate(w))
	}
	(&members{&p.plan, cl, x}).read()
}
