package planner

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// run gives w shares on claimed machines, bound ones or in flight, as far as it is short (ENG-11.5, 11.6).
func (sh *sharing) run(w *needState, parts ...int8) {
	cl, x := sh.cl, sh.x
	if !sh.policy.Sharing || cl.d.Facts.SharingPerMille <= 0 || !w.mayReceive() || !match.Touches(cl.unit(w), cl.rest(w)) {
		return
	}
	for i := 0; i < len(cl.unpacked); {
		if g := &cl.needs[cl.unpacked[i]]; g == w {
			i++
		} else {
			sh.packNeed(g)
		}
	}
	if w.bits&wSpread != 0 {
		x.offers.begin(cl, w, parts, cl.values(sh.w.Inventory, w.key))
		sh.giveEvenly(w)
		return
	}
	x.offers.begin(cl, w, parts, nil)
	for reserved := sh.reserved(w); ; {
		missing := sh.unitsMissing(w) - reserved
		if missing <= 0 {
			return
		}
		at, k, ok := x.offers.next()
		if !ok {
			return
		}
		sh.give(w, at, min(k, missing))
	}
}

// giveEvenly gives a Need with a hard spread shares of what is offered, as often as one lets another one count (ENG-13.9).
func (sh *sharing) giveEvenly(w *needState) {
	cl, x := sh.cl, sh.x
	at, k, ok := x.offers.next()
	if !ok {
		return
	}
	r, values := roomsOf(cl, w), x.offers.values
	missing, run, most := sh.unitsMissing(w)-sh.reserved(w), r.Served(), r.Most()
	x.offered = x.offered[:0]
	for again := true; again; {
		again = false
		useless := 0
		for i := 0; missing > 0 && (useless < sh.policy.ShareLooks || sh.policy.ShareLooks <= 0); i++ {
			if i == len(x.offered) {
				if !ok {
					break
				}
				x.offered = append(x.offered, offer{at: at, k: k, in: int32(cl.rooms.position(r, symbol.ID(values[at])))})
				at, k, ok = x.offers.next()
			}
			o, n := &x.offered[i], len(r.Values)
			in := int(o.in)
			if in < 0 {
				in = r.Position(symbol.ID(values[o.at]))
			} else if r.Units[in] >= most {
				useless++
				continue
			}
			k := r.Useful(in, o.k-o.given, missing, run)
			if k == 0 {
				r.Values, r.Units = r.Values[:n], r.Units[:n]
				useless++
				continue
			}
			o.given += k
			r.Units[in] += k
			missing += run
			run, most, again = r.Served(), r.Most(), true
			missing -= run
		}
	}
	for _, o := range x.offered {
		if o.given > 0 {
			sh.give(w, o.at, o.given)
		}
	}
	cl.rooms.of = w.at
	cl.recount(w)
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
		l.out = cl.allocMore(1)
	}
	s := share{to: w.at, on: at, nextTo: w.received, nextOn: l.shares, units: k, vec: cl.allocMore(2)}
	taken, credit, out, rest := cl.moreAt(s.vec, 0), cl.moreAt(s.vec, 1), cl.moreAt(l.out, 0), cl.rest(w)
	for j, u := range cl.unit(w) {
		taken[j] = u * k
		credit[j] = min(taken[j], rest[j]) // with a hard spread it is what runs that counts
		rest[j] -= credit[j]
		out[j] += taken[j]
	}
	sh.list(at)
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
	match.Subtract(cl.moreAt(l.out, 0), cl.moreAt(s.vec, 0))
	if l.claim >= 0 {
		cl.unpack(&cl.needs[l.claim])
	}
}
