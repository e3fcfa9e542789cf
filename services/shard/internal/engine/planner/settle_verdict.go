package planner

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// verdicts writes what is known of one cluster, but for the reasons of shortfalls.
type verdicts struct{ *plan }

// block writes the block of a cluster: claims, shares, and a verdict for every row (ENG-19.1), but for the reasons of those
// that are short. It touches nothing but the cluster. Lists that are those of the block before, if there was one, are shared with it.
func (vs *verdicts) block(cl *clusterState, before *engine.Block, x *scratch) *engine.Block {
	b := &engine.Block{Cluster: cl.d.Name, Needs: cl.d.Needs, Verdicts: make([]engine.Verdict, len(cl.d.Needs)), Excluded: cl.excluded, Protected: cl.protected,
		Folded: cl.folds}
	missing := 0
	for i := range cl.needs {
		if w := &cl.needs[i]; cl.short(w) {
			missing += max(1, len(cl.membersOf(w)))
		}
	}
	if missing > 0 {
		b.Missing = make([]engine.Missing, 0, missing)
	}
	b.Claims, b.Shares, b.Domains = x.claims[:0], x.shares[:0], x.domains[:0]
	for i := range cl.needs {
		w := &cl.needs[i]
		for at := w.claims; at >= 0; at = cl.machines[at].next {
			l := &cl.machines[at]
			b.Claims = append(b.Claims, engine.Claim{Machine: l.idx, Row: w.row, Kind: l.kind()})
		}
		for _, m := range cl.promisedTo(w) {
			b.Claims = append(b.Claims, engine.Claim{Machine: m.idx, Row: w.row, Kind: engine.ClaimPromised})
		}
		from := len(b.Shares)
		for s := w.received; s >= 0; s = cl.shares[s].nextTo {
			on := cl.machines[cl.shares[s].on].idx
			at := slices.IndexFunc(b.Shares[from:], func(x engine.Share) bool { return x.Machine == on })
			if at < 0 {
				at = len(b.Shares) - from
				b.Shares = append(b.Shares, engine.Share{Machine: on, Row: w.row})
			}
			b.Shares[from+at].Units += cl.shares[s].units
		}
		vs.ofNeed(b, cl, w)
		if w.inDomain() {
			b.Domains = append(b.Domains, vs.text(w.domain))
			b.Verdicts[w.row].Domain = int32(len(b.Domains))
		}
	}
	sortMissing(b)
	x.claims, x.shares, x.domains = b.Claims, b.Shares, b.Domains
	if before == nil {
		before = &engine.Block{}
	}
	b.Claims, b.Shares, b.Domains = sameOr(before.Claims, b.Claims), sameOr(before.Shares, b.Shares), sameOr(before.Domains, b.Domains)
	return b
}

// sameOr returns a list that is equal to scratch: the one before, or a new one.
func sameOr[T comparable](before, now []T) []T {
	if slices.Equal(before, now) {
		return before
	}
	return append([]T(nil), now...)
}

// inDomain reports whether a row of demand has chosen a domain.
func (w *needState) inDomain() bool { return w.bits&(wFolded|wSame|wChosen) == wSame|wChosen }

// sortMissing puts what is missing into the order of rows, and notes in the verdicts where it is.
func sortMissing(b *engine.Block) {
	slices.SortFunc(b.Missing, func(x, y engine.Missing) int { return cmp.Compare(x.Row, y.Row) })
	for i := range b.Missing {
		b.Verdicts[b.Missing[i].Row].Missing = int32(i)
	}
}

func (l *machineState) kind() engine.ClaimKind {
	switch {
	case l.bits&lKept != 0:
		return engine.ClaimKept
	case l.bits&lAcquired != 0 && l.state == inventory.Idle:
		return engine.ClaimIdle
	case l.bits&lAcquired != 0:
		return engine.ClaimPurchased
	case !l.state.Bound():
		return engine.ClaimInFlight
	}
	return engine.ClaimBound
}

