package engine

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// judge writes the block of a cluster: claims, shares, and a verdict for every row (ENG-19.1).
func (p *planning) judge(cl *clusterState) *Block {
	b := &Block{Cluster: cl.d.Name, Needs: cl.d.Needs, Verdicts: make([]Verdict, len(cl.d.Needs)), Shunned: cl.shunned, Guarded: cl.guarded,
		Folded: cl.folds}
	n, missing := 0, 0
	for i := range cl.wants {
		w := &cl.wants[i]
		if cl.short(w) {
			missing += max(1, len(w.members))
		}
		n += len(w.promised)
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			n++
		}
	}
	b.Claims = make([]Claim, 0, n)
	if missing > 0 {
		b.Missing = make([]Missing, 0, missing)
	}
	for i := range cl.wants {
		w := &cl.wants[i]
		if w.bits&(wFolded|wChosen|wSame) == wSame|wChosen {
			b.Verdicts[w.row].Domain = p.text(w.domain)
		}
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			l := &cl.loc[at]
			b.Claims = append(b.Claims, Claim{Machine: l.idx, Row: w.row, Kind: l.kind()})
		}
		for _, m := range w.promised {
			b.Claims = append(b.Claims, Claim{Machine: m.idx, Row: w.row, Kind: ClaimPromised})
		}
		from := len(b.Shares)
		for s := w.received; s >= 0; s = cl.shares[s].nextTo {
			on := cl.loc[cl.shares[s].on].idx
			at := slices.IndexFunc(b.Shares[from:], func(x Share) bool { return x.Machine == on })
			if at < 0 {
				at = len(b.Shares) - from
				b.Shares = append(b.Shares, Share{Machine: on, Row: w.row})
			}
			b.Shares[from+at].Units += cl.shares[s].units
		}
		p.verdicts(b, cl, w)
	}
	b.sortMissing()
	return b
}

// sortMissing puts what is missing into the order of rows, and tells the verdicts where it is. It moves each entry once:
// they are large, and a cluster may have a thousand.
func (b *Block) sortMissing() {
	if !slices.IsSortedFunc(b.Missing, func(x, y Missing) int { return int(x.Row) - int(y.Row) }) {
		for i := range b.Missing {
			b.Verdicts[b.Missing[i].Row].Missing = int32(i)
		}
		sorted := make([]Missing, 0, len(b.Missing))
		for i := range b.Verdicts {
			if at := b.Verdicts[i].Missing; at >= 0 {
				sorted = append(sorted, b.Missing[at])
			}
		}
		b.Missing = sorted
	}
	for i := range b.Missing {
		b.Verdicts[b.Missing[i].Row].Missing = int32(i)
	}
}

func (l *local) kind() ClaimKind {
	switch {
	case l.bits&lKept != 0:
		return ClaimKept
	case l.bits&lAcquired != 0 && l.state == inventory.Idle:
		return ClaimIdle
	case l.bits&lAcquired != 0:
		return ClaimPurchased
	case !l.state.Bound():
		return ClaimInFlight
	}
	return ClaimBound
}

// verdicts writes the verdict of a Need, or of each member of a folded one (ENG-8.5).
func (p *planning) verdicts(b *Block, cl *clusterState, w *want) {
	v := p.verdict(cl, w)
	if w.bits&wFolded == 0 {
		p.close(b, cl, w, w.row, v, cl.rest(w))
		return
	}
	unit := cl.unit(w)
	here, soon := wholeUnits(cl.aggregate(w), cl.restConfigured(w), unit), wholeUnits(cl.aggregate(w), cl.rest(w), unit)
	n := int64(len(w.members))
	dims := int64(0)
	for _, u := range unit {
		dims += min(u, 1)
	}
	nothing := make([]int64, len(unit))
	for i, row := range w.members {
		m := Verdict{Status: Short, Fold: w.row, Satisfiable: true, Missing: -1, Hold: cl.d.Holds[row],
			Cost: v.Cost/n + min(1, max(0, v.Cost%n-int64(i)))}
		left := unit
		if int64(i) < soon {
			m.Status, m.Shared, m.CoveragePerMille, m.Coverage, left = OnTheWay, 1, 1000, dims*1_000_000, nothing
			m.Coming = 1
		}
		if int64(i) < here {
			m.Status, m.Coming = Met, 0
		}
		if m.Status == Short {
			m.Victims = v.Victims
		}
		p.close(b, cl, w, row, m, left)
	}
}

