package planner

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// offered is how many whole units of w a machine of another, packed Need offers (ENG-11.4, 11.5).
func (sh *sharing) offered(w *needState, l *machineState) int64 {
	cl := sh.cl
	unit, sup, used := cl.unit(w), cl.supply(l), cl.at_(l.used, 0)
	per := uint64(cl.d.Facts.SharingPerMille)
	k := int64(math.MaxInt64)
	for j, u := range unit {
		if u == 0 {
			continue
		}
		free := sup[j] - used[j]
		if per != 1000 {
			hi, lo := bits.Mul64(uint64(free), per)
			q, _ := bits.Div64(hi, lo, 1000)
			free = int64(q)
		}
		if l.out >= 0 {
			free -= cl.vec[int(l.out)+j]
		}
		if free < u {
			return 0
		}
		k = min(k, free/u)
	}
	if most := int64(cl.perHost(w)); most > 0 {
		for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
			if cl.shares[i].to == w.at {
				most -= cl.shares[i].units
			}
		}
		k = min(k, max(0, most))
	}
	return k
}

// run gives w shares on the claimed machines that keep selects, as far as it is short (ENG-11.5, 11.6).
func (sh *sharing) run(w *needState, keep func(l *machineState) bool) {
	cl, x := sh.cl, sh.x
	if len(cl.donors) == 0 || !sh.policy.Sharing || cl.d.Facts.SharingPerMille <= 0 || !w.mayReceive() || !match.Touches(cl.unit(w), cl.rest(w)) {
		return
	}
	x.offers = x.offers[:0]
	unit := cl.unit(w)
	for i, k := 0, len(unit); i < len(cl.donors); i++ {
		if !match.Covers(cl.offer[i*k:(i+1)*k], unit) || cl.donors[i].need == w.at {
			continue
		}
		g := &cl.needs[cl.donors[i].need]
		if g.bits&wPacked == 0 {
			if sh.usedUp(g) {
				sh.dropDonor(g)
				i--
				continue
			}
			sh.packNeed(g)
			switch {
			case cl.donors[i].n == 0:
				sh.dropDonor(g)
				i--
				continue
			case !match.Covers(cl.offer[i*k:(i+1)*k], unit):
				continue
			}
		}
		sh.offers(w, &cl.donors[i], keep)
	}
	if len(x.offers) == 0 {
		return
	}
	slices.SortFunc(x.offers, func(a, b offer) int { return cmp.Or(cmp.Compare(b.k, a.k), cl.pack(a.at, b.at)) })
	reserved := sh.reserved(w)
	for again := true; again; {
		again = false
		for i := range x.offers {
			o := &x.offers[i]
			missing := sh.unitsMissing(w) - reserved
			if missing <= 0 {
				return
			}
			k := min(o.k, missing)
			if w.bits&wSpread != 0 { // one share may let another one count (ENG-13.9)
				k = roomsOf(cl, w).Useful(symbol.ID(cl.values(sh.w.Inventory, w.key)[o.at]), o.k, missing)
				o.k -= k
				again = again || k > 0
			}
			if k > 0 {
				sh.give(w, o.at, k)
			}
		}
	}
}

// offers lists what the machines of a packed donor offer to w.
func (sh *sharing) offers(w *needState, g *donor, keep func(l *machineState) bool) {
	cl, x := sh.cl, sh.x
	for _, at := range cl.offering[g.from : g.from+g.n] {
		l := &cl.machines[at]
		if l.bits&(lKept|lGone) != 0 || !keep(l) || !cl.matcher(w).Has(l.class) || w.bits&wSpread != 0 && cl.values(sh.w.Inventory, w.key)[at] < 0 {
			continue
		}
		if k := sh.offered(w, l); k > 0 {
			x.offers = append(x.offers, offer{at, k})
		}
	}
}

// reserved is how many units that w lacks are for machines of its own. No share serves what they do not hold of its headroom: that Pods found
// no room on what was counted is why it is there (ENG-11.16).
func (sh *sharing) reserved(w *needState) int64 {
	cl := sh.cl
	if cl.headroomOf(w) <= 0 {
		return 0
	}
	held := unitsFor(cl.aggregate(w), cl.unit(w)) - sh.unitsMissing(w)
	for i := w.received; i >= 0; i = cl.shares[i].nextTo {
		held -= cl.shares[i].units
	}
	return cl.d.ReservedOf(int(w.row), held)
}

// headroomOf is how many of the units of w are beyond what it asks for.
func (cl *clusterState) headroomOf(w *needState) int64 {
	if w.bits&wFolded != 0 {
		return 0
	}
	return cl.d.HeadroomOf(int(w.row))
}

// unitsMissing is how many whole units the residual of w still needs.
func (sh *sharing) unitsMissing(w *needState) int64 { return unitsFor(sh.cl.rest(w), sh.cl.unit(w)) }

// unitsFor is how many units are an amount, rounded up in its largest dimension.
func unitsFor(amount, unit []int64) (n int64) {
	for j, u := range unit {
		if u > 0 && amount[j] > 0 {
			n = max(n, (amount[j]-1)/u+1)
		}
	}
	return n
}

// give makes k units of w a share on a machine.
func (sh *sharing) give(w *needState, at int32, k int64) {
	cl := sh.cl
	l := &cl.machines[at]
	if l.out < 0 {
		l.out = cl.alloc(1)
	}
	var r *match.Rooms
	if w.bits&wSpread != 0 {
		r = roomsOf(cl, w)
	}
	s := share{to: w.at, on: at, nextTo: w.received, nextOn: l.shares, units: k, vec: cl.alloc(2)}
	taken, credit, out, rest := cl.at_(s.vec, 0), cl.at_(s.vec, 1), cl.at_(l.out, 0), cl.rest(w)
	for j, u := range cl.unit(w) {
		taken[j] = u * k
		credit[j] = min(taken[j], rest[j])
		rest[j] -= credit[j]
		out[j] += taken[j]
	}
	cl.rooms.forget()
	w.received, l.shares = int32(len(cl.shares)), int32(len(cl.shares))
	cl.shares = append(cl.shares, s)
	if r != nil {
		r.Add(symbol.ID(cl.values(sh.w.Inventory, w.key)[at]), k)
		cl.rooms.of = w.at
		cl.recount(w)
	}
}

// dropSharesOf ends the shares of w on a machine and counts its residual again.
func (cl *clusterState) dropSharesOf(w *needState, at int32) {
	found := false
	for i := cl.machines[at].shares; i >= 0; {
		next := cl.shares[i].nextOn
		if cl.shares[i].to == w.at {
			cl.dropShare(i)
			found = true
		}
		i = next
	}
	if found {
		cl.recount(w)
	}
}

// dropShare takes a share out of both chains. The recipient's residual is for the caller to recount.
func (cl *clusterState) dropShare(i int32) {
	cl.rooms.forget()
	s := &cl.shares[i]
	l, w := &cl.machines[s.on], &cl.needs[s.to]
	for at := &l.shares; ; at = &cl.shares[*at].nextOn {
		if *at == i {
			*at = s.nextOn
			break
		}
	}
	for at := &w.received; ; at = &cl.shares[*at].nextTo {
		if *at == i {
			*at = s.nextTo
			break
		}
	}
	match.Subtract(cl.at_(l.out, 0), cl.at_(s.vec, 0))
	if l.claim >= 0 {
		cl.unpack(&cl.needs[l.claim])
	}
}
