package planner

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// scratch is what one worker needs beside the cluster it works on.
type scratch struct {
	list     []int32
	rest     []int64
	ends     []int32
	walk     []walkKey
	labels   []uint32 // of the machines that were listed last
	offers   offers
	offered  []offer
	left     []int64
	buckets  []bucket
	bucketAt []int32 // by number of the value
	amounts  classAmounts
	sums     []int64
	even     match.Rooms // of a layout
	frames   match.LastProjection
	fold     folder
	claims   []engine.Claim // of the block at work, and the two below
	shares   []engine.Share
	domains  []string

	question question // the last one, and its number
	number   uint32
	plan     uint64        // in it,
	noneOf   uint32        // for this question,
	none     engine.Detail // clusterState.hopeless says so,
	unfit    bool          // and that no class fits
	homes    homes
}

// begin forgets what holds for one plan.
func (x *scratch) begin() { x.frames.Projection, x.fold.last, x.fold.homeOf = nil, lastFold{}, nil }

type offer struct {
	at int32
	in int32 // position of its value, or -1
	k  int64 // whole units

	given int64 // of them
}

// sharing is section 11 for one cluster: Needs receive whole units on machines that others claim.
type sharing struct {
	*plan
	cl *clusterState
	x  *scratch
}

// packNeed puts the aggregate of a Need onto its credited machines in keep order, in whole units or in proportion (ENG-11.3). Shares already
// given stay out of the way, so that a donor whose claims change never takes back what others count on (ENG-11.7).
func (sh *sharing) packNeed(g *needState) {
	cl, x := sh.cl, sh.x
	if g.slot >= 0 {
		last := len(cl.unpacked) - 1
		cl.unpacked[g.slot] = cl.unpacked[last]
		cl.needs[cl.unpacked[last]].slot, cl.unpacked, g.slot = g.slot, cl.unpacked[:last], -1
	}
	idle := sh.usedUp(g)
	x.list = x.list[:0]
	for at := g.claims; at >= 0; at = cl.machines[at].next {
		l := &cl.machines[at]
		if idle || l.bits&lKept != 0 {
			cl.spares.unlist(cl, at)
			continue
		}
		if l.used < 0 {
			l.used = cl.allocMore(1)
		}
		x.list = append(x.list, at)
	}
	if idle {
		return
	}
	g.bits |= wPacked
	slices.SortFunc(x.list, cl.pack)
	x.rest = append(x.rest[:0], cl.aggregate(g)...)
	var buf [8]int64
	if g.bits&wSpread != 0 {
		sh.layEvenly(g, x.list)
		sh.listAll(x.list)
		return
	}
	for _, at := range x.list {
		l := &cl.machines[at]
		if room, used := cl.worth(g, l, buf[:0]), cl.moreAt(l.used, 0); g.bits&wWhole != 0 {
			packUnits(room, x.rest, used)
		} else {
			proportion(room, x.rest, used)
		}
	}
	if g.bits&wWhole == 0 && !match.IsZero(x.rest) {
		for _, at := range x.list {
			l := &cl.machines[at]
			used := cl.moreAt(l.used, 0)
			for j, room := range cl.worth(g, l, buf[:0]) {
				more := min(room-used[j], x.rest[j])
				used[j] += more
				x.rest[j] -= more
			}
		}
	}
	sh.listAll(x.list)
}

// layEvenly is the layout of a Need with a hard spread: the machines under each value hold as many units as those under any other, as far as
// there is room (ENG-11.3).
func (sh *sharing) layEvenly(g *needState, list []int32) {
	cl, r := sh.cl, &sh.x.even
	r.Reset(0, 0, nil)
	var buf [8]int64
	values, unit := cl.values(sh.w.Inventory, g.key), cl.unit(g)
	for _, at := range list {
		r.Add(symbol.ID(values[at]), cl.unitsIn(g, cl.worth(g, &cl.machines[at], buf[:0])))
	}
	r.Layers(cl.unitsIn(g, cl.aggregate(g)))
	for _, at := range list {
		left := &r.Units[r.Position(symbol.ID(values[at]))]
		k := min(*left, cl.unitsIn(g, cl.worth(g, &cl.machines[at], buf[:0])))
		*left -= k
		used := cl.moreAt(cl.machines[at].used, 0)
		for j, u := range unit {
			used[j] = u * k
		}
	}
}

// listAll notes what machines have left.
func (sh *sharing) listAll(list []int32) {
	for _, at := range list {
		sh.list(at)
	}
}