// wholeUnits is floor((all - rest) ÷ unit) over all dimensions.
func wholeUnits(all, rest, unit []int64) int64 {
	k := int64(-1)
	for j, u := range unit {
		if u == 0 {
			continue
		}
		if n := (all[j] - rest[j]) / u; k < 0 || n < k {
			k = n
		}
	}
	return max(k, 0)
}

// close adds detail, reason and residual to a verdict and stores it.
func (p *planning) close(b *Block, cl *clusterState, w *want, row int32, v Verdict, rest []int64) {
	v.Domain = b.Verdicts[row].Domain
	switch v.Status {
	case Met:
		v.Detail = p.metDetail(cl, w, row)
	case OnTheWay:
		v.Detail = p.comingDetail(cl, w)
	default:
		v.Detail = p.shortDetail(cl, w, v.Hold)
		v.Reason = reasonOf(v.Detail)
		if w.bits&wSame != 0 && !v.Satisfiable {
			v.Reason = TopologyUnsatisfiable
		}
		m := Missing{Row: row, Residual: cl.f.vector(rest)}
		if w.freed != nil {
			m.Freed = cl.f.vector(w.freed)
		}
		b.Missing = append(b.Missing, m)
	}
	b.Verdicts[row] = v
}

func (p *planning) verdict(cl *clusterState, w *want) Verdict {
	v := Verdict{Missing: -1, Fold: -1, Hold: w.hold, Victims: w.victims, CoveragePerMille: 1000}
	agg, rest := cl.aggregate(w), cl.rest(w)
	configured := true // everything that counts is Configured
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		l := &cl.loc[at]
		v.Cost = resource.AddSat(v.Cost, l.price)
		if l.bits&lKept != 0 {
			continue
		}
		if l.state != inventory.Configured {
			v.Coming++
			configured = false
		}
		switch {
		case l.bits&lAcquired != 0 && l.state == inventory.Speculative:
			v.Provision++
		case l.bits&lAcquired != 0:
			v.Bootstrap++
		default:
			v.Claimed++
			if kind, _ := cl.actionFor(p.w.Inventory, w, l); kind == Bootstrap {
				v.Bootstrap++
			}
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		configured = configured && cl.loc[cl.shares[s].on].state == inventory.Configured
		first := true
		for o := w.received; o != s; o = cl.shares[o].nextTo {
			first = first && cl.shares[o].on != cl.shares[s].on
		}
		if first {
			v.Shared++
		}
	}
	v.Coming += int32(len(w.promised))
	switch {
	case !zero(rest):
		v.Status = Short
	case configured && len(w.promised) == 0 || zero(cl.restConfigured(w)):
		v.Status = Met
	default:
		v.Status = OnTheWay
	}
	if len(w.promised) > 0 { // coverage is of what is credited and acquired
		promised := w.promised
		w.promised = nil
		saved := append([]int64(nil), rest...)
		cl.recount(w)
		p.coverage(&v, agg, rest)
		w.promised = promised
		copy(rest, saved)
	} else {
		p.coverage(&v, agg, rest)
	}
	v.Satisfiable = v.Status != Short || w.bits&(wSame|wPossible) == wSame|wPossible
	if w.bits&(wSame|wChosen) == wSame|wChosen {
		v.Domain = p.text(w.domain)
	}
	return v
}

// coverage fills in how much of each dimension is there: the capped score, and the worst part in thousandths.
func (p *planning) coverage(v *Verdict, agg, rest []int64) {
	for j, want := range agg {
		if want == 0 {
			continue
		}
		have := want - rest[j]
		hi, lo := bits.Mul64(uint64(have), 1_000_000)
		q, _ := bits.Div64(hi, lo, uint64(want))
		v.Coverage += int64(q)
		v.CoveragePerMille = min(v.CoveragePerMille, int32(q/1000))
	}
}

// restConfigured is the residual if only Configured machines, and shares on them, count (ENG-19.2).
func (cl *clusterState) restConfigured(w *want) []int64 {
	rest := append([]int64(nil), cl.aggregate(w)...)
	var buf [8]int64
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		if l := &cl.loc[at]; l.bits&lKept == 0 && l.state == inventory.Configured {
			less(rest, cl.worth(w, l, buf[:0]))
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		if cl.loc[cl.shares[s].on].state == inventory.Configured {
			less(rest, cl.at_(cl.shares[s].vec, 1))
		}
	}
	return rest
}

