package planner

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

func (vs *verdicts) metDetail(cl *clusterState, w *needState, row int32) engine.Detail {
	if cl.d.Facts.ReportsReadiness {
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			if l := &cl.machines[at]; l.state == inventory.Configured && vs.w.Inventory.Readiness(l.idx) == inventory.ReadyLost {
				return engine.DetailNodeNotReady
			}
		}
	}
	switch {
	case cl.d.Unplaced != nil && cl.d.Unplaced[row]:
		return engine.DetailUnplaced
	case w.bits&wSpare != 0:
		return engine.DetailSpreadIgnored
	}
	return engine.NoDetail
}

func (vs *verdicts) comingDetail(cl *clusterState, w *needState) engine.Detail {
	if len(cl.excluded) > 0 && slices.ContainsFunc(cl.machines, func(l machineState) bool { return l.bits&lExcluded != 0 && l.owner == w.at }) {
		return engine.DetailNodeNotJoined
	}
	detail := engine.DetailStarting
	see := func(s inventory.State) bool {
		switch s {
		case inventory.Draining, inventory.Configured:
			return true
		case inventory.Creating, inventory.Speculative:
			detail = engine.DetailCreating
		}
		return false
	}
	for _, m := range cl.promisedTo(w) {
		if see(m.state) {
			return engine.DetailWaitingForDrain
		}
	}
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; l.bits&lKept == 0 && l.state != inventory.Configured && see(l.state) {
			return engine.DetailWaitingForDrain
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		if st := cl.machines[cl.shares[s].on].state; st != inventory.Configured && see(st) {
			return engine.DetailWaitingForDrain
		}
	}
	return detail
}

// reasons says why Needs are short.
type reasons struct {
	*plan
	free   *cover.FreePool
	tops   *topologies
	spread *spreading
	cover  *cover.Search
}

// of is the first row of ENG-19.4 that applies. It reads nothing that belongs to others than the cluster and changes,
// if nothing is withheld and w has no hard spread.
func (re *reasons) of(cl *clusterState, w *needState, hold demand.Hold, x *scratch) engine.Detail {
	switch hold {
	case demand.HeldOffline:
		return engine.DetailClusterOffline
	case demand.HeldBootstrapBackoff:
		return engine.DetailBootstrapBackoff
	case demand.HeldParked:
		return engine.DetailParked
	case demand.HeldPostponed:
		return engine.DetailPostponed
	}
	if d := cl.hopeless(w); d != engine.NoDetail {
		return d
	}
	if w.bits&wSame != 0 && !re.domainExists(cl, w, x) {
		return engine.DetailDomainTooSmall
	}
	if w.bits&wSpread != 0 && re.spreadBlocked(cl, w) {
		return engine.DetailSpreadBlocked
	}
	if len(cl.excluded) > 0 {
		for at := range cl.machines[:cl.members] {
			if l := &cl.machines[at]; l.bits&lExcluded != 0 && cl.usable(w, l) && match.Touches(cl.supply(l), cl.rest(w)) {
				return engine.DetailNodeNotJoined
			}
		}
	}
	if cl.victimsOf(w) > 0 {
		return engine.DetailPreemptionShort
	}
	detail := re.withheldDetail(cl, w)
	switch {
	case detail != engine.DetailHeldByOthers:
	case w.bits&wGang != 0 && !match.IsZero(lacksToStart(cl, w, cl.rest(w))):
		return engine.DetailGangShort
	case re.elsewhere(cl, w):
		return engine.DetailOtherShard
	}
	return detail
}

// elsewhere reports whether another shard has something free that w could use and that a move could bring (COORD-12.3).
func (re *reasons) elsewhere(cl *clusterState, w *needState) bool {
	if re.w.Inventory.ElsewhereVersion() == 0 || w.bits&(wSame|wSpread) != 0 {
		return false
	}
	return slices.ContainsFunc(cl.matcher(w).Classes, func(c uint32) bool {
		return re.w.Inventory.Class(c).Elsewhere > 0 && cl.fits(w, c) && match.Touches(cl.f.Supply(c), cl.rest(w))
	})
}

