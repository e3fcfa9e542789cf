package planner

import (
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// offered is how many whole units of w a machine of another, packed Need offers (ENG-11.4, 11.5).
func (sh *sharing) offered(w *needState, l *machineState) int64 {
	cl := sh.cl
	unit, sup, used := cl.unit(w), cl.supply(l), cl.at_(l.used, 0)
	per := uint64(cl.d.Facts.SharingPerMille)
	k := int64(math.MaxInt64)
	for _, j := range sh.x.asked {
		u := unit[j]
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
	x.asked = x.asked[:0]
	for j, u := range unit {
		if u > 0 {
			x.asked = append(x.asked, j)
		}
	}
	covers := func(have []int64) bool { // few of many dimensions are asked for
		for _, j := range x.asked {
			if have[j] < unit[j] {
				return false
			}
		}
		return true
	}
	if len(cl.offerMost) > 0 && !covers(cl.offerMost) {
		return
	}
	for i, k := 0, len(unit); i < len(cl.donors); i++ {
		if !covers(cl.offer[i*k:(i+1)*k]) || cl.donors[i].need == w.at {
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
			case !covers(cl.offer[i*k : (i+1)*k]):
				continue
			}
		}
		sh.offers(w, &cl.donors[i], keep)
	}
	if len(x.offers) == 0 {
		if cl.inVain++; cl.inVain >= inVainMost || sh.off.atOnce {
			sh.measureOffers()
		}
		return
	}
	if w.bits&wSpread != 0 {
		sh.giveEvenly(w)
		return
	}
	sh.sortOffers(x.offers)
	reserved := sh.reserved(w)
	for i := range x.offers {
		missing := sh.unitsMissing(w) - reserved
		if missing <= 0 {
			return
		}
		sh.give(w, x.offers[i].at, min(x.offers[i].k, missing))
	}
}

// inVainMost is how many Needs look at all donors in vain until what these have left is found out again.
const inVainMost = 128

// measureOffers finds the most that donors have left after the shares that they gave, so that a Need that asks for more looks at none of them:
// one cluster can have as many Needs as rows, and as many donors as machines.
func (sh *sharing) measureOffers() {
	cl, k := sh.cl, sh.cl.dimensions()
	cl.inVain, cl.offerMost = 0, slices.Grow(cl.offerMost[:0], k)[:k]
	clear(cl.offerMost)
	for i := 0; i < len(cl.donors); i++ {
		g, most := &cl.donors[i], cl.offer[i*k:(i+1)*k]
		if cl.needs[g.need].bits&wPacked != 0 {
			clear(most)
			for _, at := range cl.offering[g.from : g.from+g.n] {
				l := &cl.machines[at]
				used := cl.at_(l.used, 0)
				for j, s := range cl.supply(l) {
					left := s - used[j]
					if l.out >= 0 {
						left -= cl.vec[int(l.out)+j]
					}
					most[j] = max(most[j], left)
				}
			}
		}
		if !match.Covers(most, cl.least) { // less than what every recipient asks for
			sh.dropDonor(&cl.needs[g.need])
			i--
			continue
		}
		for j, m := range most {
			cl.offerMost[j] = max(cl.offerMost[j], m)
		}
	}
}

// sortOffers puts offers into the order in which they are taken (ENG-11.6).
func (sh *sharing) sortOffers(list []offer) {
	slices.SortFunc(list, func(a, b offer) int { return sign(sh.offersMore(&a, &b)) })
}

func (sh *sharing) offersMore(a, b *offer) bool {
	if a.k != b.k {
		return a.k > b.k
	}
	return sh.cl.pack(a.at, b.at) < 0
}

// giveEvenly gives a Need with a hard spread shares of what is offered, as often as one lets another one count (ENG-13.9).
func (sh *sharing) giveEvenly(w *needState) {
	cl, x := sh.cl, sh.x
	r, values := roomsOf(cl, w), cl.values(sh.w.Inventory, w.key)
	sh.dropUseless(r, values)
	sh.sortOffers(x.offers)
	missing, run, most := sh.unitsMissing(w)-sh.reserved(w), r.Served(), r.Most()
	counted := len(r.Values)
	for again := true; again; {
		again = false
		for i := 0; i < len(x.offers) && missing > 0; i++ {
			o, n := &x.offers[i], len(r.Values)
			in := int(o.in)
			if in >= counted {
				in = r.Position(symbol.ID(values[o.at]))
			} else if r.Units[in] >= most {
				continue
			}
			k := r.Useful(in, o.k-o.given, missing, run)
			if k == 0 {
				r.Values, r.Units = r.Values[:n], r.Units[:n]
				continue
			}
			o.given += k
			r.Units[in] += k
			missing += run
			run, most, again = r.Served(), r.Most(), true
			missing -= run
		}
	}
	for _, o := range x.offers {
		if o.given > 0 {
			sh.give(w, o.at, o.given)
		}
	}
	cl.rooms.of = w.at
	cl.recount(w)
}

// dropUseless notes where what is offered counts, and leaves out what is under values that have as much room already as they may hold when all
// offers are taken.
func (sh *sharing) dropUseless(r *match.Rooms, values []int64) {
	x, n := sh.x, len(r.Values)
	all := &x.even
	all.Copy(r)
	for i := range x.offers {
		o := &x.offers[i]
		o.in = int32(all.Position(symbol.ID(values[o.at])))
		all.Units[o.in] = resource.AddSat(all.Units[o.in], o.k)
	}
	all.Values, all.Units, all.MinDomains = all.Values[:n], all.Units[:n], 0 // more values let each hold less, or as much as that
	most := all.Most()
	x.offers = slices.DeleteFunc(x.offers, func(o offer) bool { return int(o.in) < n && r.Units[o.in] >= most })
}

// offers lists what the machines of a packed donor offer to w.
func (sh *sharing) offers(w *needState, g *donor, keep func(l *machineState) bool) {
	cl, x, m := sh.cl, sh.x, sh.cl.matcher(w)
	var values []int64
	if w.bits&wSpread != 0 {
		values = cl.values(sh.w.Inventory, w.key)
	}
	for _, at := range cl.offering[g.from : g.from+g.n] {
		l := &cl.machines[at]
		if l.bits&(lKept|lGone) != 0 || !keep(l) || !m.Has(l.class) || values != nil && values[at] < 0 {
			continue
		}
		if k := sh.offered(w, l); k > 0 {
			x.offers = append(x.offers, offer{at: at, k: k})
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
	s := share{to: w.at, on: at, nextTo: w.received, nextOn: l.shares, units: k, vec: cl.alloc(2)}
	taken, credit, out, rest := cl.at_(s.vec, 0), cl.at_(s.vec, 1), cl.at_(l.out, 0), cl.rest(w)
	for j, u := range cl.unit(w) {
		taken[j] = u * k
		credit[j] = min(taken[j], rest[j]) // with a hard spread it is what runs that counts
		rest[j] -= credit[j]
		out[j] += taken[j]
	}
	cl.rooms.forget()
	w.received, l.shares = int32(len(cl.shares)), int32(len(cl.shares))
	cl.shares = append(cl.shares, s)
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