// reasonOf is the table of ENG-19.4.
func reasonOf(d Detail) UnmetReason {
	switch d {
	case DetailNoMatch, DetailDimensionMissing, DetailTooSmall:
		return NoMatchingSupply
	case DetailParked, DetailDomainTooSmall, DetailSpreadBlocked:
		return TopologyUnsatisfiable
	case DetailPreemptionShort:
		return PreemptionExhausted
	}
	return PriorityStarved
}

func (p *planning) metDetail(cl *clusterState, w *want, row int32) Detail {
	if cl.d.Facts.ReportsReadiness {
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			if l := &cl.loc[at]; l.state == inventory.Configured && p.w.Inventory.Readiness(l.idx) == inventory.ReadyLost {
				return DetailNodeNotReady
			}
		}
	}
	switch {
	case cl.d.Unplaced != nil && cl.d.Unplaced[row]:
		return DetailUnplaced
	case w.bits&wSame != 0 && len(w.need.Form.Spread) > 0:
		return DetailSpreadIgnored
	}
	return NoDetail
}

func (p *planning) comingDetail(cl *clusterState, w *want) Detail {
	if len(cl.shunned) > 0 && slices.ContainsFunc(cl.loc, func(l local) bool { return l.bits&lShunned != 0 && l.owner == w.at }) {
		return DetailNodeNotJoined
	}
	detail := DetailStarting
	see := func(s inventory.State) bool {
		switch s {
		case inventory.Draining, inventory.Configured:
			return true
		case inventory.Creating, inventory.Speculative:
			detail = DetailCreating
		}
		return false
	}
	for _, m := range w.promised {
		if see(m.state) {
			return DetailWaitingForDrain
		}
	}
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		if l := &cl.loc[at]; l.bits&lKept == 0 && l.state != inventory.Configured && see(l.state) {
			return DetailWaitingForDrain
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		if st := cl.loc[cl.shares[s].on].state; st != inventory.Configured && see(st) {
			return DetailWaitingForDrain
		}
	}
	return detail
}

// shortDetail is the first row of ENG-19.4 that applies.
func (p *planning) shortDetail(cl *clusterState, w *want, hold demand.Hold) Detail {
	switch hold {
	case demand.HeldOffline:
		return DetailClusterOffline
	case demand.HeldBootstrapBackoff:
		return DetailBootstrapBackoff
	case demand.HeldParked:
		return DetailParked
	}
	if d := cl.hopeless(w); d != NoDetail {
		return d
	}
	if w.bits&wSame != 0 && !p.domainExists(cl, w) {
		return DetailDomainTooSmall
	}
	if w.bits&wSpread != 0 && p.spreadBlocked(cl, w) {
		return DetailSpreadBlocked
	}
	for at := range cl.loc[:cl.members] {
		if l := &cl.loc[at]; l.bits&lShunned != 0 && cl.usable(w, l) && touches(cl.supply(l), cl.rest(w)) {
			return DetailNodeNotJoined
		}
	}
	if w.victims > 0 {
		return DetailPreemptionShort
	}
	return p.withheldDetail(cl, w)
}

// hopeless says why no machine of any class could serve w, whatever its state, or NoDetail. The answer is remembered for
// as long as the classes stay.
func (cl *clusterState) hopeless(w *want) Detail {
	if w.classes == w.m.version+1 {
		return w.none
	}
	w.classes, w.none = w.m.version+1, NoDetail
	if len(w.m.classes) == 0 {
		w.none = DetailNoMatch
		return w.none
	}
	for j, want := range cl.aggregate(w) {
		if want > 0 && !slices.ContainsFunc(w.m.classes, func(c uint32) bool { return cl.f.of(c)[j] > 0 }) {
			w.none = DetailDimensionMissing
			return w.none
		}
	}
	if !slices.ContainsFunc(w.m.classes, func(c uint32) bool { return cl.fits(w, c) }) {
		w.none = DetailTooSmall
	}
	return w.none
}

