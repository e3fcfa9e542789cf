package engine

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// judge writes the block of a cluster: claims, shares, and a verdict for every row (ENG-19.1), but for the reasons of those
// that are short. It touches nothing but the cluster.
func (p *planning) judge(cl *clusterState) *Block {
	b := &Block{Cluster: cl.d.Name, Needs: cl.d.Needs, Verdicts: make([]Verdict, len(cl.d.Needs)), Shunned: cl.shunned, Guarded: cl.guarded,
		Folded: cl.folds}
	n, missing, domains := 0, 0, 0
	for i := range cl.wants {
		w := &cl.wants[i]
		if cl.short(w) {
			missing += max(1, len(cl.membersOf(w)))
		}
		if w.inDomain() {
			domains++
		}
		n += len(cl.promisedTo(w))
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			n++
		}
	}
	b.Claims = make([]Claim, 0, n)
	if missing > 0 {
		b.Missing = make([]Missing, 0, missing)
	}
	if domains > 0 {
		b.Domains = make([]string, 0, domains)
	}
	for i := range cl.wants {
		w := &cl.wants[i]
		for at := w.claims; at >= 0; at = cl.loc[at].next {
			l := &cl.loc[at]
			b.Claims = append(b.Claims, Claim{Machine: l.idx, Row: w.row, Kind: l.kind()})
		}
		for _, m := range cl.promisedTo(w) {
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
		if w.inDomain() {
			b.Domains = append(b.Domains, p.text(w.domain))
			b.Verdicts[w.row].Domain = int32(len(b.Domains))
		}
	}
	b.sortMissing()
	return b
}

// inDomain reports whether a row of demand has chosen a domain.
func (w *want) inDomain() bool { return w.bits&(wFolded|wSame|wChosen) == wSame|wChosen }

// sortMissing puts what is missing into the order of rows, and tells the verdicts where it is. Entries are large, and a cluster
// may have a thousand: each changes places once at the most.
func (b *Block) sortMissing() {
	for i := range b.Missing {
		b.Verdicts[b.Missing[i].Row].Missing = int32(i)
	}
	next := int32(0)
	for row := range b.Verdicts {
		at := b.Verdicts[row].Missing
		if at < 0 {
			continue
		}
		if at != next {
			b.Missing[at], b.Missing[next] = b.Missing[next], b.Missing[at]
			b.Verdicts[b.Missing[at].Row].Missing = at
			b.Verdicts[row].Missing = next
		}
		next++
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
	if w.bits&wFolded == 0 {
		p.verdict(&b.Verdicts[w.row], cl, w)
		if p.close(b, cl, w, w.row) {
			b.Missing = append(b.Missing, cl.lacks(w, w.row, cl.rest(w)))
		}
		return
	}
	var v Verdict
	p.verdict(&v, cl, w)
	var buf [8]int64
	unit := cl.unit(w)
	here, soon := wholeUnits(cl.aggregate(w), cl.restConfigured(w, buf[:0]), unit), wholeUnits(cl.aggregate(w), cl.rest(w), unit)
	n := int64(len(cl.membersOf(w)))
	dims := int64(0)
	for _, u := range unit {
		dims += min(u, 1)
	}
	lacks := cl.lacks(w, w.row, unit) // but for the row, each that is short does
	for i, row := range cl.membersOf(w) {
		m := Verdict{Status: Short, Fold: w.row, Satisfiable: true, Missing: -1, Hold: cl.d.Holds[row],
			Cost: v.Cost/n + min(1, max(0, v.Cost%n-int64(i)))}
		if int64(i) < soon {
			m.Status, m.Shared, m.CoveragePerMille, m.Coverage = OnTheWay, 1, 1000, dims*1_000_000
			m.Coming = 1
		}
		if int64(i) < here {
			m.Status, m.Coming = Met, 0
		}
		if m.Status == Short {
			m.Victims = v.Victims
		}
		b.Verdicts[row] = m
		if p.close(b, cl, w, row) {
			lacks.Row = row
			b.Missing = append(b.Missing, lacks)
		}
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

// close adds detail to a verdict, and reports whether something is missing.
func (p *planning) close(b *Block, cl *clusterState, w *want, row int32) bool {
	switch v := &b.Verdicts[row]; v.Status {
	case Met:
		v.Detail = p.metDetail(cl, w, row)
	case OnTheWay:
		v.Detail = p.comingDetail(cl, w)
	default:
		return true
	}
	return false
}

// lacks is what a row of a Need is short of.
func (cl *clusterState) lacks(w *want, row int32, rest []int64) Missing {
	m := Missing{Row: row, Residual: cl.f.vector(rest)}
	if w.gain > 0 && cl.gainOf(w).freed != nil {
		if freed := cl.f.vector(cl.gainOf(w).freed); !freed.IsZero() {
			m.Freed = &freed
		}
	}
	return m
}

// verdict writes what is to be said of a Need, but for the detail.
func (p *planning) verdict(v *Verdict, cl *clusterState, w *want) {
	v.Missing, v.Fold, v.Hold, v.Victims, v.CoveragePerMille = -1, -1, w.hold, cl.victimsOf(w), 1000
	agg, rest := cl.aggregate(w), cl.rest(w)
	var buf [8]int64
	configured, some := true, false // everything that counts is Configured, something is
	for at := w.claims; at >= 0; at = cl.loc[at].next {
		l := &cl.loc[at]
		v.Cost = resource.AddSat(v.Cost, l.price)
		if l.bits&lKept != 0 {
			continue
		}
		if l.state != inventory.Configured {
			v.Coming++
			configured = false
		} else {
			some = true
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
		on := cl.loc[cl.shares[s].on].state == inventory.Configured
		configured, some = configured && on, some || on
		first := true
		for o := w.received; o != s; o = cl.shares[o].nextTo {
			first = first && cl.shares[o].on != cl.shares[s].on
		}
		if first {
			v.Shared++
		}
	}
	v.Coming += int32(len(cl.promisedTo(w)))
	switch {
	case !zero(rest):
		v.Status = Short
	case configured && len(cl.promisedTo(w)) == 0 || some && zero(cl.restConfigured(w, buf[:0])) || zero(agg):
		v.Status = Met
	default:
		v.Status = OnTheWay
	}
	if len(cl.promisedTo(w)) > 0 { // coverage is of what is credited and acquired
		g := w.gain
		w.gain = 0
		saved := append([]int64(nil), rest...)
		cl.recount(w)
		p.coverage(v, agg, rest)
		w.gain = g
		copy(rest, saved)
	} else {
		p.coverage(v, agg, rest)
	}
	v.Satisfiable = v.Status != Short || w.bits&(wSame|wPossible) == wSame|wPossible
}

// coverage fills in how much of each dimension is there: the capped score, and the worst part in thousandths.
func (p *planning) coverage(v *Verdict, agg, rest []int64) {
	for j, want := range agg {
		if want == 0 {
			continue
		}
		if rest[j] == 0 {
			v.Coverage += 1_000_000
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
func (cl *clusterState) restConfigured(w *want, into []int64) []int64 {
	rest := append(into, cl.aggregate(w)...)
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
