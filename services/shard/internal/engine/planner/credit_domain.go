package planner

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/cover"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// bucket is one value of a gang's key at work: what counts for the gang there. Its sums lie in scratch.sums: all that is
// creditable, and its Own part.
type bucket struct {
	value    symbol.ID
	sum, own int32
	count    int32 // of machines, where they are counted
}

// beginBuckets begins again, for another gang.
func (x *scratch) beginBuckets(cl *clusterState, w *needState) {
	x.buckets, x.sums, x.list = x.buckets[:0], x.sums[:0], x.list[:0]
	x.amounts.begin(cl, w)
}

// bucketOf returns the bucket of a value, by its number in its column, new if need be.
func (x *scratch) bucketOf(v int64, number int32, k int) *bucket {
	for int(number) >= len(x.bucketAt) {
		x.bucketAt = append(x.bucketAt, 0)
	}
	if at := x.bucketAt[number]; int(at) >= len(x.buckets) || x.buckets[at].value != symbol.ID(v) { // it was there for another gang
		x.bucketAt[number] = int32(len(x.buckets))
		from := int32(len(x.sums))
		x.sums = append(x.sums, make([]int64, 2*k)...)
		x.buckets = append(x.buckets, bucket{value: symbol.ID(v), sum: from, own: from + int32(k)})
	}
	return &x.buckets[x.bucketAt[number]]
}

func (x *scratch) at(off int32, k int) []int64 { return x.sums[off : int(off)+k] }

// collect adds a machine to the bucket of its value, if it has one, and returns that.
func (x *scratch) collect(cl *clusterState, w *needState, at int32, c *column) *bucket {
	l := &cl.machines[at]
	if c.values[at] < 0 || !x.amounts.of(cl, w, l.class).fits {
		return nil
	}
	k := cl.dimensions()
	b := x.bucketOf(c.values[at], c.numbers[at], k)
	var buf [8]int64
	x.amounts.addOne(cl, w, l, buf[:0], x.at(b.sum, k))
	if l.owner == w.at {
		x.amounts.addOne(cl, w, l, buf[:0], x.at(b.own, k))
	}
	return b
}

// collectOwn adds the machines of the list to their buckets.
func (x *scratch) collectOwn(cl *clusterState, w *needState, c *column) {
	for _, at := range x.list {
		if v, k := c.values[at], cl.dimensions(); v >= 0 {
			x.amounts.add(cl, w, cl.machines[at].class, 1, x.at(x.bucketOf(v, c.numbers[at], k).sum, k))
		}
	}
}

// ownDomain is ENG-10.3: a gang that its Own bound machines cover in one domain is settled there; otherwise all of them
// are kept for it.
func (c *crediting) ownDomain(w *needState) {
	cl, x := c.cl, c.x
	if w.own < 0 {
		return
	}
	col := numbered(cl, c.w.Inventory, w.key)
	values := col.values
	x.beginBuckets(cl, w)
	for at := w.own; at >= 0; at = cl.machines[at].ownNext {
		l := &cl.machines[at]
		if !l.state.Bound() || l.claim >= 0 || l.bits&lExcluded != 0 {
			continue
		}
		if a := x.amounts.of(cl, w, l.class); a.fits && a.touches {
			x.list = append(x.list, at)
		}
	}
	x.collectOwn(cl, w, col)
	best := -1
	for i, b := range x.buckets {
		if match.Covers(x.at(b.sum, cl.dimensions()), cl.aggregate(w)) &&
			(best < 0 || c.text(b.value) < c.text(x.buckets[best].value)) {
			best = i
		}
	}
	if best >= 0 {
		cl.choose(w, x.buckets[best].value)
		for _, at := range x.list {
			l := &cl.machines[at]
			if values[at] == int64(w.domain) && match.Touches(cl.supply(l), cl.rest(w)) {
				cl.claim(w, at)
			}
		}
		return
	}
	for _, at := range x.list {
		cl.hold(w, at)
		cl.machines[at].bits |= lKept
	}
}

func (cl *clusterState) choose(w *needState, v symbol.ID) {
	w.domain = v
	w.bits |= wChosen
}

// provisionalDomain is ENG-10.4.
func (c *crediting) provisionalDomain(w *needState) {
	cl, x := c.cl, c.x
	col := numbered(cl, c.w.Inventory, w.key)
	values := col.values
	x.beginBuckets(cl, w)
	if list := cl.unclaimed(); w.claims >= 0 || someUnclaimed(cl, w) {
		if w.claims >= 0 {
			list = cl.bound
		}
		for _, at := range list {
			if l := &cl.machines[at]; l.claim < 0 || l.claim == w.at {
				x.collect(cl, w, at, col)
			}
		}
	}
	for at := w.own; at >= 0; at = cl.machines[at].ownNext {
		if l := &cl.machines[at]; !l.state.Bound() && l.claim < 0 {
			x.collect(cl, w, at, col)
		}
	}
	best := c.bestBucket(w)
	if best < 0 {
		return
	}
	cl.choose(w, x.buckets[best].value)
	x.list = x.list[:0]
	for at := w.claims; at >= 0; {
		next := cl.machines[at].next
		x.list = append(x.list, at)
		cl.release(at)
		at = next
	}
	kept := x.list
	cl.claimInDomain(w, values)
	if cl.short(w) {
		for _, at := range kept {
			if cl.machines[at].claim < 0 && values[at] != int64(w.domain) {
				cl.hold(w, at)
				cl.machines[at].bits |= lKept
			}
		}
	}
	cl.freed = cl.freed || slices.ContainsFunc(kept, func(at int32) bool { return cl.machines[at].claim < 0 })
}