// domainExists reports whether some domain could hold w if all its owned machines were free.
func (p *planning) domainExists(cl *clusterState, w *want) bool {
	t := p.topology(w.key)
	if t == nil {
		return false
	}
	agg := cl.aggregate(w)
	sum := slices.Grow(p.buf[:0], len(agg))[:len(agg)]
	p.buf = sum
	foreign := slices.ContainsFunc(cl.loc[:cl.members], func(l local) bool { return l.state.Bound() && p.w.Inventory.Row(l.idx).Foreign() })
	for d := range t.top.Domains {
		dom := &t.top.Domains[d]
		clear(sum)
		for _, cell := range dom.Owned {
			if !cl.fits(w, cell.Class) {
				continue
			}
			for j, s := range cl.f.of(cell.Class) {
				sum[j] = resource.AddSat(sum[j], resource.MulSat(s, int64(cell.N)))
			}
		}
		if foreign {
			cl.addForeign(p, w, int64(dom.Value), sum)
		}
		if coversAll(sum, agg) {
			return true
		}
	}
	return foreign && cl.foreignAlone(p, w, t)
}

// addForeign adds machines of other shards that are bound to the cluster under one value of w's key.
func (cl *clusterState) addForeign(p *planning, w *want, value int64, sum []int64) {
	values := cl.values(p.w.Inventory, w.key)
	for at := range cl.loc[:cl.members] {
		l := &cl.loc[at]
		if l.state.Bound() && values[at] == value && p.w.Inventory.Row(l.idx).Foreign() && cl.usable(w, l) {
			more(sum, cl.supply(l))
		}
	}
}

// foreignAlone is domainExists for values that only machines of other shards have.
func (cl *clusterState) foreignAlone(p *planning, w *want, t *topState) bool {
	values := cl.values(p.w.Inventory, w.key)
	sum := make([]int64, cl.k())
	for at := range cl.loc[:cl.members] {
		if values[at] < 0 {
			continue
		}
		if _, known := t.top.Domain(symbol.ID(values[at])); known {
			continue
		}
		clear(sum)
		cl.addForeign(p, w, values[at], sum)
		if coversAll(sum, cl.aggregate(w)) {
			return true
		}
	}
	return false
}

// leftFree reports whether something is free that w could use and is not withheld from its cluster.
func (p *planning) leftFree(cl *clusterState, w *want) bool {
	for k := range inventory.Pool(2) {
		if !p.anyFree(w.m, k) {
			continue
		}
		p.cover.stock = &p.stock
		p.cover.avoidFor(cl, k, nil)
		for _, c := range w.m.classes[w.m.alive[k]:] {
			if p.stock.free[k][c] > p.cover.avoided(c) && cl.fits(w, c) && touches(cl.f.of(c), cl.rest(w)) {
				return true
			}
		}
	}
	return false
}

// spreadBlocked reports whether something is free for w, but only where the skew forbids it.
func (p *planning) spreadBlocked(cl *clusterState, w *want) bool {
	t := p.topology(w.key)
	if t == nil || !p.leftFree(cl, w) {
		return false
	}
	p.known(cl, w)
	for d := range t.top.Domains {
		for k := range inventory.Pool(2) {
			p.cover.avoidFor(cl, k, p.inDomain(t, d))
			for i, cell := range t.top.Domains[d].Cells[k] {
				if p.left(t, d, k, i) > p.cover.avoided(cell.Class) && cl.fits(w, cell.Class) && touches(cl.f.of(cell.Class), cl.rest(w)) &&
					p.spread.mayGo(p.spread.find(t.top.Domains[d].Value), w.skew) {
					return false
				}
			}
		}
	}
	return true
}

// withheldDetail says what withholds most of what w could use, or that others hold it all.
func (p *planning) withheldDetail(cl *clusterState, w *want) Detail {
	inv := p.w.Inventory
	if inv.Held().Len() == 0 || p.leftFree(cl, w) {
		return DetailHeldByOthers
	}
	var counts [details]int
	for _, chunk := range inv.Held().Chunks() {
		for _, i := range chunk {
			r := inv.Row(i)
			if p.stock.isTaken(i) || !inv.WithheldFrom(i, cl.d.Name) || !cl.fits(w, r.Class) || !touches(cl.f.of(r.Class), cl.rest(w)) {
				continue
			}
			for _, m := range inv.Withheld(i) {
				if m.Cluster == "" || m.Cluster == cl.d.Name {
					counts[withheldDetailOf(m.Reason)]++
					break
				}
			}
		}
	}
	best := DetailHeldByOthers
	for _, x := range [...]Detail{DetailStockOut, DetailQuota, DetailWithheld} {
		if counts[x] > counts[best] {
			best = x
		}
	}
	return best
}

func withheldDetailOf(r inventory.WithheldReason) Detail {
	switch r {
	case inventory.WithheldStockOut:
		return DetailStockOut
	case inventory.WithheldQuota:
		return DetailQuota
	}
	return DetailWithheld
}
