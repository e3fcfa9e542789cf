package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Crediting a cluster of which all rows are new takes longer than the rest of a plan. It can be done before the plan, a part at a time, so that others are
// served in between. It leaves what the plan itself would compute; if anything that it read changes meanwhile, the plan credits the cluster again.

// aheadRows is how many rows a part looks up, folds or makes Needs of, and sweepPart how many matchers one looks at that sweeps.
const aheadRows, sweepPart = 8_192, 4 * 8_192

// ahead is a credit that was begun before a plan.
type ahead struct {
	cl      *clusterState
	plan    uint64 // the plan before
	classes uint64
	folds   uint64
	folded  int      // rows whose folds are found
	rows    int      // rows whose Needs are made
	filed   bool     // endSetUp is done
	again   bool     // its Needs stay
	moved   bool     // machines or the stock changed since it was begun
	x       *scratch // of its parts alone: plans and other clusters use the one of the goroutine
}

// LookParts is in how many parts matchers are made, and candidate indexes filled, that are all new: each asks about all classes. A cluster whose rows a plan has seen begins behind them.
const LookParts = 32

// AheadParts is in how many parts CreditAhead credits a cluster of so many rows: they are looked up in parts, it is begun, gangs fold and Needs are made in
// parts, these are filed and credited, what no Need uses is swept away in parts, and what those that are short may choose from is put in order in parts.
func AheadParts(rows int) int { return BeginPart(rows) + 3*partsOf(rows) + 3 + LookParts }

// BeginPart is the first of them that reads anything of the machines of the cluster.
func BeginPart(rows int) int { return partsOf(rows) + LookParts }

func partsOf(rows int) int { return (rows + aheadRows - 1) / aheadRows }

// CreditAhead does one part, from 0 on, of crediting a cluster for the next Plan. It changes nothing that the plan says. It does nothing if the next plan
// has to look at all clusters, or what the parts before it did is no longer right.
func (pl *Planner) CreditAhead(in engine.Input, cluster string, part int) {
	p, d := pl.p, in.World.Demand.Cluster(cluster)
	if p == nil || p.w != in.World || d == nil || !p.clusters.knows(in, d.ID) {
		return
	}
	p.off = pl.off
	if p.follow(in) {
		p.ahead = ahead{}
		return
	}
	cl, parts, at := p.clusters.byID[d.ID], partsOf(len(d.Needs)), part-BeginPart(len(d.Needs))
	switch {
	case at > 2*parts+2 && p.ahead.cl != nil: // a cluster was begun whose Needs are not made yet
	case at > 3*parts+2:
		p.fillAhead(cl)
	case at > 2*parts+2:
		p.sweep(sweepPart)
	case (len(cl.gangRows) == 0 || cl.foldVersion == p.folding.version) && p.clusters.valid(cl): // the plan checks by itself whether other gangs fold
	case at < 0:
		p.lookAhead(cl)
	case at == 0:
		p.beginAhead(cl)
	case !p.goesOn(cl):
		p.ahead = ahead{}
	case at <= parts:
		p.foldAhead(cl)
	case at <= 2*parts:
		p.setUpAhead(cl)
	case at == 2*parts+1:
		p.fileAhead(cl)
	default:
		p.endAhead(cl)
	}
}

// lookAhead finds the matchers of some rows, few of them new.
func (p *planning) lookAhead(cl *clusterState) {
	most := len(p.cat.Matchers) + p.w.Demand.Rules()/LookParts + 1
	for end := min(p.looked+aheadRows, len(cl.d.Needs)); p.looked < end && len(p.cat.Matchers) < most; p.looked++ {
		p.findMatcher(cl.d.Needs[p.looked].Form)
	}
}

// fillAhead fills some candidate indexes of Needs that are short.
func (p *planning) fillAhead(cl *clusterState) {
	most := p.cat.Fills + p.w.Demand.Rules()/LookParts + 1
	for i := 0; i < len(p.pending.list) && p.cat.Fills < most; i++ {
		if s := &p.pending.list[i]; s.allocation.cl == cl.at && s.worthAllocating() && !cl.stale {
			if _, w := p.clusters.state(s.allocation); w.bits&wSame == 0 {
				p.cat.Of(cl.matcher(w), cl.f, w.bucket)
			}
		}
	}
}