// ofNeed writes the verdict of a Need, or of each member of a folded one (ENG-8.5).
func (vs *verdicts) ofNeed(b *engine.Block, cl *clusterState, w *needState) {
	if w.bits&wFolded == 0 {
		vs.of(&b.Verdicts[w.row], cl, w)
		if vs.close(b, cl, w, w.row) {
			b.Missing = append(b.Missing, vs.lacks(cl, w, w.row, cl.rest(w)))
		}
		return
	}
	var v engine.Verdict
	vs.of(&v, cl, w)
	var buf [8]int64
	unit := cl.unit(w)
	here, soon := wholeUnits(cl.aggregate(w), vs.restConfigured(cl, w, buf[:0]), unit), wholeUnits(cl.aggregate(w), cl.rest(w), unit)
	n := int64(len(cl.membersOf(w)))
	dims := int64(0)
	for _, u := range unit {
		dims += min(u, 1)
	}
	lacks := vs.lacks(cl, w, w.row, unit) // but for the row, each that is short does
	for i, row := range cl.membersOf(w) {
		m := engine.Verdict{Status: engine.Short, Fold: w.row, Satisfiable: true, Missing: -1, Hold: cl.d.Holds[row],
			Cost: v.Cost/n + min(1, max(0, v.Cost%n-int64(i)))}
		if int64(i) < soon {
			m.Status, m.Shared, m.CoveragePerMille, m.Coverage = engine.OnTheWay, 1, 1000, dims*1_000_000
			m.Coming = 1
		}
		if int64(i) < here {
			m.Status, m.Coming = engine.Met, 0
		}
		if m.Status == engine.Short {
			m.Victims = v.Victims
		}
		b.Verdicts[row] = m
		if vs.close(b, cl, w, row) {
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
func (vs *verdicts) close(b *engine.Block, cl *clusterState, w *needState, row int32) bool {
	switch v := &b.Verdicts[row]; v.Status {
	case engine.Met:
		v.Detail = vs.metDetail(cl, w, row)
	case engine.OnTheWay:
		v.Detail = vs.comingDetail(cl, w)
	default:
		return true
	}
	return false
}

// lacks is what a row of a Need is short of.
func (vs *verdicts) lacks(cl *clusterState, w *needState, row int32, rest []int64) engine.Missing {
	m := engine.Missing{Row: row, Residual: cl.f.Vector(rest)}
	if w.gain > 0 && cl.gainOf(w).freed != nil {
		if freed := cl.f.Vector(cl.gainOf(w).freed); !freed.IsZero() {
			m.Freed = &freed
		}
	}
	return m
}

// of writes the verdict of a Need, but for the detail.
func (vs *verdicts) of(v *engine.Verdict, cl *clusterState, w *needState) {
	v.Missing, v.Fold, v.Hold, v.Victims, v.CoveragePerMille = -1, -1, w.hold, cl.victimsOf(w), 1000
	agg, rest := cl.aggregate(w), cl.rest(w)
	var buf [8]int64
	configured, some := true, false // everything that counts is Configured, something is
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		l := &cl.machines[at]
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
			if kind, _ := cl.actionFor(vs.w.Inventory, w, l); kind == engine.Bootstrap {
				v.Bootstrap++
			}
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		on := cl.machines[cl.shares[s].on].state == inventory.Configured
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
	case !match.IsZero(rest):
		v.Status = engine.Short
	case configured && len(cl.promisedTo(w)) == 0 || some && match.IsZero(vs.restConfigured(cl, w, buf[:0])) || match.IsZero(agg):
		v.Status = engine.Met
	default:
		v.Status = engine.OnTheWay
	}
	if len(cl.promisedTo(w)) > 0 { // coverage is of what is credited and acquired
		g := w.gain
		w.gain = 0
		saved := append([]int64(nil), rest...)
		cl.rooms.forget()
		cl.recount(w)
		vs.coverage(v, agg, rest)
		w.gain = g
		cl.rooms.forget()
		copy(rest, saved)
	} else {
		vs.coverage(v, agg, rest)
	}
	v.Satisfiable = v.Status != engine.Short || w.bits&(wSame|wPossible) == wSame|wPossible
}

// coverage fills in how much of each dimension is there: the capped score, and the worst part in thousandths.
func (vs *verdicts) coverage(v *engine.Verdict, agg, rest []int64) {
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
func (vs *verdicts) restConfigured(cl *clusterState, w *needState, into []int64) []int64 {
	rest := append(into, cl.aggregate(w)...)
	if w.bits&wSpread != 0 {
		roomsOf(cl, w) // if the cluster has none yet
		r := &cl.rooms.other
		fillRooms(cl, r, w, func(l *machineState) bool { return l.state != inventory.Configured })
		return cl.lacks(w, rest, r.Served())
	}
	var buf [8]int64
	for at := w.claims; at >= 0; at = cl.machines[at].next {
		if l := &cl.machines[at]; l.bits&lKept == 0 && l.state == inventory.Configured {
			match.Subtract(rest, cl.worth(w, l, buf[:0]))
		}
	}
	for s := w.received; s >= 0; s = cl.shares[s].nextTo {
		if cl.machines[cl.shares[s].on].state == inventory.Configured {
			match.Subtract(rest, cl.moreAt(cl.shares[s].vec, 1))
		}
	}
	return rest
}