// hopeless says why no machine of any class could serve w, whatever its state, or NoDetail. The answer is remembered for
// as long as the classes stay.
func (cl *clusterState) hopeless(w *needState) engine.Detail {
	m := cl.matcher(w)
	cl.forgetJudged(m)
	if w.bits&wJudged != 0 {
		return w.none
	}
	w.bits |= wJudged
	w.none = engine.NoDetail
	if len(m.Classes) == 0 {
		w.none, w.unfit = engine.DetailNoMatch, true
		return w.none
	}
	w.unfit = !slices.ContainsFunc(m.Classes, func(c uint32) bool { return cl.fits(w, c) })
	for j, want := range cl.aggregate(w) {
		if want > 0 && !slices.ContainsFunc(m.Classes, func(c uint32) bool { return cl.f.Supply(c)[j] > 0 }) {
			w.none = engine.DetailDimensionMissing
			return w.none
		}
	}
	if w.unfit {
		w.none = engine.DetailTooSmall
	}
	return w.none
}

// forgetJudged forgets what was found out about other classes than there are.
func (cl *clusterState) forgetJudged(m *match.Matcher) {
	if v := m.Version + 1; cl.judged != v {
		cl.judged = v
		for i := range cl.needs {
			cl.needs[i].bits &^= wJudged
		}
	}
}

// known notes what hopeless found out about another Need with the same question.
func (cl *clusterState) known(w *needState, none engine.Detail, unfit bool) {
	cl.forgetJudged(cl.matcher(w))
	w.bits |= wJudged
	w.none, w.unfit = none, unfit
}

// homes is what is known in a plan of what the domains of keys could hold.
type homes struct {
	plan    uint64
	cluster *clusterState // the last one,
	foreign []int32       // and the machines of other shards that are bound to it
	kinds   map[string]*largest
	kept    int // numbers in sums of kinds
	key     []byte
	amounts classAmounts
}

// largest is what domains could hold of gangs with one matcher, unit and limit per host, whatever these ask for (ENG-21.9).
type largest struct {
	next int     // the first one that no gang has looked at
	sums []int64 // of those before it, but for some that others cover
}

const (
	comparedMost = 8       // sums are compared with a further one
	keptMax      = 1 << 20 // numbers bound what is known of domains; then it is forgotten
)

// domainExists reports whether some domain could hold w if all its owned machines were free.
func (re *reasons) domainExists(cl *clusterState, w *needState, x *scratch) bool {
	t := re.tops.find(w.key)
	if t == nil {
		return false
	}
	h := &x.homes
	if h.plan != re.plans {
		*h = homes{plan: re.plans, kinds: map[string]*largest{}, key: h.key, foreign: h.foreign[:0], amounts: h.amounts}
	}
	if h.cluster != cl {
		had := len(h.foreign)
		h.cluster, h.foreign = cl, h.foreign[:0]
		for at := range cl.machines[:cl.members] {
			if l := &cl.machines[at]; l.state.Bound() && l.bits&lForeign != 0 {
				h.foreign = append(h.foreign, int32(at))
			}
		}
		if had+len(h.foreign) > 0 {
			clear(h.kinds)
		}
	}
	h.key = appendKind(h.key[:0], cl, w, w.matcher)
	g := h.kinds[string(h.key)]
	if g == nil {
		if h.kept > keptMax {
			h.kept = 0
			clear(h.kinds)
		}
		g = &largest{}
		h.kinds[string(h.key)] = g
		h.kept += 32
		g.addForeign(cl, w, t, h.foreign, cl.values(re.w.Inventory, w.key), &h.amounts)
	}
	h.kept -= len(g.sums)
	found := g.holds(cl, w, t, &h.amounts)
	h.kept += len(g.sums)
	return found
}

// holds reports whether some domain holds w. It looks at further ones if none does so far.
func (g *largest) holds(cl *clusterState, w *needState, t *topState, amounts *classAmounts) bool {
	agg := cl.aggregate(w)
	amounts.begin(cl, nil)
	for list := g.sums; len(list) > 0; list = list[len(agg):] {
		if match.Covers(list, agg) {
			return true
		}
	}
	for found := false; !found; g.next++ {
		if g.next == len(t.Top.Domains) {
			return false
		}
		sum := g.begin(len(agg))
		amounts.addCells(cl, w, t.Top.Domains[g.next].Owned, sum)
		found = match.Covers(sum, agg)
		g.keep(sum)
	}
	return true
}

// begin adds an empty sum.
func (g *largest) begin(dims int) []int64 {
	g.sums = append(g.sums, make([]int64, dims)...)
	return g.sums[len(g.sums)-dims:]
}

