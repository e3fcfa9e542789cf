package planner

import (
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

// gangQuestion is what gangs of a kind have in common.
type gangQuestion struct {
	matcher   uint32
	frame     *match.Projection
	key       symbol.ID
	unit, all [questionDims]int64
	perHost   int32
}

// homes is the last answer about the domains of a key: gangs of a kind lie side by side.
type homes struct {
	plan    uint64
	of      gangQuestion
	exists  bool
	cluster *clusterState // the last one,
	foreign bool          // and whether machines of other shards are bound to it
	keys    map[*topState]*alike
}

// alike is domains of a key, one of all that own the same.
type alike struct {
	asked int // how many gangs looked at domains
	list  []int32
}

// askedMost is how many gangs look at all domains.
const askedMost = 8

// domains lists the domains of a key to look at, or nil for all.
func (re *reasons) domains(h *homes, t *topState) []int32 {
	x := h.keys[t]
	if x == nil {
		x = &alike{}
		if h.keys == nil {
			h.keys = map[*topState]*alike{}
		}
		h.keys[t] = x
	}
	if x.asked++; x.asked <= askedMost && !re.off.atOnce {
		return nil
	}
	if len(x.list) == 0 {
		seen, key := map[string]bool{}, []byte(nil)
		for d := range t.Top.Domains {
			if key = appendCells(key[:0], t.Top.Domains[d].Owned); !seen[string(key)] {
				seen[string(key)] = true
				x.list = append(x.list, int32(d))
			}
		}
	}
	return x.list
}

// domainExists reports whether some domain could hold w if all its owned machines were free.
func (re *reasons) domainExists(cl *clusterState, w *needState, x *scratch) bool {
	at := slices.IndexFunc(re.tops.list, func(t *topState) bool { return t.Top.Key == w.key })
	if at < 0 {
		return false
	}
	h := &x.homes
	if h.plan != re.plans {
		*h = homes{plan: re.plans}
	}
	if h.cluster != cl {
		h.cluster = cl
		h.foreign = slices.ContainsFunc(cl.machines[:cl.members], func(l machineState) bool { return l.state.Bound() && l.bits&lForeign != 0 })
	}
	if h.foreign || cl.dimensions() > questionDims {
		return re.findDomain(cl, w, re.tops.list[at], x)
	}
	q := gangQuestion{w.matcher, cl.f, w.key, inQuestion(cl.unit(w)), inQuestion(cl.aggregate(w)), cl.perHost(w)}
	if h.of != q {
		h.of, h.exists = q, re.findDomain(cl, w, re.tops.list[at], x)
	}
	return h.exists
}

// findDomain goes through the domains.
func (re *reasons) findDomain(cl *clusterState, w *needState, t *topState, x *scratch) bool {
	agg, foreign := cl.aggregate(w), x.homes.foreign
	x.rest = slices.Grow(x.rest[:0], len(agg))[:len(agg)]
	sum := x.rest
	n, list := len(t.Top.Domains), []int32(nil)
	if !foreign {
		if list = re.domains(&x.homes, t); list != nil {
			n = len(list)
		}
	}
	for d := range n {
		if list != nil {
			d = int(list[d])
		}
		dom := &t.Top.Domains[d]
		clear(sum)
		addCells(cl, w, dom.Owned, sum)
		if foreign {
			re.addForeign(cl, w, int64(dom.Value), sum)
		}
		if match.Covers(sum, agg) {
			return true
		}
	}
	return foreign && re.foreignAlone(cl, w, t)
}

// addForeign adds machines of other shards that are bound to the cluster under one value of w's key.
func (re *reasons) addForeign(cl *clusterState, w *needState, value int64, sum []int64) {
	values := cl.values(re.w.Inventory, w.key)
	for at := range cl.machines[:cl.members] {
		l := &cl.machines[at]
		if l.state.Bound() && values[at] == value && re.w.Inventory.Row(l.idx).Foreign() && cl.usable(w, l) {
			match.Add(sum, cl.amount(w, l.class))
		}
	}
}

// foreignAlone is domainExists for values that only machines of other shards have.
func (re *reasons) foreignAlone(cl *clusterState, w *needState, t *topState) bool {
	values := cl.values(re.w.Inventory, w.key)
	sum := make([]int64, cl.dimensions())
	for at := range cl.machines[:cl.members] {
		if values[at] < 0 {
			continue
		}
		if _, known := t.Top.Domain(symbol.ID(values[at])); known {
			continue
		}
		clear(sum)
		re.addForeign(cl, w, values[at], sum)
		if match.Covers(sum, cl.aggregate(w)) {
			return true
		}
	}
	return false
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
	re.spread.withFree(cl, w)
	for d := range t.Top.Domains {
		for k := range inventory.Pool(2) {
			re.cover.AvoidFor(re.free, cl.d.ID, k, re.spread.inDomain(t, d))
			for i, cell := range t.Top.Domains[d].Cells[k] {
				if t.Left(re.free, d, k, i) > re.cover.Avoided(cell.Class) && cl.fits(w, cell.Class) && match.Touches(cl.f.Supply(cell.Class), cl.rest(w)) &&
					re.spread.Helps(t.Top.Domains[d].Value, cl.unitsIn(w, cl.amount(w, cell.Class))) {
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