// knows reports whether a cluster was there in the plan before, which the next one goes on from.
func (cs *clusters) knows(in engine.Input, id symbol.ID) bool {
	return cs.started && cs.setVersion == in.World.Demand.SetVersion() && cs.lastPolicy == in.Policy.OrDefault() && int(id) < len(cs.byID) && cs.byID[id] != nil &&
		cs.byID[id].d == in.World.Demand.Cluster(cs.byID[id].d.Name) && !cs.byID[id].gone
}

// beginAhead makes ready for the Needs of a cluster. What it was credited with is gone then.
func (p *planning) beginAhead(cl *clusterState) {
	x := &scratch{fold: folder{most: len(cl.folds)}}
	p.ahead, p.looked = ahead{cl: cl, plan: p.plans, x: x}, 0
	if p.stays(cl, x) {
		p.makeAgain(cl, x)
		p.ahead.folded, p.ahead.rows, p.ahead.filed, p.ahead.again = len(cl.d.Needs), len(cl.d.Needs), true, true
	} else {
		cl.again = false
		p.clusters.dirty = append(p.clusters.dirty[:0], cl)
		p.findMatchers()
		p.beginNeeds(cl, x, nil)
	}
	p.clusters.markStale(cl) // until it is credited
	cl.gathered = 0          // its machines are not in order yet
	p.ahead.classes, p.ahead.folds = cl.classVersion, cl.foldVersion
}

// goesOn reports whether a cluster was begun, and nothing that was read then has changed but its machines and the stock. Its machines are then read again.
func (p *planning) goesOn(cl *clusterState) bool {
	a := &p.ahead
	if a.cl != cl || a.plan != p.plans || a.classes != p.w.Inventory.ClassVersion() || cl.demandVersion != cl.d.Version || cl.policy != p.policy {
		return false
	}
	if _, supply := p.w.Inventory.Members(cl.d.ID); cl.supplyVersion != supply || a.folds != p.folding.version {
		p.readAgain(cl, a.x)
		a.folds, a.moved = p.folding.version, true
	}
	return true
}

// foldAhead finds the gangs in some rows that fold.
func (p *planning) foldAhead(cl *clusterState) {
	end := min(p.ahead.folded+aheadRows, len(cl.d.Needs))
	(&normalising{&p.plan, &p.folding, cl, p.ahead.x}).findFolds(p.ahead.folded, end)
	p.ahead.folded = end
}

// setUpAhead makes the Needs of some rows.
func (p *planning) setUpAhead(cl *clusterState) {
	if p.ahead.folded < len(cl.d.Needs) {
		return
	}
	end := min(p.ahead.rows+aheadRows, len(cl.d.Needs))
	(&normalising{&p.plan, &p.folding, cl, p.ahead.x}).setUpRows(p.ahead.rows, end)
	p.ahead.rows = end
}

// fileAhead makes the Needs that stand for folded rows, once those of the others are made.
func (p *planning) fileAhead(cl *clusterState) {
	if p.ahead.rows == len(cl.d.Needs) && !p.ahead.filed {
		(&normalising{&p.plan, &p.folding, cl, p.ahead.x}).endSetUp()
		p.ahead.filed = true
	}
}

// endAhead credits a cluster whose Needs are made.
func (p *planning) endAhead(cl *clusterState) {
	a := p.ahead
	p.ahead = ahead{}
	if !a.filed || a.moved && (a.again || !p.folding.valid(cl, a.x)) { // machines that change now will have changed again when the plan begins
		return
	}
	cs := &p.clusters
	cs.dirty = append(cs.dirty[:0], cl)
	cs.marks[cl.at] = cs.marks[cl.at]&^staleMark | dirtyMark
	cl.stale, cl.gathered, cl.foldVersion = false, cl.supplyVersion, a.folds
	p.makeRoom()
	p.creditNeeds(cl, a.x)
	p.endCredit()
	p.pending.dropStale()
	if !cl.ahead {
		cl.ahead = true
		cs.ahead = append(cs.ahead, cl)
	}
}

// creditedAhead takes the clusters that were credited before this plan and are still as they were then.
func (cs *clusters) creditedAhead() (out []*clusterState) {
	for _, cl := range cs.ahead {
		cl.ahead = false
		if !cl.isDirty && !cl.gone {
			out = append(out, cl)
		}
	}
	cs.ahead = cs.ahead[:0]
	return out
}