// keep leaves the last sum out if one of the first ones covers it, or puts it in the place of one that it covers.
func (g *largest) keep(sum []int64) {
	at, k := len(g.sums)-len(sum), len(sum)
	for i := 0; i < min(at, comparedMost*k); i += k {
		x := g.sums[i : i+k]
		if match.Covers(sum, x) {
			copy(x, sum)
		}
		if match.Covers(x, sum) {
			g.sums = g.sums[:at]
			return
		}
	}
}

// addForeign adds up the domains in which machines of other shards are bound to the cluster, with these.
func (g *largest) addForeign(cl *clusterState, w *needState, t *topState, foreign []int32, values []int64, amounts *classAmounts) {
	amounts.begin(cl, nil)
	slices.SortFunc(foreign, func(a, b int32) int { return cmp.Compare(values[a], values[b]) })
	for len(foreign) > 0 {
		value, sum := values[foreign[0]], g.begin(cl.dimensions())
		for ; len(foreign) > 0 && values[foreign[0]] == value; foreign = foreign[1:] {
			if l := &cl.machines[foreign[0]]; value >= 0 && cl.usable(w, l) {
				match.Add(sum, cl.amount(w, l.class))
			}
		}
		if d, known := t.Top.Domain(symbol.ID(value)); known {
			amounts.addCells(cl, w, t.Top.Domains[d].Owned, sum)
		}
		g.keep(sum)
	}
}

// leftFree reports whether something is free that w could use and is not withheld from its cluster.
func (re *reasons) leftFree(cl *clusterState, w *needState) bool {
	for k := range inventory.Pool(2) {
		if !re.free.Any(cl.matcher(w), k) {
			continue
		}
		re.cover.AvoidFor(re.free, cl.d.ID, k, nil)
		for _, c := range cl.matcher(w).Classes[re.free.First(cl.matcher(w), k):] {
			if re.free.Left(k, c) > re.cover.Avoided(c) && cl.fits(w, c) && match.Touches(cl.f.Supply(c), cl.rest(w)) {
				return true
			}
		}
	}
	return false
}

// spreadBlocked reports whether something is free for w, but only where the skew forbids it.
func (re *reasons) spreadBlocked(cl *clusterState, w *needState) bool {
	t := re.tops.of(w.key)
	if t == nil || !re.leftFree(cl, w) {
		return false
	}
	s := re.spread
	s.withFree(cl, w)
	most := s.Most()
	for d, at := range s.at {
		for k := range inventory.Pool(2) {
			if s.least[k][d] == cover.None || s.Units[at-1] >= most {
				continue
			}
			s.avoid(int32(d), k)
			for i, cell := range t.Top.Domains[d].Cells[k] {
				if t.Left(re.free, d, k, i) > s.cover.Avoided(cell.Class) && cl.fits(w, cell.Class) && match.Touches(cl.f.Supply(cell.Class), cl.rest(w)) {
					return false
				}
			}
		}
	}
	return true
}

// withheldDetail says what withholds most of what w could use, or that others hold it all.
func (re *reasons) withheldDetail(cl *clusterState, w *needState) engine.Detail {
	inv := re.w.Inventory
	if inv.Held().Len() == 0 || re.leftFree(cl, w) {
		return engine.DetailHeldByOthers
	}
	var counts [engine.Details]int
	for _, chunk := range inv.Held().Chunks() {
		for _, i := range chunk {
			r := inv.Row(i)
			if re.free.IsTaken(i) || !inv.WithheldFrom(i, cl.d.Name) || !cl.fits(w, r.Class) || !match.Touches(cl.f.Supply(r.Class), cl.rest(w)) {
				continue
			}
			for _, m := range inv.Withheld(i) {
				if m.Cluster == "" || m.Cluster == cl.d.Name {
					counts[engine.DetailOfMark(m.Reason)]++
					break
				}
			}
		}
	}
	best := engine.DetailHeldByOthers
	for _, x := range engine.MarkDetails {
		if counts[x] > counts[best] {
			best = x
		}
	}
	return best
}

// beyondHelp reports whether no class matches and fits, whatever else the reason says. Then neither an allocation nor preemption can help.
func (cl *clusterState) beyondHelp(w *needState) bool {
	cl.hopeless(w)
	return w.unfit
}