// claimInDomain is the walk of ENG-10.7 over what is unclaimed: Own bound, other bound, Own in flight, until covered.
func (cl *clusterState) claimInDomain(w *needState, values []int64) {
	here := func(at int32) bool { return values[at] == int64(w.domain) }
	rest := cl.rest(w)
	take := func(at int32) {
		l := &cl.machines[at]
		var buf [8]int64
		if l.claim < 0 && l.bits&(lExcluded|lGone) == 0 && here(at) && cl.usable(w, l) && match.Touches(cl.worth(w, l, buf[:0]), rest) {
			cl.claim(w, at)
		}
	}
	for at := w.own; at >= 0 && cl.machines[at].state.Bound(); at = cl.machines[at].ownNext {
		take(at)
	}
	for _, at := range cl.unclaimed() {
		if match.IsZero(rest) {
			return
		}
		take(at)
	}
	for at := w.own; at >= 0 && !match.IsZero(rest); at = cl.machines[at].ownNext {
		if !cl.machines[at].state.Bound() {
			take(at)
		}
	}
}

// bestBucket is the order of ENG-10.4: covering first, then more of what counts, then more of its own, then the smaller
// value. A bucket that gives nothing the gang asks for is none.
func (c *crediting) bestBucket(w *needState) int {
	cl, x := c.cl, c.x
	k, want := cl.dimensions(), cl.aggregate(w)
	best, bestCovers := -1, false
	var bestAll, bestOwn int64
	for i, b := range x.buckets {
		touches, covers, all := x.amounts.score(x.at(b.sum, k), want)
		if !touches {
			continue
		}
		_, _, own := x.amounts.score(x.at(b.own, k), want)
		if best >= 0 {
			switch {
			case covers != bestCovers:
				if !covers {
					continue
				}
			case all != bestAll:
				if all < bestAll {
					continue
				}
			case own != bestOwn:
				if own < bestOwn {
					continue
				}
			case c.text(b.value) > c.text(x.buckets[best].value):
				continue
			}
		}
		best, bestCovers, bestAll, bestOwn = i, covers, all, own
	}
	return best
}

// spillGang is round 3 for a gang (ENG-9.6).
func (c *crediting) spillGang(w *needState) {
	cl, x := c.cl, c.x
	col := numbered(cl, c.w.Inventory, w.key)
	if w.bits&wChosen == 0 {
		x.beginBuckets(cl, w)
		for _, at := range unclaimedInFlight(cl) {
			if cl.machines[at].claim < 0 {
				x.collect(cl, w, at, col)
			}
		}
		best := c.bestBucket(w)
		if best < 0 {
			return
		}
		cl.choose(w, x.buckets[best].value)
	}
	for _, at := range unclaimedInFlight(cl) {
		if col.values[at] == int64(w.domain) {
			cl.claimInFlight(w, at)
		}
	}
}

// CappedScore is ENG-10.2: a million for each dimension that is covered, and its part for each that is not.
func CappedScore(have, want []int64) int64 {
	sum := int64(0)
	for j, d := range want {
		if d > 0 {
			sum += cappedScore(have[j], d)
		}
	}
	return sum
}

func cappedScore(have, want int64) int64 {
	if have >= want {
		return 1_000_000
	}
	hi, lo := bits.Mul64(uint64(have), 1_000_000)
	q, _ := bits.Div64(hi, lo, uint64(want))
	return int64(q)
}

// uncappedScore is the score without its cap.
func uncappedScore(have, want []int64) cover.Sum {
	var sum cover.Sum
	for j, d := range want {
		if d <= 0 {
			continue
		}
		hi, lo := bits.Mul64(uint64(have[j]), 1_000_000)
		qhi := hi / uint64(d)
		qlo, _ := bits.Div64(hi%uint64(d), lo, uint64(d))
		var carry uint64
		sum.Lo, carry = bits.Add64(sum.Lo, qlo, 0)
		sum.Hi += qhi + carry
	}
	return sum
}

// RankedDomain is what ENG-10.6 looks at, for one value.
type RankedDomain struct {
	value       symbol.ID
	covers      bool // what is creditable covers the gang
	Satisfiable bool
	own         int64 // capped scores
	creditable  int64
	withIdle    int64
	total       int64
	over        cover.Sum // uncapped score of total
	count       int32
}

// CompareDomains is the order of ENG-10.6, better first.
func CompareDomains(text *symbol.Table, a, b *RankedDomain) int {
	if a.covers != b.covers {
		if a.covers {
			return -1
		}
		return 1
	}
	byValue := func() int { return cmp.Compare(text.Text(a.value), text.Text(b.value)) }
	switch {
	case a.covers:
		return cmp.Or(cmp.Compare(b.own, a.own), byValue())
	case a.Satisfiable != b.Satisfiable:
		if a.Satisfiable {
			return -1
		}
		return 1
	case a.Satisfiable:
		return cmp.Or(cmp.Compare(b.creditable, a.creditable), cmp.Compare(b.own, a.own), cmp.Compare(b.withIdle, a.withIdle),
			a.over.Compare(b.over), cmp.Compare(b.count, a.count), byValue())
	}
	return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(b.creditable, a.creditable), cmp.Compare(b.count, a.count), byValue())
}