// list notes what a machine has left: its part of what its claimant does not use, less what is shared already (ENG-11.4).
func (sh *sharing) list(at int32) {
	cl, x := sh.cl, sh.x
	l := &cl.machines[at]
	used, per := cl.moreAt(l.used, 0), uint64(cl.d.Facts.SharingPerMille)
	x.left = x.left[:0]
	for j, s := range cl.supply(l) {
		free := s - used[j]
		if per != 1000 {
			hi, lo := bits.Mul64(uint64(free), per)
			q, _ := bits.Div64(hi, lo, 1000)
			free = int64(q)
		}
		if l.out >= 0 {
			free -= cl.more[int(l.out)+j]
		}
		x.left = append(x.left, max(0, free))
	}
	cl.spares.list(cl, at, x.left)
}

// finishOffers packs a Need whose allocation is over, so that later Needs can receive shares of its machines. Doing it now finds the machines
// in the cache.
func (sh *sharing) finishOffers(w *needState) {
	cl := sh.cl
	if w.claims < 0 || w.at >= cl.lastRecipient || w.bits&wPacked != 0 || cl.d.Facts.SharingPerMille <= 0 {
		return
	}
	sh.packNeed(w)
}

// usedUp reports whether it is plain without a layout that a Need has nothing to offer: units all alike fill its machines as far
// as these hold them, and what is left of each is less than what every recipient asks for.
func (sh *sharing) usedUp(g *needState) bool {
	cl := sh.cl
	if g.bits&wWhole == 0 || g.bits&wSpread != 0 {
		return false
	}
	rest, dim := int64(0), 0 // in a dimension that the unit has
	for j, a := range cl.aggregate(g) {
		if a > 0 {
			rest, dim = a, j
		}
	}
	for at := g.claims; at >= 0; at = cl.machines[at].next {
		l := &cl.machines[at]
		if l.bits&lKept != 0 {
			continue
		}
		sup, room := cl.supply(l), cl.amount(g, l.class)
		if g.bits&wMany == 0 {
			room = cl.unit(g)
		}
		switch rest -= room[dim]; {
		case l.out >= 0:
			return false
		case rest >= 0:
		case g.claims != g.lastOne:
			return false
		default: // the only one holds more than there is
			room = cl.aggregate(g)
		}
		offers := true
		for j, u := range cl.least {
			offers = offers && sup[j]-room[j] >= u
		}
		if offers {
			return false
		}
	}
	return true
}

// unpack says that what the machines of a Need are used for is to be found out again.
func (cl *clusterState) unpack(g *needState) {
	g.bits &^= wPacked
	if g.slot < 0 {
		g.slot = int32(len(cl.unpacked))
		cl.unpacked = append(cl.unpacked, g.at)
	}
}

// mayReceive reports whether w is a Need that shares are for (ENG-11.2).
func (w *needState) mayReceive() bool { return w.bits&(wSame|wUnit) == wUnit }

// measureUnits finds the least that any recipient of shares asks for. A donor with less to offer is skipped.
func (nz *normalising) measureUnits() {
	cl := nz.cl
	cl.least, cl.lastRecipient = slices.Grow(cl.least[:0], cl.dimensions()), -1
	for i := range cl.needs {
		w := &cl.needs[i]
		if !w.mayReceive() {
			continue
		}
		cl.lastRecipient = w.at
		if len(cl.least) == 0 {
			cl.least = append(cl.least, cl.unit(w)...)
			continue
		}
		if match.IsZero(cl.least) { // and stays so, of needs that name different resources
			continue
		}
		for j, u := range cl.unit(w) {
			cl.least[j] = min(cl.least[j], u)
		}
	}
}

// packUnits writes to used what of rest goes into room, and takes it off rest. Both are whole units.
func packUnits(room, rest, used []int64) {
	for j, r := range rest {
		used[j] = min(room[j], r)
		rest[j] = r - used[j]
	}
}

// proportion writes to used what of rest goes into room when its scarcest dimension fills up, and takes it off rest.
func proportion(room, rest, used []int64) {
	num, den := int64(1), int64(1)
	for j, r := range rest {
		if r == 0 {
			continue
		}
		ahi, alo := bits.Mul64(uint64(room[j]), uint64(den))
		bhi, blo := bits.Mul64(uint64(num), uint64(r))
		if ahi < bhi || ahi == bhi && alo < blo {
			num, den = room[j], r
		}
	}
	for j, r := range rest {
		u := r
		if num != den {
			hi, lo := bits.Mul64(uint64(num), uint64(r))
			var carry uint64
			lo, carry = bits.Add64(lo, uint64(den-1), 0)
			q, _ := bits.Div64(hi+carry, lo, uint64(den))
			u = int64(q)
		}
		used[j] = min(u, room[j])
		rest[j] = r - used[j]
	}
}
